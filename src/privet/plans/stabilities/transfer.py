"""How far a teacher's scores of public rows can move when one of the records it learnt from is replaced."""

import math
from dataclasses import dataclass

from privet.checks import count, positive
from privet.plans.stabilities.minimiser import MinimiserStability
from privet.privacy.budget import Adjacency, Budget


@dataclass(frozen=True)
class TransferStability:
    """How far the scores X~ w of public rows X~ can move, w being a certified minimiser.

    Parameters
    ----------
    minimiser : MinimiserStability
        How far w can move.
    stretch : float
        Bound on |X~ v| / |v|, the operator norm, with room for the rounding of scores.

    Formal guarantees
    -----------------
    |X~ w - X~ w'| <= stretch |w - w'|, and |w - w'| is bounded by :class:`MinimiserStability`. No assumption on how X~
    was drawn, but that it owes nothing to the private records.
    """

    minimiser: MinimiserStability
    stretch: float

    adjacency = Adjacency.REPLACE_ONE

    def __post_init__(self) -> None:
        positive("stretch, the operator norm of public features,", self.stretch)

    @property
    def sensitivity(self) -> float:
        """The operator norm times the minimiser's sensitivity."""
        return self.stretch * self.minimiser.sensitivity

    def in_words(self) -> str:
        """Return the argument in one line."""
        return (
            f"{self.minimiser.in_words()}, and its scores of public rows of operator norm at most {self.stretch:.4g} "
            f"by at most {self.sensitivity:.4g}"
        )


@dataclass(frozen=True)
class PaperTransferStability:
    """What Theorem 3.3.3 of Wang (2021) takes for granted of a sparse teacher's scores. FALSE for some data.

    Parameters
    ----------
    n, n_public : int
        Numbers of private records and of public rows.
    n_nonzero : int
        Features of the teacher.
    gradient_bound : float
        gamma: bound on the entries of each record's gradient *at the minimiser*.
    alpha : float
        lambda, the strength of the l2 penalty.
    covariance_norm : float
        beta: operator norm of the covariance of public rows.

    Notes
    -----
    The claim is that the minimisers over sparse weights of two neighbours lie at most sqrt(2 s) gamma / (n lambda)
    apart. It uses the optimality condition of a convex set, which sparse vectors are not: with two features that fit
    equally well, one record decides which of them the teacher takes, and the minimisers lie a constant apart whatever n
    is. So a guarantee made of this is conditional, and nothing in the code can make the condition true.
    """

    n: int
    n_public: int
    n_nonzero: int
    gradient_bound: float
    alpha: float
    covariance_norm: float

    adjacency = Adjacency.REPLACE_ONE

    def __post_init__(self) -> None:
        for name in ("n", "n_public", "n_nonzero"):
            count(name, getattr(self, name))
        for name in ("gradient_bound", "alpha", "covariance_norm"):
            positive(name, getattr(self, name))

    @property
    def sensitivity(self) -> float:
        """sqrt(2 m beta) sqrt(2 s) gamma / (n lambda)."""
        teacher = math.sqrt(2 * self.n_nonzero) * self.gradient_bound / (self.n * self.alpha)
        return math.sqrt(2 * self.n_public * self.covariance_norm) * teacher

    def scale(self, budget: Budget) -> float:
        """Return the noise as printed: sigma^2 = 8 m beta s gamma^2 log(2.5/delta) / (n epsilon lambda)^2."""
        delta = positive("delta", budget.delta)
        return self.sensitivity * math.sqrt(2 * math.log(2.5 / delta)) / budget.epsilon

    def in_words(self) -> str:
        """Return the condition in one line."""
        return (
            f"the sparse teachers of any two neighbouring tables have scores within {self.sensitivity:.4g} of each "
            "other, as Theorem 3.3.3 of Wang (2021) claims: its proof is wrong, and there are tables for which this "
            "is false and the release far less private than stated"
        )
