"""Denoisers: what may be done to a noisy vector after its privacy has been paid for.

Every denoiser is called with the noisy vector, or a list of its layers, and the known standard deviation of the noise
in each coordinate. It takes numpy arrays and torch tensors alike, and treats each layer on its own.

Formal guarantees
-----------------
All of this is post-processing: it sees nothing but the noisy vector and public constants, so it costs no privacy,
and it buys none either. Laplacian smoothing is invertible, so A^-1 (g + n) is exactly as private as g + n.
"""

import math
import operator
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpttrs

__all__ = [
    "Denoiser",
    "JamesStein",
    "LaplacianSmoothing",
    "SoftThreshold",
    "beta",
    "effective_dimension",
    "gamma",
    "laplacian_smoothing",
]

V = TypeVar("V")
Vector = NDArray[np.float64]

_NEGLIGIBLE = 37.0  # exp(-37) < 1e-16: what has decayed this far is lost in rounding
_CACHED_SIZE = 1 << 16  # larger factors are rebuilt: cheap next to their use, and too large to keep


class Denoiser(Protocol):
    """Maps a noisy vector, or a list of layers, to a better estimate of the vector without the noise."""

    def __call__(self, v: V, noise_std: float = 0.0) -> V:
        """Denoise `v`, whose every coordinate carries independent noise of standard deviation `noise_std`."""
        ...


@dataclass(frozen=True)
class LaplacianSmoothing:
    """Laplacian smoothing of DP-LSSGD and DP-Fed-LS: see `laplacian_smoothing`.

    Parameters
    ----------
    sigma : float
        Strength of the smoothing, finite and at least 0. The papers use 0.5 to 3; 0 is the identity.

    Notes
    -----
    Formal guarantees: post-processing by an invertible map. The privacy is that of the noisy vector, no weaker and no
    stronger (Remark 14 of the DP-LSSGD paper claims stronger; it is wrong). White noise keeps a fraction `beta` of
    its variance.
    """

    sigma: float

    def __post_init__(self) -> None:
        _nonnegative("sigma", self.sigma)

    def __call__(self, v: V, noise_std: float = 0.0) -> V:
        """Smooth `v`; the level of the noise makes no difference."""
        return laplacian_smoothing(v, self.sigma)


@dataclass(frozen=True)
class JamesStein:
    """Shrink towards zero by (1 - (d - 2) noise_std^2 / ||y||^2), which beats y itself in mean square for every d >= 3.

    Parameters
    ----------
    positive_part : bool
        Never shrink past zero, which is better still.

    Notes
    -----
    Formal guarantees: post-processing. The noise level is public and so costs nothing to use.

    References
    ----------
    Balle and Wang, "Improving the Gaussian Mechanism for Differential Privacy: Analytical Calibration and Optimal
    Denoising", 2018.
    """

    positive_part: bool = True

    def __call__(self, v: V, noise_std: float = 0.0) -> V:
        """Shrink `v`; as it is where d <= 2, without noise, or at zero."""
        noise_std = _nonnegative("noise_std", noise_std)

        def shrink(y: Any) -> Any:
            excess = len(y) - 2
            energy = float(((y / noise_std) ** 2).sum()) if noise_std > 0 and excess > 0 else 0.0
            factor = 1.0 - excess / energy if energy != 0 else 1.0
            return y * (0.0 if self.positive_part and factor < 0 else factor)

        shrunk: V = _layerwise(shrink, v)
        return shrunk


@dataclass(frozen=True)
class SoftThreshold:
    """Move every coordinate towards zero by scale * noise_std * sqrt(2 log d), and no further than zero.

    Parameters
    ----------
    scale : float
        Multiple of the universal threshold, the level that pure noise reaches with vanishing probability.

    Notes
    -----
    Formal guarantees: post-processing. The noise level is public and so costs nothing to use.

    References
    ----------
    Balle and Wang, "Improving the Gaussian Mechanism for Differential Privacy: Analytical Calibration and Optimal
    Denoising", 2018.
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        _nonnegative("scale", self.scale)

    def __call__(self, v: V, noise_std: float = 0.0) -> V:
        """Threshold `v`; as it is for d = 1 (log d = 0) or without noise."""
        unit = self.scale * _nonnegative("noise_std", noise_std)

        def threshold(y: Any) -> Any:
            level = unit * math.sqrt(2.0 * math.log(max(len(y), 1)))
            return y - y.clip(-level, level)

        thresholded: V = _layerwise(threshold, v)
        return thresholded


def laplacian_smoothing(v: V, sigma: float) -> V:
    """Solve (I - sigma L) u = v in linear time, where L is the second difference on a cycle.

    Parameters
    ----------
    v : numpy array, torch tensor, or list or tuple of them
        Any shape, read in row-major order as one cycle; each layer of a list is a cycle of its own.
    sigma : float
        Strength of the smoothing, finite and at least 0. On the host the time hardly depends on it.

    Returns
    -------
    as `v`
        New and detached, of the same container, type, shape, dtype and device; integers become float64. Whatever the
        dtype, the host computes in float64. As each entry depends on all of `v`, a NaN or an infinity in `v` leaves
        no entry finite.

    Notes
    -----
    The cycle is a path plus one edge. On the path I - sigma L is tridiagonal and its factors have closed forms, so
    LAPACK solves it at once; the edge is a rank-one update whose solution is a known geometric sequence. Nothing
    cancels, at any length and any strength.
    """
    sigma = _nonnegative("sigma", sigma)
    smoothed: V = _layerwise(lambda y: _smooth(y, sigma), v)
    return smoothed


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


def _decay(d: int, sigma: float) -> tuple[float, float]:
    """Decay rate of the kernel, exp(-rate) = omega, and sqrt(4 sigma + 1)."""
    if operator.index(d) < 1:
        raise ValueError(f"d must be at least 1, got {d}")
    return _rate(_nonnegative("sigma", sigma)), math.hypot(1.0, 2.0 * math.sqrt(sigma))


def _rate(sigma: float) -> float:
    """-log omega, from omega + 1/omega = 2 + 1/sigma; accurate where omega is close to 1."""
    return 2.0 * math.asinh(0.5 / math.sqrt(sigma)) if sigma > 0 else math.inf


def _nonnegative(name: str, value: float) -> float:
    if not 0.0 <= value < math.inf:
        raise ValueError(f"{name} must be finite and at least 0, got {value}")
    return float(value)


def _layerwise(op: Callable[[Any], Any], v: Any) -> Any:
    """Apply `op` to each layer of `v` as a flat vector, in single precision at least; `op` leaves its input alone."""
    if isinstance(v, list):
        return [_layerwise(op, layer) for layer in v]
    if isinstance(v, tuple):
        return tuple(_layerwise(op, layer) for layer in v)
    if _is_tensor(v) and not v.is_complex():
        import torch

        dtype = v.dtype if v.is_floating_point() else torch.float64
        flat = v.detach().reshape(-1).to(torch.promote_types(dtype, torch.float32))
        return op(flat).to(dtype).reshape(v.shape)
    if isinstance(v, np.ndarray | np.generic) and v.dtype.kind in "fiub":
        dtype = v.dtype if v.dtype.kind == "f" else np.dtype(np.float64)
        flat = v.reshape(-1).astype(np.promote_types(dtype, np.float32), copy=False)
        return op(flat).astype(dtype, copy=False).reshape(v.shape)
    kind = f"{type(v).__name__} of {v.dtype}" if hasattr(v, "dtype") else type(v).__name__
    raise TypeError(f"expected a real numpy array or torch tensor, or a list or tuple of them, got {kind}")


def _is_tensor(v: Any) -> bool:
    torch = sys.modules.get("torch")  # nobody holds a tensor before torch is imported
    return torch is not None and isinstance(v, torch.Tensor)


def _smooth(y: Any, sigma: float) -> Any:
    if not _is_tensor(y):
        return _smooth_in_place(y.astype(np.float64), sigma)
    if y.device.type != "cpu":
        return _smooth_on_device(y, sigma)
    import torch

    return torch.from_numpy(_smooth_in_place(y.to(torch.float64, copy=True).numpy(), sigma))


def _smooth_in_place(x: Vector, sigma: float) -> Vector:
    d = len(x)
    if d < 2 or sigma == 0:
        return x
    path = _path if d <= _CACHED_SIZE else _path.__wrapped__
    pivots, off_diagonal, closing = path(d, sigma)
    x, _ = dpttrs(pivots, off_diagonal, x, overwrite_b=True)
    update = (x.item(0) - x.item(-1)) * closing
    x[: len(update)] -= update
    x[-len(update) :] += update[::-1]
    return x


@lru_cache(maxsize=32)
def _path(d: int, sigma: float) -> tuple[Vector, Vector, Vector]:
    """Factors L D L^T of I - sigma L on a path of d >= 2 nodes, and the sequence that closes it to a cycle.

    With t = -log omega, the pivots are D_i = sigma cosh((i + 3/2) t) / cosh((i + 1/2) t), and the last is less by
    sigma: D_{d-1} = 2 sigma sinh(d t) sinh(t / 2) / cosh((d - 1/2) t). They are constant beyond the kernel's reach.
    """
    rate = _rate(sigma)
    omega = math.exp(-rate)
    limit = sigma + 0.5 * (1.0 + math.hypot(1.0, 2.0 * math.sqrt(sigma)))  # sigma / omega, and 1 as sigma vanishes
    decay = np.exp(-rate * np.arange(min(d, int(_NEGLIGIBLE / rate) + 1)))
    odd = omega * decay**2
    ratio = (1.0 + omega**2 * odd) / (1.0 + odd)
    pivots = np.full(d, limit)
    pivots[: len(ratio)] *= ratio
    pivots[-1] = limit * math.expm1(-rate) * math.expm1(-2 * d * rate) / (1.0 + math.exp((1 - 2 * d) * rate))
    off_diagonal = np.full(d - 1, -omega)
    off_diagonal[: len(ratio)] /= ratio[: d - 1]
    closing = omega / ((1.0 + omega) * -math.expm1(-d * rate)) * decay
    return pivots, off_diagonal, closing


def _smooth_on_device(y: Any, sigma: float) -> Any:
    """Smooth a tensor where it is, in calls that suit an accelerator: a recursion does not.

    The kernel is a product over m = 1, 2, 4, ... of I + e_m (S^m - 2 I + S^-m), S the cyclic shift and
    e_m = a / (1 + a)^2 with a = omega^m; log2(37 / t) of them, until a is lost in rounding.
    """
    x = y.clone()
    rate, shift = _rate(sigma), 1
    while len(x) > 1 and shift * rate < _NEGLIGIBLE:
        weight = 0.25 / math.cosh(0.5 * shift * rate) ** 2
        x = (1.0 - 2.0 * weight) * x + weight * (x.roll(shift % len(x)) + x.roll(-shift % len(x)))
        shift *= 2
    return x
