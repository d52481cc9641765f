"""One forward and one backward pass over a batch, and from them the clipped sum of its examples' gradients.

Parameters are off during both passes: what is kept is what went into each layer and the gradient of what came out.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from privet.deep.clipping.gradients import PerExample, together
from privet.deep.clipping.rules import has_rule, own_parameters, rule_of

_MIXES_EXAMPLES = (nn.modules.batchnorm._BatchNorm,)
_TINY = 1e-12


@dataclass(frozen=True)
class BatchGradients:
    """The gradients of all parameters for each example of a batch, implicit, and the losses."""

    losses: Tensor
    parts: dict[nn.Parameter, PerExample]

    def norms(self) -> Tensor:
        """Return the norm of each example's gradient, all parameters together."""
        return torch.stack([part.squared_norms() for part in self.parts.values()]).sum(0).clamp_min(0).sqrt()

    def clipped_sum(self, clip_norm: float) -> dict[nn.Parameter, Tensor]:
        """Return the sum of the examples' gradients, each scaled down to norm at most ``clip_norm``.

        Formal guarantees
        -----------------
        An example whose gradient is not finite counts as zero: it must not decide what the noise is added to. All
        others contribute a vector of norm at most ``clip_norm``, up to the rounding of sums.
        """
        norms, parts = self.norms(), self.parts
        is_finite = torch.isfinite(norms)
        if not is_finite.all():  # zero times infinity is no number: such examples are taken out
            norms, parts = norms[is_finite], {parameter: part.only(is_finite) for parameter, part in parts.items()}
        weights = (clip_norm / (norms + _TINY)).clamp_max(1.0)
        return {parameter: part.weighted_sum(weights) for parameter, part in parts.items()}


def batch_gradients(
    model: nn.Module, loss: Callable[[Any, Any], Tensor], inputs: tuple[Any, ...], targets: Any
) -> BatchGradients:
    """Return the per-example gradients of ``loss(model(*inputs), targets)``, which has one number an example."""
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    with _parameters_off(trainable), _calls_of(model, trainable) as calls, torch.enable_grad():
        losses = loss(_outputs(model, inputs), targets)
        _check_losses(losses, targets)
        _check_in_place(calls)
        outputs = [call.output for call in calls]
        grads = torch.autograd.grad(losses.sum(), outputs, allow_unused=True) if outputs else ()
    found: dict[nn.Parameter, list[PerExample]] = {}
    with torch.no_grad():
        for call, grad in zip(calls, grads, strict=True):
            if grad is None:  # a branch that the loss does not see
                continue
            for name, part in rule_of(call.layer)(call.layer, call.inputs, grad).items():
                parameter = call.layer.get_parameter(name)
                if any(parameter is each for each in trainable):
                    found.setdefault(parameter, []).append(part)
    return BatchGradients(losses.detach(), {parameter: together(parts) for parameter, parts in found.items()})


@dataclass(frozen=True)
class _Call:
    """One use of a layer."""

    layer: nn.Module
    inputs: Tensor
    output: Tensor
    version: int


def layers_of(model: nn.Module) -> list[nn.Module]:
    """Return the layers whose parameters are trained: those with a rule whole, others down to their own parameters.

    A layer that mixes examples is refused: no clip of one example's gradient would bound what the example does.
    """
    found: list[nn.Module] = []
    waiting = [model]
    while waiting:
        layer = waiting.pop()
        if isinstance(layer, _MIXES_EXAMPLES):
            raise ValueError(
                f"{type(layer).__name__} normalises over the batch, so every example's output depends on all others, "
                "and no clip bounds that: use nn.GroupNorm(min(32, channels), channels) or nn.LayerNorm instead"
            )
        if has_rule(layer) or own_parameters(layer):
            if any(parameter.requires_grad for parameter in layer.parameters()):
                found.append(layer)
        else:
            waiting += layer.children()
    return found


@contextmanager
def _calls_of(model: nn.Module, trainable: list[nn.Parameter]) -> Iterator[list[_Call]]:
    """Keep what goes into and comes out of each layer that is trained."""
    calls: list[_Call] = []
    chosen = {id(parameter) for parameter in trainable}

    def keep(layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if not isinstance(output, Tensor) or len(inputs) != 1 or not isinstance(inputs[0], Tensor):
            raise ValueError(
                f"{type(layer).__name__} has parameters and takes or gives more than one tensor: build it from "
                "nn.Linear, nn.Conv, nn.Embedding and normalisations, which have rules"
            )
        if not output.requires_grad:
            output.requires_grad_()
        calls.append(_Call(layer, inputs[0].detach(), output, output._version))

    layers = [layer for layer in _all_layers(model) if any(id(parameter) in chosen for parameter in layer.parameters())]
    handles = [layer.register_forward_hook(keep) for layer in layers]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def _all_layers(model: nn.Module) -> list[nn.Module]:
    """Return :func:`layers_of`, whatever is switched off for the moment."""
    states = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    for parameter, _ in states:
        parameter.requires_grad_(True)
    try:
        return layers_of(model)
    finally:
        for parameter, state in states:
            parameter.requires_grad_(state)


@contextmanager
def _parameters_off(parameters: list[nn.Parameter]) -> Iterator[None]:
    """Take parameters out of the graph: their plain gradients are not wanted."""
    for parameter in parameters:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(True)


def _check_losses(losses: Tensor, targets: Any) -> None:
    size = len(targets)
    if losses.shape != (size,):
        raise ValueError(
            f"the loss must be one number an example, of shape ({size},), got {tuple(losses.shape)}: use "
            "reduction='none'; a mean over the batch hides how much one example did"
        )


_IN_PLACE = "was changed in place, which loses what its gradient belongs to: set inplace=False in what follows it"


def _outputs(model: nn.Module, inputs: tuple[Any, ...]) -> Any:
    try:
        return model(*inputs)
    except RuntimeError as error:
        if "in-place" in str(error):
            raise ValueError(f"the output of a layer {_IN_PLACE}") from error
        raise


def _check_in_place(calls: list[_Call]) -> None:
    for call in calls:
        if call.output._version != call.version:
            raise ValueError(f"the output of {type(call.layer).__name__} {_IN_PLACE}")
