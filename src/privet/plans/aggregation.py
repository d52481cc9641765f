"""Sums over several parties that do not reveal their summands, with noise that no party knows."""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.checks import count, nonnegative, positive
from privet.plans.noise_laws import law_within
from privet.privacy.budget import Adjacency, BudgetLike, as_budget, stated_delta
from privet.privacy.events import Event
from privet.privacy.guarantees.guarantee import Assumption, Guarantee, assumed, enforced
from privet.privacy.noise.lattice import rounded, rounded_shift
from privet.privacy.noise.law import NoiseLaw
from privet.privacy.noise.source import NoiseSource
from privet.privacy.noise.watch import Claim

_LARGEST = 2.0**50  # scaled sums must be integers that float64 represents exactly, with room to spare


@dataclass(frozen=True)
class AggregationPlan:
    """``steps`` sums of vectors, one vector per party, each rounded to a lattice and noised on that lattice.

    Parameters
    ----------
    dimension, steps : int
        Length of the vectors, and number of sums that are released.
    sensitivity : float
        How far, in l2 norm, a sum can move when one record of one party is replaced. Only that party's summand moves.
    largest : float
        Bound on the absolute value of each coordinate of a sum before noise, which the lattice must hold.
    scale : float
        Number of lattice steps per unit.
    law : NoiseLaw
        Distribution of the noise in lattice steps.
    tail : float
        Probability per coordinate of the noise's tails, which the analysis treats separately. 0 for pure epsilon.
    delta : float or None
        The delta at which :meth:`guarantee` is stated by default.

    Formal guarantees
    -----------------
    On the lattice, a replaced record moves a sum by at most :attr:`shift`, including rounding. The law says what
    ``steps`` such sums release together, each of which may depend on the earlier ones:

    - :class:`~privet.privacy.noise.lattice.LatticeLaw`: they are within total variation ``steps * dimension *
      distance`` of a release that is (c * shift * sqrt(steps))-Gaussian-DP, where (c, distance) is its
      :meth:`~privet.privacy.noise.lattice.LatticeLaw.comparison`.
    - :class:`~privet.privacy.noise.laplace.BinaryLaplace`, which parties can draw together: pure epsilon, ``steps *
      sqrt(dimension) * shift`` times that of a shift by one.
    - :class:`~privet.privacy.noise.k_norm.KNormLaw`, which one process draws: pure epsilon, ``steps * shift / scale``.

    The guarantee holds towards everyone who sees the sums but does not know the noise.
    """

    dimension: int
    steps: int
    sensitivity: float
    largest: float
    scale: float
    law: NoiseLaw
    tail: float
    delta: float | None = field(default=None, compare=False, repr=False, kw_only=True)

    adjacency = Adjacency.REPLACE_ONE
    tasks = 1

    def __post_init__(self) -> None:
        count("dimension", self.dimension)
        count("steps", self.steps)
        for name in ("sensitivity", "largest", "scale"):
            positive(name, getattr(self, name))
        (nonnegative if self.law.is_pure else positive)("tail", self.tail)
        if self.reach > _LARGEST:
            raise ValueError(
                f"sums of up to {self.largest:.3g} do not fit the lattice with step 1/{self.scale:.3g}, because the "
                "sums are too large for so little noise: rounding to the lattice would not be exact"
            )

    @classmethod
    def for_budget(
        cls, budget: BudgetLike, *, dimension: int, steps: int, sensitivity: float, largest: float, jointly: bool = True
    ) -> "AggregationPlan":
        """Return the plan with the least noise for ``budget``, on the coarsest lattice whose rounding costs little.

        ``jointly`` says whether several parties must be able to draw the noise together. With delta = 0, noise that one
        process draws can be smaller.
        """
        budget = as_budget(budget)
        count("dimension", dimension)
        count("steps", steps)
        positive("sensitivity", sensitivity)
        positive("largest", largest)
        law, tail, shift = law_within(budget, dimension, steps, jointly)
        # What rounding leaves of the shift for the signal, whose product with the scale is rounded, too.
        scale = (shift * (1 - 1e-9) - math.sqrt(dimension)) / (sensitivity + math.sqrt(dimension) * 2.0**-52 * largest)
        if scale <= 0:
            raise ValueError(
                f"epsilon = {budget.epsilon:g} over {steps} sums of {dimension} coordinates needs more noise than the "
                "lattice can hold: use fewer steps, or a larger epsilon or delta"
            )
        plan = cls(dimension, steps, sensitivity, largest, scale, law, tail, delta=budget.delta)
        excess = plan.shift / shift
        while (epsilon := plan.guarantee().epsilon) > budget.epsilon:  # products of large numbers are rounded, too
            if not math.isfinite(epsilon):  # A smaller scale cannot help if the tails alone exceed delta.
                raise ValueError(
                    f"the tails of the noise have more probability than delta = {budget.delta:g} allows: use a larger "
                    "delta"
                )
            excess *= 1 + 1e-6
            plan = replace(plan, scale=scale / excess)
        return plan

    @property
    def shift(self) -> float:
        """How far a sum moves on the lattice, in l2 norm, when one record is replaced."""
        return rounded_shift(self.sensitivity, self.scale, self.dimension, self.largest * self.scale)

    def claim(self) -> Claim:
        """Return what the plan says about a sum on the lattice, for audits."""
        return Claim(self.shift, scale=1 / self.law.cost(self.dimension, self.tail))

    @property
    def reach(self) -> float:
        """Bound on the absolute value of an opened sum in lattice steps, which a field of integers must hold."""
        return self.largest * self.scale + self.law.reach

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise on each coordinate of a sum, in the units of the sum."""
        return self.law.std / self.scale

    @property
    def event(self) -> Event:
        """What all sums together release, in the form that composes."""
        return self.law.event(self.shift, self.dimension, self.steps, self.tail)

    def guarantee(
        self, delta: float | None = None, *, bound: Assumption | None = None, released: str = "every noisy sum"
    ) -> Guarantee:
        """Return the guarantee of all sums, towards everyone who does not know the noise.

        The plan cannot see what is summed: unless ``bound`` says that the sensitivity is enforced, it is *assumed*.
        """
        bound = bound or assumed(f"a replaced record moves a sum by at most {self.sensitivity:.6g}")
        drawn = enforced(
            f"sums are rounded to a lattice with step 1/{self.scale:.6g}, which the sensitivity includes, and get "
            f"noise on that lattice: {self.law.description()}",
            detail=True,
        )
        return Guarantee.of(
            self.event, self.adjacency, stated_delta(delta, self.delta), released=released, assumptions=(bound, drawn)
        )

    def on_lattice(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Return one party's summand on the lattice. Raise if it is not finite, or too large for the plan."""
        values = np.asarray(values, dtype=np.float64)
        if values.shape != (self.dimension,):
            raise ValueError(
                f"the plan is for vectors of length {self.dimension}, got an array of shape {values.shape}"
            )
        if not np.isfinite(values).all() or np.abs(values).max(initial=0.0) > self.largest:
            raise ValueError(
                f"a summand is not finite, or larger than the {self.largest:.6g} that the plan allows. The bound of "
                "the plan does not hold, so nothing is released."
            )
        return rounded(values, self.scale)

    def noisy(self, total: NDArray[np.int64], source: NoiseSource) -> NDArray[np.int64]:
        """Return a sum on the lattice with the noise of the plan, drawn by this process."""
        return source.add_lattice(total, self.law, self.claim())

    def off_lattice(self, total: NDArray[Any]) -> NDArray[np.float64]:
        """Return an opened sum in its original units."""
        return np.asarray(total, dtype=np.float64) / self.scale
