"""A check of the first batch: per-example gradients are compared with those that torch computes for single examples.

Clipping bounds the influence of one example only if its loss depends on that example alone. A model that normalises
over the batch, a loss that compares examples, or a layer that is used outside its own forward makes a difference here.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from privet.deep.clipping import BatchGradients, batch_gradients
from privet.networks import Loss, trained_parameters
from privet.networks.norms import wide

Inputs = tuple[Any, ...]
Layout = Callable[[Inputs], Inputs]

EXAMPLES = 4
"""How many examples are checked. Their gradients are materialised."""


def _tolerance(dtype: torch.dtype) -> float:
    """Return the relative difference that rounding may cause, which is larger in half precision."""
    return max(1e-3, 8 * float(torch.finfo(dtype).eps))


def check_gradients(model: nn.Module, loss: Loss, inputs: Inputs, targets: Any) -> None:
    """Raise unless the gradient of each example is what torch computes for that example alone."""
    parameters = trained_parameters(model)
    examples = [(tuple(each[i : i + 1] for each in inputs), targets[i : i + 1]) for i in range(len(targets))]
    with _dropout_off(model), _buffers_kept(model) as changed:
        losses = []
        for given, target in examples:
            with torch.no_grad():
                losses.append(loss(model(*given), target).sum())
            changed()
        if not bool(torch.isfinite(torch.stack(losses)).all()):
            return  # Such examples contribute zero.
        found = batch_gradients(model, loss, inputs, targets)
        _check_losses(found.losses, torch.stack(losses))
        sizes = found.norms()
        tolerance = max(_tolerance(each.dtype) for each in (found.losses, *parameters.values()))
        limits = tolerance * (sizes + 1e-3 * sizes.max())
        for i, (given, target) in enumerate(
            examples
        ):  # One example at a time, because a gradient is as large as the model.
            _check_one(found, i, _alone(model, loss, given, target, parameters), parameters, float(limits[i]))


def _check_losses(found: Tensor, alone: Tensor) -> None:
    if not _agree(found, alone):
        raise ValueError(
            "The loss of an example changes with the other examples of its batch. Either the model or the loss mixes "
            "examples, for instance by a normalisation over the batch, and clipping cannot bound the influence of one "
            "example. Or the model is random by other means than nn.Dropout. Use nn.Dropout for random masks."
        )


def _check_one(
    found: BatchGradients, place: int, alone: list[Tensor], parameters: dict[str, nn.Parameter], limit: float
) -> None:
    """Raise if a gradient of the example at ``place`` differs by more than ``limit`` from that of the example alone."""
    chosen = torch.arange(len(found.losses), device=found.losses.device) == place
    for (name, parameter), expected in zip(parameters.items(), alone, strict=True):
        part = found.parts.get(parameter)
        written = 0.0 if part is None else part.only(chosen).written_out()[0]
        if float((wide(expected) - written).norm()) > limit:
            raise ValueError(
                f"The gradient of {name} is not what torch computes for one example at a time. The model mixes "
                "examples, or it uses this parameter outside the forward of its layer, as weight_norm, other "
                "parametrizations and functional calls do. Build it from layers that are called directly."
            )


def chosen_layout(model: nn.Module, loss: Loss, inputs: Inputs, targets: Any) -> Layout:
    """Check the gradients, and return the fastest memory format with which the model works.

    On a CPU, convolutions and poolings are up to twice as fast with channels last in memory. The values do not change,
    but a model that calls ``view`` on an image may fail, and then gets its inputs as they are.
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
    """Return the inputs with the channels of images last in memory.

    The strides are set for a single channel too, where torch itself sees no difference.
    """
    return tuple(_channels_last(each) if isinstance(each, Tensor) and each.ndim == 4 else each for each in inputs)


def _channels_last(images: Tensor) -> Tensor:
    _, channels, height, width = images.shape
    strides = (height * width * channels, 1, width * channels, channels)
    return images.contiguous(memory_format=torch.channels_last).as_strided(images.shape, strides)


def _alone(
    model: nn.Module, loss: Loss, inputs: Inputs, target: Any, parameters: dict[str, nn.Parameter]
) -> list[Tensor]:
    """Return the gradient of one example, as autograd computes it."""
    with torch.enable_grad():
        value = loss(model(*inputs), target).sum()
        grads = torch.autograd.grad(value, list(parameters.values()), allow_unused=True)
    return [
        torch.zeros_like(parameter) if grad is None else grad
        for parameter, grad in zip(parameters.values(), grads, strict=True)
    ]


def _agree(found: Tensor, expected: Tensor) -> bool:
    return bool(((found - expected).abs() <= _tolerance(found.dtype) * (1 + expected.abs())).all())


@contextmanager
def _dropout_off(model: nn.Module) -> Iterator[None]:
    """Switch off layers that draw different masks for one example than for several, while the context lasts."""
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
    """Yield a function that restores buffers, and restore them at the end.

    The function also raises if a buffer differs from what it was at the previous call, because it then depends on the
    examples.
    """
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
                    f"The buffer {name} of {type(owner).__name__} depends on the examples, and would be released with "
                    "the weights without clipping or noise. Switch it off, for instance with track_running_stats=False."
                )
        put_back()

    try:
        yield changed
    finally:
        put_back()


_DRAWING = (nn.modules.dropout._DropoutNd, nn.RNNBase, nn.MultiheadAttention)
