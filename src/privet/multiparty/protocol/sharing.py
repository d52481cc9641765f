"""How an owner splits a vector of integers into shares, one per server, of which too few reveal nothing.

:class:`Additive` shares are uniform numbers whose sum is the vector: all servers together can open it, and any fewer of
them see only uniform numbers. :class:`Shamir` shares are points of random polynomials: more than half of the servers
can open the vector, and any fewer see only uniform numbers. Both are linear, so servers add shares without talking to
each other.

A share travels as bytes. All additive shares but one consist of a key, from which the server expands its uniform
numbers, so that a long vector is sent only once.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privet.multiparty.protocol import prime_field
from privet.privacy.noise.source import NoiseSource

Integers = NDArray[np.int64]
Share = NDArray[np.uint64]

_KEY = 32  # bytes
_LARGEST_PRIME = 1 << 53
_COEFFICIENTS = 1 << 11  # Their products with numbers below the largest prime fit into 64 bits.
CHECKS = 4
"""Number of random sums that show whether shares belong to polynomials of the right degree."""
_WHOLE, _EXPANDED = b"\x00", b"\x01"  # the first byte of an additive share


class ShareError(ValueError):
    """The bytes are not a share of this sharing, or shares do not belong together."""


@dataclass(frozen=True)
class Sharing(ABC):
    """How vectors of ``dimension`` integers are split among ``servers``."""

    servers: int
    dimension: int

    @abstractmethod
    def split(self, values: Integers, source: NoiseSource, first: int = 0) -> list[bytes]:
        """Return one share per server of a vector.

        ``first`` is the server whose share is sent in full, where the others can be expanded from keys.
        """

    @abstractmethod
    def read(self, share: bytes) -> Share:
        """Return a share as numbers. Raise :class:`ShareError` if it has another length or numbers out of range."""

    def check(self, share: bytes) -> None:
        """Raise :class:`ShareError` if a share cannot be read."""
        self.read(share)

    @abstractmethod
    def add(self, total: Share, share: Share) -> None:
        """Add a share to a total, in place."""

    @abstractmethod
    def subtract(self, total: Share, share: Share) -> None:
        """Take a share out of a total, in place."""

    @abstractmethod
    def opened(self, shares: Sequence[Share]) -> Integers:
        """Return the vector, given the shares of all servers in order."""

    def zero(self) -> Share:
        """Return the share of an empty sum."""
        return np.zeros(self.dimension, dtype=np.uint64)

    def to_bytes(self, share: Share) -> bytes:
        """Return a share in full, for :meth:`read`."""
        return _WHOLE + share.astype("<u8").tobytes()

    @property
    def longest(self) -> int:
        """The largest number of bytes of a share."""
        return 1 + 8 * self.dimension

    def _check_length(self, share: bytes) -> None:
        if len(share) != self.longest or share[:1] != _WHOLE:
            raise ShareError(f"A share must have {self.longest} bytes for {self.dimension} numbers, got {len(share)}.")

    def _numbers(self, share: bytes) -> Share:
        self._check_length(share)
        return np.frombuffer(share, dtype="<u8", offset=1).astype(np.uint64)


@dataclass(frozen=True)
class Additive(Sharing):
    """Shares modulo 2^64 that add up to the vector. Numbers from 2^63 on stand for negative ones."""

    def split(self, values: Integers, source: NoiseSource, first: int = 0) -> list[bytes]:
        """Return keys for all servers but ``first``, and for that one the vector minus their numbers."""
        rest = values.astype(np.uint64)  # modulo 2^64
        shares = []
        for server in range(self.servers):
            key = source.key()
            if server != first % self.servers:
                rest -= NoiseSource.expanded(key, self.dimension)
            shares.append(_EXPANDED + key)
        shares[first % self.servers] = self.to_bytes(rest)
        return shares

    def read(self, share: bytes) -> Share:
        """Return a share as numbers, expanded from its key if it is one."""
        self.check(share)
        if share[:1] == _EXPANDED:
            return NoiseSource.expanded(share[1:], self.dimension)
        return self._numbers(share)

    def check(self, share: bytes) -> None:
        """Raise :class:`ShareError` if a share has another length. Keys are not expanded."""
        if share[:1] != _EXPANDED or len(share) != 1 + _KEY:
            self._check_length(share)

    def add(self, total: Share, share: Share) -> None:
        """Add a share to a total, in place."""
        total += share

    def subtract(self, total: Share, share: Share) -> None:
        """Take a share out of a total, in place."""
        total -= share

    def opened(self, shares: Sequence[Share]) -> Integers:
        """Return the sum of all shares."""
        if len(shares) != self.servers:
            raise ShareError(f"All {self.servers} additive shares are needed, got {len(shares)}.")
        total: Share = np.add.reduce(list(shares))
        return total.astype(np.int64)


@dataclass(frozen=True)
class Shamir(Sharing):
    """Values at the points 1, 2, ... of random polynomials modulo a prime, whose value at 0 is the vector.

    The degree is the largest number of servers that is less than half of them. That many shares are independent of the
    vector. Numbers above half the prime stand for negative ones.
    """

    prime: int

    def __post_init__(self) -> None:
        if not 2 < self.prime < _LARGEST_PRIME:
            raise ValueError(f"the prime must lie between 2 and 2^{_LARGEST_PRIME.bit_length() - 1}, got {self.prime}")

    @property
    def degree(self) -> int:
        """The degree of the polynomials, and the number of servers that may pool their shares without learning more."""
        return (self.servers - 1) // 2

    def split(self, values: Integers, source: NoiseSource, first: int = 0) -> list[bytes]:
        """Return the values of random polynomials at the points of the servers."""
        prime = np.uint64(self.prime)
        coefficients = source.uniform((self.degree, self.dimension), self.prime)
        constant = np.mod(values, self.prime).astype(np.uint64)
        shares = []
        for server in range(self.servers):
            value = self.zero()
            for coefficient in (*coefficients, constant):  # from the highest power on
                value = (value * np.uint64(server + 1) + coefficient) % prime
            shares.append(self.to_bytes(value))
        return shares

    def read(self, share: bytes) -> Share:
        """Return a share as numbers below the prime."""
        numbers = self._numbers(share)
        if numbers.size and int(numbers.max()) >= self.prime:
            raise ShareError("A share has a number that is not below the prime of the study.")
        return numbers

    def add(self, total: Share, share: Share) -> None:
        """Add a share to a total, in place."""
        total += share
        total %= np.uint64(self.prime)

    def subtract(self, total: Share, share: Share) -> None:
        """Take a share out of a total, in place."""
        self.add(total, np.uint64(self.prime) - share)

    def opened(self, shares: Sequence[Share]) -> Integers:
        """Return the vector. Raise :class:`ShareError` if the shares are not those of polynomials of the degree."""
        if len(shares) != self.servers:
            raise ShareError(f"The shares of all {self.servers} servers are needed, got {len(shares)}.")
        if not self.belong_together(shares):
            raise ShareError(
                "The shares of the servers do not belong to one vector, so at least one of them is wrong. Nothing was "
                "opened."
            )
        values = self._value_at(0, self._first(shares))
        return np.where(values > self.prime // 2, values - self.prime, values).astype(np.int64)

    def belong_together(self, shares: Sequence[Share]) -> bool:
        """Return whether the shares of all servers are values of polynomials of the right degree."""
        known = self._first(shares)
        return all(
            np.array_equal(self._value_at(server + 1, known), shares[server].astype(object))
            for server in range(self.degree + 1, self.servers)
        )

    def _first(self, shares: Sequence[Share]) -> list[NDArray[np.object_]]:
        """Return as many shares as determine the polynomials, as Python integers."""
        return [share.astype(object) for share in shares[: self.degree + 1]]

    def combined(self, share: Share, key: bytes) -> Share:
        """Return some random sums of the numbers of a share, with coefficients from a key that all servers know.

        If shares do not belong to polynomials of the right degree, their sums do not either, except with a probability
        of at most 2^-44: each coefficient has 11 bits, so that products fit into 64 bits, and there are four sums.
        """
        coefficients = NoiseSource.expanded(key, CHECKS * self.dimension).reshape(CHECKS, -1) % np.uint64(_COEFFICIENTS)
        return prime_field.total(coefficients * share % np.uint64(self.prime), self.prime)

    def _value_at(self, point: int, shares: Sequence[NDArray[np.object_]]) -> NDArray[np.object_]:
        """Return the value at a point of the polynomials through the shares of the first servers."""
        total = np.zeros(self.dimension, dtype=object)
        for place, share in enumerate(shares, 1):
            others = [other for other in range(1, len(shares) + 1) if other != place]
            above = math.prod(point - other for other in others)
            below = math.prod(place - other for other in others)
            total = total + share * (above * pow(below, -1, self.prime) % self.prime)
        result: NDArray[np.object_] = total % self.prime
        return result
