"""The papers' closed forms for subsampled Gaussian noise, for reproduction only.

Four published lemmas bound the Rényi differential privacy (RDP) of one Gaussian release on a random subset by
``constant * rate**2 * order / nu**2``, and four theorems solve that bound for the noise of a whole run. They differ in
two numbers, one condition and the adjacency, so here each lemma is one :class:`SubsamplingLemma` and the theorems
share one calibration. To train, use the accountant (``GradientPlan.for_budget``): no side condition, less noise.

``noise_multiplier`` (nu) is the standard deviation divided by the sensitivity of the *whole* query under the lemma's
own adjacency: ``2 * bound`` for replace-one, ``bound`` for add-or-remove.

The lemmas rest on bounds that are proved for integer orders only, while the theorems plug in the real number
``alpha = 1 + log(1/delta) / ((1 - split) * epsilon)``. Here alpha is rounded up. Then ``log(1/delta) / (alpha - 1)``
can only shrink, and with the noise and both side conditions taken at the rounded alpha the proof holds as written. At
a given split that costs a factor ``sqrt(ceil(alpha) / alpha)`` in the noise; the search over splits also tries those
whose alpha is an integer, where it costs nothing. ``rounded_order=False`` gives the noise as printed: a number to
compare with, proved only where alpha happens to be an integer.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from privet.checks import count, positive, probability

_LOGITS = range(-2000, 2001)  # hundredths: splits from 2e-9 to 1 - 2e-9, close enough for 0.5% in the noise


class SideConditionError(ValueError):
    """A closed form was asked for outside the range in which it is proved.

    Attributes
    ----------
    condition : {"noise floor", "order condition"}
        Which condition fails.
    left, right : float
        Its two sides.
    """

    def __init__(self, condition: str, left: float, right: float, statement: str) -> None:
        super().__init__(condition, left, right, statement)  # all of them, so that the error survives pickling
        self.condition, self.left, self.right, self.statement = condition, left, right, statement

    def __str__(self) -> str:
        return (
            f"the {self.condition} of {self.statement} fails: {self.left:.6g} against {self.right:.6g}. "
            "Outside its conditions the closed form certifies nothing. "
            "Use the accountant, which has no such condition: GradientPlan.for_budget."
        )


@dataclass(frozen=True)
class SubsamplingLemma:
    """One Gaussian release on a random subset is ``(order, constant * rate**2 * order / nu**2)``-RDP, conditionally.

    Attributes
    ----------
    name : str
        Paper and lemma.
    adjacency : {"replace-one", "add-or-remove"}
        Replace-one goes with fixed-size sampling without replacement, add-or-remove with Poisson sampling.
    constant : float
        The constant of the bound.
    noise_floor : float
        The bound holds for ``nu**2 >= noise_floor``.
    order_limit : callable
        ``(order, rate, nu**2)`` to the largest order for which it holds; ``order_rule`` is the same in words.
    """

    name: str
    adjacency: Literal["replace-one", "add-or-remove"]
    constant: float
    noise_floor: float
    order_limit: Callable[[float, float, float], float]
    order_rule: str

    def rdp(self, order: int, rate: float, noise_multiplier: float) -> float:
        """RDP of one release at an integer order of at least 2; raises where a side condition fails."""
        alpha = count("order", order, at_least=2)
        probability("rate", rate)
        positive("noise_multiplier", noise_multiplier)
        self.check(alpha, rate, noise_multiplier)
        return self.constant * rate**2 * alpha / noise_multiplier**2

    def multiplier_for(self, rdp: float, order: float, rate: float) -> float:
        """Noise multiplier at which the bound equals `rdp`: the bare formula, no side condition checked."""
        return rate * math.sqrt(self.constant * order / rdp)

    def misses(self, order: float, rate: float, noise_multiplier: float) -> tuple[float, float]:
        """How far the noise floor (as a share of it) and the order condition are missed; positive where they fail."""
        nu2 = noise_multiplier**2
        return 1 - nu2 / self.noise_floor, order - self.order_limit(order, rate, nu2)

    def check(self, order: float, rate: float, noise_multiplier: float) -> None:
        """Raise `SideConditionError` for the condition that is missed by most, if any."""
        nu2 = noise_multiplier**2
        floor_miss, order_miss = self.misses(order, rate, noise_multiplier)
        at = f"at alpha = {order:.6g}, tau = {rate:.6g}, nu^2 = {nu2:.6g}"
        if floor_miss > max(order_miss, 0):
            raise SideConditionError("noise floor", nu2, self.noise_floor, f"{self.name} (nu^2 >= floor, {at})")
        if order_miss > 0:
            limit = self.order_limit(order, rate, nu2)
            raise SideConditionError("order condition", order, limit, f"{self.name} ({self.order_rule}, {at})")


def _limit_by_noise(order: float, rate: float, nu2: float) -> float:
    return 1 - 2 / 3 * nu2 * math.log(rate * order * (1 + nu2))


_LIMIT_RULE = "alpha <= 1 + (2/3) nu^2 log(1/(tau alpha (1 + nu^2)))"
DP_LSSGD = SubsamplingLemma(
    "DP-LSSGD, Lemma 11",
    "replace-one",
    constant=5.0,
    noise_floor=1.5,
    order_limit=lambda order, rate, nu2: -math.log(rate * (1 + nu2)),
    order_rule="alpha <= log(1/(tau (1 + nu^2)))",
)
DP_SRM = SubsamplingLemma("DP-SRM, Lemma 4.3.7", "replace-one", 3.5, 0.7, _limit_by_noise, _LIMIT_RULE)
DP_FED_LS_UNIFORM = SubsamplingLemma("DP-Fed-LS, Lemma 3", "replace-one", 3.5, 2 / 3, _limit_by_noise, _LIMIT_RULE)
DP_FED_LS_POISSON = SubsamplingLemma("DP-Fed-LS, Lemma 4", "add-or-remove", 2.0, 5 / 9, _limit_by_noise, _LIMIT_RULE)


def rdp_fixed_size_lssgd(order: int, rate: float, noise_multiplier: float) -> float:
    """``5 rate^2 order / nu^2``: "DP-LSSGD" (Wang, Gu, Boedihardjo, Barekat, Osher), Lemma 11. Replace-one.

    Fixed-size sampling without replacement, ``nu^2 >= 1.5`` and ``order <= log(1/(rate (1 + nu^2)))``. The paper
    prints ``log(1/rate(1 + nu^2))``; read with ``(1 + nu^2)`` in the numerator, the higher terms of the subsampling
    bound are no longer dominated by its quadratic one, so it must be in the denominator.
    """
    return DP_LSSGD.rdp(order, rate, noise_multiplier)


def rdp_fixed_size_srm(order: int, rate: float, noise_multiplier: float) -> float:
    """``3.5 rate^2 order / nu^2``: L. Wang, "Towards Efficient and Effective Privacy-Preserving ML", Lemma 4.3.7.

    Replace-one, fixed-size sampling without replacement, ``nu^2 >= 0.7`` and
    ``order <= 1 + (2/3) nu^2 log(1/(rate order (1 + nu^2)))``. The factor in front of the logarithm is printed as the
    variance of the noise; it must be that variance over the squared sensitivity, or rescaling the data would change
    the privacy.
    """
    return DP_SRM.rdp(order, rate, noise_multiplier)


def rdp_fixed_size_fed(order: int, rate: float, noise_multiplier: float) -> float:
    """``3.5 rate^2 order / nu^2``: "DP Federated Learning with Laplacian Smoothing", Lemma 3. Replace-one (client).

    Fixed-size sampling without replacement, ``nu^2 >= 2/3`` and
    ``order <= 1 + (2/3) nu^2 log(1/(rate order (1 + nu^2)))``. Nothing changed.
    """
    return DP_FED_LS_UNIFORM.rdp(order, rate, noise_multiplier)


def rdp_poisson_fed(order: int, rate: float, noise_multiplier: float) -> float:
    """``2 rate^2 order / nu^2``: "DP Federated Learning with Laplacian Smoothing", Lemma 4. Add-or-remove (client).

    Poisson sampling, ``nu^2 >= 5/9`` and ``order <= 1 + (2/3) nu^2 log(1/(rate order (1 + nu^2)))``.

    The statement stands, its proof does not: it needs ``exp(1/nu^2) <= 3.5/nu^2``, false above ``nu^2 = 2.24``. But
    the binomial weights sum to one, so 1 comes off every exponential and ``exp(1/nu^2) - 1 <= 3.5/nu^2`` is enough.
    """
    return DP_FED_LS_POISSON.rdp(order, rate, noise_multiplier)


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
    epsilon: float,
    delta: float,
    split: float | None = None,
    rounded_order: bool = True,
) -> ClosedFormNoise:
    """Noise on the batch *mean* gradient: "DP-LSSGD", Theorem 2. Replace-one record.

    Fixed-size batches without replacement, per-example gradients of norm at most `lipschitz` (G), so the mean moves
    by ``2 G / batch_size``: ``std^2 = 20 T alpha G^2 / (split n^2 epsilon)`` under the conditions of
    `rdp_fixed_size_lssgd`. Changed: alpha is rounded up (see the module). Smoothing the noisy gradient is
    post-processing and neither costs nor buys privacy.

    With ``split=None`` the split of a grid with least noise among those that meet the conditions is taken; if none
    does, `SideConditionError` tells the condition at the split that comes nearest. The paper's own runs (n = 50000,
    batches of 128, delta = 1e-5, epsilon 0.1 to 0.3) meet them for no split at all.
    """
    rate = _fraction("batch_size", batch_size, "n", n)
    count("steps", steps)
    positive("lipschitz", lipschitz)
    run = _Run(steps, epsilon, delta, split, rounded_order)
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
    epsilon: float,
    delta: float,
    split: float | None = None,
    rounded_order: bool = True,
) -> RecursiveNoise:
    """Noise on the estimators of DP-SRM: L. Wang's dissertation (UCLA 2021), Theorem 4.5.1. Replace-one record.

    `steps` (T) counts the noisy estimators that are used, the first included. Per example, `gradient_bound` bounds
    the gradient (G, or the clip C1) and `difference_bound` its change between two iterates on the *same* batch
    (zeta/n0, or the clip C2). With momentum g the sensitivities of the batch means are ``2 G / b0`` at first and
    ``2 ((1 - g) C2 + g C1) / b`` later; each release is calibrated by, and must meet the conditions of,
    `rdp_fixed_size_srm`.

    Changed: the first release's ``nu^2`` is ``b0^2 sigma0^2 / (4 G^2)``, for the sensitivity enters squared (the
    theorem prints b0; its proof has b0^2 but evaluates it to twice its value). Each release is held to the conditions
    at its own rate and nu, where the theorem pairs the larger rate with the smaller nu: the order condition is not
    monotone in nu, so that pair can pass while a release fails. Alpha is rounded up. Stopping after T' releases costs
    ``split epsilon T'/T + (1 - split) epsilon``, not ``epsilon T'/T``.

    See `dp_lssgd_noise` for ``split=None``. The paper's own a9a runs meet the conditions for no split at all.
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
    run = _Run(steps, epsilon, delta, split, rounded_order)
    return RecursiveNoise(*run.least_noise("DP-SRM, Theorem 4.5.1", DP_SRM, releases))


def dp_fed_ls_noise_uniform(
    n_clients: int,
    clients_per_round: int,
    rounds: int,
    *,
    clip: float,
    epsilon: float,
    delta: float,
    split: float | None = None,
    rounded_order: bool = True,
) -> ClosedFormNoise:
    """Noise on the *sum* of client updates: "DP Federated Learning with Laplacian Smoothing", Theorem 1.

    Replace-one client, a fixed number of clients a round without replacement, updates clipped to `clip` (L), so the
    sum moves by ``2 L``: ``std = (tau L / epsilon) sqrt((14 T / split) (log(1/delta) / (1 - split) + epsilon))`` under
    the conditions of `rdp_fixed_size_fed`. Changed: alpha is rounded up, and then of the paper's budgets 6 to 9 at
    tau = 0.05 those with ``epsilon <= log(1/delta)`` fall out. See `dp_lssgd_noise` for ``split=None``.
    """
    rate = _fraction("clients_per_round", clients_per_round, "n_clients", n_clients)
    count("rounds", rounds)
    positive("clip", clip)
    run = _Run(rounds, epsilon, delta, split, rounded_order)
    return run.least_noise("DP-Fed-LS, Theorem 1", DP_FED_LS_UNIFORM, [(rate, 2 * clip)])[0]


def dp_fed_ls_noise_poisson(
    rate: float,
    rounds: int,
    *,
    clip: float,
    epsilon: float,
    delta: float,
    split: float | None = None,
    rounded_order: bool = True,
) -> ClosedFormNoise:
    """Noise on the *sum* of client updates: "DP Federated Learning with Laplacian Smoothing", Theorem 2.

    Add-or-remove client, Poisson sampling at `rate` (tau), updates clipped to `clip` (L), so the sum moves by ``L``:
    ``std = (tau L / epsilon) sqrt((2 T / split) (log(1/delta) / (1 - split) + epsilon))`` under the conditions of
    `rdp_poisson_fed`. Changed: alpha is rounded up. See `dp_lssgd_noise` for ``split=None``.

    The noisy sum may be divided by a *fixed public* number only. The paper's algorithm divides by the number of
    clients that happened to be sampled: one client then moves everybody's share and the scale of the noise, which the
    lemma does not cover.
    """
    probability("rate", rate)
    count("rounds", rounds)
    positive("clip", clip)
    run = _Run(rounds, epsilon, delta, split, rounded_order)
    return run.least_noise("DP-Fed-LS, Theorem 2", DP_FED_LS_POISSON, [(rate, clip)])[0]


@dataclass(frozen=True)
class _Run:
    """A budget over a number of releases: what the theorems have in common."""

    steps: int
    epsilon: float
    delta: float
    split: float | None
    rounded_order: bool

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
            lemma.check(order, rate, multiplier(rate, share, order))  # raises, for this one fails
        share, order = min(feasible, key=lambda trial: trial[1] / trial[0])  # the variance goes as order / split
        scales = [(multiplier(rate, share, order), sensitivity) for rate, sensitivity in releases]
        return [ClosedFormNoise(nu * size, nu, share, order, theorem, lemma.adjacency) for nu, size in scales]

    def _order(self, share: float, rounded: bool) -> float:
        beyond_one = -math.log(self.delta) / ((1 - share) * self.epsilon)
        return 1 + (max(1, math.ceil(beyond_one)) if rounded else beyond_one)

    def _candidate_splits(self) -> Iterator[float]:
        """Yield a grid, and beside each point the largest split with the same rounded order, which has less noise."""
        for share in (1 / (1 + math.exp(-logit / 100)) for logit in _LOGITS):
            yield share
            widest = 1 + math.log(self.delta) / ((self._order(share, True) - 1) * self.epsilon)
            yield max(share, widest - 1e-12)  # a hair less, lest rounding errors push the order up by one


def _fraction(part_name: str, part: int, whole_name: str, whole: int) -> float:
    if count(part_name, part) > count(whole_name, whole):
        raise ValueError(f"{part_name} = {part} exceeds {whole_name} = {whole}")
    return part / whole
