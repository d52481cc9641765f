"""How the server processes updates: it clips each one, and denoises the layers of their noisy mean."""

import math

import numpy as np

from privet.denoise import Denoiser
from privet.networks import Vector, Weights

ORDERS = ("OIHW", "OIWH", "OHWI", "OWHI")
"""Orders of a convolution's weights: output channel, input channel, height, width. PyTorch uses the first."""


def clipped(vector: Vector, clip_norm: float) -> Vector:
    """Return a finite vector, scaled down to the l2 norm ``clip_norm`` if it is longer.

    If its squares might overflow or underflow, the vector is first divided by its largest entry. Otherwise an infinite
    norm would scale the whole vector to zero.
    """
    with np.errstate(over="ignore"):
        square = float(np.dot(vector, vector))
    if 1e-200 < square < 1e200 and clip_norm > 1e-100:  # then the factor is not subnormal
        length = math.sqrt(square)
        return vector if length <= clip_norm else vector * (clip_norm / length)
    peak = float(np.abs(vector).max(initial=0.0))
    if peak == 0:
        return vector
    direction = vector / peak
    length = float(np.linalg.norm(direction))
    if peak * length <= clip_norm:
        return vector
    return direction * (clip_norm / length)


def check_order(order: str) -> str:
    """Return ``order`` if it is one of ``ORDERS``, and raise otherwise."""
    if order not in ORDERS:
        raise ValueError(f"order must be one of {', '.join(ORDERS)}, got {order!r}.")
    return order


def denoised(update: Weights, denoiser: Denoiser, noise_std: float, order: str) -> Weights:
    """Return the update with each layer denoised separately, reading 2-d convolutions in the given order.

    The paper calls PyTorch's order OIWH. PyTorch stores the height before the width, so the paper's row OIWH is OIHW
    here.
    """
    axes = tuple("OIHW".index(letter) for letter in check_order(order))
    back = tuple(int(place) for place in np.argsort(axes))
    found: Weights = {}
    for name, layer in update.items():
        if layer.ndim == len(axes):
            found[name] = denoiser(layer.transpose(axes), noise_std).transpose(back)
        else:
            found[name] = denoiser(layer, noise_std)
    return found
