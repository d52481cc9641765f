"""The joint problem of several parties, and sums over the parties of which only the noisy total is opened.

The same training method runs with either of two aggregators. :class:`JointAggregator` is one party of a multi-party
computation, with one process per party. :class:`SimulatedAggregator` runs in a single process that sees all the data,
with the same rounding and the same distribution of noise.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from privet.checks import count
from privet.multiparty.protocol.joint_noise import joint_draw
from privet.multiparty.transport.session import Session
from privet.objectives import BoundedRows, GeneralisedLinear, Regulariser
from privet.objectives.summation import ROUNDING, check_number_of_rows
from privet.plans.aggregation import AggregationPlan
from privet.plans.gradient import PlanError
from privet.privacy.guarantees.guarantee import Assumption, assumed
from privet.privacy.noise.source import NoiseSource
from privet.solvers.base.interface import Problem

Summand = Callable[[Problem], NDArray[Any]]
"""Computes one party's contribution to a sum from its own rows."""

_READY = b"the first noisy sum is ready to be opened"
_BOOKED = b"its budget is booked here"


@dataclass(frozen=True)
class JointProblem:
    """Minimise the mean loss over the rows of all parties plus a regulariser.

    Every row has the same weight, whichever party holds it, so the released model is one of the pooled data. (The
    dissertation gives every *party* the same weight. This is the same if all have equally many rows, and needs more
    noise otherwise.)

    Parameters
    ----------
    objective, regulariser
        As in a :class:`~privet.solvers.base.interface.Problem`.
    counts : tuple of int
        Number of rows of each party, in order; 0 for a party that brings none. The numbers are public, because
        neighbouring tables differ in the *values* of one row.
    row_norm, intercept : float
        Public bound on the norm of a row, which each party enforces, and the value of the constant column.
    n_features : int
        Number of columns without the constant column.
    are_limits : bool
        Whether ``counts`` are upper bounds: owners may bring fewer rows, or stay away.
    """

    objective: GeneralisedLinear
    regulariser: Regulariser
    counts: tuple[int, ...]
    row_norm: float
    intercept: float
    n_features: int
    are_limits: bool = False

    def __post_init__(self) -> None:
        for each in self.counts:
            check_number_of_rows(count("the number of rows of a party", each, at_least=0))
        if not self.n:
            raise ValueError("No party brings any rows. At least one must.")

    @classmethod
    def of(cls, problems: Sequence[Problem]) -> "JointProblem":
        """Return the public part of the parties' problems, which may differ only in their rows and targets."""
        first = problems[0]
        for other in problems:
            alike = (other.rows.row_norm, other.rows.intercept, other.rows.n_features) == (
                first.rows.row_norm,
                first.rows.intercept,
                first.rows.n_features,
            )
            alike = alike and type(other.objective) is type(first.objective)
            if not alike or vars(other.objective) != vars(first.objective) or other.regulariser != first.regulariser:
                raise ValueError(
                    "The problems of the parties differ in row_norm, intercept, columns, loss or regulariser."
                )
        counts = tuple(problem.rows.n for problem in problems)
        rows = first.rows
        return cls(first.objective, first.regulariser, counts, rows.row_norm, rows.intercept, rows.n_features)

    def local(self, X: Any, targets: NDArray[Any]) -> Problem:
        """Return one party's problem: its bounded rows and its targets."""
        return Problem(self.objective, self.regulariser, BoundedRows(X, self.row_norm, self.intercept), targets)

    def of_zeros(self, n: int) -> Problem:
        """Return the problem of n rows of zeros, which has the constants of any other n rows."""
        return self.local(sparse.csr_array((n, self.n_features)), np.zeros(n))

    @property
    def n(self) -> int:
        """Number of rows of all parties."""
        return sum(self.counts)

    def extreme_counts(self) -> set[int]:
        """Return the numbers of rows among which every bound that grows or falls with them has its worst case."""
        return {*self.counts, 1} - {0} if self.are_limits else {*self.counts} - {0}

    @property
    def largest_norm(self) -> float:
        """Largest norm of a row, including the constant column."""
        return math.hypot(self.row_norm, self.intercept)

    @property
    def norm_bound(self) -> float:
        """Largest norm of a row's contribution to a party's sum, including the floating-point rounding."""
        return self.largest_norm * (1 + ROUNDING)

    @property
    def lipschitz(self) -> float:
        """Bound on the gradient of one record's loss."""
        return self.objective.lipschitz(self.norm_bound)

    @property
    def smoothness(self) -> float:
        """Smoothness of the regularised objective."""
        return self.objective.smoothness(self.largest_norm) + self.regulariser.smoothness

    @property
    def dimension(self) -> int:
        """Number of columns, including the constant column."""
        return self.n_features + (1 if self.intercept else 0)

    @property
    def n_weights(self) -> int:
        """Number of weights."""
        return int(self.start().size)

    def start(self) -> NDArray[Any]:
        """Return zero weights."""
        return self.objective.start(self.dimension)


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

    def rows_of(self, problem: JointProblem) -> int:
        """Return the number of rows that the last sum is about. Owners who were left out do not count."""
        return problem.n

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise on each coordinate of a sum, in the units of the sum."""
        return self.plan.noise_std

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
        if self._source is None:
            return total
        return self.plan.noisy(total, self._source)

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
    of all parties plus the noise within its law's ``reach``, so sums do not wrap around: never with the noise for
    delta > 0, and with a probability of at most 2^-40 per coordinate with that for pure epsilon.

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
        if session.parties == 2:
            raise ValueError(
                "Two parties cannot share secrets: of two, one is no minority, so a share is the secret itself. Add a "
                "third party, which may bring no data."
            )
        self._session = session
        self._problem = problem
        self._before_release = before_release
        farthest = session.parties * (math.ceil(plan.largest * plan.scale) + 1) + plan.law.reach  # 1 more for rounding
        self._secret = session.runtime.SecFld(modulus=prime_above(2 * farthest + 1), signed=True)

    async def _opened(self, summand: Summand) -> NDArray[Any]:
        plan, runtime, secret = self.plan, self._session.runtime, self._secret
        if self._problem is None:
            mine = np.zeros(plan.dimension, dtype=np.int64)
        else:
            mine = plan.on_lattice(summand(self._problem))
        shared = runtime.input(secret.array(mine.astype(object)))
        # Centre before opening, because the field holds as many negative numbers as positive ones.
        noisy = sum(shared[1:], start=shared[0]) + self._joint_noise() - plan.law.offset
        if self._before_release is not None:
            await self._session.wait(runtime.gather(noisy))
            await self._session.exchange(_READY)
            self._before_release()
            self._before_release = None
            # A majority of shares can open a sum. All parties must confirm first, so nothing is opened if one failed.
            await self._session.exchange(_BOOKED)
        opened = await self._session.wait(_output(runtime, noisy))
        return np.array([int(element) for element in opened], dtype=np.int64)

    def _joint_noise(self) -> Any:
        """Return shares of the noise before centring."""
        return joint_noise(self._session.runtime, self._secret, self.plan)

    def conditions(self) -> tuple[Assumption, ...]:
        """Return the threat model as an assumption."""
        parties, threshold = self._session.parties, self._session.threshold
        group = "A single party" if threshold == 1 else f"A group of up to {threshold} parties"
        return (
            assumed(
                f"all {parties} parties follow the protocol, and no {threshold + 1} of them combine what they saw. "
                f"{group}, even together with outsiders, learns nothing about the rows of the others beyond the noisy "
                "sums, and nothing about the noise. A larger group could open every sum without its noise. Each "
                "party's number of rows is public"
            ),
        )


def joint_noise(runtime: Any, secret: Any, plan: AggregationPlan) -> Any:
    """Return shares of the noise before centring: jointly random bits, each multiplied by its weight."""
    return joint_draw(runtime, secret, plan.law.recipe(), plan.dimension)


def _output(runtime: Any, shares: Any) -> Awaitable[Any]:
    result: Awaitable[Any] = runtime.output(shares)
    return result


def prime_above(bound: int) -> int:
    """Return the first larger prime that is 3 modulo 4. Joint random bits need square roots, which are then fast."""
    from gmpy2 import next_prime

    prime = next_prime(bound)
    while prime % 4 != 3:
        prime = next_prime(prime)
    return int(prime)
