"""Ledgers that earlier versions wrote as text: one JSON object per line. They are read here, and copied into databases.

Earlier versions locked the file while they wrote to it. The same lock is held while the file is replaced by a database.
"""

import hashlib
import json
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from io import FileIO
from pathlib import Path
from shutil import copyfileobj

from privet.privacy.guarantees.guarantee import Guarantee
from privet.privacy.ledger import database
from privet.privacy.ledger.lines import Entry

_DATABASE = b"SQLite format 3\0"


def read(path: Path) -> list[Entry] | None:
    """Return the entries of a text file, the oldest first. None if another process has replaced it by a database."""
    with database.exclusive(), _locked(path, "r") as file:
        written = _contents(file)
        return None if written.startswith(_DATABASE) else _parsed(written, path)


def migrate(path: Path, write: Callable[[sqlite3.Connection, Entry], None]) -> Path | None:
    """Replace a text file by a database with the same entries, and return the name under which the text file is kept.

    A process that is killed leaves either file, complete. None if another process has replaced the file already.
    """
    with database.exclusive(), _locked(path, "r") as file:
        written = _contents(file)
        if written.startswith(_DATABASE):
            return None
        log = path.with_name(f"{path.name}-wal")
        if log.exists():
            raise ValueError(
                f"{log} belongs to a database, but {path.name} is a text file. Move {log.name} away if it is not "
                "needed."
            )
        entries = _parsed(written, path)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        new = Path(name)
        try:
            with closing(sqlite3.connect(new, isolation_level=None)) as connection:
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("BEGIN IMMEDIATE")
                database.fill(connection)
                for entry in entries:
                    write(connection, entry)
                connection.execute("COMMIT")
                database.use_log(connection, new)
            new.chmod(path.stat().st_mode & 0o777)
            _sync(new)
            kept = _keep(path)
            new.replace(path)
            _sync(path.parent)
        except BaseException as error:
            for suffix in ("", "-wal", "-shm", "-journal"):
                with suppress(OSError):
                    Path(name + suffix).unlink(missing_ok=True)
            if isinstance(error, OSError | sqlite3.Error):
                raise OSError(
                    f"{path} could not be copied into a database ({error}). It is unchanged, and nothing was recorded."
                ) from error
            raise
    return kept


def drop_cut_line(path: Path) -> str | None:
    """Remove the last line if it is cut off, and return it. Return None if all lines are complete."""
    with database.exclusive(), _locked(path, "r+") as file:
        written = _contents(file)
        kept, found, last = written.rpartition(b"\n")
        if written.startswith(_DATABASE) or not _is_cut(last):
            return None
        file.truncate(len(kept + found))
        os.fsync(file.fileno())
    return last.decode("utf-8", "replace")


@contextmanager
def _locked(path: Path, mode: str) -> Iterator[FileIO]:
    """Open the file and lock it. If another process has replaced it in the meantime, open the new one."""
    while True:
        with FileIO(path, mode) as file:
            _lock(file)
            if os.fstat(file.fileno()).st_ino == path.stat().st_ino:
                yield file  # Closing the file releases the lock.
                return


def _lock(file: FileIO) -> None:
    try:
        import fcntl
    except ImportError as error:
        raise OSError("A ledger in text form needs the file locks of a POSIX system.") from error
    fcntl.flock(file, fcntl.LOCK_EX)


def _contents(file: FileIO) -> bytes:
    file.seek(0)
    return file.read()


def _keep(path: Path) -> Path:
    """Give the text file a second name, under which it is kept, and return it."""
    for number in range(1, 1000):
        kept = path.with_name(f"{path.name}.text{'' if number == 1 else number}")
        try:
            kept.hardlink_to(path)
        except FileExistsError:
            if not kept.samefile(path):  # It is the same after a crash at this point.
                continue
        except OSError:  # The file system has no links.
            with path.open("rb") as old, kept.open("xb") as copy:
                copyfileobj(old, copy)
            _sync(kept)
        _sync(path.parent)
        return kept
    raise FileExistsError(f"{path}.text and 998 further copies exist already")


def _sync(path: Path) -> None:
    """Wait until a file is on disk, or the names in a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _parsed(written: bytes, path: Path) -> list[Entry]:
    """Return the entries of a text file. The last one counts even if its line feed is missing."""
    entries = []
    *lines, last = written.split(b"\n")
    for number, line in enumerate([*lines, last] if last else lines, start=1):
        try:
            fields = json.loads(line)
            guarantee = Guarantee.from_dict(fields["guarantee"], check=False)
            identity = hashlib.sha256(b"%d %s" % (number, line)).hexdigest()[:32]
            entries.append(Entry(str(fields["label"]), str(fields["time"]), guarantee, identity))
        except (KeyError, TypeError, ValueError) as error:
            where = f"{path}: line {number} is not a ledger entry"
            if number > len(lines) and _is_cut(line):
                raise ValueError(
                    f"{where}: it is cut off after {line[:80].decode('utf-8', 'replace')!r}, so what it spent is "
                    "unknown; nothing was recorded. If a crash cut it off, its release was not made. Make sure of "
                    f"that, then remove the line with: privet ledger {path} --drop-cut-line"
                ) from error
            raise ValueError(f"{where} ({error}); nothing was recorded") from error
    return entries


def _is_cut(last: bytes) -> bool:
    """Return whether what follows the last line feed is a part of a line. A complete one ends its JSON object."""
    try:
        json.loads(last)
    except ValueError:
        return bool(last)
    return False
