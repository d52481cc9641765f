"""An LSTM layer of many clients at once, each with its own weights.

The kernels that torch calls for one LSTM spend much of their time on overhead if the layer is small. Batched products
over clients do not. Each time step has tensors of its own, which stay in the cache.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_slope = torch.ops.aten.sigmoid_backward  # takes the slope of the output and the output


def stacked_lstm(inputs: Tensor, from_inputs: Tensor, from_states: Tensor, bias: Tensor | None) -> Tensor:
    """Return the states of LSTM layers with zero initial states, of shape (times, clients, examples, units).

    Parameters
    ----------
    inputs : tensor of shape (times, clients, examples, features)
        The inputs.
    from_inputs, from_states : tensors of shape (clients, 4 * units, features or units)
        The weights of the gates, in torch's order: input, forget, cell and output.
    bias : tensor of shape (clients, 4 * units) or None
        The biases.
    """
    clients, rows, _ = from_inputs.shape
    scale = from_inputs.new_tensor([1.0, 1.0, 2.0, 1.0]).repeat_interleave(rows // 4)  # See _Recurrence.
    bias = from_inputs.new_zeros(clients, rows) if bias is None else bias
    weight = scale[:, None] * torch.cat([from_inputs, -from_states], dim=2)
    states: Tensor = _Recurrence.apply(inputs, weight, (scale * bias)[:, None])
    return states


class _Recurrence(torch.autograd.Function):  # type: ignore[misc]  # torch.autograd has no types
    """The states, and their gradients by backpropagation through time.

    torch's sigmoid is several times faster than its tanh, and one call is faster than two. The cell gate is therefore
    computed as tanh(x) = 2 sigmoid(2 x) - 1, with doubled weights, next to the other gates. Likewise, with C for twice
    the cell and o for the output gate, the state is o tanh(C / 2) = o (2 sigmoid(C) - 1). Its negative takes one
    operation, so the weights of the states are negated as well.
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Return the states, given the weights for inputs and for negated states side by side."""
        times, clients, examples, features = inputs.shape
        units = weight.shape[1] // 4
        both = inputs.new_zeros(clients, examples, features + units)  # the inputs, and the negated states before them
        cell = inputs.new_zeros(clients, examples, units)  # twice the cells
        states = inputs.new_empty(times, clients, examples, units)
        saved = []
        for time in range(times):
            both[:, :, :features] = inputs[time]
            gate = torch.baddbmm(bias, both, weight.mT).sigmoid_()
            entry, keep, new, out = gate.chunk(4, dim=2)
            saved += [both, cell, gate]
            cell = torch.mul(keep, cell).addcmul_(entry, new, value=4.0).sub_(entry, alpha=2.0)
            squashed = torch.sigmoid(cell)
            saved.append(squashed)
            both = torch.empty_like(both)
            negated = both[:, :, features:]
            torch.addcmul(out, out, squashed, value=-2.0, out=negated)
            torch.neg(negated, out=states[time])
        ctx.save_for_backward(weight, *saved)
        return states

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor, ...]:
        """Return the gradients with respect to the inputs, the weights and the biases."""
        weight, *saved = ctx.saved_tensors
        times, clients, examples, units = slopes.shape
        of_inputs = slopes.new_empty(times, clients, examples, weight.shape[2] - units)
        of_weight, of_bias = torch.zeros_like(weight), weight.new_zeros(clients, 1, 4 * units)
        of_state, of_cell = -slopes[-1], slopes.new_zeros(clients, examples, units)  # of negated states
        for time in reversed(range(times)):
            both, cell, gate, squashed = saved[4 * time : 4 * time + 4]
            entry, keep, new, out = gate.chunk(4, dim=2)
            of_cell.sub_(_slope(of_state * out, squashed), alpha=2.0)
            of_gate = torch.empty_like(gate)
            of_entry, of_keep, of_new, of_out = of_gate.chunk(4, dim=2)
            torch.mul(of_cell, (4.0 * new).sub_(2.0), out=of_entry)
            torch.mul(of_cell, cell, out=of_keep)
            torch.mul(of_cell, entry, out=of_new).mul_(4.0)
            torch.addcmul(of_state, of_state, squashed, value=-2.0, out=of_out)
            of_cell.mul_(keep)
            of_gate = _slope(of_gate, gate)
            of_weight.baddbmm_(of_gate.mT, both)
            of_bias += of_gate.sum(1, keepdim=True)
            of_both = torch.bmm(of_gate, weight)
            of_inputs[time] = of_both[:, :, :-units]
            of_state = torch.sub(of_both[:, :, -units:], slopes[time - 1])
        return of_inputs, of_weight, of_bias
