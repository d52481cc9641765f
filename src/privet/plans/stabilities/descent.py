"""How far a gradient descent without noise can move when one record is replaced."""

import math
from dataclasses import dataclass

from privet.checks import count, nonnegative, positive
from privet.privacy.budget import Adjacency


@dataclass(frozen=True)
class DescentStability:
    """How far ``steps`` steps of full-batch gradient descent can move when one of ``n`` records is replaced.

    Parameters
    ----------
    n : int
        Number of records.
    lipschitz : float
        Bound L on the gradient of one record's loss, without the regulariser, which is the same on neighbours.
    smoothness, strong_convexity : float
        Constants beta and mu of the objective, including the regulariser.
    step_size : float
        Size eta of a step, at most 2/beta.
    steps : int
        Number T of steps.
    first_lipschitz : float or None
        Bound on the gradient of one record's loss at the public starting point, if it is tighter than L. For example,
        a logistic residual at zero weights is 1/2, not 1.
    rounding : float
        Bound on the distance between the computed and the exact result of one step, 0 for exact arithmetic.

    Formal guarantees
    -----------------
    For a convex beta-smooth objective, a gradient step with eta <= 2/beta is a Lipschitz map with constant
    c = max(|1 - eta mu|, |1 - eta beta|) <= 1, and replacing one record moves its result by at most 2 eta L/n. Hence

        Delta_T <= (2 eta L/n) (1 + c + ... + c^(T-1)),

    where the last term, which comes from the first step, has ``first_lipschitz`` in place of L. Rounding moves each of
    two runs by at most ``rounding`` in every step, which adds 2 ``rounding`` to 2 eta L/n. Without it, the bound is
    2 L T eta/n for mu = 0 and at most 2L/(n mu) otherwise. These are Lemmas 2 and 3 of "Efficient Private ERM for
    Smooth Objectives" with tight constants: linear losses, and linear losses plus ridge, attain them.
    """

    n: int
    lipschitz: float
    smoothness: float
    strong_convexity: float
    step_size: float
    steps: int
    first_lipschitz: float | None = None
    rounding: float = 0.0

    adjacency = Adjacency.REPLACE_ONE

    def __post_init__(self) -> None:
        count("n", self.n)
        count("steps", self.steps)
        positive("lipschitz", self.lipschitz)
        if self.first_lipschitz is not None:
            positive("first_lipschitz", self.first_lipschitz)
        positive("smoothness", self.smoothness)
        positive("step_size", self.step_size)
        nonnegative("rounding", self.rounding)
        if nonnegative("strong_convexity", self.strong_convexity) > self.smoothness:
            raise ValueError("strong_convexity cannot exceed smoothness")
        if self.step_size > 2 / self.smoothness:
            raise ValueError(
                f"a step size of {self.step_size:.6g} exceeds 2/smoothness = {2 / self.smoothness:.6g}. The descent "
                "would not be stable, and its sensitivity not bounded: take smaller steps"
            )

    @property
    def contraction(self) -> float:
        """The Lipschitz constant c of one step."""
        return max(abs(1 - self.step_size * self.strong_convexity), abs(1 - self.step_size * self.smoothness))

    @property
    def sensitivity(self) -> float:
        """The bound Delta_T."""
        first = self.lipschitz if self.first_lipschitz is None else min(self.first_lipschitz, self.lipschitz)
        later = self.steps - 1
        decay = min(self.contraction, 1.0) ** later
        earlier = sum_of_powers(self.contraction, later)
        exact = self.step_size / self.n * (self.lipschitz * earlier + first * decay)
        return 2 * float(exact + self.rounding * (earlier + decay))

    def in_words(self) -> str:
        """Return a phrase for the guarantee that states the argument."""
        return (
            f"{self.steps} steps of gradient descent on a convex, {self.smoothness:.4g}-smooth objective of {self.n} "
            f"records move by at most {self.sensitivity:.4g} when one is replaced"
        )


def sum_of_powers(contraction: float, terms: int) -> float:
    """Return 1 + c + ... + c^(terms - 1) for c = ``contraction``, at most 1, without cancellation near 1."""
    c = min(contraction, 1.0)
    if c in {0.0, 1.0}:
        return float(terms if c else min(terms, 1))
    return -math.expm1(terms * math.log(c)) / (1 - c)
