"""How far the minimiser of a strongly convex objective can move when one record is replaced."""

from dataclasses import dataclass

from privet.checks import count, nonnegative, positive
from privet.privacy.budget import Adjacency

TOLERATED_SHARE = 0.01  # share of the exact minimiser's sensitivity that an inexact solver may add by default


@dataclass(frozen=True)
class MinimiserStability:
    """How far the minimiser of a mean loss over ``n`` records, plus a regulariser, can move when one is replaced.

    Parameters
    ----------
    n, lipschitz : int, float
        Number of records, and bound L on the gradient of one record's loss without the regulariser.
    strong_convexity : float
        Constant m of the objective, which comes from the regulariser.
    tolerance : float
        Largest norm of the objective's gradient at the computed minimiser; 0 for the exact minimiser.

    Formal guarantees
    -----------------
    If F and F' differ in one record, and the gradients of F at w and of F' at w' are no longer than ``tolerance``, then

        m ||w - w'|| <= ||grad F(w) - grad F(w')|| <= 2 tolerance + 2L/n,

    for every solver and every error that it makes. Linear losses plus (m/2) ||w||^2 attain the bound. For exact
    minimisers it is Corollary 8 of "Differentially Private Empirical Risk Minimization" (Chaudhuri, Monteleoni,
    Sarwate, 2011).
    """

    n: int
    lipschitz: float
    strong_convexity: float
    tolerance: float

    adjacency = Adjacency.REPLACE_ONE

    def __post_init__(self) -> None:
        count("n", self.n)
        positive("lipschitz", self.lipschitz)
        positive("strong_convexity", self.strong_convexity)
        nonnegative("tolerance", self.tolerance)

    @property
    def sensitivity(self) -> float:
        """The bound 2L/(n m) + 2 tolerance/m."""
        return 2 * (self.lipschitz / self.n + self.tolerance) / self.strong_convexity

    def in_words(self) -> str:
        """Return a phrase for the guarantee that states the argument."""
        return (
            f"the minimiser of a {self.strong_convexity:.4g}-strongly convex objective of {self.n} records, computed "
            f"up to a gradient of {self.tolerance:.4g}, moves by at most {self.sensitivity:.4g} when one is replaced"
        )


def default_tolerance(n: int, lipschitz: float) -> float:
    """Return the tolerance that adds 1 % to the exact minimiser's sensitivity."""
    return TOLERATED_SHARE * lipschitz / n
