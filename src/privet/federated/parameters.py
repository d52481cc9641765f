"""A model as named layers, as one vector, and in the order in which a convolution's weights are smoothed."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.denoise import Denoiser

Weights = dict[str, NDArray[Any]]
"""The layers of a model, or of an update, by name."""

Vector = NDArray[np.float64]

ORDERS = ("OIHW", "OIWH", "OHWI", "OWHI")
"""Orders of a convolution's weights: output channel, input channel, height, width. The first is PyTorch's own."""


class UpdateError(ValueError):
    """An update that cannot be added: its cause, in a few words that hold nothing of its numbers."""


@dataclass(frozen=True)
class Layers:
    """Names and shapes of a model's layers."""

    shapes: dict[str, tuple[int, ...]]

    @classmethod
    def of(cls, weights: Mapping[str, NDArray[Any]]) -> "Layers":
        """Look at a model."""
        if not weights:
            raise ValueError("the model has no layers to train")
        layers = cls({name: np.shape(weight) for name, weight in weights.items()})
        try:
            layers.vector(weights)
        except UpdateError as error:
            raise ValueError(f"the global model cannot be trained: {error}") from error
        return layers

    @cached_property
    def size(self) -> int:
        """The number of parameters."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def vector(self, update: Any) -> Vector:
        """Return an update as one vector, or raise :class:`UpdateError`, whatever it is."""
        if not isinstance(update, Mapping):
            raise UpdateError("not a dictionary of layers")
        try:
            layers = dict(update)
        except Exception as error:  # what an untrusted object does when it is asked for its layers
            raise UpdateError(f"a dictionary that cannot be read ({type(error).__name__})") from error
        if layers.keys() != self.shapes.keys():
            raise UpdateError("other layers than the model's")
        vector = np.empty(self.size)
        for name, place in self.split(vector).items():
            _fill(place, layers[name])
        if not np.isfinite(vector).all():
            raise UpdateError("a number that is not finite")
        return vector

    def split(self, vector: Vector) -> Weights:
        """Return the layers of a vector, without a copy."""
        found: Weights = {}
        start = 0
        for name, shape in self.shapes.items():
            end = start + math.prod(shape)
            found[name] = vector[start:end].reshape(shape)
            start = end
        return found


def _fill(place: Vector, value: Any) -> None:
    """Write a layer into its place."""
    try:
        array = np.asarray(value)
    except Exception as error:  # what an untrusted object does when it is asked for its numbers
        raise UpdateError(f"a layer that is no array ({type(error).__name__})") from error
    if array.dtype.kind not in "fiub":
        raise UpdateError(f"a layer of type {array.dtype}")
    if array.shape != place.shape:
        raise UpdateError(f"a layer of shape {array.shape} in the place of {place.shape}")
    place[...] = array


def clipped(vector: Vector, clip_norm: float) -> Vector:
    """Return a finite vector scaled down to the l2 norm ``clip_norm``, if it is longer.

    Where squares might overflow or vanish, it is first divided by its largest entry: an infinite norm would scale the
    whole vector to zero.
    """
    with np.errstate(over="ignore"):
        square = float(np.dot(vector, vector))
    if 1e-200 < square < 1e200 and clip_norm > 1e-100:  # so that the factor is a normal number
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
    """Return an order of flattening that is known."""
    if order not in ORDERS:
        raise ValueError(f"order must be one of {', '.join(ORDERS)}, got {order!r}")
    return order


def denoised(update: Weights, denoiser: Denoiser, noise_std: float, order: str) -> Weights:
    """Denoise each layer on its own; the weights of two-dimensional convolutions are read in the given order.

    The paper calls PyTorch's own order OIWH. PyTorch stores the height before the width, so that its row OIWH is OIHW
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
