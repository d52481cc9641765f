"""Servers verify that no owner's contribution exceeds its bound, and learn nothing else about it.

With ``check_norms``, an owner hands in shares of bits: those of its coordinates, and those of the distance of its
squared norm from the bound. Servers compute shares of the vector from them, so a vector is in range if its bits are
bits. Both conditions are of second degree, and are tested together with random coefficients at the cost of one opened
number per owner, which is 0 if the owner is honest, and otherwise a random number.

Formal guarantees
-----------------
If all servers follow the protocol and fewer than half of them pool what they see: an honest owner always passes, and
beyond this, servers learn nothing about its contribution. An owner whose contribution exceeds the bound passes with a
probability of at most 2^-51 per release (docs/proofs.md, section 32).
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privet.multiparty.protocol import prime_field as field
from privet.multiparty.protocol.joint_randomness import JointRandomness
from privet.multiparty.protocol.sharing import Integers, Share
from privet.multiparty.transport.session import Session
from privet.objectives.summation import ROUNDING
from privet.plans.aggregation import AggregationPlan
from privet.privacy.guarantees.guarantee import Assumption, enforced
from privet.privacy.noise.source import NoiseSource

PRIME = (1 << 53) - 145
"""The modulus of studies with ``check_norms``: the largest prime below 2^53 that is 3 modulo 4."""
_SLACK = 1 + 4 * ROUNDING  # for the rounding errors of a computed sum
LEFT_OUT = (
    "the servers left this owner out, because its contribution exceeds the bound of the study. Install privet again: "
    "what its own functions hand in never exceeds the bound."
)


@dataclass(frozen=True)
class NormCheck:
    """What owners hand in if norms are checked, and what servers verify.

    Parameters
    ----------
    dimension : int
        Number of coordinates of a contribution.
    bound : int
        The largest squared l2 norm of a contribution on the lattice.
    """

    dimension: int
    bound: int

    def __post_init__(self) -> None:
        if self.dimension * 4 ** (self.bits - 1) + 2**self.slack_bits > PRIME:
            raise ValueError(
                f"check_norms needs the squared norms of {self.dimension} numbers of up to {self.bits} bits, which do "
                "not fit into 53 bits. Use a smaller rows_per_owner, or fewer columns."
            )

    @classmethod
    def of(cls, plan: AggregationPlan, owners: int) -> "NormCheck":
        """Return the check of a plan in which each owner may bring the same number of rows.

        A sum over all owners is bounded by ``plan.largest``, and an owner's part of this bound is its part of the rows:
        for sums of gradients, the number of its rows times the bound on one gradient, and for minimisers, the largest
        norm of a minimiser times its weight. Rounding to the lattice moves a vector by at most sqrt(d)/2.
        """
        longest = plan.largest / owners * plan.scale * _SLACK + math.sqrt(plan.dimension) / 2
        return cls(plan.dimension, math.floor(longest**2 * (1 + 1e-12)))

    @property
    def bits(self) -> int:
        """Bits of a coordinate, including one for its sign."""
        return math.isqrt(self.bound).bit_length() + 1

    @property
    def slack_bits(self) -> int:
        """Bits of the distance between the squared norm and its bound."""
        return self.bound.bit_length()

    @property
    def length(self) -> int:
        """How many bits an owner hands in."""
        return self.dimension * self.bits + self.slack_bits

    def condition(self, plan: AggregationPlan) -> Assumption:
        """Return what is verified, for the guarantee."""
        return enforced(
            "the servers verified that each contribution has l2 norm at most "
            f"{math.sqrt(self.bound) / plan.scale:.6g}, and learned nothing about it but whether it does. Owners who "
            "exceed it are left out and named",
            detail=True,
        )

    def to_bits(self, vector: Integers) -> Integers:
        """Return what an owner hands in: the bits of each coordinate plus an offset, and those of the slack."""
        slack = self.bound - sum(int(each) ** 2 for each in vector)
        if slack < 0:
            raise ValueError("a contribution exceeds the norm that the plan allows, so nothing was handed in")
        coordinates = (vector + (1 << self.bits - 1))[:, None] >> np.arange(self.bits) & 1
        return np.concatenate([coordinates.ravel(), slack >> np.arange(self.slack_bits) & 1])

    def vector(self, share: Share) -> Share:
        """Return a share of the vector, given a share of the bits."""
        coordinates = share[: self.dimension * self.bits].reshape(-1, self.bits)
        return field.difference(_weighed(coordinates), np.uint64(1 << self.bits - 1), PRIME)

    def violation(self, share: Share, coefficients: Share) -> Share:
        """Return a share, of twice the degree, of a random sum of all that must be 0.

        This is v (v - 1) for each bit v, and the squared norm plus the slack minus the bound.
        """
        terms = field.product(share, field.difference(share, np.uint64(1), PRIME), PRIME)
        vector = self.vector(share)
        norm = field.total(field.product(vector, vector, PRIME), PRIME) + _weighed(share[-self.slack_bits :])
        excess = field.difference(norm % np.uint64(PRIME), np.uint64(self.bound), PRIME)
        return field.total(field.product(np.append(terms, excess), coefficients, PRIME), PRIME)

    async def failed(self, joint: JointRandomness, shares: Mapping[int, Share], key: bytes) -> list[int]:
        """Return the owners whose contribution exceeds the bound. The key must be drawn after all shares have arrived.

        A random sum of violations is first opened behind a random number, which makes its degree that of the shares.
        Then it is multiplied by another random number, so that nothing is opened but whether it is 0.
        """
        if not shares:
            return []
        coefficients = NoiseSource.expanded(key, self.length + 1) % np.uint64(PRIME)
        violations = np.array([self.violation(share, coefficients) for share in shares.values()], dtype=np.uint64)
        numbers, zeros = (each.reshape(2, -1) for each in await joint.pairs(2 * len(shares)))
        hidden = await joint.opened((violations + numbers[0] + zeros[0]) % np.uint64(PRIME))
        reduced = field.difference(hidden, numbers[0], PRIME)
        scaled = await joint.opened((field.product(reduced, numbers[1], PRIME) + zeros[1]) % np.uint64(PRIME))
        return [owner for owner, number in zip(shares, scaled, strict=True) if number]


async def beyond_bound(
    session: Session, source: NoiseSource, check: NormCheck, shares: Mapping[int, Share]
) -> list[int]:
    """Return the owners whose contribution exceeds its bound, as one of the servers, which all call this.

    All servers have agreed on the owners, and their shares are known to have the right degree.
    """
    everyone = range(session.parties)

    async def swap(messages: Sequence[bytes]) -> list[bytes]:
        others = [index for index in everyone if index != session.index]
        for index in others:
            session.send(index, messages[index])
        received = {index: await session.receive(index) or b"" for index in others}
        return [received.get(index, messages[session.index]) for index in everyone]

    joint = JointRandomness(swap, source, session.index, session.parties, session.threshold, PRIME)
    key = hashlib.sha256(b"".join(await session.exchange(source.key()))).digest()  # nobody knew it before
    return await check.failed(joint, shares, key)


def _weighed(bits: NDArray[np.uint64]) -> Share:
    """Return the sum of bits times powers of two, along the last axis, modulo the prime."""
    weights = np.left_shift(np.uint64(1), np.arange(bits.shape[-1], dtype=np.uint64)) % np.uint64(PRIME)
    return field.total(field.product(bits, weights, PRIME), PRIME)
