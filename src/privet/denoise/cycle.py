"""Solve (I - sigma L) u = v on a cycle, where L is its second difference: in numpy, in torch, and on devices.

With omega + 1/omega = 2 + 1/sigma the inverse on a line is omega^|i - j| up to a constant. Each entry of u is therefore
a mean of the entries of v around it, with weights that decay by a factor omega = exp(-t) per position.
"""

import math
import sys
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpttrs

from privet.denoise.blocks import NEGLIGIBLE, Product, numpy_product, smooth_in_blocks, torch_product
from privet.denoise.spectrum import decay_rate

Vector = NDArray[np.float64]

_CACHED_SIZE = 1 << 16  # larger factors are too large to keep, and cheap to rebuild compared with their use
_LONG = 1 << 13  # blocks are faster from this length on, unless the kernel extends beyond this length


def smooth(y: Any, sigma: float) -> Any:
    """Return the solution for a flat numpy array or tensor of at least single precision, without changing `y`."""
    if not is_tensor(y):
        return _smooth_on_host(y, sigma, numpy_product)
    if y.device.type != "cpu":
        return smooth_on_device(y, sigma)
    import torch

    return torch.from_numpy(_smooth_on_host(y.numpy(), sigma, torch_product))


def is_tensor(v: Any) -> bool:
    """Return whether `v` is a torch tensor. Torch need not be imported for this: without it, no tensor exists."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(v, torch.Tensor)


def _smooth_on_host(x: NDArray[Any], sigma: float, product: Product) -> NDArray[Any]:
    if len(x) >= _LONG and sigma > 0 and _LONG * decay_rate(sigma) > NEGLIGIBLE:
        kind = np.float32 if x.dtype == np.float32 else np.float64
        return smooth_in_blocks(np.ascontiguousarray(x, dtype=kind), sigma, product)
    return smooth_on_path(x.astype(np.float64), sigma).astype(x.dtype, copy=False)


def smooth_on_path(x: Vector, sigma: float) -> Vector:
    """Smooth a vector of any length, with any strength, in place.

    The cycle is a path plus one edge. On the path I - sigma L is tridiagonal and its factors have closed forms, so
    LAPACK solves it directly; the edge is a rank-one update whose solution is a known geometric sequence.
    """
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
    """Return the factors L D L^T of I - sigma L on a path of d >= 2 nodes, and the sequence that closes it to a cycle.

    With t = -log omega, the pivots are D_i = sigma cosh((i + 3/2) t) / cosh((i + 1/2) t), and the last is smaller
    by sigma: D_{d-1} = 2 sigma sinh(d t) sinh(t / 2) / cosh((d - 1/2) t). They are constant beyond the range of the
    kernel.
    """
    rate = decay_rate(sigma)
    omega = math.exp(-rate)
    limit = sigma + 0.5 * (1.0 + math.hypot(1.0, 2.0 * math.sqrt(sigma)))  # sigma / omega; 1 as sigma vanishes
    decay = np.exp(-rate * np.arange(min(d, int(NEGLIGIBLE / rate) + 1)))
    odd = omega * decay**2
    ratio = (1.0 + omega**2 * odd) / (1.0 + odd)
    pivots = np.full(d, limit)
    pivots[: len(ratio)] *= ratio
    pivots[-1] = limit * math.expm1(-rate) * math.expm1(-2 * d * rate) / (1.0 + math.exp((1 - 2 * d) * rate))
    off_diagonal = np.full(d - 1, -omega)
    off_diagonal[: len(ratio)] /= ratio[: d - 1]
    closing = omega / ((1.0 + omega) * -math.expm1(-d * rate)) * decay
    return pivots, off_diagonal, closing


def smooth_on_device(y: Any, sigma: float) -> Any:
    """Smooth a tensor on its device with whole-vector operations, because recursions are slow on accelerators.

    The kernel is a product over m = 1, 2, 4, ... of I + e_m (S^m - 2 I + S^-m), S the cyclic shift and
    e_m = a / (1 + a)^2 with a = omega^m. About log2(37 / t) factors are needed until a is lost in rounding.
    """
    x = y.clone()
    rate, shift = decay_rate(sigma), 1
    while len(x) > 1 and shift * rate < NEGLIGIBLE:
        weight = 0.25 / math.cosh(0.5 * shift * rate) ** 2
        x = (1.0 - 2.0 * weight) * x + weight * (x.roll(shift % len(x)) + x.roll(-shift % len(x)))
        shift *= 2
    return x
