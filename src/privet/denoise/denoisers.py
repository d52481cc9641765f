"""The denoisers, for numpy arrays and torch tensors."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from privet.checks import nonnegative
from privet.denoise.cycle import is_tensor, smooth

V = TypeVar("V")


class Denoiser(Protocol):
    """Maps a noisy vector, or a list of layers, to a better estimate of the vector without the noise."""

    def __call__(self, v: V, noise_std: float = 0.0) -> V:
        """Return an estimate of `v` without its noise, which has standard deviation `noise_std` in each coordinate."""
        ...


@dataclass(frozen=True)
class LaplacianSmoothing:
    """The Laplacian smoothing of DP-LSSGD and DP-Fed-LS, as computed by `laplacian_smoothing`.

    Parameters
    ----------
    sigma : float
        Strength of the smoothing, finite and at least 0. The papers use 0.5 to 3; 0 is the identity.

    Notes
    -----
    Formal guarantees: smoothing is post-processing by an invertible map, so the smoothed vector has exactly the same
    privacy as the noisy vector. (Remark 14 of the DP-LSSGD paper claims stronger privacy, which is wrong.) It reduces
    the variance of white noise to the fraction `privet.denoise.beta(d, sigma)`, where d is the length of the vector.
    """

    sigma: float

    def __post_init__(self) -> None:
        nonnegative("sigma", self.sigma)

    def __call__(self, v: V, noise_std: float = 0.0) -> V:
        """Return `v`, smoothed. The noise level is not used."""
        return laplacian_smoothing(v, self.sigma)


@dataclass(frozen=True)
class JamesStein:
    """Multiply by 1 - (d - 2) noise_std^2 / ||y||^2, which has a smaller mean squared error than y itself for d >= 3.

    Parameters
    ----------
    positive_part : bool
        Whether to replace negative factors by zero, which reduces the error further.
    """

    positive_part: bool = True

    def __call__(self, v: V, noise_std: float = 0.0) -> V:
        """Return `v`, shrunk towards zero. A vector with d <= 2, a zero vector, and one without noise are unchanged."""
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
    """Move every coordinate towards zero by scale * noise_std * sqrt(2 log d), but not beyond zero.

    Parameters
    ----------
    scale : float
        Multiple of the universal threshold, a level that pure noise exceeds with vanishing probability as d grows.
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        nonnegative("scale", self.scale)

    def __call__(self, v: V, noise_std: float = 0.0) -> V:
        """Return `v`, with the threshold applied. For d = 1 or without noise, the threshold is zero."""
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
        Any shape, read in row-major order as one cycle. Each layer of a list is a separate cycle.
    sigma : float
        Strength of the smoothing, finite and at least 0. On the CPU the time hardly depends on it.

    Returns
    -------
    array, tensor, list or tuple
        The solution u, as a new object of the same type, shape, dtype and device as `v`. Integers become float64, and
        tensors are detached from the graph. The rounding error of each entry is a small multiple of the unit roundoff
        times the largest entry of `v`. Each entry of u depends on all entries of `v`, so a NaN or an infinity in `v`
        makes all of them non-finite.

    Notes
    -----
    There are two algorithms on the CPU. Both are accurate for all lengths and strengths.

    - Short vectors and strong smoothing: the cycle is a path plus one edge. On the path, I - sigma L is tridiagonal,
      with factors in closed form, and LAPACK solves the system in float64. The edge adds a matrix of rank one, and the
      solution of the system for that matrix is a geometric sequence in closed form.
    - Long vectors: the entries of the inverse are proportional to omega^|i - j| for a number omega below 1. The vector
      is divided into blocks. Each block is multiplied by the same small matrix, in the dtype of `v`, and passes one
      number to each of the neighbouring blocks.
    """
    sigma = nonnegative("sigma", sigma)
    smoothed: V = _layerwise(lambda y: smooth(y, sigma), v)
    return smoothed


def _layerwise(op: Callable[[Any], Any], v: Any) -> Any:
    """Apply `op`, which must not change its input, to each layer of `v`, flat and of at least single precision."""
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
