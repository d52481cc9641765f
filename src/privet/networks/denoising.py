"""A denoiser of layers, which reads the weights of convolutions in a chosen order."""

from dataclasses import dataclass
from typing import Any, TypeVar

from torch import Tensor

from privet.denoise import Denoiser

ORDERS = ("OIHW", "OIWH", "OHWI", "OWHI")
"""Orders of a convolution's weights: output channel, input channel, height, width. PyTorch uses the first."""

Layer = TypeVar("Layer")


@dataclass(frozen=True)
class LayerDenoiser:
    """A denoiser of one layer, which reads the weights of 2-d convolutions in a given order.

    Parameters
    ----------
    denoiser : Denoiser
        Receives the layer with its axes in that order.
    order : {"OIHW", "OIWH", "OHWI", "OWHI"}
        Order of the axes of a layer that has four. DP-Fed-LS calls PyTorch's order OIWH. PyTorch stores the height
        before the width, so the paper's row OIWH is OIHW here.
    """

    denoiser: Denoiser
    order: str = ORDERS[0]

    def __post_init__(self) -> None:
        _check_order(self.order)

    def __call__(self, layer: Layer, noise_std: float = 0.0) -> Layer:
        """Return a denoised layer, an array or a tensor, whose noise has this standard deviation in each coordinate."""
        given: Any = layer
        if given.ndim != len(self.order) or self.order == ORDERS[0]:
            return self.denoiser(layer, noise_std)
        there = tuple(ORDERS[0].index(letter) for letter in self.order)
        back = tuple(self.order.index(letter) for letter in ORDERS[0])
        found: Any = self.denoiser(_permuted(given, there), noise_std)
        restored: Layer = _permuted(found, back)
        return restored


def layer_denoiser(denoiser: Denoiser | None, order: str) -> LayerDenoiser | None:
    """Return the denoiser of layers, or None if there is no denoiser. Raise if the order is not one of ``ORDERS``."""
    _check_order(order)
    return None if denoiser is None else LayerDenoiser(denoiser, order)


def _check_order(order: str) -> None:
    if order not in ORDERS:
        raise ValueError(f"order must be one of {', '.join(ORDERS)}, got {order!r}.")


def _permuted(layer: Any, axes: tuple[int, ...]) -> Any:
    """Return a tensor or an array with its axes in another order. Tensors are contiguous, as gradients should be."""
    return layer.permute(axes).contiguous() if isinstance(layer, Tensor) else layer.transpose(axes)
