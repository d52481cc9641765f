"""Secret random numbers and bits that parties draw together, at a cost that grows slowly with their number.

MPyC expands joint random numbers from keys that subsets of the parties share, and the number of subsets is a binomial
coefficient. Here every party shares random numbers of its own, and each random number of the result is a sum of all of
them with public weights. Any m - t columns of the weights are linearly independent, so of the sharings of m parties,
m - t results can be made at once, and t parties know nothing about them (Damgard and Nielsen, "Scalable and
Unconditionally Secure Multiparty Computation"). A random bit is r / sqrt(r^2), for a random r of which only the square
is opened (Damgard et al., "Unconditionally Secure Constant-Rounds Multi-Party Computation").

Formal guarantees
-----------------
If all parties follow the protocol, any t = (m - 1) // 2 of them see numbers that are independent of the results
(docs/proofs.md, section 25).
"""

from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise

import numpy as np

from privet.multiparty.protocol import prime_field as field
from privet.multiparty.protocol.prime_field import Numbers
from privet.privacy.noise.source import NoiseSource

Swap = Callable[[Sequence[bytes]], Awaitable[list[bytes]]]
"""Sends one message to each party, and returns the message of each party. All parties call it equally often."""


class JointRandomness:
    """What one party of ``parties`` needs to draw random numbers modulo a prime together with the others.

    Parameters
    ----------
    swap : callable
        Sends one message to each party, and returns theirs.
    source : NoiseSource
        Where this party's random numbers come from.
    index, parties, threshold : int
        Index of this party, number of parties, and degree of the polynomials, which is less than half the number.
    prime : int
        The modulus, below 2^53.
    """

    def __init__(self, swap: Swap, source: NoiseSource, index: int, parties: int, threshold: int, prime: int) -> None:
        if not 2 * threshold < parties < prime < field.LARGEST:
            raise ValueError(f"{parties} parties with threshold {threshold} cannot share numbers modulo {prime}")
        self._swap, self._source, self._index = swap, source, index
        self._parties, self._threshold, self._prime = parties, threshold, prime

    async def pairs(self, size: int) -> tuple[Numbers, Numbers]:
        """Return shares of random numbers of degree t, and other shares of zeros of degree 2 t."""
        t = self._threshold
        each = -(-size // (self._parties - t))  # numbers that each party shares
        drawn = self._source.uniform((3 * t + 1, each), self._prime)
        numbers = field.values_at(drawn[: t + 1], self._points, self._prime)
        zeros = field.values_at(
            np.concatenate([drawn[t + 1 :], np.zeros((1, each), np.uint64)]), self._points, self._prime
        )
        mine = [field.to_bytes(np.stack(both), self._prime) for both in zip(numbers, zeros, strict=True)]
        received = [field.from_bytes(message, 2 * each, self._prime) for message in await self._swap(mine)]
        mixed = self._mixed(received).reshape(-1, 2, each)
        return mixed[:, 0].ravel()[:size], mixed[:, 1].ravel()[:size]

    async def bits(self, size: int) -> Numbers:
        """Return shares of random bits. The prime must be 3 modulo 4."""
        parts: list[Numbers] = []
        missing = size
        while missing:
            numbers, zeros = await self.pairs(missing)
            squares = (field.product(numbers, numbers, self._prime) + zeros) % np.uint64(self._prime)
            roots = await self._opened(squares, lambda opened: field.inverse_roots(opened, self._prime))
            signs = field.product(numbers, roots, self._prime)[roots > 0]  # A zero has no sign, and is drawn again.
            parts.append(field.product((signs + np.uint64(1)) % np.uint64(self._prime), self._half, self._prime))
            missing -= signs.size
        return np.concatenate([np.zeros(0, np.uint64), *parts])

    @staticmethod
    def numbers_per_bit(parties: int) -> float:
        """Return how many numbers a party sends to each other party per random bit, if many bits are drawn at once."""
        threshold = (parties - 1) // 2
        return 2 / (parties - threshold) + 2 / parties  # a number and a zero; a share of the square, and its root

    async def opened(self, shares: Numbers) -> Numbers:
        """Return the numbers of which these are shares of degree at most 2 t. Zeros of this degree must be in them."""
        return await self._opened(shares, lambda opened: opened)

    async def _opened(self, shares: Numbers, function: Callable[[Numbers], Numbers]) -> Numbers:
        """Open numbers and apply a public function to them: each party does so for a part, and tells all others."""
        cuts = [len(shares) * party // self._parties for party in range(self._parties + 1)]
        parts = [shares[first:end] for first, end in pairwise(cuts)]
        sent = await self._swap([field.to_bytes(part, self._prime) for part in parts])
        size = len(parts[self._index])
        known = [field.from_bytes(message, size, self._prime) for message in sent[: 2 * self._threshold + 1]]
        result = function(field.at_zero(known, self._prime))
        told = await self._swap([field.to_bytes(result, self._prime)] * self._parties)
        pieces = [field.from_bytes(message, len(part), self._prime) for message, part in zip(told, parts, strict=True)]
        return np.concatenate(pieces)

    def _mixed(self, received: Sequence[Numbers]) -> Numbers:
        """Return m - t sums of what m parties sent, in which party i has the weights 1, i, i^2, ..."""
        prime, points = np.uint64(self._prime), np.array(self._points, dtype=np.uint64)[:, None]
        terms, sums = np.stack(received), []
        for _ in range(self._parties - self._threshold):
            sums.append(terms.sum(axis=0, dtype=np.uint64) % prime)
            terms = terms * points % prime
        return np.stack(sums)

    @property
    def _points(self) -> range:
        return range(1, self._parties + 1)

    @property
    def _half(self) -> np.uint64:
        return np.uint64((self._prime + 1) // 2)
