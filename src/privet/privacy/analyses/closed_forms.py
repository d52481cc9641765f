"""The papers' closed forms for the noise of a whole run, for reproduction only.

Four theorems solve a subsampling lemma (:mod:`~privet.privacy.analyses.subsampling_lemmas`) for the noise. To train,
use the accountant (``GradientPlan.for_budget``), which has no side conditions and needs less noise.

The lemmas rest on bounds that are proved for integer orders only, while the theorems use the real number
``alpha = 1 + log(1/delta) / ((1 - split) * epsilon)``. Here alpha is rounded up. Then ``log(1/delta) / (alpha - 1)``
can only shrink, and with the noise and both side conditions taken at the rounded alpha the proof holds as written. At
a given split this costs a factor ``sqrt(ceil(alpha) / alpha)`` in the noise. The search over splits also tries those
whose alpha is an integer, where it costs nothing. ``rounded_order=False`` gives the noise as printed, for comparison;
it is proved only where alpha happens to be an integer.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Required, TypedDict, Unpack

from privet.checks import count, positive, probability
from privet.privacy.analyses.subsampling_lemmas import (
    DP_FED_LS_POISSON,
    DP_FED_LS_UNIFORM,
    DP_LSSGD,
    DP_SRM,
    SubsamplingLemma,
)

_LOGITS = range(-2000, 2001)  # hundredths: splits from 2e-9 to 1 - 2e-9, fine enough for 0.5% in the noise


class Target(TypedDict, total=False):
    """What every theorem takes: the budget, and how the order of the RDP bound is chosen.

    Attributes
    ----------
    epsilon, delta : float
    split : float or None
        Share of epsilon for the releases; the rest is for the conversion from RDP. None, the default, takes the split
        of a grid with the least noise among those that meet the side conditions. If there is none,
        ``SideConditionError`` names the condition at the split that comes nearest.
    rounded_order : bool
        Whether alpha is rounded up, as the proofs need. True by default.
    """

    epsilon: Required[float]
    delta: Required[float]
    split: float | None
    rounded_order: bool


@dataclass(frozen=True)
class ClosedFormNoise:
    """The noise that a theorem asks for.

    Attributes
    ----------
    std : float
        Standard deviation per coordinate, on the quantity that the theorem names (a batch mean or a sum).
    multiplier : float
        The same divided by the sensitivity: what an accountant under `adjacency` takes.
    split : float
        Share of epsilon that goes to the releases, the rest to the conversion from RDP (the papers' mu, beta, lambda).
    order : float
        The RDP order alpha at which the guarantee is stated; an integer unless ``rounded_order=False``.
    theorem, adjacency : str
        Where it comes from and what it protects.
    """

    std: float
    multiplier: float
    split: float
    order: float
    theorem: str
    adjacency: str


@dataclass(frozen=True)
class RecursiveNoise:
    """Noise of DP-SRM: one for the first gradient, one for each later recursive estimator."""

    first: ClosedFormNoise
    later: ClosedFormNoise


def dp_lssgd_noise(
    n: int,
    batch_size: int,
    steps: int,
    *,
    lipschitz: float,
    **target: Unpack[Target],
) -> ClosedFormNoise:
    """Noise on the batch *mean* gradient: "DP-LSSGD", Theorem 2. Replace-one record.

    Fixed-size batches without replacement, per-example gradients of norm at most `lipschitz` (G), so the mean moves
    by ``2 G / batch_size``: ``std^2 = 20 T alpha G^2 / (split n^2 epsilon)`` under the conditions of
    `DP_LSSGD`. Changed: alpha is rounded up (see the module). Smoothing the noisy gradient is
    post-processing and neither costs nor gains privacy.

    No split meets the conditions for the paper's own runs (n = 50000, batches of 128, delta = 1e-5, epsilon 0.1 to
    0.3). `target` is a :class:`Target`.
    """
    rate = _fraction("batch_size", batch_size, "n", n)
    count("steps", steps)
    positive("lipschitz", lipschitz)
    run = _Run(steps, **target)
    return run.least_noise("DP-LSSGD, Theorem 2", DP_LSSGD, [(rate, 2 * lipschitz / batch_size)])[0]


def dp_srm_noise(
    n: int,
    first_batch_size: int,
    batch_size: int,
    steps: int,
    *,
    gradient_bound: float,
    difference_bound: float,
    momentum: float,
    **target: Unpack[Target],
) -> RecursiveNoise:
    """Noise on the estimators of DP-SRM: L. Wang's dissertation (UCLA 2021), Theorem 4.5.1. Replace-one record.

    `steps` (T) counts the noisy estimators that are used, the first included. Per example, `gradient_bound` bounds
    the gradient (G, or the clip C1) and `difference_bound` its change between two iterates on the *same* batch
    (zeta/n0, or the clip C2). With momentum g the sensitivities of the batch means are ``2 G / b0`` at first and
    ``2 ((1 - g) C2 + g C1) / b`` later; each release is calibrated by, and must meet the conditions of,
    `DP_SRM`.

    Changed: the first release's ``nu^2`` is ``b0^2 sigma0^2 / (4 G^2)``, because the sensitivity enters squared (the
    theorem prints b0; its proof has b0^2 but evaluates it to twice its value). Each release is held to the conditions
    at its own rate and nu, where the theorem pairs the larger rate with the smaller nu: the order condition is not
    monotone in nu, so that pair can pass while a release fails. Alpha is rounded up. Stopping after T' releases costs
    ``split epsilon T'/T + (1 - split) epsilon``, not ``epsilon T'/T``.

    No split meets the conditions for the paper's own runs on a9a. `target` is a :class:`Target`.
    """
    first_rate = _fraction("first_batch_size", first_batch_size, "n", n)
    rate = _fraction("batch_size", batch_size, "n", n)
    count("steps", steps)
    positive("gradient_bound", gradient_bound)
    positive("difference_bound", difference_bound)
    if not 0 <= momentum <= 1:
        raise ValueError(f"momentum must lie in [0, 1], got {momentum!r}")
    later_bound = (1 - momentum) * difference_bound + momentum * gradient_bound
    releases = [(first_rate, 2 * gradient_bound / first_batch_size), (rate, 2 * later_bound / batch_size)]
    run = _Run(steps, **target)
    return RecursiveNoise(*run.least_noise("DP-SRM, Theorem 4.5.1", DP_SRM, releases))


def dp_fed_ls_noise_uniform(
    n_clients: int,
    clients_per_round: int,
    rounds: int,
    *,
    clip: float,
    **target: Unpack[Target],
) -> ClosedFormNoise:
    """Noise on the *sum* of client updates: "DP Federated Learning with Laplacian Smoothing", Theorem 1.

    Replace-one client, a fixed number of clients per round without replacement, updates clipped to `clip` (L), so the
    sum moves by ``2 L``: ``std = (tau L / epsilon) sqrt((14 T / split) (log(1/delta) / (1 - split) + epsilon))`` under
    the conditions of `DP_FED_LS_UNIFORM`. Changed: alpha is rounded up. The paper's budgets 6 to 9 at tau = 0.05 then
    fail the conditions if ``epsilon <= log(1/delta)``. `target` is a :class:`Target`.
    """
    rate = _fraction("clients_per_round", clients_per_round, "n_clients", n_clients)
    count("rounds", rounds)
    positive("clip", clip)
    run = _Run(rounds, **target)
    return run.least_noise("DP-Fed-LS, Theorem 1", DP_FED_LS_UNIFORM, [(rate, 2 * clip)])[0]


def dp_fed_ls_noise_poisson(
    rate: float,
    rounds: int,
    *,
    clip: float,
    **target: Unpack[Target],
) -> ClosedFormNoise:
    """Noise on the *sum* of client updates: "DP Federated Learning with Laplacian Smoothing", Theorem 2.

    Add-or-remove client, Poisson sampling at `rate` (tau), updates clipped to `clip` (L), so the sum moves by ``L``:
    ``std = (tau L / epsilon) sqrt((2 T / split) (log(1/delta) / (1 - split) + epsilon))`` under the conditions of
    `DP_FED_LS_POISSON`. Changed: alpha is rounded up. `target` is a :class:`Target`.

    The noisy sum may be divided by a *fixed public* number only. The paper's algorithm divides by the number of
    clients that happened to be sampled: one client then moves everybody's share and the scale of the noise, which the
    lemma does not cover.
    """
    probability("rate", rate)
    count("rounds", rounds)
    positive("clip", clip)
    run = _Run(rounds, **target)
    return run.least_noise("DP-Fed-LS, Theorem 2", DP_FED_LS_POISSON, [(rate, clip)])[0]


@dataclass(frozen=True)
class _Run:
    """A budget over a number of releases, which all theorems have in common."""

    steps: int
    epsilon: float
    delta: float
    split: float | None = None
    rounded_order: bool = True

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon)
        if not 0 < self.delta < 1:
            raise ValueError(f"delta must lie in (0, 1), got {self.delta!r}")
        if self.split is not None and not 0 < self.split < 1:
            raise ValueError(f"split must lie in (0, 1), got {self.split!r}")
        if -math.log(self.delta) / self.epsilon > 1e12:
            raise ValueError(f"epsilon = {self.epsilon!r} is too small for a closed form: its order would exceed 1e12")

    def least_noise(
        self, theorem: str, lemma: SubsamplingLemma, releases: list[tuple[float, float]]
    ) -> list[ClosedFormNoise]:
        """Noise for each (rate, sensitivity) at the best split for which the conditions hold at all of them.

        Every release may spend RDP ``split * epsilon / steps``, at the order whose conversion to (epsilon, delta)
        costs the remaining ``(1 - split) * epsilon``.
        """

        def multiplier(rate: float, share: float, order: float) -> float:
            return lemma.multiplier_for(share * self.epsilon / self.steps, order, rate)

        def worst(share: float, order: float) -> tuple[float, float]:
            return max((max(lemma.misses(order, rate, multiplier(rate, share, order))), rate) for rate, _ in releases)

        shares = self._candidate_splits() if self.split is None else [self.split]
        trials = [(share, self._order(share, self.rounded_order)) for share in shares]
        feasible = [trial for trial in trials if worst(*trial)[0] <= 0]
        if not feasible:
            share, order = min(trials, key=lambda trial: worst(*trial))
            _, rate = worst(share, order)
            lemma.check(order, rate, multiplier(rate, share, order))  # raises an error that names the failed condition
        share, order = min(feasible, key=lambda trial: trial[1] / trial[0])  # the variance goes as order / split
        scales = [(multiplier(rate, share, order), sensitivity) for rate, sensitivity in releases]
        return [ClosedFormNoise(nu * size, nu, share, order, theorem, lemma.adjacency) for nu, size in scales]

    def _order(self, share: float, rounded: bool) -> float:
        beyond_one = -math.log(self.delta) / ((1 - share) * self.epsilon)
        return 1 + (max(1, math.ceil(beyond_one)) if rounded else beyond_one)

    def _candidate_splits(self) -> Iterator[float]:
        """Yield a grid, and for each point the largest split with the same rounded order, which has less noise."""
        for share in (1 / (1 + math.exp(-logit / 100)) for logit in _LOGITS):
            yield share
            widest = 1 + math.log(self.delta) / ((self._order(share, True) - 1) * self.epsilon)
            yield max(share, widest - 1e-12)  # slightly less, so that rounding errors cannot increase the order


def _fraction(part_name: str, part: int, whole_name: str, whole: int) -> float:
    if count(part_name, part) > count(whole_name, whole):
        raise ValueError(f"{part_name} = {part} exceeds {whole_name} = {whole}")
    return part / whole
