"""The one place where noise meets numbers: the ideal noisy number, rounded to a public grid.

For a floating-point number S, noise of standard deviation std and a grid of step h, the release is

    h round((S + N) / h),    N ~ N(0, std^2), an ideal real number.

So the release is the ideal Gaussian mechanism on S, followed by rounding, which is post-processing: what is proved for
real numbers holds for the bits. (Adding a floating-point draw to S is different. Which sums can occur then depends on
S, and reveals it.) Sums are computed and rounded in float64. Where a sum lies so close to a rounding boundary that the
float64 errors could matter, about once in 2^24 numbers, exact arithmetic decides. docs/proofs.md, section 26, contains
the proof.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from privet.checks import positive
from privet.privacy.noise.bits import CHUNK
from privet.privacy.noise.normals import ERROR, Normals, NormalStream
from privet.privacy.noise.reals import LazyNorm, nearest_integer

GRID_BITS = 20  # the default grid has 2^20 to 2^21 steps per standard deviation
MOST_STEPS = 2.0**42  # per standard deviation, up to which the first pass decides most numbers
_LARGEST_SCALE = 1e290


def grid_step(std: float) -> float:
    """Return the default step of the grid for noise of standard deviation ``std``: a power of two, for std > 0."""
    return math.ldexp(1.0, math.frexp(std)[1] - 1 - GRID_BITS)


def in_words(scale: float, is_k_norm: bool = False) -> str:
    """Return a phrase for a guarantee that states how noise is drawn and rounded."""
    if is_k_norm:
        return "drawn exactly, on a grid whose step depends on this scale and on the number of values only"
    return f"drawn exactly, on a grid of step 2^{math.frexp(grid_step(scale))[1] - 1}"


@lru_cache(maxsize=256, typed=True)
def checked_grid(scale: float, grid: float | None = None, name: str = "scale") -> float:
    """Return the step of a grid, by default that of :func:`grid_step`. Raise if the noise cannot be drawn on it.

    ``name`` is what the scale of the noise is called in an error.
    """
    positive(name, scale)
    if not 1 / _LARGEST_SCALE <= scale <= _LARGEST_SCALE:
        raise ValueError(
            f"noise of scale {scale:g} cannot be drawn exactly in float64: the scale must lie between "
            f"{1 / _LARGEST_SCALE:g} and {_LARGEST_SCALE:g}"
        )
    step = grid_step(scale) if grid is None else grid
    if math.frexp(step)[0] != 0.5:
        raise ValueError(f"the step of the grid must be a power of two, got {step!r}")
    if not scale / MOST_STEPS <= step <= scale * MOST_STEPS:
        raise ValueError(
            f"a grid of step {step:g} is too fine or too coarse for noise of scale {scale:g}: the step must lie "
            "between scale / 2^42 and scale * 2^42"
        )
    return step


def add_gaussian(values: NDArray[Any], result: NDArray[Any], normals: Normals, std: float, grid: float) -> None:
    """Write ``values`` plus ``std`` times the ideal draws, rounded to the grid, to ``result`` (flat arrays)."""
    steps = std / grid  # exact, because the grid is a power of two

    def decide(position: int) -> int:
        return nearest_integer(_in_steps(values[position], grid), Fraction(steps), normals.real(position))

    margin = math.inf if normals.is_far else 2 * ERROR * steps
    _add_rounded(values, result, normals.spend(), steps / normals.scale, margin, grid, decide)


def add_k_norm(values: NDArray[Any], result: NDArray[Any], stream: NormalStream, scale: float, grid: float) -> None:
    """Write ``values`` plus ideal K-norm noise, rounded to the grid, to ``result`` (flat arrays).

    The noise is ``scale`` times a standard normal vector times the norm of another one that is longer by one entry.
    """
    steps = scale / grid
    normals, others = stream.take(values.size), stream.take(values.size + 1)
    drawn, (norm, norm_error) = normals.spend(), approximate_norm(others.spend())
    longest = float(np.abs(drawn).max(initial=0.0)) + 1  # NaN if a draw has no approximation
    margin = 2 * steps * (norm_error * longest + ERROR * (norm + norm_error))
    exact_norm = cache(lambda: LazyNorm([others.real(position) for position in range(len(others))]))

    def decide(position: int) -> int:
        shift = _in_steps(values[position], grid)
        return nearest_integer(shift, Fraction(steps), exact_norm(), normals.real(position))

    _add_rounded(values, result, drawn, steps * norm, margin, grid, decide)


def approximate_norm(drawn: NDArray[np.float64]) -> tuple[float, float]:
    """Return the norm of a vector of draws, and a bound on its distance to the norm of the ideal vector."""
    norm = math.sqrt(math.fsum(np.square(drawn)))
    return norm, math.sqrt(drawn.size) * ERROR + 2.0**-51 * norm


def _add_rounded(
    values: NDArray[Any],
    result: NDArray[Any],
    noise: NDArray[np.float64],
    slope: float,
    margin: float,
    grid: float,
    decide: Callable[[int], int],
) -> None:
    """Write ``values + grid * slope * noise``, rounded to the grid, to ``result``, and overwrite the noise.

    Sums are computed in units of the grid. Their errors are at most ``margin``, which covers noise and its rounding,
    plus 2^-51 times the norm of the values, which covers the rounding of the sum. Where a sum lies closer than that to
    a rounding boundary, ``decide`` finds the nearest multiple of the grid.
    """
    buffer = np.empty(min(values.size, CHUNK))
    for start in range(0, values.size, CHUNK):
        given, drawn = values[start : start + CHUNK], noise[start : start + CHUNK]
        total = buffer[: drawn.size]
        np.multiply(given, 1 / grid, out=total)  # exact, unless it overflows
        limit = 0.5 - margin - 2.0**-51 * math.sqrt(blas.ddot(total, total))
        total = blas.daxpy(drawn, total, a=slope)  # adds slope * drawn, in place
        nearest = np.rint(total, out=drawn)
        total -= nearest
        open_cases: list[int] = []
        if not abs(total[blas.idamax(total)]) < limit:  # also if a value is NaN, because the limit is then NaN, too
            check_finite(given)
            open_cases = np.flatnonzero(~(np.abs(total) < limit)).tolist()
        nearest += 0.0  # the sign of a zero would be that of the float sum, not that of the ideal sum
        np.multiply(nearest, grid, out=result[start : start + CHUNK])
        for position in open_cases:
            result[start + position] = _multiple(decide(start + position), grid)


def _multiple(integer: int, grid: float) -> float:
    """Return a multiple of the grid as a float."""
    try:
        return float(integer * Fraction(grid))
    except OverflowError:
        return math.copysign(math.inf, integer)


def _in_steps(value: Any, grid: float) -> Fraction:
    return Fraction(float(value)) / Fraction(grid)


def check_finite(values: NDArray[Any]) -> None:
    """Raise ValueError if a value is NaN or infinite."""
    if not np.isfinite(values).all():
        raise ValueError("noise can be added to finite numbers only, but a value is NaN or infinite")
