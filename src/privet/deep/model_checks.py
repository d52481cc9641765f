"""Checks before and during training: the model, its optimizer, the processes that train together, and their values."""

import warnings
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import torch
from torch import nn

from privet.deep.clipping import layers_of
from privet.deep.processes import Processes
from privet.networks import check_trainable, trained_parameters
from privet.plans import GradientPlan, Poisson, RecursivePlan


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the model without the wrappers of ``torch.compile`` and ``DistributedDataParallel``."""
    while True:
        if isinstance(model, nn.parallel.DistributedDataParallel):
            model = model.module
        elif _is_compiled(model) and isinstance(getattr(model, "_orig_mod", None), nn.Module):
            model = cast(nn.Module, model._orig_mod)
        else:
            return model


def without_compilation(model: nn.Module) -> AbstractContextManager[Any]:
    """Run what ``torch.compile`` has compiled in a model as ordinary Python, where layers can be observed."""
    is_needed = any(_is_compiled(layer) or layer._compiled_call_impl is not None for layer in model.modules())
    return torch.compiler.set_stance("force_eager") if is_needed else nullcontext()


def _is_compiled(model: nn.Module) -> bool:
    return type(model).__name__ == "OptimizedModule"  # Importing the type would take more than a second.


def check_model(model: nn.Module) -> None:
    """Raise if the model mixes examples."""
    layers_of(model)


def check_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter]) -> None:
    """Raise unless the parameters to train are the model's own, and the optimizer holds all of them."""
    check_trainable(model)
    trained = trained_parameters(model)
    if [id(each) for each in trained.values()] != [id(each) for each in parameters]:
        raise ValueError(
            "The parameters of the model that require gradients are no longer those that make_private() received, "
            "as after get_peft_model() or a change of requires_grad. First finish the model, then create the optimizer "
            "from its parameters, and then call make_private()."
        )
    held = {id(each) for group in optimizer.param_groups for each in group["params"]}
    missing = [name for name, each in trained.items() if id(each) not in held]
    if missing:
        stale = len(held - {id(each) for each in model.parameters()})
        raise ValueError(
            "The optimizer does not hold all parameters of the model that require gradients. It lacks "
            f"{_listed(missing)}{f', and holds {stale} tensors that are not in the model' if stale else ''}. Create it "
            "with model.parameters() after the model is complete, for instance after get_peft_model(), or set "
            "requires_grad to False on the others."
        )


class Movement:
    """Notices parameters that should be trained, but that the optimizer does not move.

    Parameters
    ----------
    model : nn.Module
        The model.
    optimizer : optimizer
        Its learning rates are read. A parameter is looked at in the first step in which its rate is not zero.
    """

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer, self._waiting = optimizer, trained_parameters(model)

    def check(self, changed: Iterable[str]) -> None:
        """Warn about parameters with a gradient that are not among those that the last step changed."""
        if not self._waiting:
            return
        for name in changed:
            self._waiting.pop(name, None)
        rates = {id(each): group.get("lr", 1.0) for group in self._optimizer.param_groups for each in group["params"]}
        stuck = [
            name
            for name, each in self._waiting.items()
            if float(rates[id(each)]) > 0 and each.grad is not None and bool(each.grad.any())
        ]
        if stuck:
            for name in stuck:
                del self._waiting[name]
            warnings.warn(
                f"The step of the optimizer did not change {_listed(stuck)}, although the private gradient is not "
                "zero. They would not be trained. Either the learning rate is too small for their format, or the "
                "optimizer updates other tensors than those of the model.",
                stacklevel=4,
            )


def _listed(names: Sequence[str]) -> str:
    more = len(names) - 5
    return ", ".join(names[:5]) + (f" and {more} more" if more > 0 else "")


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
