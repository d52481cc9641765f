"""Convolutions: a linear map of each patch, separately for each group of channels.

The patches repeat each input value as often as the kernel is large. They are extracted for a few examples at a time,
used while they are in the cache, and not kept.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from privet.deep.clipping.gradients import Direct, OuterSum, PerExample
from privet.deep.clipping.outer_products import (
    outer_products,
    places_are_few,
    squared_norms_by_places,
    write_outer_products,
)
from privet.deep.clipping.rules import rule
from privet.deep.clipping.summing import Summation
from privet.networks.norms import wide

Convolution: TypeAlias = nn.Conv1d | nn.Conv2d | nn.Conv3d

_CHUNK = 1 << 18
"""Number of patch values that are extracted at a time. They fit into the cache of one core."""


@rule(nn.Conv1d, nn.Conv2d, nn.Conv3d)
def convolution(layer: Convolution, inputs: Tensor, output_grads: Tensor) -> dict[str, PerExample]:
    """Return the per-example gradients of weight and bias."""
    found: dict[str, PerExample] = {"weight": PatchSum(layer, _padded(layer, inputs), output_grads)}
    if layer.bias is not None:
        found["bias"] = Direct(output_grads.flatten(2).sum(2))
    return found


@dataclass(frozen=True)
class PatchSum(PerExample):
    """The gradients of a convolution's weight: the sum over output positions of output gradient times patch.

    Parameters
    ----------
    layer : nn.Conv1d, nn.Conv2d or nn.Conv3d
        The layer, which has the kernel, stride, dilation and groups.
    inputs : tensor of shape (B, channels, *sizes)
        The input, already padded, in any memory format.
    grads : tensor of shape (B, channels, *places)
        The gradient of the output.
    """

    layer: Convolution
    inputs: Tensor
    grads: Tensor

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", wide(self.inputs))
        object.__setattr__(self, "grads", wide(self.grads))

    def squared_norms(self) -> Tensor:
        """Return the squared norms, by inner products of positions if there are few, else by materialised gradients."""
        if not self._places_are_few:
            return Direct(self._outer).squared_norms()
        places, p, q = self._sizes
        if places_are_few(2 * places, p, q):
            return torch.cat([squared_norms_by_places(left, right) for left, right in self._factors()])
        return torch.cat([Direct(outer_products(right, left)).squared_norms() for left, right in self._factors()])

    def add_weighted_sum(self, weights: Tensor, slot: Tensor, summation: Summation) -> None:
        """Add the weighted sum, from materialised gradients or from patches and output gradients."""
        total = torch.zeros(len(slot), dtype=slot.dtype, device=self.inputs.device)
        if not self._places_are_few:
            Direct(self._outer).add_weighted_sum(weights, total, summation)
        else:

            def add(chosen: slice, out: Tensor, beta: float) -> None:
                start = chosen.start
                for left, right in self._factors(chosen):
                    some = weights[start : start + len(left)].to(out.dtype)
                    out.addmv_(outer_products(right, left).flatten(1).to(out.dtype).t(), some, beta=beta)
                    start, beta = start + len(left), 1.0

            summation.add_sum(total, len(weights), self.inputs, add)
        slot += self.from_row(total).to(slot.device)

    @property
    def row_size(self) -> int:
        """Number of values of one gradient, unless inner products of positions are cheaper."""
        places, p, q = self._sizes
        return 0 if places_are_few(2 * places, p, q) else p * q * self.layer.groups

    def write_rows(self, chosen: slice, rows: Tensor) -> None:
        """Write the gradients of some examples to the rows of a matrix, in the order of extraction."""
        start = 0
        for left, right in self._factors(chosen):
            write_outer_products(right, left, rows[start : start + len(left)])
            start += len(left)

    def from_row(self, row: Tensor) -> Tensor:
        """Return a row in the order of the weight's values."""
        _, p, q = self._sizes
        return self._in_shape(row.view(self.layer.groups, q, p)).flatten()

    def like(self) -> Tensor:
        """Return a tensor of the gradients' dtype and device, in the weight's shape."""
        return self.inputs.new_empty(self.layer.weight.shape)

    def written_out(self) -> Tensor:
        """Return the gradients of all examples, of shape (B, *weight)."""
        return self._in_shape(self._outer)

    def only(self, chosen: Tensor) -> "PatchSum":
        """Return the gradients of the chosen examples."""
        return PatchSum(self.layer, self.inputs[chosen], self.grads[chosen])

    def minus(self, other: PerExample) -> PerExample:
        """Return the difference between each example's gradient here and in ``other``."""
        if self._places_are_few and isinstance(other, PatchSum):
            return self.as_outer_sum().minus(other.as_outer_sum())
        return super().minus(other)

    def as_outer_sum(self) -> OuterSum:
        """Return the same gradients with all patches extracted, in the memory order of the weight."""
        left, right = (torch.cat(factors) for factors in zip(*self._factors(), strict=True))
        kernel = math.prod(self.layer.kernel_size)
        return OuterSum(left.unflatten(3, (kernel, -1)).transpose(3, 4).flatten(3), right, self.layer.weight.shape)

    # ------------------------------------------------------------------------------------------------------ patches

    @property
    def _places_are_few(self) -> bool:
        """Whether inner products of positions need less time and memory than materialised gradients."""
        places, p, q = self._sizes
        return places_are_few(places, p, q)

    @property
    def _sizes(self) -> tuple[int, int, int]:
        """The number of positions, the size of a patch, and the number of output channels, for one group."""
        weight = self.layer.weight
        return math.prod(self.grads.shape[2:]), math.prod(weight.shape[1:]), len(weight) // self.layer.groups

    @cached_property
    def _outer(self) -> Tensor:
        """The gradients, of shape (B, groups, outputs, patch), with patches in the order of their extraction."""
        _, p, q = self._sizes
        outer = self.grads.new_empty(len(self.grads), self.layer.groups, q, p)
        start = 0
        for left, right in self._factors():
            out = outer[start : start + len(left)].flatten(0, 1)
            torch.bmm(right.flatten(0, 1).transpose(1, 2), left.flatten(0, 1), out=out)
            start += len(left)
        return outer

    def _in_shape(self, outer: Tensor) -> Tensor:
        """Return gradients of shape (..., groups, outputs, patch) in the weight's shape, channels before kernel."""
        _, each, *kernel = self.layer.weight.shape
        return outer.reshape(*outer.shape[:-3], -1, *kernel, each).movedim(-1, -1 - len(kernel))

    def _factors(self, chosen: slice = slice(None)) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield patches and output gradients for a few examples at a time, each of shape (b, groups, positions, .)."""
        places, p, _ = self._sizes
        groups = self.layer.groups
        size = max(1, _CHUNK // max(1, places * p * groups))
        for inputs, grads in zip(self.inputs[chosen].split(size), self.grads[chosen].split(size), strict=True):
            yield self._patches(inputs), grads.unflatten(1, (groups, -1)).flatten(3).transpose(2, 3)

    def _patches(self, inputs: Tensor) -> Tensor:
        """Return the patch of each output position, with the kernel axes before the channels.

        The patches are one copy of an overlapping view. Copying is fastest if the last axes are the longer ones: those
        of the output positions, or those of the kernel and its channels.
        """
        layer, outs, kernel = self.layer, self.grads.shape[2:], self.layer.kernel_size
        first, channel, *steps = inputs.stride()
        groups, each = layer.groups, inputs.shape[1] // layer.groups
        at_place = [step * s for step, s in zip(steps, layer.stride, strict=True)]
        in_kernel = [step * d for step, d in zip(steps, layer.dilation, strict=True)]
        places, patch = (outs, at_place), ((*kernel, each), (*in_kernel, channel))
        rows_of_places = outs[-1] > kernel[-1] * each
        order = (patch, places) if rows_of_places else (places, patch)
        shape = (len(inputs), groups, *order[0][0], *order[1][0])
        view = inputs.as_strided(shape, (first, each * channel, *order[0][1], *order[1][1]), inputs.storage_offset())
        copied = view.reshape(len(inputs), groups, math.prod(order[0][0]), math.prod(order[1][0]))
        return copied.transpose(2, 3) if rows_of_places else copied


def _padded(layer: Convolution, inputs: Tensor) -> Tensor:
    """Return the inputs, padded as the layer pads them."""
    widths = layer._reversed_padding_repeated_twice
    if not any(widths):
        return inputs
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    return functional.pad(inputs, widths, mode=mode)
