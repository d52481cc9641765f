"""The LSTMs of many clients at once, forward and backward.

A time step needs one product per client and gate, of the rows (input, 1, previous state) with the merged weights, and a
few operations on the gates of all clients. The gradient of the weights is one product per gate over all time steps.
Compared with one call of torch's fused kernel per client, this saves calls and copies. The products are numpy's, because
its BLAS library is faster than that of torch for matrices of this size, and numpy computes the hyperbolic tangent several
times as fast.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

Array = NDArray[Any]

_sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input  # gradient * y * (1 - y), where y is the output
_tanh_backward = torch.ops.aten.tanh_backward.grad_input  # gradient * (1 - y * y)


def stacked_lstm(layer: nn.LSTM, weights: dict[str, Tensor], inputs: Tensor) -> Tensor:
    """Return the states of the last layer at all times.

    Parameters
    ----------
    layer : nn.LSTM
        The architecture, in one direction and without projections.
    weights : dict of tensors
        The weights of the layer, in single or double precision, with one row per client.
    inputs : tensor of shape (clients, batch, times, features)
        The inputs of all clients.

    Returns
    -------
    tensor of shape (clients, batch, times, units)
        The states.
    """
    for place in range(layer.num_layers):
        into, across = weights[f"weight_ih_l{place}"], weights[f"weight_hh_l{place}"]
        if layer.bias:
            shift = weights[f"bias_ih_l{place}"] + weights[f"bias_hh_l{place}"]
        else:
            shift = into.new_zeros(into.shape[:2])
        merged = torch.cat([into, shift[..., None], across], 2)
        inputs = _Recurrence.apply(inputs, merged.unflatten(1, (4, layer.hidden_size)))
    return inputs


class _Recurrence(torch.autograd.Function):
    """One layer, of which forward() takes the inputs and the merged weights of shape (clients, 4, units, columns).

    The columns belong to the input, to the constant 1, and to the previous state. The gates are in torch's order: input,
    forget, new value, output. All buffers have the axes (clients, gates, times, batch, units), so that a gate at one
    time is a contiguous block per client.
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, merged: Tensor) -> Tensor:
        clients, batch, times, features = inputs.shape
        units, columns = merged.shape[2:]
        weights = np.ascontiguousarray(merged.numpy().swapaxes(2, 3))
        rows = np.empty((clients, times + 1, batch, columns), weights.dtype)
        states = rows[..., features + 1 :]
        rows[:, :times, :, :features] = inputs.numpy().swapaxes(1, 2)
        rows[:, :times, :, features] = 1
        states[:, 0] = 0
        gates = inputs.new_empty(clients, 4, times, batch, units)
        of_gates = gates.numpy()
        cells, tanhs = (np.empty((times, clients, batch, units), weights.dtype) for _ in range(2))
        kept = np.empty_like(cells[0])
        gates_in_time = zip(gates[:, :2].unbind(2), gates[:, 3].unbind(1), strict=True)
        for t, (input_and_forget, output) in enumerate(gates_in_time):
            here, used = of_gates[:, :, t], slice(columns if t else features + 1)  # The first state is zero.
            np.matmul(rows[:, t, None, :, used], weights[:, :, used], out=here)
            input_and_forget.sigmoid_()
            output.sigmoid_()
            np.tanh(here[:, 2], out=here[:, 2])
            np.multiply(here[:, 0], here[:, 2], out=cells[t])
            if t:
                np.multiply(here[:, 1], cells[t - 1], out=kept)
                np.add(cells[t], kept, out=cells[t])
            np.tanh(cells[t], out=tanhs[t])
            np.multiply(here[:, 3], tanhs[t], out=states[:, t + 1])
        ctx.made, ctx.merged = (rows, gates, cells, tanhs), merged
        return torch.from_numpy(states[:, 1:]).transpose(1, 2)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, Tensor]:
        rows, gates, cells, tanhs = ctx.made
        weights = ctx.merged.numpy()
        clients, _, times, batch, units = gates.shape
        features = weights.shape[-1] - units - 1
        _gate_slopes(gates, cells, tanhs, slopes, weights[..., features + 1 :])
        flat = gates.flatten(2, 3).numpy()
        of_times = np.lib.stride_tricks.as_strided(  # without the last state, which is not an input
            rows, (clients, 1, times * batch, rows.shape[-1]), (rows.strides[0], 0, *rows.strides[2:])
        )
        of_weights = torch.from_numpy(np.matmul(flat.swapaxes(2, 3), of_times))
        if not ctx.needs_input_grad[0]:
            return None, of_weights
        of_inputs = np.matmul(gates.numpy(), weights[:, :, None, :, :features]).sum(1)
        return torch.from_numpy(of_inputs).transpose(1, 2), of_weights


def _gate_slopes(gates: Tensor, cells: Array, tanhs: Array, slopes: Tensor, across: Array) -> None:
    """Replace gates by the gradients of their inputs, from the last time to the first.

    Parameters
    ----------
    gates : tensor of shape (clients, 4, times, batch, units)
        The gates, which are overwritten.
    cells, tanhs : arrays of shape (times, clients, batch, units)
        The cell states, and their hyperbolic tangents, which are overwritten.
    slopes : tensor of shape (clients, batch, times, units)
        The gradients of the states.
    across : array of shape (clients, 4, units, units)
        The weights of previous states.
    """
    of_gates = gates.numpy()
    inputs, forgets, news, outputs = (gates[:, gate].unbind(1) for gate in range(4))
    before, tanh = torch.from_numpy(cells), torch.from_numpy(tanhs)
    of_states = slopes.unbind(2)
    of_state = of_states[-1].contiguous()
    of_cell, buffer = torch.zeros_like(of_state), torch.empty_like(of_state)
    parts = np.empty_like(of_gates[:, :, 0])
    of_parts = torch.from_numpy(parts)
    for t in reversed(range(len(inputs))):
        taken, forget, new, output, y = inputs[t], forgets[t], news[t], outputs[t], tanh[t]
        torch.mul(of_state, output, out=buffer)
        of_cell += _tanh_backward(buffer, y, grad_input=buffer)
        torch.mul(of_state, y, out=buffer)
        _sigmoid_backward(buffer, output, grad_input=output)
        torch.mul(of_cell, taken, out=buffer)
        torch.mul(of_cell, new, out=y)
        _sigmoid_backward(y, taken, grad_input=taken)
        _tanh_backward(buffer, new, grad_input=new)
        if t == 0:
            forget.zero_()  # The cell before the first one is zero.
            return
        torch.mul(of_cell, before[t - 1], out=buffer)
        of_cell *= forget
        _sigmoid_backward(buffer, forget, grad_input=forget)
        np.matmul(of_gates[:, :, t], across, out=parts)
        torch.sum(of_parts, 1, out=of_state)
        of_state += of_states[t - 1]
