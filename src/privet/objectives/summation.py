"""Sums over records whose rounding error is at most a public constant, whatever the number of records.

Formal guarantees
-----------------
The number of records is private under add-or-remove adjacency, so an allowance for rounding errors must not depend on
it. Sums are therefore taken in blocks that become shorter as the number of records grows, and block sums are added in
pairs. For up to :data:`MOST_ROWS` records with contributions of norm at most C, the computed sums of two neighbours lie
at most :data:`ROUNDING` * C further apart than the exact ones (docs/proofs.md, section 7).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from privet.objectives.threads import in_threads

T = TypeVar("T")

MOST_ROWS = 2**30
ROUNDING = 2.0**-13

_UNIT_ROUNDOFF = 2.0**-53
_LONGEST_BLOCK = 32_768
_OTHER_ROUNDINGS = 40  # per term, besides those of its block: of products and factors, and of adding blocks in pairs
_GROUPS = 16  # of parts that threads divide among themselves; a constant, so that sums do not depend on the threads
_SHARE = 0.99  # of the allowance for sums. The rest is for the norms and factors by which contributions are clipped.


def check_number_of_rows(n: int) -> None:
    """Raise ValueError for more rows than the public allowance for rounding errors covers."""
    if n > MOST_ROWS:
        raise ValueError(
            f"The data has {n} rows, but the rounding errors of sums are bounded for at most 2^30 = {MOST_ROWS}. Use "
            "a random sample of the rows."
        )


def block_length(n: int, stretch: float = 1.0, allowance: float = ROUNDING) -> int:
    """Return how many of ``n`` rows may be summed in any order, so that rounding stays within the allowance.

    Parameters
    ----------
    n : int
        Number of rows, at most :data:`MOST_ROWS`.
    stretch : float
        Norm of the terms that are actually added for one row, relative to the bound C on its contribution. It exceeds 1
        if terms cancel within a contribution.
    allowance : float
        How much further apart than the exact sums the computed sums of two neighbours may be, relative to C.
    """
    # Two sums of n terms, each term rounded `length + other` times, to first order, plus 1 % for higher orders.
    error_per_rounding = 2.02 * _UNIT_ROUNDOFF * max(n, 1) * stretch
    return int(min(_SHARE * allowance / error_per_rounding - _OTHER_ROUNDINGS, _LONGEST_BLOCK))


def sum_error(n: int, length: int) -> float:
    """Return a bound on the rounding error of a sum over at most n rows in blocks, relative to the largest term."""
    return 1.01 * _UNIT_ROUNDOFF * n * (min(n, length) + _OTHER_ROUNDINGS)


def total_of(values: NDArray[np.float64]) -> float:
    """Return the sum of one number per record, with the accuracy that :data:`ROUNDING` allows for."""
    check_number_of_rows(values.size)
    if not values.size:
        return 0.0
    blocks = np.add.reduceat(values, np.arange(0, values.size, block_length(values.size)))
    return math.fsum(blocks.tolist())


def sum_over(parts: Sequence[T], term: Callable[[T], Any]) -> Any:
    """Return the sum of one array per part, added in pairs. Threads work on groups of consecutive parts."""
    if len(parts) == 1:
        return term(parts[0])
    length = max(1, -(-len(parts) // _GROUPS))
    groups = [parts[start : start + length] for start in range(0, len(parts), length)]

    def sum_of_group(group: Sequence[T]) -> Any:
        total = PairwiseSum()
        for part in group:
            total.add(term(part))
        return total.total()

    total = PairwiseSum()
    for sum_of in in_threads(sum_of_group, groups):
        total.add(sum_of)
    return total.total()


class PairwiseSum:
    """A running sum of arrays in which each is rounded about log2(number of arrays) times, not once per array.

    Sums of 1, 2, 4, 8, ... arrays are kept, each at most once, as in a binary counter.
    """

    def __init__(self) -> None:
        self._sums: list[tuple[int, Any]] = []

    def add(self, part: Any) -> None:
        """Add an array, which may be overwritten, or a number."""
        level = 0
        while self._sums and self._sums[-1][0] == level:
            part += self._sums.pop()[1]
            level += 1
        self._sums.append((level, part))

    def total(self) -> Any:
        """Return the sum of all arrays, or 0 if there are none. The sum cannot be continued."""
        total = self._sums.pop()[1] if self._sums else 0.0
        while self._sums:
            total = total + self._sums.pop()[1]
        return total
