"""The SQLite file of a ledger: opening it, transactions, and errors in plain words.

Every operation opens the file and closes it again. No connection is therefore shared by threads or inherited by forked
processes, and whenever nobody uses the ledger, its entries are in the one file that its users know. While it is used,
SQLite keeps two more files beside it, whose names end in ``-wal`` and ``-shm``.

A transaction is on disk when it ends (write-ahead log, ``synchronous=FULL``). A process that is killed earlier leaves
the ledger as it was.
"""

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

FORMAT = 1
"""The version of the tables below, which SQLite stores as the ``user_version``."""

MARK = 0x70727674
"""The ``application_id``, which tells a ledger from other SQLite files: "prvt" in ASCII."""

PATIENCE = 120.0
"""Seconds to wait for other processes. Each of them needs the file for some milliseconds per entry."""

_PAUSE = 0.01
_TABLES = (
    """CREATE TABLE guarantees (
        digest TEXT PRIMARY KEY,  -- SHA-256 of the text
        text TEXT NOT NULL        -- Guarantee.to_dict() as JSON; equal ones are stored once
    )""",
    """CREATE TABLE lines (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        time TEXT NOT NULL,
        label TEXT NOT NULL,
        guarantee TEXT REFERENCES guarantees(digest),  -- of an entry
        run TEXT UNIQUE,                               -- of an entry that is booked once, however often it is resumed
        epsilon REAL, delta REAL,                      -- of a limit
        CHECK ((guarantee IS NULL) <> (epsilon IS NULL AND delta IS NULL))
    )""",
    "CREATE TRIGGER lines_stay BEFORE UPDATE ON lines BEGIN SELECT RAISE(ABORT, 'a ledger only grows'); END",
    "CREATE TRIGGER no_line_goes BEFORE DELETE ON lines BEGIN SELECT RAISE(ABORT, 'a ledger only grows'); END",
    f"PRAGMA application_id = {MARK}",
    f"PRAGMA user_version = {FORMAT}",
)

_locks = {"in process": threading.RLock()}
"""Held while a file is open. The operating system forgets SQLite's locks when any descriptor of the file is closed in
the same process, so two threads must not have the file open at once."""


def _renew_lock() -> None:
    """Replace the lock in a forked process. Another thread of the parent may have held it during the fork."""
    _locks["in process"] = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


class NotADatabaseError(ValueError):
    """The file is not an SQLite file. It may be a ledger that an earlier version wrote as text."""


@contextmanager
def exclusive() -> Iterator[None]:
    """Keep other threads of this process from opening any ledger."""
    with _locks["in process"]:
        yield


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Open an existing ledger for reading. All statements see the same state.

    Where the folder cannot be written, SQLite cannot create its files beside the ledger. The file is then read as it
    is.
    """
    with exclusive(), _in_plain_words(path):
        try:
            connection = _connected(path, "mode=rw")
        except sqlite3.OperationalError as error:
            if _code(error) not in {"SQLITE_CANTOPEN", "SQLITE_READONLY"} or _has_log(path):
                raise
            connection = _connected(path, "mode=ro&immutable=1")
        with closing(connection):
            connection.execute("BEGIN")
            yield connection


@contextmanager
def writing(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a ledger, or create it, for one transaction, while no other process can write.

    The transaction is on disk when the context ends. If an error is raised, nothing is recorded.
    """
    with exclusive(), _in_plain_words(path), closing(_created(path)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        try:
            if is_blank(connection):
                fill(connection)
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def fill(connection: sqlite3.Connection) -> None:
    """Create the tables of an empty ledger."""
    for statement in _TABLES:
        connection.execute(statement)


def use_log(connection: sqlite3.Connection, path: Path) -> None:
    """Make SQLite write changes to a log first, which is set once per file. Raise if that is not possible."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            break
        except sqlite3.OperationalError as error:  # SQLite does not wait here while another process does the same.
            if _code(error) not in {"SQLITE_BUSY", "SQLITE_LOCKED"} or time.monotonic() > end:
                raise
            time.sleep(_PAUSE)
    if mode != "wal":
        raise OSError(
            f"{path} cannot be written safely here: the file system does not support SQLite's write-ahead log (WAL). "
            "Nothing was recorded. Put the ledger on a local disk, not on a network drive."
        )


def _created(path: Path) -> sqlite3.Connection:
    """Return a connection for writing. If the file does not exist, create one that only its owner can read."""
    has_log = _has_log(path)  # Looked up first, because another process may create the ledger, and then the log, now.
    is_new = not path.exists()
    if has_log and (is_new or not path.stat().st_size):
        raise ValueError(
            f"{path.name}-wal is in the folder, but {path.name} is {'missing' if is_new else 'empty'}. The ledger was "
            "moved or deleted without its other files, which may hold entries. Put it back, or move them away as well."
        )
    connection = _connected(path, "mode=rwc")
    try:
        if is_new:
            path.chmod(0o600)
        use_log(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _connected(path: Path, options: str) -> sqlite3.Connection:
    """Return a connection to a file that is blank or a ledger of this version."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder. Give the name of a ledger file.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"The folder {path.parent} does not exist. Nothing was recorded.")
    if path.exists() and path.stat().st_size == 1:  # SQLite would take it for an empty file.
        raise _not_a_database(path)
    uri = f"file:{quote(os.path.abspath(path))}?{options}"
    connection = sqlite3.connect(uri, uri=True, timeout=PATIENCE, isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA trusted_schema = OFF")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (mark,) = connection.execute("PRAGMA application_id").fetchone()
        if not is_blank(connection):
            _check_form(path, mark, version)
    except BaseException:
        connection.close()
        raise
    return connection


def is_blank(connection: sqlite3.Connection) -> bool:
    """Return whether the file has no tables: it is new, or a process was killed while it created the ledger."""
    return bool(connection.execute("SELECT count(*) = 0 FROM sqlite_master").fetchone()[0])


def _check_form(path: Path, mark: int, version: int) -> None:
    if mark != MARK:
        raise ValueError(f"{path} is an SQLite file of another program, not a ledger. Give the file of a ledger.")
    if version != FORMAT:
        raise ValueError(
            f"{path} was written by another version of privet: its format is {version}, and this version reads "
            f"{FORMAT}. Use the version that wrote it, or a newer one."
        )


def _has_log(path: Path) -> bool:
    log = path.with_name(f"{path.name}-wal")
    return log.exists() and log.stat().st_size > 0


def _code(error: sqlite3.Error) -> str:
    """Return the name of SQLite's primary error code, such as SQLITE_IOERR for SQLITE_IOERR_WRITE."""
    name = getattr(error, "sqlite_errorname", None) or ""
    return "_".join(name.split("_")[:2])


@contextmanager
def _in_plain_words(path: Path) -> Iterator[None]:
    """Turn errors of SQLite into errors that name the file, the cause and the remedy."""
    try:
        yield
    except sqlite3.Error as error:
        raise _explained(path, error) from error


def _not_a_database(path: Path) -> NotADatabaseError:
    return NotADatabaseError(f"{path} is not a ledger: it is neither an SQLite file nor a ledger in text form.")


def _explained(path: Path, error: sqlite3.Error) -> Exception:
    unchanged = "Nothing was recorded, and the entries are unchanged."
    code = _code(error)
    if code == "SQLITE_NOTADB":
        return _not_a_database(path)
    if code in {"SQLITE_BUSY", "SQLITE_LOCKED"}:
        return TimeoutError(
            f"{path} was in use by other processes for {PATIENCE:g} s. {unchanged} Find out which process holds it, or "
            "try again."
        )
    if code == "SQLITE_FULL":
        return OSError(f"{path} could not be written: the disk is full. {unchanged} Free some space and try again.")
    if code in {"SQLITE_READONLY", "SQLITE_PERM", "SQLITE_CANTOPEN"}:
        return PermissionError(
            f"{path} could not be opened or written ({error}). {unchanged} The ledger and its folder must be writable, "
            "and the disk must have space, because SQLite creates files beside it."
        )
    if code == "SQLITE_IOERR":
        return OSError(
            f"{path} could not be read or written ({error}): the disk is full or failing, or a limit on the size of "
            f"files was reached. {unchanged}"
        )
    return ValueError(
        f"{path} is damaged, or it was changed by another program ({error}). Nothing was recorded. Restore it from a "
        "backup."
    )
