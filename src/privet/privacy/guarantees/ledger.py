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
from pathlib import Path
from typing import IO, Any

from privet.privacy.budget import Budget, BudgetLike, as_budget
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
        """Record a guarantee, or raise :class:`BudgetExceededError` and record nothing."""
        entry = Entry(label, datetime.now(UTC).isoformat(timespec="seconds"), guarantee)
        with self._locked("a+") as file:
            earlier = _read(file, self.path)
            together = [*(e.guarantee for e in earlier), guarantee]
            check_composable(together)  # otherwise the ledger would have no total
            if self.limit is not None:
                self._check(self.limit, compose(together, self.limit.delta))
            file.write(json.dumps({"label": label, "time": entry.time, "guarantee": guarantee.to_dict()}) + "\n")
            file.flush()
            os.fsync(file.fileno())
        return entry

    def entries(self) -> list[Entry]:
        """Return all entries, the oldest first, or an empty list if the file does not exist."""
        if not self.path.exists():
            return []
        with self._locked("r") as file:
            return _read(file, self.path)

    def total(self, delta: float | None = None) -> Guarantee | None:
        """Return the guarantee of all entries together, composed from their events, or None if there are no entries."""
        entries = self.entries()
        return compose([entry.guarantee for entry in entries], delta) if entries else None

    def _check(self, limit: Budget, total: Guarantee) -> None:
        if not total.epsilon <= limit.epsilon:
            raise BudgetExceededError(
                f"{self.path.name}: this release would bring the total to epsilon = {total.epsilon:.4g} at delta = "
                f"{total.delta:.3g}, above the limit of {limit.epsilon:g}; nothing was recorded. Spend a smaller "
                "epsilon, raise the limit, or state the limit at a larger delta."
            )

    @contextmanager
    def _locked(self, mode: str) -> Iterator[IO[str]]:
        with self.path.open(mode, encoding="utf-8") as file:
            _lock(file)
            yield file  # closing the file releases the lock


def _lock(file: IO[str]) -> None:
    try:
        import fcntl
    except ImportError as error:
        raise OSError("a ledger needs the file locks of a POSIX system") from error
    fcntl.flock(file, fcntl.LOCK_EX)


def _read(file: IO[str], path: Path) -> list[Entry]:
    file.seek(0)
    try:
        lines = list(file)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a ledger: it is not UTF-8 text") from error
    entries = []
    for number, line in enumerate(lines, start=1):
        try:
            if not line.endswith("\n"):
                raise ValueError("it is cut off")
            fields: dict[str, Any] = json.loads(line)
            entries.append(Entry(fields["label"], fields["time"], Guarantee.from_dict(fields["guarantee"])))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}: line {number} is not a ledger entry ({error}); nothing was recorded") from error
    return entries
