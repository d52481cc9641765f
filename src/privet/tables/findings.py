"""What a check of a table finds, all at once: problems that keep the table from being used, notes, and clipped cells.

Findings describe rows of the table. They are meant for the owner of the table and are not covered by a guarantee. None
of them suggests a bound: they count the cells beyond a bound, and never say how far beyond these are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.tables.errors import SchemaError, TableError, show
from privet.tables.faults import Fault

N_ROWS, N_EXAMPLES = 5, 8
"""How many rows and example values a finding names."""


class Severity(Enum):
    """What a finding means for the table."""

    PROBLEM = "problem"
    """The table cannot be used until it or its schema is corrected."""
    NOTE = "note"
    """The table can be used. The finding says what happens to it, or what may have been meant otherwise."""
    CLIPPED = "clipped"
    """The table can be used. Cells beyond a bound count as the bound."""


@dataclass(frozen=True)
class Finding:
    """One line of the report on a table.

    Parameters
    ----------
    column : str or None
        The column, or None if the finding concerns the whole table.
    what : str
        What was found, as in ``"is not a number"``.
    remedy : str
        What can be done about it, in whole sentences.
    n_cells : int or None
        How many cells it concerns; None if it does not concern single cells.
    rows : tuple of int
        The first few rows, counted from 1 without the header.
    examples : tuple of str
        The first few different values, or names.
    n_examples : int
        How many different values or names there are.
    severity : Severity
    """

    column: str | None
    what: str
    remedy: str
    n_cells: int | None = None
    rows: tuple[int, ...] = ()
    examples: tuple[str, ...] = ()
    n_examples: int = 0
    severity: Severity = Severity.PROBLEM

    @property
    def is_problem(self) -> bool:
        """Whether the table cannot be used because of this."""
        return self.severity is Severity.PROBLEM

    @classmethod
    def of_rows(cls, column: str | None, what: str, remedy: str, rows: NDArray[Any], **details: Any) -> Finding:
        """Return a finding about cells in these rows, counted from 0 and in ascending order."""
        first = tuple(int(row) + 1 for row in rows[:N_ROWS])
        return cls(column, what, remedy, n_cells=len(rows), rows=first, **details)

    @classmethod
    def of_names(cls, what: str, remedy: str, names: Sequence[str], *, severity: Severity = Severity.NOTE) -> Finding:
        """Return a finding on several columns, by default a note."""
        shown = tuple(map(show, names[:N_EXAMPLES]))
        return cls(None, what, remedy, examples=shown, n_examples=len(names), severity=severity)

    @classmethod
    def of_error(cls, column: str | None, error: TableError) -> Finding:
        """Return the problem that an error describes. The cause is its first sentence, and the remedy is the rest."""
        cause, _, remedy = re.sub(r"(?<=[^ .]{2}[.?]) (?=[A-Z])", "\n", str(error), count=1).partition("\n")
        return cls(column, cause.removeprefix(f"Column {column!r}: ").rstrip("."), remedy or "Correct the schema.")


def schema_findings(error: SchemaError) -> list[Finding]:
    """Return the problems of the description of a table."""
    return [Finding.of_error(column, each) for column, each in error.errors.found]


def grouped(faults: Iterable[Fault], hint: Callable[[object], str]) -> Iterator[Finding]:
    """Yield one finding for all values that are wrong in the same way. ``hint`` says what a value may have meant."""
    groups: dict[tuple[str, str], list[Fault]] = {}
    for fault in faults:
        groups.setdefault((fault.column, fault.claim), []).append(fault)
    for (column, claim), group in groups.items():
        rows = np.sort(np.concatenate([fault.rows for fault in group]))
        if group[0].is_kind:
            yield Finding.of_rows(column, f"{claim} value{'' if len(rows) == 1 else 's'}", group[0].remedy, rows)
            continue
        shown = [fault.value for fault in group[:N_EXAMPLES]]
        remedies = dict.fromkeys([*filter(None, map(hint, shown)), *(fault.remedy for fault in group[:N_EXAMPLES])])
        details = {"examples": tuple(map(show, shown)), "n_examples": len(group)}
        yield Finding.of_rows(column, claim.removeprefix("is "), " ".join(remedies), rows, **details)
