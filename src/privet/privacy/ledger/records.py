"""The records in a ledger's file: its entries and limits, whatever the form of the file.

Records are only added. Numbers without gaps and digests show whether a line was removed or a guarantee was edited by
another program. They protect against accidents. Whoever can write to the file can still forge it.
"""

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from privet.privacy.budget import Budget
from privet.privacy.guarantees.guarantee import Guarantee
from privet.privacy.ledger import database, text_file
from privet.privacy.ledger.lines import Entry, LimitChange, Line

_COLUMNS = "number, id, time, label, lines.guarantee, text, run, epsilon, delta"
_LINES = f"SELECT {_COLUMNS} FROM lines LEFT JOIN guarantees ON lines.guarantee = digest"


class Booked(NamedTuple):
    """What a line adds to the total: the digest of its guarantee, or None for a limit."""

    number: int
    digest: str | None


@contextmanager
def reading(path: Path) -> Iterator["Records"]:
    """Yield the records of a file in either form. A file that does not exist has none."""
    with ExitStack() as stack:
        entries: list[Entry] | None = []
        connection = None
        if path.exists():
            try:
                connection = stack.enter_context(database.reading(path))
            except database.NotADatabaseError:
                entries = text_file.read(path)
        if entries is None:
            connection = stack.enter_context(database.reading(path))
        if connection is None or database.is_blank(connection):
            connection = stack.enter_context(closing(sqlite3.connect(":memory:", isolation_level=None)))
            database.fill(connection)
            for entry in entries or ():
                _add(connection, entry)
        yield Records(connection, path)


@contextmanager
def writing(path: Path) -> Iterator["Records"]:
    """Yield the records of a file for one transaction. A file in text form becomes a database first."""
    with ExitStack() as stack:
        try:
            connection = stack.enter_context(database.writing(path))
        except database.NotADatabaseError:
            text_file.migrate(path, _add)
            connection = stack.enter_context(database.writing(path))
        yield Records(connection, path)


class Records:
    """The records of an open ledger."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection, self._path = connection, path

    def add(self, line: Line) -> None:
        """Add an entry or a limit."""
        _add(self._connection, line)

    def limit(self) -> Budget | None:
        """Return the limit that was set last, or None if none was set."""
        found = self._connection.execute(
            "SELECT epsilon, delta FROM lines WHERE guarantee IS NULL ORDER BY number DESC LIMIT 1"
        ).fetchone()
        return None if found is None else self._budget(*found)

    def of_run(self, run: str) -> Entry | None:
        """Return the entry of a run, or None if it was not booked."""
        found = self._connection.execute(f"{_LINES} WHERE run = ?", (run,)).fetchone()
        return None if found is None else self._entry(found, check=False)

    def lines(self, check: bool) -> list[Line]:
        """Return all lines, the oldest first. ``check`` recomputes the epsilon of each entry from its event."""
        lines: list[Line] = []
        for row in self._connection.execute(f"{_LINES} ORDER BY number"):
            self._check_number(row[0], len(lines) + 1)
            if row[4] is None:
                lines.append(LimitChange(row[3], row[2], self._budget(*row[7:]), row[1]))
            else:
                lines.append(self._entry(row, check))
        self._check_end(len(lines))
        return lines

    def booked_after(self, number: int) -> Iterator[Booked]:
        """Yield the lines after the one with this number."""
        found = "SELECT number, guarantee FROM lines WHERE number > ? ORDER BY number"
        rows = self._connection.execute(found, (number,))
        last = number
        for row in rows:
            last += 1
            self._check_number(row[0], last)
            yield Booked(*row)
        self._check_end(last)

    def id_of(self, number: int) -> str | None:
        """Return the id of a line, or None if there is no such line."""
        found = self._connection.execute("SELECT id FROM lines WHERE number = ?", (number,)).fetchone()
        return None if found is None else str(found[0])

    def guarantee(self, digest: str, check: bool = False) -> Guarantee:
        """Return a guarantee that entries refer to by its digest."""
        found = self._connection.execute("SELECT text FROM guarantees WHERE digest = ?", (digest,)).fetchone()
        return self._guarantee(digest, None if found is None else found[0], "a guarantee", check)

    # ------------------------------------------------------------------------------------------------------- details

    def _entry(self, row: tuple, check: bool) -> Entry:  # type: ignore[type-arg]
        number, identity, time, label, digest, text, run, *_ = row
        return Entry(label, time, self._guarantee(digest, text, f"entry {number}", check), identity, run)

    def _guarantee(self, digest: str, text: str | None, what: str, check: bool) -> Guarantee:
        try:
            if text is None or _digest(text) != digest:
                raise ValueError("its guarantee was edited or is missing")
            return Guarantee.from_dict(json.loads(text), check=check)
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"{self._path}: {what} is not valid ({error}); nothing was recorded. Restore the ledger from a backup."
            ) from error

    def _budget(self, epsilon: float, delta: float) -> Budget:
        try:
            return Budget(epsilon, delta)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{self._path}: its limit is not valid ({error}). Restore it from a backup.") from error

    def _check_number(self, number: int, expected: int) -> None:
        if number != expected:
            raise ValueError(
                f"{self._path}: line {expected} is missing, so the ledger was edited; nothing was recorded. Restore it "
                "from a backup."
            )

    def _check_end(self, last: int) -> None:
        found = self._connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'lines'").fetchone()
        if (found or (0,))[0] > last:
            self._check_number(last + 2, last + 1)


def _add(connection: sqlite3.Connection, line: Line) -> None:
    digest = epsilon = delta = run = None
    if isinstance(line, Entry):
        text, run = json.dumps(line.guarantee.to_dict()), line.run
        digest = _digest(text)
        connection.execute("INSERT OR IGNORE INTO guarantees VALUES (?, ?)", (digest, text))
    else:
        epsilon, delta = line.limit.epsilon, line.limit.delta
    label = line.label.encode("utf-8", "backslashreplace").decode()  # A file name may be no valid text.
    connection.execute(
        "INSERT INTO lines (id, time, label, guarantee, run, epsilon, delta) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (line.id, line.time, label, digest, run, epsilon, delta),
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
