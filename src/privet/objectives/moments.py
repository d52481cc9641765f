"""Sums of the products of all columns of bounded rows, with each other and with targets."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.objectives.rows import BoundedRows
from privet.objectives.summation import PairwiseSum, block_length

Floats = NDArray[np.float64]

_BLOCK_ENTRIES, _LEAST_ROWS = 2**20, 64  # of the part of the rows that is multiplied out at once


def second_moments(rows: BoundedRows, targets: Floats) -> tuple[Floats, Floats]:
    """Return the sums of u u^T and of u v^T, where u is a row divided by its bound, and v its targets.

    Parameters
    ----------
    rows : BoundedRows
        Rows that are not centred. Those of a sparse matrix become dense block by block.
    targets : array of shape (n, m)

    Returns
    -------
    tuple of arrays of shape (dimension, dimension) and (dimension, m)
        The rounding errors are those of sums in blocks of :func:`~privet.objectives.summation.block_length`.
    """
    unit, products = np.eye(rows.dimension) / rows.largest_norm, PairwiseSum()
    length = min(block_length(rows.n), max(_LEAST_ROWS, _BLOCK_ENTRIES // rows.dimension))
    for start in range(0, rows.n, length):
        block = slice(start, min(start + length, rows.n))
        part: NDArray[Any] = rows.take(block).scores(unit)
        products.add(part.T @ np.column_stack([part, targets[block]]))
    total: Floats = products.total()
    return total[:, : rows.dimension], total[:, rows.dimension :]
