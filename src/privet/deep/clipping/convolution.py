"""Convolutions: a linear map of each patch, with groups of channels each by itself."""

import math

from torch import Tensor, nn
from torch.nn import functional

from privet.deep.clipping.gradients import Direct, OuterSum, PerExample
from privet.deep.clipping.rules import rule


@rule(nn.Conv1d, nn.Conv2d, nn.Conv3d)
def convolution(
    layer: nn.Conv1d | nn.Conv2d | nn.Conv3d, inputs: Tensor, output_grads: Tensor
) -> dict[str, PerExample]:
    """Return the gradients of weight and bias: a patch is what went in, a place of the output what came back."""
    batch, groups = len(inputs), layer.groups
    left = _patches(layer, inputs)
    right = output_grads.reshape(batch, groups, layer.out_channels // groups, -1).transpose(2, 3)
    found: dict[str, PerExample] = {"weight": OuterSum(left, right, layer.weight.shape)}
    if layer.bias is not None:
        found["bias"] = Direct(output_grads.flatten(2).sum(2))
    return found


def _patches(layer: nn.Conv1d | nn.Conv2d | nn.Conv3d, inputs: Tensor) -> Tensor:
    """Return what each place of the output sees, of shape (B, groups, places, channels of a group times kernel).

    A view that overlaps itself, copied once: torch's own unfold goes through the batch one example at a time.
    """
    padded = _padded(layer, inputs).contiguous()
    batch, channels, *sizes = padded.shape
    first, channel, *steps = padded.stride()
    kernel, stride, dilation = layer.kernel_size, layer.stride, layer.dilation
    outs = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(sizes, kernel, stride, dilation, strict=True)]
    each = channels // layer.groups
    view = padded.as_strided(
        (batch, layer.groups, each, *kernel, *outs),
        (
            first,
            each * channel,
            channel,
            *(step * d for step, d in zip(steps, dilation, strict=True)),
            *(step * s for step, s in zip(steps, stride, strict=True)),
        ),
    )
    # Places last: long runs are copied at once.
    return view.reshape(batch, layer.groups, each * math.prod(kernel), math.prod(outs)).transpose(2, 3)


def _padded(layer: nn.Conv1d | nn.Conv2d | nn.Conv3d, inputs: Tensor) -> Tensor:
    """Return the inputs with the layer's padding around them."""
    widths = layer._reversed_padding_repeated_twice
    if not any(widths):
        return inputs
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    return functional.pad(inputs, widths, mode=mode)
