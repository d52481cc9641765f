"""Sums over all parties, of which each shows only its noisy total.

The same descent runs in two worlds: :class:`JointAggregator` inside a multi-party computation, one process a party, and
:class:`SimulatedAggregator` in one process that sees all the data, with the same rounding and the same law of noise.
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
"""What one party adds to a sum, from its own rows."""

_READY = b"the first noisy sum is ready to be opened"
_BOOKED = b"its budget is booked here"


class Aggregator(ABC):
    """Forms the sums that a plan accounts for, and no more."""

    def __init__(self, plan: AggregationPlan) -> None:
        self.plan = plan
        self._left = plan.steps

    async def noisy_sum(self, summand: Summand) -> NDArray[np.float64]:
        """Return the sum of what ``summand`` gives for each party's rows, rounded and noised as the plan says."""
        if not self._left:
            raise PlanError(f"the plan accounts for {self.plan.steps} noisy sums; this asks for another")
        self._left -= 1
        return self.plan.off_lattice(await self._opened(summand))

    @abstractmethod
    async def _opened(self, summand: Summand) -> NDArray[Any]:
        """Return the noisy sum on the lattice: whole numbers."""

    @abstractmethod
    def conditions(self) -> tuple[Assumption, ...]:
        """Return what a guarantee rests on besides the plan."""


class SimulatedAggregator(Aggregator):
    """All parties in one process, for experiments, tests and audits: no network, the same law.

    Parameters
    ----------
    plan : AggregationPlan
        Lattice, noise and number of sums.
    problems : sequence of Problem
        Each party's rows.
    source : NoiseSource or None
        Of the noise. None leaves it out, which is no release at all: for tests of everything else.
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
        """Return what the simulation assumes: that nobody sees the process that holds everything."""
        if self._source is None:
            return (assumed("the noise was left out: nothing of this may be released"),)
        apart = assumed("this process, which holds the rows of all parties, shows nothing but the noisy sums")
        return apart, self._source.assumption()


class JointAggregator(Aggregator):
    """One party of a multi-party computation.

    Sums and noise exist only as Shamir shares in a prime field, of which ``session.threshold`` or fewer tell nothing.
    The noise is made of jointly random bits: no such coalition knows any of them. What is opened is the noisy sum
    alone. Each summand is held to the plan's ``largest``, and the field is large enough for as many of them as there
    are parties plus the largest noise, so it cannot wrap around.

    Parameters
    ----------
    plan : AggregationPlan
        The same for all parties.
    session : Session
        The connection with the others.
    problem : Problem or None
        This party's rows; None if it brings none.
    before_release : callable or None
        Called once: when all parties hold their share of the first noisy sum, before anything is opened. Where it
        raises, nobody opens anything.
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
        farthest = session.parties * (math.ceil(plan.largest * plan.scale) + 1) + plan.law.reach  # 1 for rounding
        self._secret = session.runtime.SecFld(modulus=_prime_above(2 * farthest + 1), signed=True)

    async def _opened(self, summand: Summand) -> NDArray[Any]:
        plan, runtime, secret = self.plan, self._session.runtime, self._secret
        if self._problem is None:
            mine = np.zeros(plan.dimension, dtype=np.int64)
        else:
            mine = plan.on_lattice(summand(self._problem))
        shared = runtime.input(secret.array(mine.astype(object)))
        # Centred before it is opened: the field holds as many negative numbers as positive ones.
        noisy = sum(shared[1:], start=shared[0]) + self._joint_noise() - plan.law.reach
        if self._before_release is not None:
            await self._session.wait(runtime.gather(noisy))
            await self._session.exchange(_READY)
            self._before_release()
            self._before_release = None
            # A few shares open a sum: who could not book its budget must not find that the others went on without it.
            await self._session.exchange(_BOOKED)
        opened = await self._session.wait(_output(runtime, noisy))
        return np.array([int(element) for element in opened], dtype=np.int64)

    def _joint_noise(self) -> Any:
        """Return shares of the noise, still to be centred: bits that nobody knows, times what each is worth."""
        law, dimension = self.plan.law, self.plan.dimension
        bits = self._session.runtime.np_random_bits(self._secret, dimension * law.bits_drawn)
        worth = self._secret.field.array(law.weights().astype(object))
        return bits.reshape(dimension, law.bits_drawn) @ worth

    def conditions(self) -> tuple[Assumption, ...]:
        """Return the threat model."""
        parties, threshold = self._session.parties, self._session.threshold
        return (
            assumed(
                f"all {parties} parties follow the protocol, and at most {threshold} of them put together what they "
                f"saw: {'any one party' if threshold == 1 else f'any {threshold} of them'} together with everyone "
                "outside then learn nothing of the others' rows beyond the noisy sums, and nothing of the noise; more "
                "could open every sum without its noise. The number of rows each party brings is public"
            ),
        )


def _output(runtime: Any, shares: Any) -> Awaitable[Any]:
    result: Awaitable[Any] = runtime.output(shares)
    return result


def _prime_above(bound: int) -> int:
    """Return the first larger prime that is 3 modulo 4: there a joint bit's square root is one power, and so quick."""
    from gmpy2 import next_prime

    prime = next_prime(bound)
    while prime % 4 != 3:
        prime = next_prime(prime)
    return int(prime)
