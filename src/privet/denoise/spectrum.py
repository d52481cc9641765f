"""Constants of Laplacian smoothing: means over the eigenvalues of its operator, and how fast its kernel decays."""

import math
import operator


def effective_dimension(d: int, sigma: float) -> float:
    """Trace of the smoothing operator, which stands for d in the error of DP-Fed-LS."""
    return d * gamma(d, sigma)


def gamma(d: int, sigma: float) -> float:
    """Mean eigenvalue of the smoothing operator on a cycle of length d (DP-LSSGD, Proposition 5).

    It tends to 1 / sqrt(4 sigma + 1) as d grows (not to 0 as the paper says).
    """
    rate, root = _decay(d, sigma)
    return 1.0 / (math.tanh(0.5 * d * rate) * root)


def beta(d: int, sigma: float) -> float:
    """Mean squared eigenvalue of the smoothing operator (DP-LSSGD, Proposition 8): what is left of a white variance.

    It is minus the derivative of the mean of 1 / (a + 2 sigma (1 - cos)) at a = 1: two positive terms, where the
    form in the paper cancels.
    """
    rate, root = _decay(d, sigma)
    wrap = math.exp(-d * rate)
    return 0.5 * gamma(d, sigma) * (1.0 + root**-2) + 2.0 * d * wrap * (root * math.expm1(-d * rate)) ** -2


def decay_rate(sigma: float) -> float:
    """-log omega, from omega + 1/omega = 2 + 1/sigma; accurate where omega is close to 1."""
    return 2.0 * math.asinh(0.5 / math.sqrt(sigma)) if sigma > 0 else math.inf


def nonnegative(name: str, value: float) -> float:
    """Return a number that is finite and at least 0, else raise."""
    if not 0.0 <= value < math.inf:
        raise ValueError(f"{name} must be finite and at least 0, got {value}")
    return float(value)


def _decay(d: int, sigma: float) -> tuple[float, float]:
    """Decay rate of the kernel, exp(-rate) = omega, and sqrt(4 sigma + 1)."""
    if operator.index(d) < 1:
        raise ValueError(f"d must be at least 1, got {d}")
    return decay_rate(nonnegative("sigma", sigma)), math.hypot(1.0, 2.0 * math.sqrt(sigma))
