"""Layers that normalise each example separately, with one scale and one shift per channel or feature."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from privet.deep.clipping.gradients import Direct, PerExample
from privet.deep.clipping.rules import rule
from privet.networks.norms import wide


@rule(nn.LayerNorm)
def layer_norm(layer: nn.LayerNorm, inputs: Tensor, output_grads: Tensor) -> dict[str, PerExample]:
    """Return the per-example gradients, summed over all dimensions before those that are normalised."""
    normalised = functional.layer_norm(wide(inputs), layer.normalized_shape, eps=layer.eps)
    places = tuple(range(1, inputs.ndim - len(layer.normalized_shape)))
    return _affine(layer, normalised, output_grads, places)


@rule(nn.RMSNorm)
def rms_norm(layer: nn.RMSNorm, inputs: Tensor, output_grads: Tensor) -> dict[str, PerExample]:
    """Return the per-example gradients of the scale, summed over all dimensions before those that are normalised."""
    values = wide(inputs)
    # The smallest epsilon is that of the format in which the layer computes.
    eps = float(torch.finfo(inputs.dtype).eps) if layer.eps is None else layer.eps
    normalised = functional.rms_norm(values, layer.normalized_shape, eps=eps)
    places = tuple(range(1, inputs.ndim - len(layer.normalized_shape)))
    return _affine(layer, normalised, output_grads, places)


@rule(nn.GroupNorm)
def group_norm(layer: nn.GroupNorm, inputs: Tensor, output_grads: Tensor) -> dict[str, PerExample]:
    """Return the per-example gradients, one value per channel."""
    normalised = functional.group_norm(wide(inputs), layer.num_groups, eps=layer.eps)
    return _affine(layer, normalised, output_grads, tuple(range(2, inputs.ndim)))


@rule(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
def instance_norm(layer: nn.InstanceNorm1d, inputs: Tensor, output_grads: Tensor) -> dict[str, PerExample]:
    """Return the per-example gradients, one value per channel. Raise if running statistics mix the examples."""
    if layer.track_running_stats:
        raise ValueError(
            "An instance norm with track_running_stats=True mixes examples. Set track_running_stats=False."
        )
    normalised = functional.instance_norm(wide(inputs), eps=layer.eps)
    return _affine(layer, normalised, output_grads, tuple(range(2, inputs.ndim)))


def _affine(layer: nn.Module, normalised: Tensor, grads: Tensor, places: tuple[int, ...]) -> dict[str, PerExample]:
    """Return the per-example gradients of scale and shift, summed over the given dimensions."""
    found: dict[str, PerExample] = {}
    if getattr(layer, "weight", None) is not None:
        product = normalised * grads
        found["weight"] = Direct(product.sum(places) if places else product)
    if getattr(layer, "bias", None) is not None:
        found["bias"] = Direct(grads.sum(places) if places else grads)
    return found
