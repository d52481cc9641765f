"""Corollaries of L. Wang's dissertation (UCLA 2021): large batches for DP-SRM, and DPSL-KT without a penalty.

They say under which further conditions a theorem becomes simpler. As everywhere in this package, absolute constants
that the text does not name are 1.
"""

import math
from dataclasses import dataclass

from privet.checks import count, nonnegative, positive
from privet.plans.prescriptions.base import approximate, at_least_one
from privet.plans.prescriptions.dissertation import condition_number
from privet.privacy.analyses.closed_forms import RecursiveNoise, dp_srm_noise
from privet.privacy.budget import Budget, BudgetLike


@dataclass(frozen=True)
class RecursiveBatches:
    """Prescription of Corollary 4.5.3: batches of DP-SRM for which the conditions of Theorem 4.5.1 hold.

    Attributes
    ----------
    batch_size : int
        Number b of records in every batch, including the first.
    least_steps : int
        The smallest number of steps from which the corollary applies.
    noise : RecursiveNoise
        The noise of Theorem 4.5.1 on the batch means, whose conditions were checked.
    """

    batch_size: int
    least_steps: int
    noise: RecursiveNoise


def recursive_batches(
    n: int,
    steps: int,
    budget: BudgetLike,
    *,
    gradient_bound: float,
    difference_bound: float,
    momentum: float,
) -> RecursiveBatches:
    """Return the prescription of Corollary 4.5.3 for DP-SRM: ``b = b_0 = n sqrt(eps/T)``, and half of epsilon for each.

    With these batches and beta = 1/2, the noise of Theorem 4.5.1 has nu^2 = 7 alpha, where alpha = 1 + 2 log(1/delta) /
    eps, whatever T is. Only the sampling rate sqrt(eps/T) is left in the conditions of the theorem, and they hold from
    ``T = eps (alpha (1 + 7 alpha))^2 exp(3 (alpha - 1)/(7 alpha))`` on, which is the O(log^4(1/delta)/eps^3) of the
    corollary.

    Parameters
    ----------
    n, steps : int
        Numbers of records, and T of noisy estimators.
    budget : Budget, or (epsilon, delta)
        Delta must be positive.
    gradient_bound, difference_bound, momentum : float
        As in :func:`~privet.privacy.analyses.closed_forms.dp_srm_noise`.

    Raises
    ------
    ValueError
        If T is too small, or a batch would have less than one record.

    Notes
    -----
    The least T is large: 29 million at epsilon = 1 and delta = 1e-5. ``RecursivePlan.for_budget`` has no such condition
    and needs less noise.
    """
    budget = approximate(budget, "Corollary 4.5.3", n)
    count("n", n)
    least = _least_steps(budget)
    if count("steps", steps) < least:
        raise ValueError(
            f"Corollary 4.5.3 needs at least {least:,} steps at epsilon = {budget.epsilon:g} and delta = "
            f"{budget.delta:g}, got {steps:,}. Use RecursivePlan.for_budget, which has no such condition."
        )
    # The number of steps is more than 900 epsilon, so that a batch is a small share of the records.
    size = math.floor(n * math.sqrt(budget.epsilon / steps))
    if size < 1:
        raise ValueError(
            f"Corollary 4.5.3 takes batches of n sqrt(epsilon/T) records, which is less than one record for n = {n:,}. "
            "It needs more records."
        )
    noise = dp_srm_noise(
        n,
        size,
        size,
        steps,
        gradient_bound=gradient_bound,
        difference_bound=difference_bound,
        momentum=momentum,
        epsilon=budget.epsilon,
        delta=budget.delta,
        split=0.5,
    )
    return RecursiveBatches(size, least, noise)


def _least_steps(budget: Budget) -> int:
    """Return the number of steps from which the order condition of Lemma 4.3.7 holds, with alpha rounded up."""
    order = 1 + math.ceil(-2 * math.log(budget.delta) / budget.epsilon)
    share = math.exp(-3 * (order - 1) / (14 * order)) / (order * (1 + 7 * order))  # of the records in a batch
    return at_least_one(budget.epsilon / share**2 * (1 + 1e-6))


@dataclass(frozen=True)
class PlainTransfer:
    """Prescription of Corollary 3.3.7: DPSL-KT without a penalty.

    Attributes
    ----------
    n_nonzero : int
        Number s of features that teacher and student keep.
    teacher_step, student_step : float
        Step sizes of the two descents.
    public_rows : int
        The least number m of public rows.
    label_noise : float
        The paper's standard deviation of the noise on the scores of m = n public rows. **It gives no privacy**: see
        the notes of :func:`transfer_without_penalty`.
    statistical_error, privacy_error : float
        The two terms of the bound on the squared distance to the true weights.
    """

    n_nonzero: int
    teacher_step: float
    student_step: float
    public_rows: int
    label_noise: float
    statistical_error: float
    privacy_error: float

    @property
    def error(self) -> float:
        """Bound on the squared distance to the true weights, up to the constants of the corollary."""
        return self.statistical_error + self.privacy_error


def transfer_without_penalty(
    n: int,
    dimension: int,
    budget: BudgetLike,
    *,
    n_true: int,
    gradient_bound: float,
    smoothness: float,
    strong_convexity: float,
    public_variance: float = 1.0,
    public_tail: float = 1.0,
    gradient_at_truth: float = 0.0,
) -> PlainTransfer:
    """Return the prescription of Corollary 3.3.7 for DPSL-KT, whose teacher has no penalty.

    With kappa = beta/mu: ``s = kappa^2 s*`` features, steps of size ``mu/beta^2`` and ``1/b``, at least ``a s log(d)``
    public rows, and the error ``s* g^2/beta^2 + a^2 gamma^2 s*^2 log(d) log(1/delta)/(b mu^2 n^2 eps^2)``, in place of
    the order ``gamma s*^(3/2)/(n eps)`` that a penalty leaves (Theorem 3.3.5).

    Parameters
    ----------
    n, dimension : int
        Number of records and of features, the latter at least 2.
    budget : Budget, or (epsilon, delta)
        Delta must be positive.
    n_true : int
        Number s* of features with non-zero true weights.
    gradient_bound : float
        Bound gamma on the entries of one record's gradient at the teacher.
    smoothness, strong_convexity : float
        Sparse eigenvalues beta and mu of the loss on the **private** data (Condition 3.3.2).
    public_variance, public_tail : float
        Bound b on the eigenvalues of the covariance of public rows, and their sub-Gaussian parameter a.
    gradient_at_truth : float
        Largest entry g of the gradient at the true weights. The default 0 leaves only the error that privacy causes.

    Notes
    -----
    The corollary says that ``label_noise`` gives (epsilon, delta)-differential privacy. It does not. Its proof takes
    minimisers over sparse vectors as if they were minimisers over a convex set; if one record decides which of two
    features is kept, they move by a constant instead of gamma sqrt(2 s)/(n mu), at sparse eigenvalues of 1/2. Moreover
    mu is a property of the private data, which nothing enforces. ``method="knowledge_transfer"`` adds noise that rests
    on a penalised teacher instead. Use this function to compare errors.
    """
    budget = approximate(budget, "Corollary 3.3.7", n)
    count("n", n)
    count("n_true", n_true, at_most=count("dimension", dimension, at_least=2))
    positive("gradient_bound", gradient_bound)
    nonnegative("gradient_at_truth", gradient_at_truth)
    kappa = condition_number(smoothness, strong_convexity)
    variance, tail = positive("public_variance", public_variance), positive("public_tail", public_tail)
    kept = min(math.ceil(kappa**2 * n_true), dimension)
    least_rows = at_least_one(tail * kept * math.log(dimension))
    if n < least_rows:
        raise ValueError(
            f"Corollary 3.3.7 takes as many public rows as records, and at least {least_rows}, got n = {n}. It needs "
            "more records, or fewer features."
        )
    moved = gradient_bound / (n * budget.epsilon * strong_convexity)
    spread = n_true**2 * math.log(dimension) * -math.log(budget.delta)
    return PlainTransfer(
        n_nonzero=kept,
        teacher_step=strong_convexity / smoothness**2,
        student_step=1 / variance,
        public_rows=least_rows,
        label_noise=math.sqrt(8 * n * variance * kept * math.log(2.5 / budget.delta)) * moved,
        statistical_error=n_true * (gradient_at_truth / smoothness) ** 2,
        privacy_error=tail**2 / variance * spread * moved**2,
    )
