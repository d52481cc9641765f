"""What columns with public bounds have in common, be they numbers or dates: clipping, and the map to [-1, 1]."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from privet.tables.cells import LEVEL, MISSING, REFUSE
from privet.tables.faults import Cells, Fault, kind_of_cells, raise_first

if TYPE_CHECKING:
    import pandas as pd


class BoundedColumn(ABC):
    """A column whose cells are numbers, or are counted as numbers, between two public bounds.

    Each cell is clipped to the bounds and mapped linearly to [-1, 1]. The map is computed from halves, because
    high - low can overflow where high / 2 - low / 2 cannot.
    """

    name: str
    low: Any
    high: Any

    @property
    @abstractmethod
    def interval(self) -> tuple[float, float]:
        """The bounds as numbers."""

    @abstractmethod
    def read(self, column: pd.Series) -> Cells[NDArray[np.float64]]:
        """Return the cells as finite numbers, with NaN for those that are missing or at fault."""

    def values(self, column: pd.Series) -> NDArray[np.float64]:
        """Return the cells as finite numbers, with NaN for those that are missing, and raise for one at fault."""
        return self.read(column).sound()

    @property
    def half_width(self) -> float:
        """Half the distance between the bounds: the length that encodes to 1."""
        low, high = self.interval
        return high / 2 - low / 2

    def scaled(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return numbers, clipped to the bounds and mapped to [-1, 1]."""
        low, high = self.interval
        share: NDArray[np.float64] = (np.clip(values, low, high) / 2 - low / 2) / self.half_width
        return 2 * share - 1  # share is never outside [0, 1], because each rounding above preserves order

    def n_beyond(self, column: pd.Series) -> tuple[int, int]:
        """Return how many cells are below the low bound and above the high one. For the owner of the table only."""
        values, (low, high) = self.read(column).values, self.interval
        return int((values < low).sum()), int((values > high).sum())

    def n_clipped(self, column: pd.Series) -> int:
        """Return the number of cells that are beyond the bounds. Not private: for the owner of the table."""
        return sum(self.n_beyond(column))


class BoundedFeature(BoundedColumn):
    """A feature with public bounds. Its missing cells are refused, have an indicator column, or count as a constant.

    With the indicator, a missing cell is encoded as the number 0 (the middle of the bounds) with indicator 1, and any
    other cell with indicator 0. Both contribute at most 1 to the squared norm of a row.
    """

    missing: Any

    @property
    @abstractmethod
    def constant(self) -> float | None:
        """The number that stands for missing cells, if they count as a constant."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Name of the encoded column, and of the indicator of missing cells if there is one."""
        return (self.name, f"{self.name}={MISSING}") if self.missing == LEVEL else (self.name,)

    def faults(self, column: pd.Series) -> tuple[Fault, ...]:
        """Return everything that keeps the column from being encoded."""
        return self._faults(self.read(column))

    def _faults(self, cells: Cells[NDArray[np.float64]]) -> tuple[Fault, ...]:
        return (*cells.faults, *missing_faults(self.name, self.missing, cells.absent))

    def encode(self, column: pd.Series) -> NDArray[np.float64]:
        """Return the encoded cells, with one column per name in :attr:`columns`."""
        cells = self.read(column)
        raise_first(self._faults(cells))
        values, absent = cells.values, cells.absent
        if self.constant is not None:
            values = np.where(absent, self.constant, values)
        encoded = np.zeros((len(values), len(self.columns)))
        encoded[:, 0] = self.scaled(values)
        if self.missing == LEVEL:
            encoded[absent, 0], encoded[absent, 1] = 0.0, 1.0
        return encoded


def missing_faults(name: str, rule: object, absent: NDArray[np.bool_]) -> tuple[Fault, ...]:
    """Return the fault of missing cells, if the rule refuses them and there are any."""
    if rule != REFUSE:
        return ()
    key = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)  # as TOML writes keys
    remedy = (
        "Drop those rows, or declare what missing cells of this column count as, in the section [missing]: "
        f'{key} = "{LEVEL}", a level of their own, or {key} = a public constant.'
    )
    return kind_of_cells(name, "missing", absent, remedy)
