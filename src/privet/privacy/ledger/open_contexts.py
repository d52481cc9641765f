"""The contexts of :func:`privet.spending` that a process announces to the processes that descend from it.

Workers may have been started before a context is entered, and live on after it is left, so they cannot inherit it. Each
open context is therefore a small file in a private folder of the user, named after the process. A worker looks for the
files of the processes that it descends from. The file is locked while the context is open: if the lock is free, its
process was killed, and the file counts no more.
"""

import multiprocessing
import os
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MOST_ANCESTORS = 100


@contextmanager
def announced(ledger: Path) -> Iterator[None]:
    """Tell the descendants of this process that a context is open."""
    folder = _folder()
    folder.mkdir(mode=0o700, exist_ok=True)
    _check_private(folder)
    name = f"{os.getpid()}-{uuid.uuid4().hex}"
    hidden, file = folder / f".{name}", folder / name
    handle = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        _is_locked(handle, is_holder=True)
        os.write(handle, os.fsencode(os.path.abspath(ledger)))
        hidden.rename(file)
        yield
    finally:
        if name.startswith(f"{os.getpid()}-"):  # A forked process that gets here leaves the context to its parent.
            hidden.unlink(missing_ok=True)
            file.unlink(missing_ok=True)
        os.close(handle)


def inherited() -> list[Path]:
    """Return the ledgers of the contexts that are open in the processes that this one descends from."""
    folder = _folder()
    if not folder.is_dir():
        return []
    _check_private(folder)
    ancestors = {str(process) for process in _ancestors()}
    found = []
    for file in sorted(folder.iterdir()):
        if file.name.partition("-")[0] in ancestors:
            found += _read(file)
    return found


def _read(file: Path) -> list[Path]:
    """Return the ledger that a file names, or nothing if the context was left, or its process was killed."""
    try:
        handle = os.open(file, os.O_RDWR)
    except FileNotFoundError:
        return []
    try:
        if _is_locked(handle):  # Its process does not hold it.
            file.unlink(missing_ok=True)
            return []
        return [Path(os.fsdecode(os.pread(handle, 1 << 16, 0)))]
    finally:
        os.close(handle)


def _ancestors() -> Iterator[int]:
    """Yield the processes that this one descends from, as far as the system tells."""
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid is not None:
        yield parent.pid  # With a fork server, it is not the process that forked.
    process = os.getppid()
    for _ in range(_MOST_ANCESTORS):
        if process <= 1:
            return
        yield process
        try:
            # The name of the program, in brackets, may contain anything. The parent is the second field after it.
            process = int(Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()[1])
        except OSError:  # The system has no such files.
            return


def _folder() -> Path:
    return Path(tempfile.gettempdir()) / f"privet-spending-{getattr(os, 'getuid', lambda: 0)()}"


def _check_private(folder: Path) -> None:
    """Raise if others could write to the folder: they could redirect what is booked."""
    found = folder.lstat()
    if hasattr(os, "getuid") and (found.st_uid != os.getuid() or found.st_mode & 0o077 or folder.is_symlink()):
        raise PermissionError(
            f"{folder} belongs to another user, or others can write to it, so privet.spending() cannot rely on it. "
            "Remove it, or set TMPDIR to a folder of your own."
        )


def _is_locked(handle: int, is_holder: bool = False) -> bool:
    """Lock a file unless its holder has locked it, and return whether that worked. Several readers can lock it."""
    try:
        import fcntl
    except ImportError:  # The system has no such locks. A file then counts until it is removed.
        return False
    try:
        fcntl.flock(handle, (fcntl.LOCK_EX if is_holder else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
