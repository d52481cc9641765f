"""Checks before and during training: the model, its optimizer, the processes that train together, and their values."""

import warnings
from collections.abc import Sequence

import torch
from torch import nn

from privet.deep.clipping import layers_of
from privet.deep.clipping.rules import has_rule
from privet.deep.processes import Processes
from privet.networks import check_trainable
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


def refuse_compiled(model: nn.Module) -> None:
    """Raise if the model is compiled, because the layers inside of a compiled graph cannot be observed."""
    for layer in model.modules():
        if type(layer).__name__ == "OptimizedModule" or getattr(layer, "_compiled_call_impl", None) is not None:
            raise ValueError(
                "torch.compile is not supported in training: a compiled graph hides the layers whose gradients are "
                "clipped. Pass the model as it was before it was compiled, and compile it after training."
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


def check_finite(parameters: Sequence[nn.Parameter], steps_done: int) -> None:
    """Raise if the parameters are not finite. They are public, so the error may be raised for any batch.

    It takes time to look at all parameters, so after the first steps only one step in 16 does it.
    """
    if steps_done > 16 and steps_done % 16:
        return
    with torch.no_grad():
        # A sum is faster than a test of each number. It may overflow, and then each number is tested.
        if all(bool(torch.isfinite(each.sum())) or bool(torch.isfinite(each).all()) for each in parameters):
            return
    raise FloatingPointError(
        f"The parameters are not finite after {steps_done} steps. Use a lower learning rate, or start with smaller "
        "weights."
    )


def warn_about_zeros(zeros: int, size: int, stacklevel: int = 3) -> None:
    """Warn about examples that contribute zero because their gradients cannot be clipped."""
    if zeros:
        warnings.warn(
            f"{zeros} of {size} examples in a batch have a gradient that is not finite or too large to be clipped, and "
            "contribute zero. Look for missing values or a logarithm of zero. This message is for the holder of the "
            "data only. It depends on the examples, and publishing it is not covered by the guarantee.",
            stacklevel=stacklevel,
        )
