"""One forward and one backward pass over a batch, and the clipped sum of gradients that they give."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from privet.deep.clipping.contributions import together
from privet.deep.clipping.gradients import PerExample
from privet.deep.clipping.materialised import Materialised
from privet.deep.clipping.recording import changed_in_place, recorded
from privet.deep.clipping.rules import has_rule, own_parameters
from privet.deep.clipping.shared import OutsideLayerError
from privet.deep.clipping.summing import SHARE, Summation, full_precision
from privet.networks import Loss, check_losses, refuse_batch_norm, trained_parameters
from privet.networks.norms import wide

_TRANSFORMERS = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
_SMALLEST_WEIGHT = float(torch.finfo(torch.float32).tiny)


@dataclass(frozen=True)
class BatchGradients:
    """The losses of a batch's examples, and their gradients with respect to all parameters, in implicit form.

    Parameters
    ----------
    losses : tensor
        The losses.
    parts : dict of PerExample
        The gradients of each parameter.
    summation : Summation or None
        How sums over the batch are computed. None allows the largest rounding error for a batch of this size.
    """

    losses: Tensor
    parts: dict[nn.Parameter, PerExample]
    summation: Summation | None = None

    def norms(self) -> Tensor:
        """Return the norm of each example's gradient, over all parameters together, in double precision."""
        with full_precision(self.losses.device.type):
            squares = [part.squared_norms() for part in self.parts.values()]
        # One after the other, because a sum over a stack would round an example differently in a larger batch.
        total = torch.zeros_like(self.losses, dtype=torch.float64)
        for square in squares:
            total = total + square
        return total.clamp_min(0).sqrt()

    def minus(self, other: "BatchGradients") -> "BatchGradients":
        """Return the difference between each example's gradient here and at other parameters, which DP-SRM clips."""
        if self.parts.keys() != other.parts.keys():
            raise ValueError(
                "The model used different layers at the two points, so its gradients cannot be subtracted. Use DP-SGD."
            )
        parts = {each: part.minus(other.parts[each]) for each, part in self.parts.items()}
        return BatchGradients(self.losses, parts, self.summation)

    def merged(self, views: int) -> "BatchGradients":
        """Return the gradients of examples of which each ``views`` consecutive rows are views.

        The gradient of an example is the sum over its views, and its loss the sum of their losses.
        """
        parts = {each: part.merged(views) for each, part in self.parts.items()}
        return BatchGradients(self.losses.unflatten(0, (-1, views)).sum(1), parts, self.summation)

    def clipped_sum(self, clip_norm: float) -> dict[nn.Parameter, Tensor]:
        """Return the sum of the examples' gradients, each scaled down to norm at most ``clip_norm``.

        Formal guarantees
        -----------------
        An example whose gradient is not finite, or whose clipping factor is below the normal range of float32,
        contributes zero. All other examples contribute a vector of norm at most ``clip_norm (1 + MARGIN)``, and the sum
        of the batch errs by at most the share of ``clip_norm`` that its :class:`Summation` was made for.
        """
        return self.clipped(clip_norm).sum()

    def add_clipped_sum(self, clip_norm: float, slots: dict[nn.Parameter, Tensor]) -> Tensor:
        """Add :meth:`clipped_sum` to flat vectors, one per parameter. The gradients are discarded to free memory.

        Materialised gradients are added up while they are in the cache, as soon as the norms of all other parameters
        are known. Return which examples contribute zero because their gradients are not finite, or too large.
        """
        rows = Materialised.of(self.parts)
        others = {each: part for each, part in self.parts.items() if each not in rows.parts}
        self.parts.clear()
        norms = replace(self, parts=others).norms()
        with full_precision(self.losses.device.type):
            rows.add_clipped(slots, norms, self._summation, lambda norms: _factors(norms, clip_norm))
        del rows
        clipped = self._clipped(others, norms, clip_norm)
        clipped.add_to(slots)
        return clipped.is_zero

    def clipped(self, clip_norm: float) -> "Clipped":
        """Return the gradients with their clipping factors, without examples that contribute zero."""
        return self._clipped(dict(self.parts), self.norms(), clip_norm)

    def _clipped(self, parts: dict[nn.Parameter, PerExample], norms: Tensor, clip_norm: float) -> "Clipped":
        is_finite = torch.isfinite(norms)
        if not is_finite.all():  # Zero times infinity is NaN, so such examples are removed.
            parts = {parameter: part.only(is_finite) for parameter, part in parts.items()}
        weights = _factors(norms, clip_norm)
        return Clipped(weights[is_finite], parts, self._summation, weights == 0)

    @property
    def _summation(self) -> Summation:
        return self.summation or Summation.within(SHARE / 2, len(self.losses))


def _factors(norms: Tensor, clip_norm: float) -> Tensor:
    """Return the clipping factors of examples, which are zero if the gradient is not finite, or too large."""
    weights = (clip_norm / norms).clamp_max(1.0)
    # A subnormal factor would be rounded to as much as twice its value in single precision.
    return torch.where(torch.isfinite(norms) & (weights >= _SMALLEST_WEIGHT), weights, 0.0)


@dataclass(frozen=True)
class Clipped:
    """Gradients with clipping factors.

    Parameters
    ----------
    weights : tensor
        The factor of each example whose gradient is finite.
    parts : dict of PerExample
        The gradients of these examples.
    summation : Summation
        How sums over the batch are computed.
    is_zero : tensor
        For each example of the batch, whether it contributes zero because its gradient is not finite, or too large.
    """

    weights: Tensor
    parts: dict[nn.Parameter, PerExample]
    summation: Summation
    is_zero: Tensor

    def sum(self) -> dict[nn.Parameter, Tensor]:
        """Return the sum over the examples."""
        with full_precision(self.weights.device.type):
            return {each: part.weighted_sum(self.weights, self.summation) for each, part in self.parts.items()}

    def add_to(self, slots: dict[nn.Parameter, Tensor]) -> None:
        """Add the sum to flat vectors, one per parameter. The gradients are discarded to free memory."""
        with full_precision(self.weights.device.type):
            while self.parts:
                parameter, part = self.parts.popitem()
                part.add_weighted_sum(self.weights, slots[parameter], self.summation)


def batch_gradients(
    model: nn.Module, loss: Loss, inputs: tuple[Any, ...], targets: Any, summation: Summation | None = None
) -> BatchGradients:
    """Return the per-example gradients of ``loss(model(*inputs), targets)``, which must be one value per example.

    What layers recorded in half precision is converted to single precision before anything is computed from it.
    """
    trained, size = trained_parameters(model), len(targets)
    with recorded(model, layers_of(model), (inputs, targets), size) as record, torch.enable_grad():
        with record.observed(), _fresh_autocast():
            losses = loss(_outputs(model, inputs), targets)
        check_losses(losses, size)
        record.check_in_place()
        # Only the calls so far: activation checkpointing runs layers again in the backward pass.
        calls = tuple(record.calls)
        reached = [*trained.items(), *record.outputs_of_embeddings]
        with torch.autocast(losses.device.type, enabled=False):  # Its backward pass uses the formats of the forward.
            grads = _grads(losses, [*(call.output for call in calls), *(tensor for _, tensor in reached)])
    _check_outside([name for (name, _), grad in zip(reached, grads[len(calls) :], strict=True) if grad is not None])
    found: dict[nn.Parameter, list[PerExample]] = {}
    with torch.no_grad(), full_precision(losses.device.type):
        for call, grad in zip(calls, grads, strict=False):
            if grad is None:  # The loss does not depend on this call.
                continue
            call.check(len(losses))
            for name, part in call.gradients(wide(grad)).items():
                parameter = call.layer.get_parameter(name)
                if parameter.requires_grad:
                    found.setdefault(parameter, []).append(part)
    parts = {parameter: together(parts) for parameter, parts in found.items()}
    return BatchGradients(losses.detach(), parts, summation)


def layers_of(model: nn.Module) -> list[nn.Module]:
    """Return the layers whose parameters are trained.

    A layer with a rule is returned whole. Other layers are returned if they hold trained parameters themselves, and so
    are their children. Raise if a layer mixes examples, because clipping could then not bound the influence of one
    example.
    """
    refuse_batch_norm(
        model,
        "normalises over the batch, so each output depends on all examples, and clipping cannot bound that",
        if_frozen=False,
    )
    for layer in model.modules():
        _check_layer(layer)
    found: dict[int, nn.Module] = {}  # A layer that occurs several times in the model is returned once.
    waiting = [model]
    while waiting:
        layer = waiting.pop()
        is_known = has_rule(layer)
        if _is_trained(layer.parameters() if is_known else own_parameters(layer).values()):
            found[id(layer)] = layer
        if not is_known:
            waiting += layer.children()
    return list(found.values())


def _is_trained(parameters: Iterable[nn.Parameter]) -> bool:
    return any(parameter.requires_grad for parameter in parameters)


@contextmanager
def _fresh_autocast() -> Iterator[None]:
    """Compute with the caller's automatic mixed precision, but without copies of weights from before the last step."""
    with ExitStack() as stack:
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                kind = torch.get_autocast_dtype(device)
                stack.enter_context(torch.autocast(device, dtype=kind, cache_enabled=False))
        yield


def _outputs(model: nn.Module, inputs: tuple[Any, ...]) -> Any:
    try:
        return model(*inputs)
    except RuntimeError as error:
        if "in-place" in str(error):
            raise changed_in_place("The output of a layer") from error
        raise


def _grads(losses: Tensor, tensors: Sequence[Tensor]) -> Sequence[Tensor | None]:
    """Return the gradients of the summed losses, with None for tensors that the losses do not depend on."""
    if not losses.requires_grad:
        return [None] * len(tensors)
    try:
        found: Sequence[Tensor | None] = torch.autograd.grad(losses.sum(), tensors, allow_unused=True)
    except RuntimeError as error:
        if "use_reentrant=True" not in str(error):
            raise
        raise ValueError(
            "The model uses activation checkpointing with use_reentrant=True, which computes no gradients of chosen "
            "tensors. Set use_reentrant=False, in transformers with "
            'gradient_checkpointing_enable({"use_reentrant": False}).'
        ) from error
    return found


# ----------------------------------------------------------------------------------------------------------- checks


def _check_layer(layer: nn.Module) -> None:
    name = type(layer).__name__
    if isinstance(layer, _TRANSFORMERS) and not layer.self_attn.batch_first and _is_trained(layer.parameters()):
        raise ValueError(f"{name} puts time before examples in the input of its linear layers. Set batch_first=True.")
    if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.max_norm is not None:
        raise ValueError(
            f"{name} with max_norm={layer.max_norm:g} rescales the rows of its table that a batch uses, also if it is "
            "frozen. The table would show without noise which words occur. Leave max_norm out. To bound the rows, "
            "rescale all of them before training."
        )


def _check_outside(names: list[str]) -> None:
    if names:
        raise OutsideLayerError(names, "the loss")
