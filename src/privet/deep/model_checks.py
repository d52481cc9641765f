"""Checks before and during training: the model, its optimizer, the processes that train together, and the losses."""

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from privet.deep import selfcheck
from privet.deep.clipping import layers_of
from privet.deep.clipping.rules import has_rule
from privet.deep.datasets import collated
from privet.deep.processes import Processes
from privet.networks import Loss, check_trainable
from privet.plans import GradientPlan, Poisson, RecursivePlan


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the model without a ``DistributedDataParallel`` wrapper."""
    return model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model


def check_model(model: nn.Module, stacklevel: int = 4) -> None:
    """Raise if the model mixes examples, and warn about layers without a gradient rule."""
    names = sorted({type(layer).__name__ for layer in layers_of(model) if not has_rule(layer)})
    if names:
        warnings.warn(
            f"There is no gradient rule for {', '.join(names)}. Their gradients are computed by torch.func.vmap, which "
            "is correct but slow.",
            stacklevel=stacklevel,
        )


def check_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter]) -> None:
    """Raise unless there are parameters to train, and the optimizer holds all of them."""
    check_trainable(model)
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    if not {id(parameter) for parameter in parameters} <= held:
        raise ValueError(
            "The optimizer does not hold all parameters of the model that require gradients. Create it with "
            "model.parameters(), or set requires_grad to False on the others."
        )


def checked_processes(plan: GradientPlan | RecursivePlan) -> Processes:
    """Return the group of processes that train together.

    Only Poisson sampling can be split among processes, because the union of Poisson samples of the shares is a Poisson
    sample of the whole.
    """
    processes = Processes.joined()
    if processes.size > 1 and not isinstance(plan.sampler, Poisson):
        raise ValueError(
            f"{plan.sampler!r} cannot be split among processes. Use Poisson sampling, or train in one process."
        )
    return processes


def first_batch_layout(
    model: nn.Module, loss: Loss, dataset: Any, inputs: tuple[Any, ...], targets: Any
) -> selfcheck.Layout | None:
    """Compare the gradients of a batch's first examples with torch's own, and return the fastest memory format.

    Return None if the batch cannot show whether examples are mixed, so that a later batch must be checked.
    """
    if len(targets) == 0:
        return None
    if len(targets) == 1 and len(dataset) > 1:
        # A single example cannot be mixed with others, so two examples of the dataset are added.
        others = collated(dataset, np.arange(2))
        if _kinds((*inputs, targets)) != _kinds(others):
            return None  # The caller transformed the examples of the dataset. A later batch of two will be checked.
        pairs = zip((*inputs, targets), others, strict=True)
        *joined, targets = (torch.cat([each, other]) for each, other in pairs)
        inputs = tuple(joined)
    few = slice(0, selfcheck.EXAMPLES)
    return selfcheck.chosen_layout(model, loss, tuple(each[few] for each in inputs), targets[few])


def check_losses_finite(
    losses: Tensor, parameters: Sequence[nn.Parameter], steps_done: int, stacklevel: int = 3
) -> None:
    """Warn about losses that are not finite, and raise if the parameters are not finite either."""
    if not len(losses) or math.isfinite(float(losses.mean())):
        return
    lost = int((~torch.isfinite(losses)).sum())
    if lost and not all(bool(torch.isfinite(parameter).all()) for parameter in parameters):
        raise FloatingPointError(
            f"The parameters are not finite after {steps_done} steps. Use a lower learning rate, or start with smaller "
            "weights."
        )
    if lost:
        warnings.warn(
            f"{lost} of {len(losses)} examples have a loss that is not finite, and contribute zero. Look for missing "
            "values or a logarithm of zero.",
            stacklevel=stacklevel,
        )


def _kinds(batch: Sequence[Tensor]) -> list[tuple[torch.Size, torch.dtype]]:
    """Return the shape of one example and the type of each tensor in a batch."""
    return [(each.shape[1:], each.dtype) for each in batch]
