"""Output perturbation: compute without noise, then add noise once, scaled to how far the result can move."""

import math
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from privet.checks import count, positive, quotient_above
from privet.plans.stabilities.base import Stability
from privet.plans.tasks import all_runs, black_box_share, of_tasks
from privet.privacy.analyses.gaussian import as_exact_budget, gaussian_sigma
from privet.privacy.budget import Adjacency, BudgetLike, stated_delta
from privet.privacy.events import Event, GaussianRelease, PureRelease
from privet.privacy.guarantees.guarantee import Assumption, Guarantee, Unit, assumed, enforced
from privet.privacy.noise.release import checked_grid, in_words
from privet.privacy.noise.source import NoiseSource
from privet.privacy.noise.watch import Claim


@dataclass(frozen=True)
class OutputPlan:
    """A stable computation, and the noise that is added once to its result.

    Parameters
    ----------
    stability : Stability
        The computation, and how far its result can move between neighbouring datasets.
    scale : float
        Standard deviation of Gaussian noise, or scale of K-norm noise with density proportional to exp(-||z||/scale).
    is_pure : bool
        Whether the noise is K-norm noise, which gives pure epsilon, rather than Gaussian.
    tasks : int
        How many such computations are made on the same data, each with its own noise.
    delta : float or None
        The delta at which :meth:`guarantee` is stated by default.

    Formal guarantees
    -----------------
    With Gaussian noise, one release is exactly (sensitivity/scale)-GDP. With K-norm noise, it is exactly
    (sensitivity/scale)-DP, with delta = 0. Several tasks compose.
    """

    stability: Stability
    scale: float
    is_pure: bool
    tasks: int = 1
    delta: float | None = field(default=None, compare=False, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        count("tasks", self.tasks)
        checked_grid(positive("scale", self.scale))  # raises if the noise is out of range

    @classmethod
    def for_budget(cls, budget: BudgetLike, *, stability: Stability, tasks: int = 1) -> "OutputPlan":
        """Return the plan with the least noise for ``budget``: K-norm noise if delta is 0, Gaussian otherwise."""
        budget = as_exact_budget(budget)
        sensitivity = positive("sensitivity", stability.sensitivity)
        # As vectors, the results of all tasks together move sqrt(tasks) times as far as one.
        together = sensitivity if tasks == 1 else sensitivity * math.sqrt(count("tasks", tasks)) * (1 + 1e-12)
        if not budget.is_pure:
            return cls(stability, gaussian_sigma(together, budget), is_pure=False, tasks=tasks, delta=budget.delta)
        scale = quotient_above(sensitivity, black_box_share(budget, tasks).epsilon)
        return cls(stability, scale, is_pure=True, tasks=tasks, delta=0.0)

    @property
    def adjacency(self) -> Adjacency:
        """The adjacency of the stability argument."""
        return self.stability.adjacency

    @property
    def event(self) -> Event:
        """What is released, in the form that composes."""
        ratio = quotient_above(self.stability.sensitivity, self.scale)
        return all_runs(PureRelease(ratio) if self.is_pure else GaussianRelease(ratio), self.tasks)

    def guarantee(
        self,
        delta: float | None = None,
        *,
        bound: Assumption | None = None,
        released: str = "the result, with noise added once",
        unit: Unit = Unit.RECORD,
    ) -> Guarantee:
        """Return the guarantee of one release, or of all releases for several tasks.

        The stability argument is *assumed* unless ``bound`` says that the solver enforces what it rests on.
        """
        bound = bound or assumed(self.stability.in_words())
        law = "l2 K-norm noise (Gamma radius, uniform direction) of scale" if self.is_pure else "Gaussian noise of std"
        noise = f"{law} {self.scale:.6g} is added once to the result, {in_words(self.scale, self.is_pure)}"
        return Guarantee.of(
            self.event,
            self.adjacency,
            stated_delta(delta, self.delta),
            released=of_tasks(released, self.tasks),
            assumptions=(bound, enforced(noise, detail=True)),
            unit=unit,
        )

    def noisy(self, result: NDArray[Any], source: NoiseSource) -> NDArray[Any]:
        """Return the result with its noise."""
        claim = Claim(self.stability.sensitivity)
        if self.is_pure:
            return source.add_k_norm(result, self.scale, claim)
        return source.add_gaussian(result, self.scale, None, None, claim)
