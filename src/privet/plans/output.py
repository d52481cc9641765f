"""Output perturbation: compute without noise, then add noise once, scaled to how far the result can move."""

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from privet.checks import count, nonnegative, positive
from privet.plans.base import delta_of
from privet.privacy.analyses.gaussian import gaussian_sigma
from privet.privacy.budget import Adjacency, Budget
from privet.privacy.events import Event, GaussianRelease, PureRelease
from privet.privacy.guarantees.guarantee import Assumption, Guarantee, Unit, assumed, enforced
from privet.privacy.noise.source import NoiseSource


class Stability(Protocol):
    """A computation whose result is known to move by at most ``sensitivity`` between neighbouring datasets."""

    @property
    def sensitivity(self) -> float:
        """Largest l2 distance between the results on two neighbours."""
        ...

    @property
    def adjacency(self) -> Adjacency:
        """Which neighbours."""
        ...

    def in_words(self) -> str:
        """Return the argument, for the guarantee."""
        ...


@dataclass(frozen=True)
class DescentStability:
    """How far ``steps`` steps of full-batch gradient descent can move when one of ``n`` records is replaced.

    Parameters
    ----------
    n : int
        Number of records.
    lipschitz : float
        Bound L on the gradient of one record's loss (the data term alone: a regulariser cancels between neighbours).
    smoothness, strong_convexity : float
        beta and mu of the objective, regulariser included.
    step_size, steps : float, int
        Of the descent; step_size at most 2/beta.
    first_lipschitz : float or None
        Bound on the gradient of one record's loss at the public start, where a tighter one than L is known: at zero
        weights a logistic residual is 1/2, not 1.

    Formal guarantees
    -----------------
    For a convex beta-smooth objective, a gradient step with eta <= 2/beta is a Lipschitz map with constant
    c = max(|1 - eta mu|, |1 - eta beta|) <= 1, and replacing one record moves its result by at most 2 eta L/n. Hence

        Delta_T <= (2 eta L/n) (1 + c + ... + c^(T-1)),

    with ``first_lipschitz`` in the place of L in the last term, that of the first step. It is 2 L T eta/n for mu = 0
    and at most 2L/(n mu) otherwise. This is Lemmas 2 and 3 of "Efficient Private ERM
    for Smooth Objectives" with the constants that are attained: by linear losses, and by ridge plus linear losses.
    """

    n: int
    lipschitz: float
    smoothness: float
    strong_convexity: float
    step_size: float
    steps: int
    first_lipschitz: float | None = None

    adjacency = Adjacency.REPLACE_ONE

    def __post_init__(self) -> None:
        count("n", self.n)
        count("steps", self.steps)
        positive("lipschitz", self.lipschitz)
        if self.first_lipschitz is not None:
            positive("first_lipschitz", self.first_lipschitz)
        positive("smoothness", self.smoothness)
        positive("step_size", self.step_size)
        if nonnegative("strong_convexity", self.strong_convexity) > self.smoothness:
            raise ValueError("strong_convexity cannot exceed smoothness")
        if self.step_size > 2 / self.smoothness:
            raise ValueError(
                f"a step size of {self.step_size:.6g} exceeds 2/smoothness = {2 / self.smoothness:.6g}: the descent "
                "would no longer be stable, and its sensitivity not bounded; take smaller steps"
            )

    @property
    def contraction(self) -> float:
        """The Lipschitz constant c of one step."""
        return max(abs(1 - self.step_size * self.strong_convexity), abs(1 - self.step_size * self.smoothness))

    @property
    def sensitivity(self) -> float:
        """Delta_T."""
        first = self.lipschitz if self.first_lipschitz is None else min(self.first_lipschitz, self.lipschitz)
        later = self.steps - 1
        c = min(self.contraction, 1.0)
        # 1 + c + ... + c^(T-2), without the cancellation of (1 - c^(T-1))/(1 - c) near c = 1.
        terms = later if c == 1.0 else -np.expm1(later * np.log(c)) / (1 - c) if c > 0 else min(later, 1)
        return 2 * self.step_size / self.n * float(self.lipschitz * terms + first * c**later)

    def in_words(self) -> str:
        """Return the argument in one line."""
        return (
            f"{self.steps} steps of gradient descent on a convex, {self.smoothness:.4g}-smooth objective of {self.n} "
            f"records move by at most {self.sensitivity:.4g} when one is replaced"
        )


@dataclass(frozen=True)
class OutputPlan:
    """A stable computation and the noise for its result.

    Parameters
    ----------
    stability : Stability
        The computation, and how far its result can move.
    scale : float
        Standard deviation (Gaussian) or scale of the density exp(-||z||/scale) (K-norm).
    is_pure : bool
        Whether the noise is K-norm, for pure epsilon, rather than Gaussian.
    delta : float or None
        The delta at which :meth:`guarantee` is stated by default.

    Formal guarantees
    -----------------
    Gaussian: exactly (sensitivity/scale)-GDP. K-norm: exactly (sensitivity/scale)-DP, delta = 0.
    """

    stability: Stability
    scale: float
    is_pure: bool
    delta: float | None = field(default=None, compare=False, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        positive("scale", self.scale)

    @classmethod
    def for_budget(cls, budget: Budget, *, stability: Stability) -> "OutputPlan":
        """Return the plan with the least noise for ``budget``: K-norm noise if delta is 0, Gaussian otherwise."""
        sensitivity = positive("sensitivity", stability.sensitivity)
        if not budget.is_pure:
            return cls(stability, gaussian_sigma(sensitivity, budget), is_pure=False, delta=budget.delta)
        scale = sensitivity / budget.epsilon
        while sensitivity / scale > budget.epsilon:  # the division may have rounded down
            scale = float(np.nextafter(scale, np.inf))
        return cls(stability, scale, is_pure=True, delta=0.0)

    @property
    def adjacency(self) -> Adjacency:
        """The adjacency of the stability argument."""
        return self.stability.adjacency

    @property
    def event(self) -> Event:
        """What is released, in the form that composes."""
        ratio = self.stability.sensitivity / self.scale
        return PureRelease(ratio) if self.is_pure else GaussianRelease(ratio)

    def guarantee(
        self,
        delta: float | None = None,
        *,
        bound: Assumption | None = None,
        released: str = "the result, with noise added once",
        unit: Unit = Unit.RECORD,
    ) -> Guarantee:
        """Return the guarantee of one release.

        The stability argument is *assumed* unless ``bound`` says that the solver enforces what it rests on.
        """
        bound = bound or assumed(self.stability.in_words())
        law = "l2 K-norm noise (Gamma radius, uniform direction) of scale" if self.is_pure else "Gaussian noise of std"
        return Guarantee.of(
            self.event,
            self.adjacency,
            delta_of(self, delta),
            released=released,
            assumptions=(bound, enforced(f"{law} {self.scale:.6g} is added once to the result")),
            unit=unit,
        )

    def noisy(self, result: NDArray[Any], source: NoiseSource) -> NDArray[Any]:
        """Return the result with its noise."""
        draw = source.k_norm if self.is_pure else source.gaussian
        noise: NDArray[Any] = draw(result.shape, self.scale, result.dtype)
        noise += result
        return noise
