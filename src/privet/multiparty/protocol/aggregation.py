"""Sums over all parties, of which only the noisy total is opened.

The same training method runs with either of two aggregators. :class:`JointAggregator` is one party of a multi-party
computation, with one process per party. :class:`SimulatedAggregator` runs in a single process that sees all the data,
with the same rounding and the same distribution of noise.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.multiparty.transport.network import Session
from privet.plans.aggregation import AggregationPlan
from privet.plans.step import PlanError
from privet.privacy.guarantees.guarantee import Assumption, assumed
from privet.privacy.noise.source import NoiseSource
from privet.solvers.base.problem import Problem

Summand = Callable[[Problem], NDArray[Any]]
"""Computes one party's contribution to a sum from its own rows."""

_READY = b"the first noisy sum is ready to be opened"
_BOOKED = b"its budget is booked here"


class Aggregator(ABC):
    """Forms the noisy sums that a plan accounts for, and refuses any further ones."""

    def __init__(self, plan: AggregationPlan) -> None:
        self.plan = plan
        self._left = plan.steps

    async def noisy_sum(self, summand: Summand) -> NDArray[np.float64]:
        """Return the sum of ``summand`` over the parties, with the rounding and the noise of the plan."""
        if not self._left:
            steps = self.plan.steps
            raise PlanError(
                f"The plan accounts for {steps} noisy sum{'s' if steps > 1 else ''}, and this would be one more."
            )
        self._left -= 1
        return self.plan.off_lattice(await self._opened(summand))

    @abstractmethod
    async def _opened(self, summand: Summand) -> NDArray[Any]:
        """Return the noisy sum on the lattice, as integers."""

    @abstractmethod
    def conditions(self) -> tuple[Assumption, ...]:
        """Return the assumptions of a guarantee that are not those of the plan."""


class SimulatedAggregator(Aggregator):
    """All parties in one process without a network, for experiments, tests and audits.

    Parameters
    ----------
    plan : AggregationPlan
        Lattice, noise and number of sums.
    problems : sequence of Problem
        Each party's rows.
    source : NoiseSource or None
        Source of the noise. None leaves the noise out, for tests; the result must then not be released.
    """

    def __init__(self, plan: AggregationPlan, problems: Sequence[Problem], source: NoiseSource | None) -> None:
        super().__init__(plan)
        self._problems = problems
        self._source = source

    async def _opened(self, summand: Summand) -> NDArray[Any]:
        total = np.zeros(self.plan.dimension, dtype=np.int64)
        for problem in self._problems:
            total += self.plan.on_lattice(summand(problem))
        return total if self._source is None else total + self._source.lattice(total.size, self.plan.law)

    def conditions(self) -> tuple[Assumption, ...]:
        """Return the assumption that nobody sees inside the process that holds the rows of all parties."""
        if self._source is None:
            return (assumed("the noise was left out, so the result must not be released"),)
        apart = assumed("this process holds the rows of all parties, and reveals only the noisy sums")
        return apart, self._source.assumption()


class JointAggregator(Aggregator):
    """One party of a multi-party computation.

    Sums and noise exist only as Shamir shares in a prime field, and ``session.threshold`` or fewer shares reveal
    nothing. The noise is made of jointly random bits that no such group of parties knows. Only the noisy sum is opened.
    Each party's contribution is checked against the plan's ``largest``, and the field has room for the contributions
    of all parties plus the largest noise, so sums cannot wrap around.

    Parameters
    ----------
    plan : AggregationPlan
        The same for all parties.
    session : Session
        The connection with the other parties.
    problem : Problem or None
        This party's rows, or None if it brings none.
    before_release : callable or None
        Called once, after all parties hold their share of the first noisy sum and before anything is opened. If it
        raises at any party, no party opens anything.
    """

    def __init__(
        self,
        plan: AggregationPlan,
        session: Session,
        problem: Problem | None,
        before_release: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(plan)
        self._session = session
        self._problem = problem
        self._before_release = before_release
        farthest = session.parties * (math.ceil(plan.largest * plan.scale) + 1) + plan.law.reach  # 1 more for rounding
        self._secret = session.runtime.SecFld(modulus=_prime_above(2 * farthest + 1), signed=True)

    async def _opened(self, summand: Summand) -> NDArray[Any]:
        plan, runtime, secret = self.plan, self._session.runtime, self._secret
        if self._problem is None:
            mine = np.zeros(plan.dimension, dtype=np.int64)
        else:
            mine = plan.on_lattice(summand(self._problem))
        shared = runtime.input(secret.array(mine.astype(object)))
        # Centre before opening, because the field holds as many negative numbers as positive ones.
        noisy = sum(shared[1:], start=shared[0]) + self._joint_noise() - plan.law.reach
        if self._before_release is not None:
            await self._session.wait(runtime.gather(noisy))
            await self._session.exchange(_READY)
            self._before_release()
            self._before_release = None
            # A majority of shares can open a sum. All must confirm, so that none is opened without a party that failed.
            await self._session.exchange(_BOOKED)
        opened = await self._session.wait(_output(runtime, noisy))
        return np.array([int(element) for element in opened], dtype=np.int64)

    def _joint_noise(self) -> Any:
        """Return shares of the noise before centring: jointly random bits, each multiplied by its weight."""
        law, dimension = self.plan.law, self.plan.dimension
        bits = self._session.runtime.np_random_bits(self._secret, dimension * law.bits_drawn)
        weights = self._secret.field.array(law.weights().astype(object))
        return bits.reshape(dimension, law.bits_drawn) @ weights

    def conditions(self) -> tuple[Assumption, ...]:
        """Return the threat model as an assumption."""
        parties, threshold = self._session.parties, self._session.threshold
        return (
            assumed(
                f"all {parties} parties follow the protocol, and at most {threshold} of them "
                f"{'combines what it saw with others' if threshold == 1 else 'combine what they saw'}. "
                "Such a group learns nothing about the rows of the others beyond the noisy sums, and nothing about the "
                "noise. A larger group could open every sum without its noise. Each party's number of rows is public"
            ),
        )


def _output(runtime: Any, shares: Any) -> Awaitable[Any]:
    result: Awaitable[Any] = runtime.output(shares)
    return result


def _prime_above(bound: int) -> int:
    """Return the first larger prime that is 3 modulo 4, which makes square roots of joint bits quick."""
    from gmpy2 import next_prime

    prime = next_prime(bound)
    while prime % 4 != 3:
        prime = next_prime(prime)
    return int(prime)
