"""The first batch under suspicion: clipped gradients are compared with torch's own, one example at a time.

A rule bounds what one example does only if its loss depends on that example alone. A model that normalises over the
batch, a loss that compares examples, a layer that is used past its own forward: each shows as a difference here.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from privet.deep.clipping import BatchGradients, batch_gradients
from privet.networks import Loss, trained_parameters

Inputs = tuple[Any, ...]
Layout = Callable[[Inputs], Inputs]

EXAMPLES = 4
"""How many examples are checked: their gradients are written out."""

_TOLERANCE = 1e-3


def check_gradients(model: nn.Module, loss: Loss, inputs: Inputs, targets: Any) -> None:
    """Raise unless every example's gradient is what torch computes for that example alone."""
    parameters = trained_parameters(model)
    examples = [(tuple(each[i : i + 1] for each in inputs), targets[i : i + 1]) for i in range(len(targets))]
    with _dropout_off(model), _buffers_kept(model) as changed:
        losses = []
        for given, target in examples:
            with torch.no_grad():
                losses.append(loss(model(*given), target).sum())
            changed()
        if not bool(torch.isfinite(torch.stack(losses)).all()):
            return  # such examples count as zero
        found = batch_gradients(model, loss, inputs, targets)
        _check_losses(found.losses, torch.stack(losses))
        sizes = found.norms()
        limits = _TOLERANCE * (sizes + 1e-3 * sizes.max())
        for i, (given, target) in enumerate(examples):  # one at a time: written out, each is as large as the model
            _check_one(found, i, _alone(model, loss, given, target, parameters), parameters, float(limits[i]))


def _check_losses(found: Tensor, alone: Tensor) -> None:
    if not _agree(found, alone):
        raise ValueError(
            "an example's loss changes with the other examples of its batch: the model or the loss mixes examples "
            "(a normalisation over the batch, a loss that compares examples), and then no clip bounds what one example "
            "does; or it is random by other means than nn.Dropout, which is known here: use that for masks"
        )


def _check_one(
    found: BatchGradients, place: int, alone: list[Tensor], parameters: dict[str, nn.Parameter], limit: float
) -> None:
    chosen = torch.arange(len(found.losses), device=found.losses.device) == place
    for (name, parameter), expected in zip(parameters.items(), alone, strict=True):
        part = found.parts.get(parameter)
        written = 0.0 if part is None else part.only(chosen).written_out()[0].to(expected)
        if float((expected - written).norm()) > limit:
            raise ValueError(
                f"the gradient of {name} is not what torch computes for one example at a time: the model mixes "
                "examples, or uses this parameter outside of its layer's own forward (weight_norm and other "
                "parametrizations, functional calls): build it from layers that are called as they are"
            )


def chosen_layout(model: nn.Module, loss: Loss, inputs: Inputs, targets: Any) -> Layout:
    """Check the gradients, and return the memory format in which the model is fastest and works.

    Convolutions and poolings on a CPU are up to twice as fast with channels last in memory. It changes no value; but a
    model that calls ``view`` on an image may refuse it, and is then given what it knows.
    """
    images = any(isinstance(each, Tensor) and each.ndim == 4 for each in inputs)
    if images and any(isinstance(layer, nn.Conv2d) for layer in model.modules()):
        try:
            check_gradients(model, loss, channels_last(inputs), targets)
        except RuntimeError:
            pass
        else:
            return channels_last
    check_gradients(model, loss, inputs, targets)
    return as_given


def as_given(inputs: Inputs) -> Inputs:
    """Return the inputs as they are."""
    return inputs


def channels_last(inputs: Inputs) -> Inputs:
    """Return the inputs with images' channels last in memory; also of one channel, where torch sees no difference."""
    return tuple(_channels_last(each) if isinstance(each, Tensor) and each.ndim == 4 else each for each in inputs)


def _channels_last(images: Tensor) -> Tensor:
    _, channels, height, width = images.shape
    strides = (height * width * channels, 1, width * channels, channels)
    return images.contiguous(memory_format=torch.channels_last).as_strided(images.shape, strides)


def _alone(
    model: nn.Module, loss: Loss, inputs: Inputs, target: Any, parameters: dict[str, nn.Parameter]
) -> list[Tensor]:
    """Return one example's gradient, in the plainest way."""
    with torch.enable_grad():
        value = loss(model(*inputs), target).sum()
        grads = torch.autograd.grad(value, list(parameters.values()), allow_unused=True)
    return [
        torch.zeros_like(parameter) if grad is None else grad
        for parameter, grad in zip(parameters.values(), grads, strict=True)
    ]


def _agree(found: Tensor, expected: Tensor) -> bool:
    return bool(((found - expected).abs() <= _TOLERANCE * (1 + expected.abs())).all())


@contextmanager
def _dropout_off(model: nn.Module) -> Iterator[None]:
    """Switch off what draws other masks for one example than for several."""
    layers = [layer for layer in model.modules() if isinstance(layer, _DRAWING) and layer.training]
    for layer in layers:
        layer.training = False
    try:
        yield
    finally:
        for layer in layers:
            layer.training = True


@contextmanager
def _buffers_kept(model: nn.Module) -> Iterator[Callable[[], None]]:
    """Put buffers back, at the end and when called; then also raise if one is not what it was at the call before."""
    places = [(owner, name) for owner in model.modules() for name, each in owner.named_buffers(recurse=False)]
    kept = [owner.get_buffer(name) for owner, name in places]
    values = [each.detach().clone() for each in kept]
    before: dict[int, Tensor] = {}

    def put_back() -> None:
        for (owner, name), each, value in zip(places, kept, values, strict=True):
            setattr(owner, name, each)
            each.detach().copy_(value)

    def changed() -> None:
        for place, (owner, name) in enumerate(places):
            now = owner.get_buffer(name).detach().clone()
            if not torch.equal(before.setdefault(place, now), now):
                raise ValueError(
                    f"the buffer {name} of {type(owner).__name__} takes up what the examples are, without clip and "
                    "noise, and would be released with the weights: turn that off (track_running_stats=False)"
                )
        put_back()

    try:
        yield changed
    finally:
        put_back()


_DRAWING = (nn.modules.dropout._DropoutNd, nn.RNNBase, nn.MultiheadAttention)
