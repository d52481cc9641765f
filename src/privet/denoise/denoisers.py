"""The denoisers, and how they take numpy arrays and torch tensors."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from privet.denoise.cycle import is_tensor, smooth
from privet.denoise.spectrum import nonnegative

V = TypeVar("V")


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
        nonnegative("sigma", self.sigma)

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
        noise_std = nonnegative("noise_std", noise_std)

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
        nonnegative("scale", self.scale)

    def __call__(self, v: V, noise_std: float = 0.0) -> V:
        """Threshold `v`; as it is for d = 1 (log d = 0) or without noise."""
        unit = self.scale * nonnegative("noise_std", noise_std)

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
        New and detached, of the same container, type, shape, dtype and device; integers become float64. Each entry is
        right to some roundings of that dtype at the size of the largest entry of `v`. As each depends on all of `v`, a
        NaN or an infinity in `v` leaves none finite.

    Notes
    -----
    Two ways lead there on the host. Short vectors, and kernels that reach far: the cycle is a path plus one edge. On
    the path I - sigma L is tridiagonal and its factors have closed forms, so LAPACK solves it at once, in float64; the
    edge is a rank-one update whose solution is a known geometric sequence. Long vectors: the inverse is
    omega^|i - j| up to a constant, so blocks are multiplied by one small matrix, in their own dtype, and pass on one
    number to either side. Nothing cancels in either, at any length and any strength.
    """
    sigma = nonnegative("sigma", sigma)
    smoothed: V = _layerwise(lambda y: smooth(y, sigma), v)
    return smoothed


def _layerwise(op: Callable[[Any], Any], v: Any) -> Any:
    """Apply `op` to each layer of `v` as a flat vector, in single precision at least; `op` leaves its input alone."""
    if isinstance(v, list):
        return [_layerwise(op, layer) for layer in v]
    if isinstance(v, tuple):
        return tuple(_layerwise(op, layer) for layer in v)
    if is_tensor(v) and not v.is_complex():
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
