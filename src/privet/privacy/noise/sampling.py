"""Random samples with exactly the stated probabilities, from uniformly distributed words.

All probabilities here are floats, which are exact rational numbers. Numpy's ``binomial``, ``random`` and ``choice``
with weights round them, so the laws that they draw from differ a little from those that a guarantee is computed for.
The functions of this module compare a probability with the random bits of an ideal uniform number, and draw as many
bits as the comparison needs. Numpy's ``integers``, ``permutation`` and ``choice`` without replacement and weights are
exact already: they use rejection and integer arithmetic only.

The proofs are in docs/proofs.md, section 27.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.checks import count
from privet.privacy.noise.enclosures import Indices, Words, directed, exp, log

BLOCK = 1 << 16
TABULATED = 1 << 13
MARGIN = 1.0  # a larger factor sends more draws through the exact path, for tests


def poisson_sample(n: int, rate: float, words: Words, subset: Callable[[int, int], Indices]) -> Indices:
    """Return the sorted indices of a sample that contains each of n units independently with probability ``rate``.

    Parameters
    ----------
    n : int
        Number of units.
    rate : float
        The probability, taken as an exact rational number.
    words : callable
        ``words(size)`` returns that many independent, uniformly distributed 64-bit words.
    subset : callable
        ``subset(n, size)`` returns the sorted indices of a uniformly random set of ``size`` of n units.

    Notes
    -----
    If n is large and the sample small, drawing the size first takes less time. Its law is tabulated once.
    """
    if n > TABULATED and n * rate <= min(n / 128, 1 << 14):
        return subset(n, binomial(n, rate, words))
    return bernoulli_indices(n, rate, words)


def bernoulli_indices(n: int, rate: float, words: Words) -> Indices:
    """Return the sorted indices of a sample that contains each of n units independently with probability ``rate``.

    A unit belongs to the sample if its uniform number is below the rate. The two are compared byte by byte, and only
    one unit in 256 needs a further byte.
    """
    n, rate = _checked(n, rate)
    if rate == 1.0:
        return np.arange(n)
    digits = _bytes_of(rate)
    chosen = [np.empty(0, dtype=np.int64)]
    for start in range(0, n, BLOCK):
        size = min(BLOCK, n - start)
        drawn = _random_bytes(size, words)
        units = np.flatnonzero(drawn <= digits[0])
        are_in = drawn[units] < digits[0]
        are_equal = np.flatnonzero(~are_in)
        for digit in digits[1:]:
            if not are_equal.size:
                break
            drawn = _random_bytes(are_equal.size, words)
            are_in[are_equal] = drawn < digit
            are_equal = are_equal[drawn == digit]
        chosen.append(units[are_in] + start)  # numbers that agree with the rate in all of its digits are not below it
    return np.concatenate(chosen)


def binomial(n: int, rate: float, words: Words) -> int:
    """Return a number with the binomial law of n trials that succeed with probability ``rate``.

    The number is the smallest k with U < P(number <= k) for an ideal uniform number U. Its first 64 bits are looked up
    in a table, and decide except with a probability of about (size of the table) / 2^63.
    """
    n, rate = _checked(n, rate)
    if n == 0 or rate in (0.0, 1.0):
        return n if rate else 0
    word = int(words(1)[0])
    table = _table(n, rate)
    place = bisect_right(table, word)
    if place < len(table) and (place == 0 or word > table[place - 1] + 1):
        return place
    bits = 64
    while True:
        word, bits = (word << 64) | int(words(1)[0]), bits + 64
        number = _between(_cumulative(n, rate, bits), word, n)
        if number is not None:
            return number


def _between(bounds: Iterator[tuple[int, int]], word: int, n: int) -> int | None:
    """Return how many cumulative probabilities are at most U, or None if the bits of U seen so far do not decide."""
    for k, (lower, upper) in enumerate(bounds):
        if word + 1 <= lower:
            return k
        if word < upper:
            return None
    return n


@lru_cache(maxsize=32)
def _table(n: int, rate: float) -> tuple[int, ...]:
    """Return lower bounds on 2^64 P(number <= k) for k = 0, 1, ..., which are at most 2 below the upper bounds."""
    table: list[int] = []
    for lower, _ in _cumulative(n, rate, 64):
        table.append(lower)
        if lower >= (1 << 64) - 2:
            break
    return tuple(table)


def _cumulative(n: int, rate: float, bits: int) -> Iterator[tuple[int, int]]:
    """Yield integer bounds on 2^bits P(number <= k) for k = 0, ..., n - 1."""
    guard = n.bit_length() + 8  # each term is rounded to an integer, in units that are smaller by this many bits
    down, up = directed(bits + 3 * guard)
    successes, trials = rate.as_integer_ratio()
    failures = trials - successes
    least, most = (
        exp(this.multiply(log(this.divide(Decimal(failures), Decimal(trials)), this), n), this) for this in (down, up)
    )
    scale, (lower, upper) = Decimal(1 << (bits + guard)), (0, 0)
    for k in range(n):
        lower += int(down.multiply(least, scale))
        upper += int(up.multiply(most, scale)) + 1
        yield lower >> guard, -(-upper >> guard)
        up_to, down_to = Decimal((n - k) * successes), Decimal((k + 1) * failures)
        least = down.divide(down.multiply(least, up_to), down_to)
        most = up.divide(up.multiply(most, up_to), down_to)


def binomial_half(n: int, size: int, words: Words) -> NDArray[np.int64]:
    """Return ``size`` independent numbers with the binomial law of n fair coins, by counting the ones of n bits."""
    n, size = count("n", n), count("size", size)
    rows = -(-n // 64)
    result = np.empty(size, dtype=np.int64)
    for start in range(0, size, BLOCK):
        part = result[start : start + BLOCK]
        bits = words(rows * part.size).reshape(rows, part.size)
        np.sum(np.bitwise_count(bits[:-1]), axis=0, out=part)
        part += np.bitwise_count(bits[-1] >> np.uint64(64 * rows - n))
    return result


def weighted_index(weights: NDArray[Any], words: Words) -> int:
    """Return an index whose probability is exactly its weight divided by the sum of all weights.

    The index is the one whose interval, of the length of its weight, contains U times the sum, for an ideal uniform
    number U. The first 64 bits of U decide unless they lie within the rounding error of the end of an interval.
    """
    weights = np.asarray(weights, dtype=np.float64)
    with np.errstate(over="ignore"):
        ends = np.cumsum(weights)
    if weights.ndim != 1 or not ends.size or not weights.min() >= 0 or not 0 < ends[-1] < np.inf:
        raise ValueError("weights must be a nonempty list of finite, nonnegative numbers that are not all 0")
    word = int(words(1)[0])
    total = float(ends[-1])
    point, error = word * 2.0**-64 * total, MARGIN * ((weights.size + 8) * 2.0**-51 * total + 1e-320)
    place = int(np.searchsorted(ends, point, side="right"))
    if place < weights.size and point + error < ends[place] and (place == 0 or ends[place - 1] < point - error):
        return place
    return _exact_index(weights, word, words)


def _exact_index(weights: NDArray[np.float64], word: int, words: Words) -> int:
    """Return the index whose interval contains U times the sum, in integer arithmetic, given the first word of U."""
    ratios = [float(weight).as_integer_ratio() for weight in weights]
    common = max(denominator for _, denominator in ratios)  # all denominators are powers of two
    ends = list(accumulate(numerator * (common // denominator) for numerator, denominator in ratios))
    bits = 64
    while True:
        scaled = word * ends[-1]
        place = bisect_right(ends, scaled >> bits)
        if scaled + ends[-1] <= ends[place] << bits:
            return place
        word, bits = (word << 64) | int(words(1)[0]), bits + 64


def _checked(n: int, rate: float) -> tuple[int, float]:
    if not 0.0 <= rate <= 1.0:
        raise ValueError(f"rate must lie in [0, 1], got {rate!r}")
    return count("n", n, at_least=0), float(rate)


def _bytes_of(rate: float) -> list[int]:
    """Return the digits of a number in [0, 1) to base 256."""
    numerator, denominator = rate.as_integer_ratio()
    size = -(-(denominator.bit_length() - 1) // 8)
    return list((numerator * (1 << 8 * size) // denominator).to_bytes(size, "big")) or [0]


def _random_bytes(size: int, words: Words) -> NDArray[np.uint8]:
    return words(-(-size // 8)).view(np.uint8)[:size]
