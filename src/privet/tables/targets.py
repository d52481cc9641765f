"""Targets: classes with public levels, or a number with public bounds. Each encodes cells and decodes predictions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from privet.tables.bounds import check_bounds, from_unit, half_width, to_unit
from privet.tables.cells import factorize, level_codes, numbers, refuse_missing
from privet.tables.columns import check_levels, check_name
from privet.tables.errors import TableError, show

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Target:
    """The class to predict: its declared public levels, or None to read them from the data.

    `levels_from_data` is True unless the levels were declared; a guarantee must then list them as assumed public.
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
        """Return this target if its levels are declared, else one with the levels read from the column."""
        if self.levels is not None:
            return self
        codes, texts = factorize(column)
        refuse_missing(self.name, codes, texts, known=())
        if len(texts) < 2:
            raise TableError(f"the target {self.name!r} has only one class, {show(texts[0])}: two or more are needed")
        return replace(self, levels=tuple(sorted(texts)), levels_from_data=True)

    def encode(self, column: pd.Series) -> NDArray[np.int64]:
        """Return each cell's position among the levels."""
        levels = self.completed(column).levels
        assert levels is not None
        return level_codes(column, self.name, levels)

    def decode(self, predictions: NDArray[Any]) -> NDArray[Any]:
        """Return the levels at the predicted positions."""
        return np.asarray(np.asarray(self.levels, dtype=object)[predictions])

    def truth(self, column: pd.Series) -> NDArray[Any]:
        """Return the cells in the words of `decode`, to compare predictions with."""
        complete = self.completed(column)
        return complete.decode(complete.encode(column))


@dataclass(frozen=True)
class NumericTarget:
    """The number to predict, clipped to the public bounds [low, high] and mapped linearly to [-1, 1]."""

    kind: ClassVar[str] = "number"
    levels: ClassVar[None] = None  # a number has none

    name: str
    low: float
    high: float

    def __post_init__(self) -> None:
        check_name(self.name)
        for key, bound in zip(("low", "high"), check_bounds(self.name, self.low, self.high), strict=True):
            object.__setattr__(self, key, bound)

    @property
    def half_width(self) -> float:
        """Half the distance between the bounds: the length that encodes to 1."""
        return half_width(self.low, self.high)

    def encode_distance(self, distance: float) -> float:
        """Convert a distance between two values of the target to encoded units."""
        return distance / self.half_width

    def completed(self, column: pd.Series) -> NumericTarget:
        """Return this target: bounds are declared, never read from the data."""
        return self

    def encode(self, column: pd.Series) -> NDArray[np.float64]:
        """Return each cell, clipped and mapped to [-1, 1] by itself."""
        return to_unit(numbers(column, self.name), self.low, self.high)

    def decode(self, predictions: NDArray[Any]) -> NDArray[Any]:
        """Return predictions in [-1, 1] in the target's own units."""
        return from_unit(predictions, self.low, self.high)

    def truth(self, column: pd.Series) -> NDArray[Any]:
        """Return the numbers of the cells as they are, to compare predictions with."""
        return numbers(column, self.name)
