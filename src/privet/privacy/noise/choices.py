"""The exponential mechanism, drawn exactly: the largest of scores plus ideal Gumbel noise.

A float Gumbel number has at most 53 random bits and ends at 36.7, so with float noise, some choices that must have a
positive probability are impossible. Here each candidate i has an ideal uniform number U_i, of which only as many random
bits are drawn as the comparison needs. Its key is score_i/scale - log E_i with the exponential number
E_i = -log U_i, and the candidates with the largest keys win. The first 64 bits of U_i give an interval for the
key, which also covers the errors of floating-point arithmetic. Where these intervals leave the winners open, which
happens in about one race in 2^30, further bits and decimal arithmetic of growing precision decide.

The proof is in docs/proofs.md, section 27. It assumes that the words are independent and uniformly distributed, and
that numpy computes ``log`` with an error of at most 8 units in the last place.
"""

from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privet.checks import count, positive
from privet.privacy.noise.enclosures import Indices, Words, directed, log

Vector = NDArray[np.float64]

ULPS = 8.0  # bound on the error of numpy's log, in units in the last place
BLOCK = 1 << 12
LARGEST = float(np.finfo(np.float64).max)


class Candidates(NamedTuple):
    """Scores, numbers of copies, and the first word of the uniform number of each candidate."""

    scores: Vector
    copies: Indices
    drawn: NDArray[np.uint64]

    def only(self, kept: NDArray[np.bool_] | slice) -> "Candidates":
        """Return some of the candidates."""
        return Candidates(self.scores[kept], self.copies[kept], self.drawn[kept])


def race(
    scores: NDArray[Any], scale: float, number: int, words: Words, copies: NDArray[np.int64] | None = None
) -> Indices:
    """Return the sorted indices of the ``number`` largest of scores plus ideal Gumbel noise of the given scale.

    Parameters
    ----------
    scores : array of shape (d,)
        Finite numbers. They are taken as exact, and so is the scale.
    scale : float
        Scale of the noise.
    number : int
        How many indices to return, between 1 and d.
    words : callable
        ``words(size)`` returns that many independent, uniformly distributed 64-bit words.
    copies : array of shape (d,) or None
        How many candidates with the same score each index stands for. None means 1.

    Formal guarantees
    -----------------
    The indices are distributed as those that are chosen one after the other without replacement, each with probability
    proportional to copies * exp(score/scale) among the remaining ones. No probability is rounded, however small it is.
    """
    scores, scale = np.asarray(scores, dtype=np.float64), positive("scale", scale)
    if scores.ndim != 1 or not np.isfinite(scores).all():
        raise ValueError(f"scores must be a list of finite numbers, got an array of shape {scores.shape}")
    if count("number", number) > scores.size:
        raise ValueError(f"{number} indices cannot be chosen from {scores.size} scores")
    copies = np.ones(scores.size, dtype=np.int64) if copies is None else np.asarray(copies, dtype=np.int64)
    if copies.shape != scores.shape or copies.min() < 1:
        raise ValueError(f"copies must be {scores.size} positive integers, one for each score")
    left, field = np.arange(scores.size), Candidates(scores, copies, words(scores.size))
    chosen: list[Indices] = []
    while number:
        # The candidates that are left are compared relative to the best of them, which makes the intervals short.
        are_winners, are_open = _compared(*_float_bounds(field, scale), number)
        chosen.append(left[are_winners])
        number -= chosen[-1].size
        if are_open.all():
            chosen.append(left[_decimal_race(field, scale, number, words)])
            break
        left, field = left[are_open], field.only(are_open)
    return np.sort(np.concatenate(chosen))


def _compared(lower: NDArray[Any], upper: NDArray[Any], number: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which candidates are certainly among the largest ``number``, and for which this is still open.

    A candidate loses if ``number`` others have lower bounds above its upper bound. It wins if fewer than ``number``
    others have upper bounds that reach its lower bound.
    """
    if number == lower.size:
        return np.ones(lower.size, dtype=np.bool_), np.zeros(lower.size, dtype=np.bool_)
    are_open = upper >= np.partition(lower, -number)[-number]
    rivals = upper[are_open]  # at least `number` of them; all others lose
    are_winners = np.zeros_like(are_open)
    if rivals.size == number:
        are_winners, are_open = are_open, are_winners
    else:
        are_winners[are_open] = lower[are_open] > np.partition(rivals, -number - 1)[-number - 1]
        are_open &= ~are_winners
    return are_winners, are_open


def _float_bounds(field: Candidates, scale: float) -> tuple[Vector, Vector]:
    """Return a lower and an upper bound on each key minus max(scores)/scale, given the first word of its uniform."""
    best = field.scores.max()
    lower, upper = np.empty((2, field.scores.size))
    for start in range(0, lower.size, BLOCK):
        block = slice(start, start + BLOCK)
        lower[block], upper[block] = _block_bounds(field.only(block), best, scale)
    return lower, upper


def _block_bounds(field: Candidates, best: float, scale: float) -> tuple[Vector, Vector]:
    """Return bounds on (scores - best)/scale - log(-log(U)/copies), for a block so small that it stays in the cache."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        differences = field.scores - best
        relative = np.maximum(np.maximum(differences, -LARGEST) / scale, -LARGEST / 2)
        uniform = (field.drawn.astype(np.float64) + 0.5) * 2.0**-64
        exponential = -np.log(uniform)
        logs = np.log(exponential / field.copies)
        # Unseen bits and rounding move the uniform by less than this, which moves the logarithm by less than four
        # times its derivative, 1 / (uniform exponential), as long as neither end of [0, 1] is near.
        errors = (2.0**-51 * uniform + 2.0**-64) * 4.0 / (uniform * exponential)
        errors += ULPS * 2.0**-49 * (1.0 + np.abs(logs)) - 2.0**-50 * relative
        keys = relative - logs
        lower, upper = keys - errors, keys + errors
    lower[(relative == -LARGEST / 2) | (differences == -np.inf)] = -np.inf
    is_near_an_end = (uniform < 2.0**-50) | (uniform > 1.0 - 2.0**-40)
    lower[is_near_an_end], upper[is_near_an_end] = -np.inf, np.inf
    return lower, upper


def _decimal_race(field: Candidates, scale: float, number: int, words: Words) -> Indices:
    """Return the indices of the largest ``number`` keys, drawing as many further bits of the uniforms as it takes."""
    left, bits = np.arange(field.scores.size), 64
    uniforms = field.drawn.astype(object)  # the first `bits` bits of each, read as an integer
    winners: list[Indices] = []
    while True:
        best = field.scores[left].max()
        bounds = [
            _decimal_bounds(field.scores[i], best, scale, int(field.copies[i]), int(uniforms[i]), bits) for i in left
        ]
        lower, upper = (np.array(side, dtype=object) for side in zip(*bounds, strict=True))
        are_winners, are_open = _compared(lower, upper, number)
        winners.append(left[are_winners])
        number -= winners[-1].size
        if not number:
            return np.concatenate(winners)
        left, bits = left[are_open], bits + 64
        uniforms[left] = (uniforms[left] << 64) + words(left.size).astype(object)


def _decimal_bounds(
    score: float, best: float, scale: float, copies: int, uniform: int, bits: int
) -> tuple[Decimal, Decimal]:
    """Return bounds on (score - best)/scale - log(-log(U)/copies) for U in [uniform, uniform + 1] / 2^bits."""
    down, up = directed(bits)
    keys = []
    for this, other, numerator in ((down, up, uniform), (up, down, uniform + 1)):
        fraction = this.divide(Decimal(numerator), Decimal(1 << bits))
        exponential = log(fraction, this).copy_negate() if fraction < 1 else Decimal(0)
        relative = this.divide(this.subtract(Decimal(score), Decimal(best)), Decimal(scale))
        keys.append(this.subtract(relative, log(other.divide(exponential, Decimal(copies)), other)))
    return keys[0], keys[1]
