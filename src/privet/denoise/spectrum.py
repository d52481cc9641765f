"""Constants of Laplacian smoothing: means over the eigenvalues of the operator, and the decay rate of its kernel."""

import math
import operator

from privet.checks import nonnegative


def effective_dimension(d: int, sigma: float) -> float:
    """Return the trace of the smoothing operator, which replaces d in the error bound of DP-Fed-LS."""
    return d * gamma(d, sigma)


def gamma(d: int, sigma: float) -> float:
    """Return the mean eigenvalue of the smoothing operator on a cycle of length d (DP-LSSGD, Proposition 5).

    It tends to 1 / sqrt(4 sigma + 1) as d grows, not to 0 as the paper states.
    """
    rate, root = _decay(d, sigma)
    return 1.0 / (math.tanh(0.5 * d * rate) * root)


def beta(d: int, sigma: float) -> float:
    """Return the mean squared eigenvalue of the smoothing operator (DP-LSSGD, Proposition 8).

    White noise keeps this fraction of its variance. The value is minus the derivative of the mean of
    1 / (a + 2 sigma (1 - cos)) at a = 1, a sum of two positive terms. The form in the paper suffers from cancellation.
    """
    rate, root = _decay(d, sigma)
    wrap = math.exp(-d * rate)
    return 0.5 * gamma(d, sigma) * (1.0 + root**-2) + 2.0 * d * wrap * (root * math.expm1(-d * rate)) ** -2


def decay_rate(sigma: float) -> float:
    """Return -log omega, where omega + 1/omega = 2 + 1/sigma. The result is accurate even if omega is close to 1."""
    return 2.0 * math.asinh(0.5 / math.sqrt(sigma)) if sigma > 0 else math.inf


def _decay(d: int, sigma: float) -> tuple[float, float]:
    """Return the decay rate of the kernel, -log omega, and sqrt(4 sigma + 1)."""
    if operator.index(d) < 1:
        raise ValueError(f"d must be at least 1, got {d}")
    return decay_rate(nonnegative("sigma", sigma)), math.hypot(1.0, 2.0 * math.sqrt(sigma))
