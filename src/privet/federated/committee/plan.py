"""Plans of federated rounds whose sums a committee of servers opens (docs/proofs.md, section 33).

Such a plan makes two promises. Towards servers and everybody else who knows who takes part, it is composition over all
rounds. Towards outsiders, who see only the global models, sampling amplifies it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from privet import cautions
from privet.checks import count, positive
from privet.federated.updates import ROOM, clipped
from privet.networks import Vector
from privet.plans import PlanError, Sampler
from privet.plans.aggregation import AggregationPlan
from privet.plans.committee import Committee
from privet.plans.samplers import Batch, common_adjacency, named_sampler
from privet.privacy import Adjacency, Assumption, Guarantee, NoiseSource, Unit, assumed, enforced
from privet.privacy.budget import AttackRate, Budget, BudgetLike, given_budget, stated_delta
from privet.privacy.events import Composition, Event, NearlyGaussian
from privet.privacy.noise.lattice import LatticeLaw, rounded_shift

_PUBLIC = (
    ". Any number of clients and the coordinator of the rounds may help the others. Any number may drop out: a client "
    "is left out by all servers or by none. Who takes part in which round is public, and does not depend on anybody's "
    "data. The guarantee is therefore that of composition over all rounds, without amplification by sampling"
)


@dataclass(frozen=True)
class CommitteePlan:
    """Everything that determines rounds with a committee: sampling, clipping, lattice, noise and number of rounds.

    Make it with :func:`committee_plan`.

    Parameters
    ----------
    sums : AggregationPlan
        The lattice, the noise that one server adds (or all of them jointly, with trust "majority"), and the number of
        rounds.
    sampler : Sampler
        How the clients of a round are sampled.
    clip_norm : float
        Bound C on the l2 norm of one client's update.
    committee : Committee
        Who opens the sums, and who must be trusted.
    n_clients : int
        The number of clients, which is public, because each of them has a key.

    Formal guarantees
    -----------------
    :meth:`guarantee` holds towards everybody whom ``committee`` does not name as honest: any number of clients, the
    coordinator and the other servers. Two datasets are neighbours if the data of one client is replaced; who takes part
    is public. :meth:`for_outsiders` holds towards those who see only the global models.
    """

    sums: AggregationPlan
    sampler: Sampler
    clip_norm: float
    committee: Committee
    n_clients: int

    adjacency = Adjacency.REPLACE_ONE
    tasks = 1
    released = "every sum with the noise of the honest servers, and thus the global model of every round"

    def __post_init__(self) -> None:
        positive("clip_norm", self.clip_norm)
        count("n_clients", self.n_clients)
        self.committee.check()
        self.sampler.check_n(self.n_clients)
        if self.sampler.implied_steps is not None:
            raise ValueError(f"Rounds sample by Poisson, FixedSize or FullBatch, got {self.sampler!r}.")
        if self.committee.trust == "majority":
            self.sums.law.recipe()  # raises if several servers cannot draw the noise together
        if self.sums.sensitivity < 2 * self.clip_norm or self.sums.largest < self.n_clients * self.clip_norm:
            raise ValueError(
                f"The sums allow a sensitivity of {self.sums.sensitivity:g} and entries up to {self.sums.largest:g}, "
                f"but {self.n_clients} updates of norm {self.clip_norm:g} need more. Use committee_plan()."
            )

    @property
    def steps(self) -> int:
        """Number of rounds."""
        return self.sums.steps

    @property
    def delta(self) -> float | None:
        """The delta at which guarantees are stated by default."""
        return self.sums.delta

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise of all servers together on each coordinate of a sum."""
        return self.sums.noise_std * self.committee.noise_factor()

    @property
    def noise_multiplier(self) -> float:
        """Standard deviation of the noise of all servers together, divided by ``clip_norm``."""
        return self.noise_std / self.clip_norm

    @property
    def event(self) -> Event:
        """What all sums together release to a server, in the form that composes."""
        return self.sums.event

    def truncated(self, steps: int) -> "CommitteePlan":
        """Return the plan of the first rounds alone."""
        return replace(self, sums=replace(self.sums, steps=count("steps", steps, at_most=self.steps)))

    def divisor(self, n: int) -> float:
        """Return the divisor of a sum: the nominal number of clients per round, whoever takes part."""
        if n != self.n_clients:
            raise ValueError(f"The plan is for {self.n_clients} clients, but there are {n}.")
        return self.sampler.nominal_size(self.n_clients)

    # ------------------------------------------------------------------------------------------------------- a round

    def run(self, n: int, source: NoiseSource) -> "Iterator[CommitteeStep]":
        """Yield the rounds of a run over ``n`` clients."""
        for batch in self.sampler.batches(count("n", n), self.steps, source):
            step = CommitteeStep(batch, self, source)
            yield step
            step.close()

    def contribution(self, update: Vector) -> NDArray[np.int64]:
        """Return what a client hands in: its finite update, clipped and rounded to the lattice."""
        return self.sums.on_lattice(clipped(update, self.clip_norm * ROOM))

    @property
    def bound(self) -> Assumption:
        """The bound on an update, as the client enforces it."""
        return enforced(
            f"each client clips its update to l2 norm {self.clip_norm:.6g} over all layers before it splits it into "
            "shares, and hands in zeros if its training fails or its update is not finite"
        )

    def start_sum(self, size: int) -> "LatticeSum":
        """Return an empty sum of updates with ``size`` weights."""
        if size != self.sums.dimension:
            raise ValueError(
                f"The plan is for a model of {self.sums.dimension} weights, but this one has {size}. Make the plan "
                f"with committee_plan(dimension={size}, ...)."
            )
        return LatticeSum(self)

    # ----------------------------------------------------------------------------------------------------- guarantees

    def guarantee(
        self,
        delta: float | None = None,
        *,
        bound: Assumption | None = None,
        released: str = released,
        unit: Unit = Unit.CLIENT,
    ) -> Guarantee:
        """Return the guarantee of all rounds towards servers, clients and everybody else."""
        made = self.sums.guarantee(delta, bound=bound or self.bound, released=released)
        return replace(made, unit=unit).assuming(self.committee.condition(_PUBLIC))

    def for_outsiders(
        self,
        delta: float | None = None,
        *,
        released: str = "the global model of every round, and thus all averages of them",
        unit: Unit = Unit.CLIENT,
    ) -> Guarantee:
        """Return the guarantee of all rounds towards those who cannot know which clients took part.

        It has the adjacency of the sampler, and counts the noise of a single server. With pure epsilon it is
        :meth:`guarantee`, without amplification.
        """
        adjacency, sums = common_adjacency(None, self.sampler), self.sums
        if not isinstance(sums.law, LatticeLaw):
            return self.guarantee(delta, released=released, unit=unit)
        moves = adjacency.factor * self.clip_norm
        step, distance = sums.law.comparison(sums.tail)
        shift = rounded_shift(moves, sums.scale, sums.dimension, sums.largest * sums.scale)
        sampled = self.sampler.event(adjacency.factor / (step * shift), self.steps, adjacency)
        tails = NearlyGaussian(0.0, self.steps * sums.dimension * distance)
        drawn = enforced(
            f"{self.sampler.in_words()}; {sums.law!r} on a lattice with step 1/{sums.scale:.6g}", detail=True
        )
        hidden = assumed(
            "outsiders cannot find out who takes part in which round, how many do, and whether they were too few: "
            "servers, coordinator and clients keep this to themselves, and the coordinator samples as the plan says, "
            "once for each sum that is opened"
        )
        return Guarantee.of(
            Composition((sampled, tails)),
            adjacency,
            stated_delta(delta, self.delta),
            released=released,
            assumptions=(self.bound, drawn, self.committee.condition(""), hidden, *self.sampler.conditions(unit)),
            unit=unit,
        )


class LatticeSum:
    """The exact sum of clipped updates on the lattice."""

    def __init__(self, plan: CommitteePlan) -> None:
        self._plan, self._total = plan, np.zeros(plan.sums.dimension, dtype=np.int64)

    def add(self, update: Vector) -> None:
        """Add a finite update after clipping and rounding it."""
        self._total += self._plan.contribution(update)

    def total(self) -> NDArray[np.int64]:
        """Return the sum of all updates so far, on the lattice."""
        return self._total


class CommitteeStep:
    """One round: its clients, and the noise of a simulated committee for one sum.

    Attributes
    ----------
    batch : array of int or slice
        The clients that take part.
    """

    def __init__(self, batch: Batch, plan: CommitteePlan, source: NoiseSource) -> None:
        self.batch = batch
        self._plan, self._source, self._is_open = plan, source, True

    def noisy(self, total: NDArray[np.int64]) -> Vector:
        """Return the sum with the noise of all servers. Raise on a second call, which the plan does not account for."""
        self._check_open()
        # Each noise alone satisfies the guarantee. The others are post-processing.
        for _ in range(self._plan.committee.noises):
            total = self._plan.sums.noisy(total, self._source)
        return self._plan.sums.off_lattice(total)

    def opened(self, total: NDArray[np.int64]) -> Vector:
        """Return a sum that servers have opened, with their noise, in the units of the updates."""
        self._check_open()
        return self._plan.sums.off_lattice(total)

    def close(self) -> None:
        """End the round."""
        self._is_open = False

    def _check_open(self) -> None:
        if not self._is_open:
            raise PlanError("The plan accounts for one noisy sum per round, and this would be another one.")
        self._is_open = False


def committee_plan(
    budget: BudgetLike | None = None,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    noise_multiplier: float | None = None,
    n_clients: int,
    clients_per_round: int,
    rounds: int,
    clip_norm: float,
    dimension: int,
    committee: Committee | None = None,
    sampling: str = "poisson",
) -> CommitteePlan:
    """Return the plan of federated rounds with a committee that adds the least noise within the budget.

    Parameters
    ----------
    budget : Budget, float, or pair of floats
        Budget of each client for the whole run, towards everybody who knows who takes part.
    epsilon, delta : float
        An alternative to ``budget``. The default delta is min(1e-6, 0.01/n_clients).
    noise_multiplier : None
        Not supported: the noise lies on a lattice, which is made for a budget.
    n_clients, clients_per_round, rounds, clip_norm, sampling
        As in :func:`~privet.federated.client_plan`.
    dimension : int
        The number of weights of the model.
    committee : Committee
        The servers, and who must be trusted. None means two servers, one of which must be honest.

    Formal guarantees
    -----------------
    Those of :class:`CommitteePlan`. The epsilon of ``plan.guarantee()`` never exceeds the budget.
    """
    target = given_budget(budget, epsilon, delta, noise_multiplier, n_clients)
    if isinstance(target, AttackRate):
        raise ValueError(
            "A committee cannot calibrate to an AttackRate, because its noise lies on a lattice that is made for a "
            "budget. Give a Budget, and read the rates of attacks from guarantee().tpr()."
        )
    if isinstance(target, Budget):
        cautions.about_budget(target.epsilon, target.delta, n_clients, "client's data")
    if not isinstance(target, Budget):
        raise ValueError(
            "A committee cannot add a given noise_multiplier, because its noise lies on a lattice that is made for a "
            "budget. Give budget= instead, or leave out the committee to compare with other noise or with none."
        )
    clip = positive("clip_norm", clip_norm)
    if count("clients_per_round", clients_per_round) > count("n_clients", n_clients):
        raise ValueError(f"clients_per_round={clients_per_round} exceeds n_clients={n_clients}.")
    committee = Committee() if committee is None else committee
    if not isinstance(committee, Committee):
        raise TypeError(f'committee must be a Committee, such as Committee(trust="one", servers=2), got {committee!r}')
    sums = AggregationPlan.for_budget(
        target,
        dimension=dimension,
        steps=rounds,
        sensitivity=2 * clip,
        largest=n_clients * clip,
        jointly=committee.trust == "majority",
    )
    sampler = named_sampler(sampling, clients_per_round, n_clients)
    return CommitteePlan(sums, sampler, clip, committee, n_clients)
