"""A record of the budget spent on a dataset, across runs and processes.

A ledger is a text file with one JSON object per line, to which lines are only added. Each line is one guarantee that
was spent. Processes on one machine take turns through a lock on the file, and a line is on disk before
:meth:`Ledger.spend` returns. Record the guarantee *before* the release: a crash may then waste budget, but never lose
track of it.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path

from privet.privacy.budget import BudgetLike, as_budget
from privet.privacy.guarantees.guarantee import Guarantee, check_composable, compose


class BudgetExceededError(ValueError):
    """The ledger's limit does not allow this release."""


@dataclass(frozen=True)
class Entry:
    """One line of a ledger."""

    label: str
    time: str
    guarantee: Guarantee


class Ledger:
    """The record of all releases on one dataset.

    Parameters
    ----------
    path : path
        The file, which is created by the first :meth:`spend`.
    limit : Budget, pair (epsilon, delta), or None
        The most that all entries together may spend. It is not stored in the file, but given each time.
    """

    def __init__(self, path: str | os.PathLike[str], limit: BudgetLike | None = None) -> None:
        self.path = Path(path)
        try:
            self.limit = None if limit is None else as_budget(limit)
        except ValueError as error:
            raise ValueError(f"invalid limit of a ledger: {error}") from error

    def spend(self, guarantee: Guarantee, label: str = "") -> Entry:
        """Record a guarantee. If this fails, for instance with :class:`BudgetExceededError`, nothing is recorded."""
        guarantee = guarantee.recomputed()  # Otherwise the ledger could not be read again.
        entry = Entry(label, datetime.now(UTC).isoformat(timespec="seconds"), guarantee)
        with self._locked("a+") as file:
            written = _contents(file)
            self._check(_parsed(written, self.path, check=False), guarantee)
            line = json.dumps({"label": label, "time": entry.time, "guarantee": guarantee.to_dict()}) + "\n"
            # A crash may have cut off no more than the line feed of the last entry.
            missing = b"\n" if written and not written.endswith(b"\n") else b""
            _append(file, missing + line.encode(), self.path)
        return entry

    def check(self, guarantee: Guarantee | None = None) -> None:
        """Raise the error that :meth:`spend` would raise now, for instance if the limit is exceeded. Record nothing.

        Without a guarantee, check only that the ledger can be read.
        """
        earlier = self._entries(check=False)
        if guarantee is not None:
            self._check(earlier, guarantee.recomputed())

    def entries(self) -> list[Entry]:
        """Return all entries, the oldest first, or an empty list if the file does not exist.

        The epsilon of every entry is recomputed from its event, which may take a second per entry.
        """
        return self._entries(check=True)

    def drop_cut_line(self) -> str | None:
        """Remove the last line if it is cut off, and return it. Return None if all lines are complete.

        :meth:`spend` returns when the line is complete and on disk. A line that is cut off therefore belongs to a
        release that was not made, if releases are recorded first and the file was damaged by nothing else than a crash.
        """
        with self._locked("r+") as file:
            written = _contents(file)
            kept, found, last = written.rpartition(b"\n")
            if not _is_cut(last):
                return None
            file.truncate(len(kept + found))
            os.fsync(file.fileno())
        return last.decode("utf-8", "replace")

    def total(self, delta: float | None = None) -> Guarantee | None:
        """Return the guarantee of all entries together, composed from their events, or None if there are no entries."""
        entries = self._entries(check=False)  # Only the events count.
        return compose([entry.guarantee for entry in entries], delta) if entries else None

    def _entries(self, check: bool) -> list[Entry]:
        if not self.path.exists():
            return []
        with self._locked("r") as file:
            return _parsed(_contents(file), self.path, check)

    def _check(self, earlier: list[Entry], guarantee: Guarantee) -> None:
        together = [*(entry.guarantee for entry in earlier), guarantee]
        check_composable(together)  # otherwise the ledger would have no total
        if not guarantee.is_private:
            raise BudgetExceededError(
                f"{self.path.name}: this release has no noise, and thus no differential privacy and no finite cost; "
                "nothing was recorded. Add noise, or leave the ledger out and do not publish the result."
            )
        if self.limit is None:
            return
        total = compose(together, self.limit.delta)
        if not total.epsilon <= self.limit.epsilon:
            raise BudgetExceededError(
                f"{self.path.name}: this release would bring the total to epsilon = {total.epsilon:.4g} at delta = "
                f"{total.delta:.3g}, above the limit of {self.limit.epsilon:g}; nothing was recorded. Spend a smaller "
                "epsilon, raise the limit, or state the limit at a larger delta."
            )

    @contextmanager
    def _locked(self, mode: str) -> Iterator[FileIO]:
        with FileIO(self.path, mode) as file:
            _lock(file)
            yield file  # closing the file releases the lock


def _lock(file: FileIO) -> None:
    try:
        import fcntl
    except ImportError as error:
        raise OSError("a ledger needs the file locks of a POSIX system") from error
    fcntl.flock(file, fcntl.LOCK_EX)


def _contents(file: FileIO) -> bytes:
    file.seek(0)
    return file.read()


def _append(file: FileIO, lines: bytes, path: Path) -> None:
    """Write lines to the end of the file and wait until they are on disk. After an error, the file is as before."""
    end = file.seek(0, os.SEEK_END)
    try:
        rest = memoryview(lines)
        while rest:
            rest = rest[file.write(rest) :]  # On an almost full disk, a part is written before an error occurs.
        os.fsync(file.fileno())
        if end == 0:
            _sync_folder(path)
    except BaseException as error:
        file.truncate(end)
        if isinstance(error, OSError):
            raise OSError(
                f"{path} could not be written: {error.strerror or error}. Nothing was recorded, and its entries are "
                "unchanged."
            ) from error
        raise


def _sync_folder(path: Path) -> None:
    """Wait until a new file's name is on disk, too."""
    folder = os.open(path.resolve().parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _parsed(written: bytes, path: Path, check: bool) -> list[Entry]:
    """Return the entries of a ledger. The last one counts even if its line feed is missing."""
    entries = []
    *lines, last = written.split(b"\n")
    for number, line in enumerate([*lines, last] if last else lines, start=1):
        try:
            fields = json.loads(line)
            entries.append(
                Entry(fields["label"], fields["time"], Guarantee.from_dict(fields["guarantee"], check=check))
            )
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
