"""A check of the first batch: neither the gradient of an example nor what it leaves behind depends on other examples.

Clipping bounds the influence of one example only if its loss depends on that example alone. A model that normalises
over the batch, a loss that compares examples, or a layer that is used outside its own forward gives other per-example
gradients than torch computes for single examples. What a forward pass leaves behind in the model, in buffers or plain
attributes, is released with the weights or enters later sums, so it must not depend on the examples at all.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from privet.deep.changes import changed_in_forward
from privet.deep.clipping import BatchGradients, batch_gradients
from privet.deep.clipping.summing import full_precision
from privet.deep.mates import Batch, are_distinct, joined, mates_of
from privet.deep.randomness import alike
from privet.deep.state import Entry, SavedState, digests
from privet.deep.traces import Trace, first_difference, traced
from privet.global_generators import seed_torch
from privet.networks import Loss, trained_parameters
from privet.networks.norms import wide

Inputs = tuple[Any, ...]
Layout = Callable[[Inputs], Inputs]

EXAMPLES = 4
"""How many examples are checked. Their gradients are materialised."""


@dataclass(frozen=True)
class Checked:
    """What the check found out about a model that passed it.

    Parameters
    ----------
    layout : callable
        The fastest memory format with which the model works.
    counters : set of str
        Buffers and attributes that every forward pass changes in the same way, whatever the examples are.
    is_complete : bool
        Whether different examples were compared. Otherwise, the next batch must be checked, too.
    """

    layout: Layout
    counters: frozenset[str]
    is_complete: bool


def check_batch(model: nn.Module, loss: Loss, batch: Batch, others: Callable[[], Batch]) -> Checked | None:
    """Check a model on some examples of a batch, and choose the memory format of its inputs.

    Return None if no example of the batch has a finite gradient. Then all of them contribute zero, and the next batch
    must be checked. For a model that passes, the sums do not depend on when it is checked. Nothing of the check stays
    in the model, the loss or torch's generator. ``others()`` returns further examples, which are used if the batch has
    no two different ones.

    On a CPU, convolutions and poolings are up to twice as fast with channels last in memory. The values do not change,
    but a model that calls ``view`` on an image may fail, and then gets its inputs as they are.
    """
    has_images = any(isinstance(each, Tensor) and each.ndim == 4 for each in batch[:-1])
    with torch.random.fork_rng(devices=[]):
        if has_images and any(isinstance(layer, nn.Conv2d) for layer in model.modules()):
            try:
                return _checked(model, loss, batch, others, channels_last)
            except RuntimeError:
                pass
        return _checked(model, loss, batch, others, as_given)


def _checked(model: nn.Module, loss: Loss, batch: Batch, others: Callable[[], Batch], layout: Layout) -> Checked | None:
    trials = _Trials(model, loss, layout)
    for example in islice(_examples(batch), EXAMPLES):
        trials.forward(example)
    chosen: list[_Alone] = []
    infinite: list[_Alone] = []
    for example in _examples(batch):
        alone = trials.alone(example)
        (chosen if math.isfinite(alone.norm) else infinite).append(alone)
        if len(chosen) == EXAMPLES:
            break
    if not chosen:
        trials.check_none_is_finite(infinite[:EXAMPLES])
        return None
    if not are_distinct([each.example for each in chosen]):
        chosen += trials.first_possible(mates_of(chosen[0].example, others))
    trials.compare(chosen)
    return Checked(layout, trials.counters(), are_distinct([each.example for each in chosen]))


def _examples(batch: Batch) -> Iterator[Batch]:
    """Yield each example of a batch as a batch of one."""
    for place in range(len(batch[-1])):
        yield tuple(each[place : place + 1] for each in batch)


def _copied(batch: Batch) -> Batch:
    """Return a copy of a batch, because a model may modify its inputs in place."""
    return tuple(each.clone() if isinstance(each, Tensor) else each for each in batch)


@dataclass(frozen=True)
class _Alone:
    """An example, with its loss and the norm of its gradient when it is processed alone."""

    example: Batch
    loss: Tensor
    norm: float

    def scale(self, dtype: torch.dtype) -> float:
        """Return a power of two that makes the gradient small enough for autograd to compute it in ``dtype``."""
        largest = math.sqrt(torch.finfo(dtype).max)
        return 1.0 if self.norm <= largest else 2.0 ** -math.ceil(math.log2(self.norm / largest))


class _Trials:
    """Runs of a model on examples. All start from the same state, which is restored after each of them."""

    def __init__(self, model: nn.Module, loss: Loss, layout: Layout) -> None:
        self._model, self._loss, self._layout = model, loss, layout
        self._parameters = trained_parameters(model)
        self._saved, self._random_state = SavedState(model, loss), torch.get_rng_state()
        self._before = digests(model=model, loss=loss)
        self._after: dict[str, dict[str, Entry]] = {}  # By the kind of run.

    def counters(self) -> frozenset[str]:
        """Return the names of what the runs changed."""
        return frozenset(
            _name(path)
            for after in self._after.values()
            for path, each in after.items()
            if each != self._before.get(path)
        )

    def forward(self, example: Batch) -> None:
        """Compute the loss of an example, only to see what that leaves behind."""
        *inputs, target = _copied(example)
        with self._from_start(kind="forward"), torch.no_grad():
            self._loss(self._model(*self._layout(tuple(inputs))), target)

    def alone(self, example: Batch) -> _Alone:
        """Return the loss of an example and the norm of its gradient, which is finite if the example contributes."""
        self.forward(example)
        found = self._gradients(example, torch.ones(1))
        return _Alone(example, found.losses, float(found.norms()))

    def first_possible(self, mates: Iterator[Batch]) -> list[_Alone]:
        """Return the first of some made-up examples that the model accepts, or nothing."""
        for mate in mates:
            try:
                alone = self.alone(mate)
            except _StateError:
                raise
            except Exception:  # The model was not made for this example.
                continue
            if math.isfinite(alone.norm):
                return [alone]
        return []

    def check_none_is_finite(self, infinite: list[_Alone]) -> None:
        """Raise if examples without a finite gradient have one together, as by a deviation over the batch."""
        if len(infinite) > 1:
            found = self._gradients(joined([each.example for each in infinite]), torch.ones(len(infinite)))
            self._check_losses(found.losses, infinite)
            if bool(found.norms().isfinite().any()):
                raise self._mixes(infinite)

    def compare(self, chosen: list[_Alone]) -> None:
        """Raise unless each example has, within a batch, the gradient that torch computes for it alone."""
        narrowest = min((each.dtype for each in self._parameters.values()), key=lambda each: torch.finfo(each).max)
        scales = torch.tensor([each.scale(narrowest) for each in chosen])
        found = self._gradients(joined([each.example for each in chosen]), scales)
        self._check_losses(found.losses, chosen, scales)
        sizes = found.norms()
        tolerance = max(_tolerance(each.dtype) for each in (found.losses, *self._parameters.values()))
        limits = tolerance * (sizes + 1e-3 * sizes.max())
        for place, each in enumerate(chosen):  # One at a time, because a gradient is as large as the model.
            expected = self._by_autograd(each.example, scales[place : place + 1])
            with full_precision(found.losses.device.type):
                self._compare_one(found, place, expected, float(limits[place]))

    def _compare_one(self, found: BatchGradients, place: int, expected: list[Tensor], limit: float) -> None:
        """Raise if a gradient of the example at ``place`` differs by more than ``limit`` from what is expected."""
        chosen = torch.arange(len(found.losses), device=found.losses.device) == place
        for (name, parameter), alone in zip(self._parameters.items(), expected, strict=True):
            part = found.parts.get(parameter)
            written = 0.0 if part is None else part.only(chosen).written_out()[0]
            if not float((wide(alone) - written).norm()) <= limit:  # Also if a value is not a number.
                raise ValueError(
                    f"The gradient of {name} is not what torch computes for one example at a time. The model mixes "
                    "examples, or it uses this parameter outside the forward of its layer, as weight_norm, other "
                    "parametrizations and functional calls do. Build it from layers that are called directly."
                )

    def _check_losses(self, found: Tensor, chosen: list[_Alone], scales: Tensor | None = None) -> None:
        """Raise if losses within a batch are not those of the examples alone."""
        alone = torch.cat([each.loss for each in chosen])
        alone = alone if scales is None else alone * scales.to(alone)
        is_close = (found - alone).abs() <= _tolerance(found.dtype) * (1 + alone.abs())
        is_same = (found == alone) | (found.isnan() & alone.isnan())  # A loss may be infinite if its gradient is not.
        if not bool((is_close | is_same).all()):
            raise self._mixes(chosen)

    def _mixes(self, chosen: list[_Alone]) -> ValueError:
        """Return the error for a model or a loss that mixes examples, with the likely cause."""
        return ValueError(
            f"The loss of an example changes with the other examples of its batch. {self._cause(chosen)} Clipping "
            "cannot bound the influence of one example if the model or the loss mixes examples."
        )

    def _cause(self, chosen: list[_Alone]) -> str:
        """Return why the loss of an example differs between a batch and the example alone."""
        one, batch = chosen[0].example, joined([each.example for each in chosen])
        again, other = self._traced(one), self._traced(one, seed=1)
        if changed := first_difference(again, other):
            return (
                f"{changed} draws random numbers that privet cannot hold fixed for a comparison. Use nn.Dropout or "
                "torch.nn.functional.dropout for random masks."
            )
        if changed := first_difference(again, self._traced(batch)):
            return (
                f"The output of {changed} for an example depends on the others, as with a normalisation over the batch "
                "or a mean over examples. Compute it for each example separately."
            )
        return (
            "The outputs of the model do not, so the cause is the loss, for instance a mean or a normalisation over "
            "the batch. Return one value per example that depends on this example alone."
        )

    def _traced(self, batch: Batch, seed: int | None = None) -> Trace:
        """Return what each layer computes for the first example of a batch."""
        size = len(batch[-1])
        with self._from_start(size), torch.no_grad():
            if seed is not None:
                seed_torch(seed)
            *inputs, _ = _copied(batch)
            return traced(self._model, self._layout(tuple(inputs)), size)

    def _gradients(self, batch: Batch, scales: Tensor) -> BatchGradients:
        """Return the gradients of a batch, whose losses are multiplied by ``scales``."""
        with self._from_start(len(batch[-1]), "gradients"):
            *inputs, targets = _copied(batch)
            return batch_gradients(self._model, self._scaled(scales), self._layout(tuple(inputs)), targets)

    def _by_autograd(self, example: Batch, scale: Tensor) -> list[Tensor]:
        """Return the gradient of one example, as autograd computes it."""
        *inputs, target = _copied(example)
        parameters = list(self._parameters.values())
        with self._from_start(), torch.enable_grad():
            value = self._scaled(scale)(self._model(*self._layout(tuple(inputs))), target).sum()
            grads = torch.autograd.grad(value, parameters, allow_unused=True)
        return [
            torch.zeros_like(parameter) if grad is None else grad
            for parameter, grad in zip(parameters, grads, strict=True)
        ]

    def _scaled(self, scales: Tensor) -> Loss:
        def scaled(outputs: Any, targets: Any) -> Tensor:
            losses = self._loss(outputs, targets)
            return losses * scales.to(losses) if losses.shape == scales.shape else losses

        return scaled

    @contextmanager
    def _from_start(self, size: int = 1, kind: str = "") -> Iterator[None]:
        """Run something on ``size`` examples from the saved state, and restore that afterwards.

        Runs of the same kind must leave the same behind. Random numbers are the same in all runs, so this may depend on
        them, but not on the examples.
        """
        torch.set_rng_state(self._random_state)
        try:
            with alike(self._model, size):
                yield
            if kind:
                self._check_state(kind, digests(model=self._model, loss=self._loss))
        finally:
            self._saved.restore()

    def _check_state(self, run: str, after: dict[str, Entry]) -> None:
        changed = [path for path, each in after.items() if each != self._before.get(path)]
        parameters = [_name(path) for path in changed if after[path].kind == "parameter"]
        if parameters:
            raise _StateError(str(changed_in_forward(self._model, parameters)))
        first = self._after.setdefault(run, after)
        if after != first:
            path = next(path for path in {**first, **after} if after.get(path) != first.get(path))
            kind = (after.get(path) or first[path]).kind
            raise _StateError(
                f"The {kind} {_name(path)} depends on the examples of a batch, or on their number. It would be "
                "released with the model, or enter later sums, without clipping or noise. Switch it off, for instance "
                "with track_running_stats=False, or reset it at the end of the forward."
            )


class _StateError(ValueError):
    """Raised if a run leaves something behind that depends on the examples."""


def _name(path: str) -> str:
    """Return the name of a value without that of the model."""
    return path.removeprefix("model.")


def _tolerance(dtype: torch.dtype) -> float:
    """Return the relative difference that rounding may cause, which is larger in half precision."""
    formats = [dtype]
    formats += [torch.get_autocast_dtype(device) for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)]
    return max(1e-3, *(8 * float(torch.finfo(each).eps) for each in formats))


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
