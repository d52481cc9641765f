"""Arithmetic modulo primes below 2^53 on whole arrays, exact and without Python integers.

Numbers are arrays of ``uint64`` below the prime. The product of two such numbers does not fit into 64 bits, but its
remainder does, and its quotient is known from floating point up to a few units.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.uint64]

LARGEST = 1 << 53
_HALF = np.uint64(26)
_LOW = np.uint64((1 << 26) - 1)


def product(left: Numbers, right: Numbers | np.uint64, prime: int) -> Numbers:
    """Return the products modulo the prime.

    Both factors are exact as floats. Their product and its quotient are rounded once each, so the quotient, which is
    below 2^53, is wrong by at most 2 before its fraction is cut off. The remainder with this quotient therefore lies
    within 4 primes of 0, which 64 bits hold with a sign, although the products themselves wrap around.
    """
    quotient = (left.astype(np.float64) * np.float64(right) / prime).astype(np.uint64)
    remainder = (left * right - quotient * np.uint64(prime)).view(np.int64) % prime
    return remainder.view(np.uint64)


def difference(left: Numbers, right: Numbers | np.uint64, prime: int) -> Numbers:
    """Return the differences modulo the prime."""
    return (left + (np.uint64(prime) - right)) % np.uint64(prime)


def total(numbers: Numbers, prime: int, axis: int = -1) -> Numbers:
    """Return sums along an axis modulo the prime. Up to 2^37 numbers can be added."""
    high = (numbers >> _HALF).sum(axis=axis, dtype=np.uint64, keepdims=True) % np.uint64(prime)
    low = (numbers & _LOW).sum(axis=axis, dtype=np.uint64, keepdims=True) % np.uint64(prime)
    found: Numbers = (product(high, np.uint64((1 << 26) % prime), prime) + low) % np.uint64(prime)
    return found.squeeze(axis)


def power(base: Numbers, exponent: int, prime: int) -> Numbers:
    """Return powers modulo the prime."""
    result = np.ones_like(base)
    for bit in f"{exponent:b}":
        result = product(result, result, prime)
        if bit == "1":
            result = product(result, base, prime)
    return result


def inverse_roots(squares: Numbers, prime: int) -> Numbers:
    """Return the inverse of a square root of each nonzero square, for a prime that is 3 modulo 4.

    The square of a^((p-3)/4) is a^((p-1)/2) / a, and a^((p-1)/2) = 1 for squares.
    """
    return power(squares, (prime - 3) // 4, prime)


def values_at(coefficients: Numbers, points: Sequence[int], prime: int) -> list[Numbers]:
    """Return the values of polynomials at small points, given their coefficients from the highest power on."""
    found = []
    for point in points:
        value = coefficients[0] % np.uint64(prime)
        for coefficient in coefficients[1:]:
            value = (value * np.uint64(point) + coefficient) % np.uint64(prime)
        found.append(value)
    return found


def at_zero(values: Sequence[Numbers], prime: int) -> Numbers:
    """Return the values at 0 of the polynomials of least degree through values at the points 1, 2, ..."""
    points = range(1, len(values) + 1)
    found = np.zeros_like(values[0])
    for point, value in zip(points, values, strict=True):
        weight = 1
        for other in points:
            if other != point:
                weight = weight * other * pow(other - point, -1, prime) % prime
        found = (found + product(value, np.uint64(weight), prime)) % np.uint64(prime)
    return found


def to_bytes(numbers: Numbers, prime: int) -> bytes:
    """Return the numbers as bytes, each with as many as the prime needs."""
    width = _width(prime)
    return numbers.astype("<u8").reshape(-1, 1).view(np.uint8)[:, :width].tobytes()


def from_bytes(message: bytes, size: int, prime: int) -> Numbers:
    """Return ``size`` numbers that :func:`to_bytes` wrote. Raise ValueError if the bytes are something else."""
    width = _width(prime)
    if len(message) != size * width:
        raise ValueError(f"{size} numbers modulo {prime} take {size * width} bytes, got {len(message)}")
    wide = np.zeros((size, 8), dtype=np.uint8)
    wide[:, :width] = np.frombuffer(message, dtype=np.uint8).reshape(size, width)
    numbers = wide.view("<u8").ravel().astype(np.uint64)
    if size and int(numbers.max()) >= prime:
        raise ValueError(f"a number is not below the prime {prime}")
    return numbers


def _width(prime: int) -> int:
    return (prime.bit_length() + 7) // 8
