"""Which noise hides sums on a lattice: the coarsest law for which rounding to the lattice costs little."""

import math

from scipy.special import expit

from privet.privacy.analyses.gaussian import gdp_mu
from privet.privacy.budget import Budget
from privet.privacy.noise.k_norm import KNormLaw
from privet.privacy.noise.laplace import BinaryLaplace
from privet.privacy.noise.lattice import LatticeLaw
from privet.privacy.noise.law import NoiseLaw

ROUNDING_SHARE = 0.02  # share of the sensitivity that rounding may add
TAIL_SHARE = 0.01  # share of delta that the tails of the noise may take
_FINE_SHARE = 0.002  # the share for noise that costs the same on every lattice
_MOST_BITS = 15
_MOST_LEVELS = 48

Hiding = tuple[NoiseLaw, float, float]
"""A law, the probability of its tails per coordinate, and the l2 distance that it hides in each of the steps."""


def law_within(budget: Budget, dimension: int, steps: int, jointly: bool) -> Hiding:
    """Return the law of the noise for ``steps`` sums of vectors, and the distance that it hides within the budget."""
    if not budget.is_pure:
        return _gaussian(budget, dimension, steps)
    return (_laplace if jointly else _k_norm)(budget, dimension, steps)


def _gaussian(budget: Budget, dimension: int, steps: int) -> Hiding:
    """Return the law with the fewest bits that resembles a Gaussian."""
    tail = TAIL_SHARE * budget.delta * float(expit(-budget.epsilon)) / (steps * dimension)
    mu = gdp_mu(Budget(budget.epsilon, (1 - TAIL_SHARE) * budget.delta))
    for bits in range(2, _MOST_BITS + 1):
        law = LatticeLaw(bits=bits)
        try:
            cost = law.cost(dimension, tail)
        except ValueError as error:  # only the tail can make this fail
            raise ValueError(
                f"epsilon = {budget.epsilon:g} and delta = {budget.delta:g} over {steps} sums of {dimension} "
                f"coordinates need tails of the noise of probability {tail:.3g}, where it no longer resembles a "
                "Gaussian: use a smaller epsilon or a larger delta"
            ) from error
        shift = mu / (cost * math.sqrt(steps))
        if math.sqrt(dimension) <= ROUNDING_SHARE * shift:
            break
    return law, tail, shift


def _laplace(budget: Budget, dimension: int, steps: int) -> Hiding:
    """Return the Laplace law with the fewest digits. Its scale fits the l1 norm of the shift."""
    for levels in range(1, _MOST_LEVELS + 1):
        law = BinaryLaplace.of_width(levels)
        shift = budget.epsilon / (law.cost(dimension, 0.0) * steps)
        if math.sqrt(dimension) <= ROUNDING_SHARE * shift:
            break
    return law, 0.0, shift


def _k_norm(budget: Budget, dimension: int, steps: int) -> Hiding:
    """Return K-norm noise, whose scale fits the l2 norm of the shift. It can be drawn on any lattice."""
    shift = math.sqrt(dimension) / _FINE_SHARE
    return KNormLaw(dimension, shift * steps / budget.epsilon), 0.0, shift
