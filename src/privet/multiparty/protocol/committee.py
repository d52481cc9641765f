"""Owners hand in shares to a committee of servers, which opens nothing but the noisy sum.

Two kinds of trust (docs/proofs.md, "A committee of servers"):

- ``majority``: Shamir shares. All servers follow the protocol, and fewer than half of them pool what they see. They
  draw the noise jointly, so its size is that of one central mechanism.
- ``one``: additive shares. Every server adds the noise of the whole plan to its own share. As long as one server is
  honest, everything that all others see is a sum with that server's noise, whatever they do.

This file holds what both roles share, and the owner's side. The server's side is in
:mod:`privet.multiparty.protocol.server`.
"""

import math
from abc import abstractmethod
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.multiparty.protocol.aggregation import Aggregator, JointProblem, Summand, prime_above
from privet.multiparty.protocol.norm_checks import PRIME, NormCheck
from privet.multiparty.protocol.sharing import Additive, Shamir, Sharing
from privet.multiparty.transport.contribution import Contribution
from privet.multiparty.transport.hand_in import HandInError, Servers
from privet.plans.aggregation import AggregationPlan
from privet.plans.committee import Committee
from privet.privacy.guarantees.guarantee import Assumption
from privet.privacy.noise.source import NoiseSource
from privet.solvers.base.interface import Problem


def sharing_of(plan: AggregationPlan, trust: str, servers: int, owners: int, check: NormCheck | None = None) -> Sharing:
    """Return how the sum over the owners of a study is shared."""
    if trust == "one":
        return Additive(servers, plan.dimension)
    farthest = math.ceil(plan.largest * plan.scale) + owners + plan.law.reach  # 1 more per owner for rounding
    if check is None:
        return Shamir(servers, plan.dimension, prime_above(2 * farthest + 1))
    if 2 * farthest + 1 >= PRIME:
        raise ValueError("The sums of this study do not fit into the field in which norms are checked.")
    return Shamir(servers, plan.dimension, PRIME)


def handed_in(sharing: Sharing, check: NormCheck | None) -> Sharing:
    """Return how the owners of a study share what they hand in: their vectors, or with ``check_norms``, their bits."""
    return sharing if check is None else replace(sharing, dimension=check.length)


class CommitteeAggregator(Aggregator):
    """A sum over owners that a committee of servers forms. Both roles follow the same descent."""

    def __init__(self, plan: AggregationPlan, committee: Committee, sharing: Sharing, check: NormCheck | None) -> None:
        super().__init__(plan)
        self.committee = committee
        self._sharing, self._handed_in, self._check = sharing, handed_in(sharing, check), check
        self._rows = 0

    def rows_of(self, problem: JointProblem) -> int:
        """Return the number of rows of the owners who took part in the last release."""
        return self._rows

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise of all servers together."""
        return self.plan.noise_std * self.committee.noise_factor()

    @property
    def _number(self) -> int:
        """The number of the release that is being made."""
        return self.plan.steps - self._left - 1

    def conditions(self) -> tuple[Assumption, ...]:
        """Return who must be honest, and what the servers verified."""
        checked = () if self._check is None else (self._check.condition(self.plan),)
        return self.committee.condition(), *checked

    @abstractmethod
    async def _opened(self, summand: Summand) -> NDArray[Any]:
        """Return the noisy sum on the lattice, as integers."""


class OwnerAggregator(CommitteeAggregator):
    """One owner, who hands in a share of its summand to each server.

    Parameters
    ----------
    plan, committee
        The same for all owners and servers.
    sharing : Sharing
        How sums are split.
    servers : Servers
        The connections with the servers.
    problem : Problem
        The owner's rows.
    digest : bytes
        SHA-256 of the study.
    index : int
        Index of the owner.
    check : NormCheck or None
        What servers verify about contributions.
    """

    def __init__(
        self,
        plan: AggregationPlan,
        committee: Committee,
        sharing: Sharing,
        servers: Servers,
        problem: Problem,
        digest: bytes,
        index: int,
        source: NoiseSource,
        check: NormCheck | None = None,
    ) -> None:
        super().__init__(plan, committee, sharing, check)
        self._servers, self._problem = servers, problem
        self._digest, self._index, self._source = digest, index, source

    async def hand_in(self, summand: Summand, *, waits: bool) -> list[bytes]:
        """Hand in one summand, and return the answers of the servers."""
        mine = self.plan.on_lattice(summand(self._problem))
        secret = mine if self._check is None else self._check.to_bits(mine)
        shares = self._handed_in.split(secret, self._source, first=self._index)
        rows, number = self._problem.rows.n, max(self._number, 0)
        attempt = int.from_bytes(self._source.key()[:8], "little")
        return await self._servers.hand_in(
            [Contribution(self._digest, number, rows, waits, share, attempt) for share in shares]
        )

    async def _opened(self, summand: Summand) -> NDArray[Any]:
        first, *others = await self.hand_in(summand, waits=True)
        if any(other != first for other in others):
            raise HandInError("The servers say that they opened different sums. At least one of them is wrong.")
        self._rows, total = read_answer(first, self.plan.dimension)
        return total


def to_answer(rows: int, total: NDArray[Any]) -> bytes:
    """Return what servers tell owners about a release: the number of rows, and the noisy sum on the lattice."""
    return rows.to_bytes(8, "little") + total.astype("<i8").tobytes()


def read_answer(answer: bytes, dimension: int, fewest: int = 1) -> tuple[int, NDArray[np.int64]]:
    """Return the number of rows, which is at least ``fewest``, and the noisy sum of an answer."""
    rows = int.from_bytes(answer[:8], "little")
    if len(answer) != 8 * (1 + dimension) or rows < fewest:
        raise HandInError("A server sent something other than a noisy sum.")
    return rows, np.frombuffer(answer, dtype="<i8", offset=8).astype(np.int64)
