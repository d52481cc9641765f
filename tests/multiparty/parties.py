"""Parties as processes that start at once: forked from one that has loaded everything, for imports take seconds.

Each is a process of its own, with its own memory, its own folder and real sockets.
"""

import contextlib
import multiprocessing
import os
import socket
import sys
import tempfile
import time
from multiprocessing import forkserver
from pathlib import Path

import pytest

HERE = Path(__file__).parent
HOST = "127.0.0.1"
PATIENCE = 240.0  # seconds that a slow machine gets; what must be quick is measured between two events

_CONTEXT = multiprocessing.get_context("forkserver")


class Party:
    """One process, what it says, and which files it opens to write."""

    def __init__(self, folder, function, arguments):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._process = _CONTEXT.Process(target=_run, args=(str(folder), function, arguments))
        with _loaded_once():
            self._process.start()

    @property
    def out(self):
        return self._said("out")

    @property
    def err(self):
        return self._said("err")

    @property
    def written(self):
        """Paths of the files that were opened to write."""
        return [Path(line) for line in self._said("written").splitlines()]

    def wait(self):
        """Return the exit code."""
        self._process.join(PATIENCE)
        if self._process.exitcode is None:
            pytest.fail(f"the process did not end: {self.out}{self.err}")
        return self._process.exitcode

    def kill(self):
        self._process.kill()
        self._process.join()

    def until(self, happened):
        """Wait until something has happened."""
        for _ in range(int(PATIENCE / 0.02)):
            if happened():
                return
            if self._process.exitcode is not None:
                break
            time.sleep(0.02)
        pytest.fail(f"it did not happen: {self.out}{self.err}")

    def _said(self, name):
        path = _told(self.folder) / name
        return path.read_text() if path.exists() else ""


class Machine:
    """Three ports of this machine that nobody else is given meanwhile, and the processes that were started on it."""

    def __init__(self):
        self._stack = contextlib.ExitStack()
        self.ports = [self._port() for _ in range(3)]

    def start(self, folder, function, *arguments):
        party = Party(folder, function, arguments)
        self._stack.callback(party.kill)
        return party

    def _port(self):
        kept = self._stack.enter_context(socket.socket())
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a party may bind it too, and listen
        kept.bind((HOST, 0))
        return kept.getsockname()[1]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._stack.close()


@contextlib.contextmanager
def _loaded_once():
    """Make sure that the process to fork from is there: it is started with these variables, others are not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(HERE), prepend=os.pathsep)
        patch.setenv("OMP_NUM_THREADS", "1")
        _CONTEXT.set_forkserver_preload(["preloaded"])
        forkserver.ensure_running()
        yield


def _told(folder):
    return Path(folder).parent / f".{Path(folder).name}"


def _run(folder, function, arguments):
    """Be a party: in its own folder, with a folder for temporary files, speaking into files."""
    told = _told(folder)
    (told / "tmp").mkdir(parents=True)
    os.environ["TMPDIR"] = tempfile.tempdir = str(told / "tmp")
    os.environ["COLUMNS"] = "200"
    for name, number in (("out", 1), ("err", 2)):
        os.dup2(os.open(told / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    sys.stdout.reconfigure(line_buffering=True)
    os.chdir(folder)
    _watch(os.open(told / "written", os.O_WRONLY | os.O_CREAT | os.O_APPEND))
    function(*arguments)


def _watch(handle):
    """Write down the name of every file that is opened to write."""

    def hook(event, arguments):
        if event == "open":
            path, _, flags = arguments
            if isinstance(path, str) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                os.write(handle, f"{os.path.abspath(path)}\n".encode())

    sys.addaudithook(hook)


def command(*arguments):
    """Be the command line."""
    from privet.cli import main

    sys.argv = ["privet", *arguments]
    main()
