"""Laplacian smoothing of a long vector in blocks: two products with small matrices, limited by memory bandwidth.

On a line with zeros beyond both ends, the solution is u_i = tanh(t / 2) sum_j omega^|i - j| v_j. The vector v is cut
into blocks. The contribution of a block to itself is its product with one small matrix. The contribution of all
earlier entries to a block is a geometric sequence, which starts at omega times their contribution to the entry before
the block, and likewise for all later entries. Each block therefore passes on two numbers, the first and the last entry
of its product, and receives two: sums of those of other blocks, with weights that decay by omega^size per block. On a
cycle, both sequences continue from one end of the vector to the other.

All weights are positive and add up to one, so there is no cancellation or overflow, even in single precision.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dgemm, sgemm

from privet.denoise.spectrum import decay_rate

Array = NDArray[Any]
Product = Callable[[Array, Array, Array, float], None]
"""``product(a, b, c, factor)`` replaces c by factor c + a b, in place. All matrices are contiguous."""

NEGLIGIBLE = 37.0  # exp(-37) < 1e-16, which is lost in rounding
_NEGLIGIBLE_IN_SINGLE = 18.0
_SIZE, _SIZE_IN_SINGLE = 24, 16  # block sizes that were fastest in numpy and torch


def numpy_product(a: Array, b: Array, c: Array, factor: float) -> None:
    """Multiply with BLAS, which expects column-major matrices, hence the transposes."""
    gemm = sgemm if c.dtype == np.float32 else dgemm
    gemm(1.0, b.T, a.T, beta=factor, c=c.T, overwrite_c=True)


def torch_product(a: Array, b: Array, c: Array, factor: float) -> None:
    """Multiply with torch, which uses the number of threads that the user has set."""
    import torch

    result = torch.from_numpy(c)
    torch.addmm(result, torch.from_numpy(a), torch.from_numpy(b), beta=factor, out=result)


@np.errstate(invalid="ignore")  # from entries that are not finite
def smooth_in_blocks(x: Array, sigma: float, product: Product = numpy_product) -> Array:
    """Return the smoothed vector, of float32 or float64. It must be longer than the range of the kernel."""
    blocks = _blocks(sigma, x.dtype == np.float32)
    size = len(blocks.kernel)
    count, rest = divmod(len(x), size)
    solved = np.empty_like(x)
    body, end = solved[: count * size].reshape(count, size), solved[count * size :]
    product(x[: count * size].reshape(count, size), blocks.kernel, body, 0.0)
    end[:] = x[count * size :] @ blocks.kernel[:rest, :rest]

    carries = np.zeros((count + 1, 2), dtype=x.dtype)
    before, after = carries.T
    before[1:] = body[:, -1]
    after[: count - 1] = body[1:, 0]
    after[count - 1] = end[0] if rest else 0.0
    if not np.isfinite(carries).all():  # all entries depend on it, by weights that rounding may lose
        return np.full_like(x, np.nan)
    for distance, weight in blocks.weights:
        before[distance:] += weight * before[:-distance]
        after[:-distance] += weight * after[distance:]
    product(carries[:count], blocks.sequences, body, 1.0)
    end += before[count] * blocks.sequences[0, :rest]

    first, last, reach = solved[0], solved[-1], len(blocks.wrap)
    solved[:reach] += last * blocks.wrap
    solved[-reach:] += first * blocks.wrap[::-1]
    return solved


@dataclass(frozen=True)
class _Blocks:
    """The matrices and weights with which blocks of a vector are smoothed.

    Attributes
    ----------
    kernel : array
        Maps a block to its contribution to itself.
    sequences : array
        Two rows: the contributions to a block of a one at the last entry before it, and at the first entry after it.
    weights : list of (int, float)
        Distances 1, 2, 4, ... in blocks, and the fraction of a carry that remains there, while it is not negligible.
    wrap : array
        omega, omega^2, ..., up to the range of the kernel.
    """

    kernel: Array
    sequences: Array
    weights: list[tuple[int, float]]
    wrap: Array


@lru_cache(maxsize=32)
def _blocks(sigma: float, is_single: bool) -> _Blocks:
    size, negligible = (_SIZE_IN_SINGLE, _NEGLIGIBLE_IN_SINGLE) if is_single else (_SIZE, NEGLIGIBLE)
    rate = decay_rate(sigma)

    def decay(distance: NDArray[np.int64], factor: float = 1.0) -> Array:
        left = factor * np.exp(-rate * distance)
        left[rate * distance > 2.0 * negligible] = 0.0  # subnormal numbers would slow down the products
        return np.asarray(left, dtype=np.float32 if is_single else np.float64)

    place = np.arange(size)
    kernel = decay(np.abs(place[:, None] - place), math.tanh(0.5 * rate))
    sequences = decay(np.stack([place + 1, size - place]))
    distances = [1 << i for i in range(64) if (size << i) * rate < negligible]
    weights = [(distance, math.exp(-distance * size * rate)) for distance in distances]
    return _Blocks(kernel, sequences, weights, decay(np.arange(1, int(negligible / rate) + 2)))
