"""Parties as processes that start quickly, because they are forked from a process that has imported everything.

Each party still is a separate process with its own memory, its own folder and real sockets.
"""

import contextlib
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import time
from multiprocessing import forkserver
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

HERE = Path(__file__).parent
HOST = "127.0.0.1"
PATIENCE = 240.0  # seconds that a slow machine may need; what must be quick is measured between two events

_CONTEXT = multiprocessing.get_context("forkserver")


class Party:
    """One process, its output, and the files that it opened for writing."""

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
        """Paths of the files that were opened for writing."""
        return [Path(line) for line in self._said("written").splitlines()]

    def wait(self):
        """Return the exit code."""
        self._process.join(PATIENCE)
        if self._process.exitcode is None:
            pytest.fail(f"the process did not end: {self.out}{self.err}")
        return self._process.exitcode

    def suspend(self):
        """Stop the process without ending it, as if its machine hung."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def kill(self):
        self._process.kill()
        self._process.join()

    def until(self, happened):
        """Wait until ``happened()`` is true."""
        for _ in range(int(PATIENCE / 0.02)):
            if happened():
                return
            if self._process.exitcode is not None:
                break
            time.sleep(0.02)
        pytest.fail(f"it did not happen: {self.out}{self.err}")

    def _said(self, name):
        path = _output_folder(self.folder) / name
        return path.read_text() if path.exists() else ""


class Machine:
    """Reserved ports of this machine, and the processes that were started on it."""

    def __init__(self, ports=3):
        self._stack = contextlib.ExitStack()
        self.ports = [self._port() for _ in range(ports)]

    def start(self, folder, function, *arguments):
        party = Party(folder, function, arguments)
        self._stack.callback(party.kill)
        return party

    def ports_of_servers(self, number):
        """Return ports whose successors are free as well: a server listens on two of them."""
        found = []
        while len(found) < number:
            port = self._port()
            with contextlib.suppress(OSError):
                self._port(port + 1)
                found.append(port)
        return found

    def _port(self, port=0):
        kept = self._stack.enter_context(socket.socket())
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # A party may bind the same port and listen.
        kept.bind((HOST, port))
        return kept.getsockname()[1]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._stack.close()


@contextlib.contextmanager
def _loaded_once():
    """Start the process from which parties are forked, with these environment variables."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(HERE), prepend=os.pathsep)
        patch.setenv("OMP_NUM_THREADS", "1")
        _CONTEXT.set_forkserver_preload(["preloaded"])
        forkserver.ensure_running()
        yield


def _output_folder(folder):
    return Path(folder).parent / f".{Path(folder).name}"


def _run(folder, function, arguments):
    """Run a function as a party, in its own folder, with its own temporary folder and its output in files."""
    output = _output_folder(folder)
    (output / "tmp").mkdir(parents=True)
    os.environ["TMPDIR"] = tempfile.tempdir = str(output / "tmp")
    os.environ["COLUMNS"] = "200"
    for name, number in (("out", 1), ("err", 2)):
        os.dup2(os.open(output / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    sys.stdout.reconfigure(line_buffering=True)
    os.chdir(folder)
    _watch(os.open(output / "written", os.O_WRONLY | os.O_CREAT | os.O_APPEND))
    function(*arguments)


def _watch(handle):
    """Record the name of every file that is opened for writing, also by SQLite."""

    def hook(event, arguments):
        if event == "open":
            path, _, flags = arguments
            if isinstance(path, str | os.PathLike) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                os.write(handle, f"{os.path.abspath(path)}\n".encode())
        elif event == "sqlite3.connect" and arguments[0] != ":memory:":
            os.write(handle, f"{unquote(urlsplit(arguments[0]).path)}\n".encode())

    sys.addaudithook(hook)


def command(*arguments):
    """Run the command line."""
    from privet.cli import main

    sys.argv = ["privet", *arguments]
    main()
