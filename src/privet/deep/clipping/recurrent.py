"""nn.RNN, nn.GRU, nn.LSTM and their cells: at each time, one linear map of the input and one of the state.

The map of the inputs is computed for all times in one product, and the map of the state is added to it. The outputs of
both maps have the same gradient as their sum, and the gradients of all weights and biases follow from it. Time is the
first dimension inside. Autograd reverses the loop over time, except for an LSTM without projection, whose loop is
reversed by hand (:mod:`privet.deep.clipping.lstm`).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence

from privet.deep.clipping.gradients import Direct, OuterSum, PerExample
from privet.deep.clipping.lstm import lstm_scan
from privet.deep.clipping.rules import Keep, inside

State = tuple[Tensor, ...]
"""The state of a layer: the hidden state and, for an LSTM, the cell state."""

Step = Callable[[Tensor, Tensor, State], State]
"""A function of the two linear maps, of input and of state, and the state. It returns the next state."""


@inside(nn.RNN, nn.GRU, nn.LSTM)
def recurrent(layer: nn.RNNBase, keep: Keep, input: Tensor, hx: Any = None) -> tuple[Tensor, Any]:
    """Compute what the layer computes for whole sequences: stacked layers, each in one direction or in two."""
    _check(layer, input, 3)
    times = (input.transpose(0, 1) if layer.batch_first else input).contiguous()
    ways = ("", "_reverse") if layer.bidirectional else ("",)
    if hx is None:
        size = layer.proj_size or layer.hidden_size
        hx = _zeros(layer, times, times.shape[1], layer.num_layers * len(ways), size)
    layer.check_forward_args(input, hx, None)
    starts = zip(*(state.unbind(0) for state in _as_state(hx)), strict=True)
    ends = []
    for depth in range(layer.num_layers):
        if depth:
            times = functional.dropout(times, layer.dropout, layer.training)
        outputs = []
        for way in ways:
            output, end = _one_way(layer, keep, times.flip(0) if way else times, f"_l{depth}{way}", next(starts))
            outputs.append(output.flip(0) if way else output)
            ends.append(end)
        times = torch.cat(outputs, 2) if len(outputs) > 1 else outputs[0]
    last = tuple(torch.stack(states) for states in zip(*ends, strict=True))
    return times.transpose(0, 1) if layer.batch_first else times, last if len(last) > 1 else last[0]


@inside(nn.RNNCell, nn.GRUCell, nn.LSTMCell)
def cell(layer: nn.RNNCellBase, keep: Keep, input: Tensor, hx: Any = None) -> Any:
    """Compute what the cell computes for one time."""
    _check(layer, input, 2)
    if hx is None:
        hx = tuple(state[0] for state in _as_state(_zeros(layer, input, len(input), 1, layer.hidden_size)))
    _, end = _one_way(layer, keep, input[None], "", _as_state(hx))
    return end if len(end) > 1 else end[0]


def _one_way(layer: nn.Module, keep: Keep, times: Tensor, suffix: str, state: State) -> tuple[Tensor, State]:
    """Return the outputs at all times and the last state of one layer in one direction."""
    step, maps_add_up = _step(layer)
    read_weight, memory_weight = getattr(layer, f"weight_ih{suffix}"), getattr(layer, f"weight_hh{suffix}")
    read_bias, memory_bias = (getattr(layer, f"bias_{kind}{suffix}", None) for kind in ("ih", "hh"))
    projection = getattr(layer, f"weight_hr{suffix}", None)
    length, batch, _ = times.shape
    hidden, unprojected = [state[0]], list[Tensor]()
    states: Tensor | None = None

    def of_reading(grads: Tensor) -> dict[str, PerExample]:
        return _of_map(f"ih{suffix}", times.detach(), grads, read_weight, read_bias)

    def of_memory(grads: Tensor) -> dict[str, PerExample]:
        before = torch.stack(hidden[:-1]) if states is None else states[:-1]
        return _of_map(f"hh{suffix}", before, grads, memory_weight, memory_bias)

    def of_both(grads: Tensor) -> dict[str, PerExample]:
        grads = _examples_first(grads).transpose(0, 1)  # One copy serves both maps.
        return of_reading(grads) | of_memory(grads)

    def of_projection(grads: Tensor) -> dict[str, PerExample]:
        return _of_map(f"hr{suffix}", torch.stack(unprojected), grads, projection, None)

    if maps_add_up:
        bias = None if read_bias is None else read_bias + memory_bias
        read = functional.linear(times, read_weight, bias)
        keep(read, batch, of_both)
        if step is _lstm and projection is None:
            outputs, cell_state, states = lstm_scan(read, memory_weight, *state)
            return outputs, (outputs[-1], cell_state)
        memories = reads = read.unbind(0)
    else:
        read = functional.linear(times, read_weight, read_bias)
        keep(read, batch, of_reading)
        memory = torch.zeros_like(read) if memory_bias is None else memory_bias.expand_as(read).clone()
        keep(memory, batch, of_memory)
        reads, memories = read.unbind(0), memory.unbind(0)
    if projection is not None:
        # These zeros are added to the projected states, so their gradient is that of the projection's output.
        projected = times.new_zeros(length, batch, len(projection))
        keep(projected, batch, of_projection)
        shifts = projected.unbind(0)
    for time in range(length):
        state = step(reads[time], torch.addmm(memories[time], state[0], memory_weight.t()), state)
        if projection is not None:
            unprojected.append(state[0])
            state = (torch.addmm(shifts[time], state[0], projection.t()), *state[1:])
        hidden.append(state[0])
    return torch.stack(hidden[1:]), state


def _of_map(name: str, left: Tensor, grads: Tensor, weight: Tensor, bias: Tensor | None) -> dict[str, PerExample]:
    """Return the per-example gradients of a linear map that is applied at all times, which come first in ``left``."""
    left, grads = _examples_first(left), _examples_first(grads)
    found: dict[str, PerExample] = {f"weight_{name}": OuterSum(left[:, None], grads[:, None], weight.shape)}
    if bias is not None:
        found[f"bias_{name}"] = Direct(grads.sum(1))
    return found


def _examples_first(times: Tensor) -> Tensor:
    """Return a sequence in the memory order in which products for single examples are fast."""
    return times.transpose(0, 1).contiguous()


# ------------------------------------------------------------------------------------------------------------ steps


def _step(layer: nn.Module) -> tuple[Step, bool]:
    """Return a layer's step, and whether its second argument is the sum of both maps."""
    if isinstance(layer, nn.LSTM | nn.LSTMCell):
        return _lstm, True
    if isinstance(layer, nn.GRU | nn.GRUCell):
        return _gru, False
    return (_relu if layer.nonlinearity == "relu" else _tanh), True


def _lstm(_: Tensor, gates: Tensor, state: State) -> State:
    enter, forget, new, out = gates.unsafe_chunk(4, 1)
    kept = forget.sigmoid() * state[1] + enter.sigmoid() * new.tanh()
    return out.sigmoid() * kept.tanh(), kept


def _gru(read: Tensor, memory: Tensor, state: State) -> State:
    size = state[0].shape[1]
    reset, update = (read[:, : 2 * size] + memory[:, : 2 * size]).sigmoid().unsafe_chunk(2, 1)
    new = (read[:, 2 * size :] + reset * memory[:, 2 * size :]).tanh()
    return (torch.lerp(new, state[0], update),)


def _tanh(_: Tensor, total: Tensor, __: State) -> State:
    return (total.tanh(),)


def _relu(_: Tensor, total: Tensor, __: State) -> State:
    return (total.relu(),)


# ----------------------------------------------------------------------------------------------------------- states


def _as_state(hx: Any) -> State:
    return (hx,) if isinstance(hx, Tensor) else tuple(hx)


def _zeros(layer: nn.Module, like: Tensor, batch: int, layers: int, size: int) -> Any:
    """Return the initial state, which is zero."""
    hidden = like.new_zeros(layers, batch, size)
    if isinstance(layer, nn.LSTM | nn.LSTMCell):
        return hidden, like.new_zeros(layers, batch, layer.hidden_size)
    return hidden


def _check(layer: nn.Module, given: Any, dimensions: int) -> None:
    name = type(layer).__name__
    if isinstance(given, PackedSequence):
        raise ValueError(
            f"nn.{name} received a packed sequence, which has no dimension for examples. Pass padded sequences "
            "(torch.nn.utils.rnn.pad_sequence), and mask the padded positions in the loss."
        )
    if given.ndim != dimensions:
        raise ValueError(
            f"nn.{name} received an input of {given.ndim} dimensions, but needs {dimensions}, because one dimension "
            "holds the examples. Pass a whole batch."
        )
