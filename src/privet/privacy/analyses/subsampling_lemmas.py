"""Published lemmas on the Renyi differential privacy (RDP) of one Gaussian release on a random subset.

Four papers bound it by ``constant * rate**2 * order / nu**2``. They differ in the constant, in the side conditions and
in the adjacency, so each lemma is one :class:`SubsamplingLemma`. They are here to reproduce the papers: the accountant
needs no side condition and less noise.

``noise_multiplier`` (nu) is the standard deviation divided by the sensitivity of the *whole* query under the lemma's
own adjacency: ``2 * bound`` for replace-one, ``bound`` for add-or-remove.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from privet.checks import count, positive, probability


class SideConditionError(ValueError):
    """A closed form is used outside the range in which it is proved.

    Attributes
    ----------
    condition : {"noise floor", "order condition"}
        Which condition fails.
    left, right : float
        Its two sides.
    """

    def __init__(self, condition: str, left: float, right: float, statement: str) -> None:
        super().__init__(condition, left, right, statement)  # All arguments, so that the error can be pickled.
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
        Maps ``(order, rate, nu**2)`` to the largest order for which the bound holds.
    order_rule : str
        The same condition as a formula, for error messages.
    """

    name: str
    adjacency: Literal["replace-one", "add-or-remove"]
    constant: float
    noise_floor: float
    order_limit: Callable[[float, float, float], float]
    order_rule: str

    def rdp(self, order: int, rate: float, noise_multiplier: float) -> float:
        """Return the RDP of one release at an integer order of at least 2. Raise where a side condition fails."""
        alpha = count("order", order, at_least=2)
        probability("rate", rate)
        positive("noise_multiplier", noise_multiplier)
        self.check(alpha, rate, noise_multiplier)
        return self.constant * rate**2 * alpha / noise_multiplier**2

    def multiplier_for(self, rdp: float, order: float, rate: float) -> float:
        """Return the noise multiplier at which the bound equals `rdp`. Side conditions are not checked."""
        return rate * math.sqrt(self.constant * order / rdp)

    def misses(self, order: float, rate: float, noise_multiplier: float) -> tuple[float, float]:
        """Return by how much the noise floor (relative) and the order condition are missed; positive if they fail."""
        nu2 = noise_multiplier**2
        return 1 - nu2 / self.noise_floor, order - self.order_limit(order, rate, nu2)

    def check(self, order: float, rate: float, noise_multiplier: float) -> None:
        """Raise `SideConditionError` for the condition that is missed by the larger amount, if any."""
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

# "DP-LSSGD" (Wang, Gu, Boedihardjo, Barekat, Osher), Lemma 11, fixed-size sampling without replacement. It prints the
# order condition as log(1/rate(1 + nu^2)). With (1 + nu^2) in the numerator the quadratic term of the subsampling
# bound no longer dominates the higher ones, so it must be in the denominator.
DP_LSSGD = SubsamplingLemma(
    "DP-LSSGD, Lemma 11",
    "replace-one",
    constant=5.0,
    noise_floor=1.5,
    order_limit=lambda order, rate, nu2: -math.log(rate * (1 + nu2)),
    order_rule="alpha <= log(1/(tau (1 + nu^2)))",
)

# L. Wang, "Towards Efficient and Effective Privacy-Preserving ML", Lemma 4.3.7, fixed-size sampling, no replacement.
# The factor in front of the logarithm is printed as the variance of the noise. It must be the variance over the squared
# sensitivity; otherwise rescaling the data would change the privacy.
DP_SRM = SubsamplingLemma("DP-SRM, Lemma 4.3.7", "replace-one", 3.5, 0.7, _limit_by_noise, _LIMIT_RULE)

# "DP Federated Learning with Laplacian Smoothing", Lemma 3, fixed-size sampling of clients, as printed.
DP_FED_LS_UNIFORM = SubsamplingLemma("DP-Fed-LS, Lemma 3", "replace-one", 3.5, 2 / 3, _limit_by_noise, _LIMIT_RULE)

# The same paper, Lemma 4, Poisson sampling of clients. The statement is right, but its proof needs
# exp(1/nu^2) <= 3.5/nu^2, which is false above nu^2 = 2.24. The binomial weights sum to one, so 1 can be subtracted
# from every exponential, and exp(1/nu^2) - 1 <= 3.5/nu^2 is enough.
DP_FED_LS_POISSON = SubsamplingLemma("DP-Fed-LS, Lemma 4", "add-or-remove", 2.0, 5 / 9, _limit_by_noise, _LIMIT_RULE)
