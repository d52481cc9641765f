"""DPSL-KT with the calibration of its paper, which is not private for all data: for reproduction only.

Algorithm 2 of L. Wang, "Towards Efficient and Effective Privacy-Preserving Machine Learning" (UCLA 2021), whose teacher
is sparse. :func:`privet.solvers.knowledge_transfer` is the form whose guarantee holds.
"""

import math
from dataclasses import dataclass

from privet.checks import count, positive
from privet.plans import OutputPlan
from privet.privacy import Adjacency, Budget, assumed
from privet.solvers import Problem, PublicFeatures, Release, Run
from privet.solvers.ight import ight
from privet.solvers.knowledge_transfer import fitted_student


def paper_knowledge_transfer(
    problem: Problem,
    run: Run[OutputPlan],
    *,
    features: PublicFeatures,
    n_nonzero: int,
    steps: int = 100,
    curvature: float = 0.0,
) -> Release:
    """Release a sparse teacher's scores of public rows with noise, and the sparse student that fits them.

    ``curvature`` is the restricted strong convexity mu that the paper assumes of the loss, which takes the place of the
    penalty in its calibration.

    Formal guarantees
    -----------------
    The plan's, under the condition that :class:`PaperTransferStability` states, which is false for some data.
    """
    stability = run.plan.stability
    if not isinstance(stability, PaperTransferStability):
        raise TypeError(f"paper_knowledge_transfer runs a PaperTransferStability plan, not {type(stability).__name__}")
    sizes = (problem.rows.n, features.rows.n, n_nonzero, problem.strong_convexity + curvature)
    if (stability.n, stability.n_public, stability.n_nonzero, stability.alpha) != sizes:
        raise ValueError("the plan was made for other data or constants than this problem's")
    guarantee = run.guarantee(
        bound=assumed(stability.in_words()),
        released="the teacher's scores of public rows, with noise added once, and the student that learnt from them",
    )
    labels = run.plan.noisy(features.rows.scores(ight(problem, n_nonzero=n_nonzero)), run.source)
    weights = fitted_student(features, labels, n_nonzero=n_nonzero, steps=steps)
    return Release(weights, guarantee, {"noise_scale": run.plan.scale, "labels": labels})


@dataclass(frozen=True)
class PaperTransferStability:
    """What Theorem 3.3.3 of Wang (2021) claims about a sparse teacher's scores. FALSE for some data.

    Parameters
    ----------
    n, n_public : int
        Numbers of private records and of public rows.
    n_nonzero : int
        Number of features of the teacher.
    gradient_bound : float
        Bound gamma on the entries of each record's gradient *at the minimiser*.
    alpha : float
        Strength lambda of the l2 penalty.
    covariance_norm : float
        Operator norm beta of the covariance of public rows.

    Notes
    -----
    The claim is that the minimisers over sparse weights of two neighbours lie at most sqrt(2 s) gamma / (n lambda)
    apart. The proof uses the optimality condition of a convex set, but sparse vectors are not a convex set: with two
    features that fit equally well, one record decides which of them the teacher takes, and the minimisers are a
    constant distance apart for every n. A guarantee that rests on this claim is therefore conditional, and no code can
    make the condition true (docs/errata.md (j)).
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
        """The claimed bound sqrt(2 m beta) sqrt(2 s) gamma / (n lambda)."""
        teacher = math.sqrt(2 * self.n_nonzero) * self.gradient_bound / (self.n * self.alpha)
        return math.sqrt(2 * self.n_public * self.covariance_norm) * teacher

    def scale(self, budget: Budget) -> float:
        """Return the noise scale as printed: sigma^2 = 8 m beta s gamma^2 log(2.5/delta) / (n epsilon lambda)^2."""
        delta = positive("delta", budget.delta)
        return self.sensitivity * math.sqrt(2 * math.log(2.5 / delta)) / budget.epsilon

    def in_words(self) -> str:
        """Return a phrase for the guarantee that states the condition."""
        return (
            f"the sparse teachers of any two neighbouring tables have scores within {self.sensitivity:.4g} of each "
            "other, as Theorem 3.3.3 of Wang (2021) claims: its proof is wrong, and there are tables for which this "
            "is false and the release far less private than stated"
        )
