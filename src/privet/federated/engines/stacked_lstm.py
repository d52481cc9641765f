"""The LSTMs of many clients at once, forward and backward.

A time step needs one product per client and gate, of the rows (input, 1, previous state) with the merged weights, and
a few operations on the gates of all clients. The gradient of the weights is one product per gate over all time steps.
Compared with one call of torch's fused kernel per client, this saves calls and copies. The products are numpy's,
because its BLAS library is faster than that of torch for matrices of this size, and numpy computes the hyperbolic
tangent several times as fast.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

Array = NDArray[Any]

_sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input  # gradient * y * (1 - y), where y is the output
_tanh_backward = torch.ops.aten.tanh_backward.grad_input  # gradient * (1 - y * y)


def stacked_lstm(layer: nn.LSTM, weights: dict[str, Tensor], inputs: Tensor) -> tuple[Tensor, ...]:
    """Return the states of the last layer, one tensor of shape (clients, batch, units) per time.

    Parameters
    ----------
    layer : nn.LSTM
        The architecture, in one direction and without projections.
    weights : dict of tensors
        The weights of the layer, in single or double precision, with one row per client.
    inputs : tensor of shape (clients, batch, times, features)
        The inputs of all clients.
    """
    states: tuple[Tensor, ...] = ()
    for place in range(layer.num_layers):
        into, across = weights[f"weight_ih_l{place}"], weights[f"weight_hh_l{place}"]
        if layer.bias:
            shift = weights[f"bias_ih_l{place}"] + weights[f"bias_hh_l{place}"]
        else:
            shift = into.new_zeros(into.shape[:2])
        merged = torch.cat([into, shift[..., None], across], 2).unflatten(1, (4, layer.hidden_size))
        states = _Recurrence.apply(torch.stack(states, 2) if place else inputs, merged)
    return states


class _Recurrence(torch.autograd.Function):  # type: ignore[misc]
    """One layer, of which forward() takes the inputs and the merged weights of shape (clients, 4, units, columns).

    The columns belong to the input, to the constant 1, and to the previous state. The gates are in torch's order:
    input, forget, new value, output. They have the axes (clients, gates, times, batch, units), so that a gate at one
    time is a contiguous block per client. A state that nobody uses has no gradient, and costs none.
    """

    @staticmethod
    @np.errstate(all="ignore")  # as in torch
    def forward(ctx: Any, inputs: Tensor, merged: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        clients, batch, times, features = inputs.shape
        units, columns = merged.shape[2:]
        weights = np.ascontiguousarray(merged.numpy().swapaxes(2, 3))
        rows = np.empty((clients, times + 1, batch, columns), weights.dtype)
        states = rows[..., features + 1 :].swapaxes(0, 1)
        rows[:, :times, :, :features] = inputs.numpy().swapaxes(1, 2)
        rows[:, :times, :, features] = 1
        states[0] = 0
        gates = inputs.new_empty(clients, 4, times, batch, units)
        cells, tanhs = (np.empty((times, clients, batch, units), weights.dtype) for _ in range(2))
        kept = np.empty_like(cells[0])
        of_gates = gates.numpy()
        taken, forget, new, output = of_gates.transpose(1, 2, 0, 3, 4)
        for t, (first_two, last) in enumerate(zip(gates[:, :2].unbind(2), gates[:, 3].unbind(1), strict=True)):
            used = slice(columns if t else features + 1)  # The first state is zero.
            np.matmul(rows[:, t, None, :, used], weights[:, :, used], out=of_gates[:, :, t])
            first_two.sigmoid_()
            last.sigmoid_()
            np.tanh(new[t], out=new[t])
            np.multiply(taken[t], new[t], out=cells[t])
            if t:
                np.multiply(forget[t], cells[t - 1], out=kept)
                np.add(cells[t], kept, out=cells[t])
            np.tanh(cells[t], out=tanhs[t])
            np.multiply(output[t], tanhs[t], out=states[t + 1])
        ctx.made, ctx.merged = (rows, gates, cells, tanhs), merged
        found: tuple[Tensor, ...] = torch.from_numpy(states[1:]).unbind()
        return found

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    @np.errstate(all="ignore")
    def backward(ctx: Any, *slopes: Tensor | None) -> tuple[Tensor | None, Tensor]:
        rows, gates, cells, tanhs = ctx.made
        del ctx.made  # The gates are overwritten.
        weights = ctx.merged.numpy()
        clients, _, times, batch, units = gates.shape
        features = weights.shape[-1] - units - 1
        _gate_slopes(gates, cells, tanhs, slopes, weights[..., features + 1 :])
        flat = gates.flatten(2, 3).numpy()
        of_times = np.lib.stride_tricks.as_strided(  # without the last state, which is not an input
            rows, (clients, 1, times * batch, rows.shape[-1]), (rows.strides[0], 0, *rows.strides[2:])
        )
        # The transposed product and a copy are faster than the product itself.
        of_weights = np.ascontiguousarray(np.matmul(of_times.swapaxes(2, 3), flat).swapaxes(2, 3))
        if not ctx.needs_input_grad[0]:
            return None, torch.from_numpy(of_weights)
        of_inputs = np.matmul(gates.numpy(), weights[:, :, None, :, :features]).sum(1)
        return torch.from_numpy(of_inputs).transpose(1, 2), torch.from_numpy(of_weights)


def _gate_slopes(gates: Tensor, cells: Array, tanhs: Array, slopes: Sequence[Tensor | None], across: Array) -> None:
    """Replace gates by the gradients of their inputs, from the last time to the first.

    Parameters
    ----------
    gates : tensor of shape (clients, 4, times, batch, units)
        The gates, which are overwritten.
    cells, tanhs : arrays of shape (times, clients, batch, units)
        The cell states, and their hyperbolic tangents, which are overwritten.
    slopes : sequence of tensors of shape (clients, batch, units), or None for zero
        The gradients of the states at each time.
    across : array of shape (clients, 4, units, units)
        The weights of previous states.
    """
    of_gates = gates.numpy()
    taken, forget, new, output = of_gates.transpose(1, 2, 0, 3, 4)
    takens, forgets, news, outputs = (gates[:, gate].unbind(1) for gate in range(4))
    of_state, of_cell, spare = (torch.zeros_like(gates[:, 0, 0]) for _ in range(3))
    state, cell, free = of_state.numpy(), of_cell.numpy(), spare.numpy()
    parts = torch.empty_like(gates[:, :, 0])
    products = parts.numpy()
    for t, tanh in reversed(list(enumerate(torch.from_numpy(tanhs).unbind()))):
        slope, y = slopes[t], tanhs[t]
        if slope is not None:
            of_state += slope
        np.multiply(state, output[t], out=free)
        of_cell += _tanh_backward(spare, tanh, grad_input=spare)
        np.multiply(state, y, out=free)
        _sigmoid_backward(spare, outputs[t], grad_input=outputs[t])
        np.multiply(cell, taken[t], out=free)
        np.multiply(cell, new[t], out=y)
        _sigmoid_backward(tanh, takens[t], grad_input=takens[t])
        _tanh_backward(spare, news[t], grad_input=news[t])
        if t == 0:
            forget[0] = 0  # The cell before the first one is zero.
            return
        np.multiply(cell, cells[t - 1], out=free)
        np.multiply(cell, forget[t], out=cell)
        _sigmoid_backward(spare, forgets[t], grad_input=forgets[t])
        np.matmul(of_gates[:, :, t], across, out=products)
        torch.sum(parts, 1, out=of_state)
