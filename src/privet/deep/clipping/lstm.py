"""The loop of an LSTM over time, forwards and backwards, on buffers that are allocated once.

Autograd would record some 15 operations for each time. Here, the gates are computed in the memory of their linear maps,
and their gradients are written to the same memory.
"""

from typing import Any, cast

import torch
from torch import Tensor

_sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
_tanh_backward = torch.ops.aten.tanh_backward.grad_input


def lstm_scan(read: Tensor, weight: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Run an LSTM over all times.

    Parameters
    ----------
    read : tensor of shape (T, B, 4 H)
        The linear map of the inputs, with all biases. Its memory is overwritten.
    weight : tensor of shape (4 H, H)
        The linear map of the hidden state, which is not differentiated.
    hidden, cell : tensors of shape (B, H)
        The initial state.

    Returns
    -------
    tuple of tensors
        The outputs, of shape (T, B, H); the last cell state; and the hidden states with the initial one first, of shape
        (T + 1, B, H), which are not differentiable.
    """
    return cast(tuple[Tensor, Tensor, Tensor], _Scan.apply(read, weight, hidden, cell))


class _Scan(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, read: Tensor, weight: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        length, (batch, size) = len(read), hidden.shape
        gates, weight = read.detach(), weight.to(read.dtype)
        states, cells = read.new_empty(length + 1, batch, size), read.new_empty(length + 1, batch, size)
        squashed = read.new_empty(length, batch, size)
        states[0], cells[0] = hidden, cell
        columns = weight.t().contiguous()
        for time, (total, before, after) in enumerate(zip(gates, states, states[1:], strict=False)):
            total.addmm_(before, columns)
            total[:, : 2 * size].sigmoid_()
            enter, forget, new, out = total.split(size, 1)
            new.tanh_()
            out.sigmoid_()
            torch.mul(forget, cells[time], out=cells[time + 1]).addcmul_(enter, new)
            torch.tanh(cells[time + 1], out=squashed[time])
            torch.mul(out, squashed[time], out=after)
        ctx.buffers = gates, weight, cells, squashed
        ctx.mark_non_differentiable(states)
        # Copies, because the model may change its outputs in place.
        return states[1:].clone(), cells[-1].clone(), states

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        gates, weight, cells, squashed = ctx.buffers
        ctx.buffers = None  # The gates are overwritten, so there is no second backward pass.
        of_outputs, of_cell, _ = grads
        size = weight.shape[1]
        of_hidden, of_cell = torch.zeros_like(of_cell), of_cell.clone()
        one, other = torch.empty_like(of_cell), torch.empty_like(of_cell)
        for time in range(len(gates) - 1, -1, -1):
            enter, forget, new, out = gates[time].split(size, 1)
            of_hidden += of_outputs[time]
            torch.mul(of_hidden, out, out=one)
            of_cell += _tanh_backward(one, squashed[time], grad_input=one)
            torch.mul(of_hidden, squashed[time], out=one)
            _sigmoid_backward(one, out, grad_input=out)
            torch.mul(of_cell, new, out=one)
            torch.mul(of_cell, enter, out=other)
            _sigmoid_backward(one, enter, grad_input=enter)
            _tanh_backward(other, new, grad_input=new)
            torch.mul(of_cell, cells[time], out=one)
            of_cell *= forget
            _sigmoid_backward(one, forget, grad_input=forget)
            torch.mm(gates[time], weight, out=of_hidden)
        return gates, None, of_hidden, of_cell
