"""The targets of a table: one column to predict, or several that are all classes or all numbers.

Targets encode cells, and decode predictions. A target has no missing cells.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from privet.tables.categories import Categorical, check_levels, distinct_levels, level_codes
from privet.tables.cells import check_name
from privet.tables.dates import Date
from privet.tables.errors import TableError, show
from privet.tables.faults import Cells, Fault, kind_of_cells, raise_first
from privet.tables.hints import level_hint
from privet.tables.numbers import BoundedNumber, Numeric

if TYPE_CHECKING:
    import pandas as pd


MOST_UNDECLARED_LEVELS = 50
"""A target with more values and without declared levels is probably a number or a name."""


@dataclass(frozen=True)
class Target:
    """The class to predict, with its declared public levels, or with None to read the levels from the data.

    `levels_from_data` is True unless the levels were declared. A guarantee must then list them as assumed public.
    """

    kind: ClassVar[str] = "classes"

    name: str
    levels: tuple[str, ...] | None = None
    levels_from_data: bool = False

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.levels is None:
            object.__setattr__(self, "levels_from_data", True)
        else:
            object.__setattr__(self, "levels", check_levels(self.name, self.levels))

    def completed(self, column: pd.Series) -> Target:
        """Return this target if its levels are declared, else a target with the levels read from the column."""
        if self.levels is not None:
            return self
        codes, texts = distinct_levels(column)
        raise_first(_missing_faults(self.name, codes < 0))
        if len(texts) < 2:
            raise TableError(f"The target {self.name!r} has only one class, {show(texts[0])}. It needs at least two.")
        if len(texts) > MOST_UNDECLARED_LEVELS:
            raise TableError(
                f"The target {self.name!r} has {len(texts)} different values. Declare target_levels if it is a "
                "category, or target_bounds if it is a number."
            )
        return replace(self, levels=tuple(sorted(texts)), levels_from_data=True)

    def faults(self, column: pd.Series) -> tuple[Fault, ...]:
        """Return everything that keeps the column from being encoded."""
        if self.levels is None:
            codes, _ = distinct_levels(column)
            return _missing_faults(self.name, codes < 0)
        return self._faults(level_codes(column, self.name, self.levels))

    def _faults(self, cells: Cells[Any]) -> tuple[Fault, ...]:
        return (*cells.faults, *_missing_faults(self.name, cells.absent))

    def hint(self, cell: object) -> str:
        """Return what may have been meant by a cell that is not a declared level."""
        return level_hint(cell, self.levels or ())

    def encode(self, column: pd.Series) -> NDArray[np.int64]:
        """Return the position of each cell among the levels."""
        levels = self.completed(column).levels
        assert levels is not None
        cells = level_codes(column, self.name, levels)
        raise_first(self._faults(cells))
        return cells.values

    def decode(self, predictions: NDArray[Any]) -> NDArray[Any]:
        """Return the levels at the predicted positions."""
        return np.asarray(np.asarray(self.levels, dtype=object)[predictions])

    def truth(self, column: pd.Series) -> NDArray[Any]:
        """Return the cells as `decode` spells them, to compare predictions with."""
        complete = self.completed(column)
        return complete.decode(complete.encode(column))


@dataclass(frozen=True)
class NumericTarget(BoundedNumber):
    """The number to predict, clipped to the public bounds [low, high] and mapped linearly to [-1, 1]."""

    kind: ClassVar[str] = "number"
    levels: ClassVar[None] = None  # so that all targets have the attribute

    def encode_distance(self, distance: float) -> float:
        """Convert a distance between two values of the target to encoded units."""
        return distance / self.half_width

    def completed(self, column: pd.Series) -> NumericTarget:
        """Return this target: bounds are declared, never read from the data."""
        return self

    def encode(self, column: pd.Series) -> NDArray[np.float64]:
        """Return each cell, clipped to the bounds and mapped to [-1, 1]."""
        return self.scaled(self.truth(column))

    def decode(self, predictions: NDArray[Any]) -> NDArray[Any]:
        """Map predictions from [-1, 1] back to [low, high]."""
        middle = self.low / 2 + self.high / 2
        with np.errstate(over="ignore"):  # near the largest float, the sum may overflow before it is clipped
            restored: NDArray[np.float64] = np.clip(middle + self.half_width * predictions, self.low, self.high)
        return restored

    def truth(self, column: pd.Series) -> NDArray[np.float64]:
        """Return the numbers in the cells, without clipping, to compare predictions with."""
        cells = self.read(column)
        raise_first(self._faults(cells))
        return cells.values

    def faults(self, column: pd.Series) -> tuple[Fault, ...]:
        """Return everything that keeps the column from being encoded."""
        return self._faults(self.read(column))

    def _faults(self, cells: Cells[Any]) -> tuple[Fault, ...]:
        return (*cells.faults, *_missing_faults(self.name, cells.absent))


def _missing_faults(name: str, absent: NDArray[np.bool_]) -> tuple[Fault, ...]:
    remedy = "Drop those rows: each row needs a target."
    return kind_of_cells(name, "missing", absent, remedy, of="The target")


AnyTarget: TypeAlias = Target | NumericTarget

KINDS: dict[str, type[AnyTarget]] = {kind.kind: kind for kind in (Target, NumericTarget)}


def check_targets(targets: tuple[AnyTarget, ...], features: Iterable[str]) -> None:
    """Raise TableError unless the targets are different columns of one kind, and none is a feature."""
    names = [target.name for target in targets]
    for name in names:
        if names.count(name) > 1:
            raise TableError(f"The target {name!r} is declared more than once. Keep one declaration.")
        if name in set(features):
            raise TableError(
                f"The target {name!r} is also declared as a feature. Remove one of the two declarations. "
                "Declare the levels or bounds of a target as target_levels or target_bounds."
            )
    for target in targets[1:]:
        if type(target) is not type(targets[0]):
            number, other = sorted((targets[0], target), key=lambda each: isinstance(each, Target))
            raise TableError(
                f"The target {number.name!r} is a number and {other.name!r} a category. One model predicts either "
                "numbers or categories: train two models."
            )


def described(target: AnyTarget, column: Numeric | Categorical | Date) -> AnyTarget:
    """Return the target with the bounds or levels that are declared for its column."""
    if isinstance(column, Date):
        raise TableError(
            f"The target {target.name!r} is declared as a date, but only numbers and categories can be predicted. "
            "Replace the dates in the table by numbers of days, and declare their bounds."
        )
    if isinstance(column, Numeric):
        return NumericTarget(target.name, column.low, column.high)
    return Target(target.name, column.levels)


def to_fields(target: AnyTarget) -> dict[str, Any]:
    """Return a target as plain values that JSON can hold."""
    return {"kind": target.kind, **asdict(target)}
