"""Losses with one value per example, which is what clipping needs."""

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor, nn

Loss = Callable[[Any, Any], Tensor]
"""``loss(outputs, targets)``, which returns one value per example."""


def per_example(loss: Loss) -> Loss:
    """Return a loss that does not average over examples.

    The ``reduction`` of a ``torch.nn`` loss, or of a function with an argument of this name, such as those of
    ``torch.nn.functional``, becomes ``'none'``. Any other callable is returned unchanged.
    """
    if isinstance(loss, nn.Module):
        if not hasattr(loss, "reduction"):
            result: Loss = loss
            return result
        unreduced: Any = copy.copy(loss)
        unreduced.reduction = "none"
        return Unreduced(unreduced, str(loss.reduction), getattr(loss, "ignore_index", None))
    settings = _settings(loss)
    if "reduction" not in settings:
        return loss
    function: Any = loss
    return Unreduced(partial(function, reduction="none"), settings["reduction"], settings.get("ignore_index"))


@dataclass(frozen=True)
class Unreduced:
    """A torch loss with one value per example.

    An example with several values, for instance one per position, gets their mean, or their sum if that is how the loss
    is reduced. Positions whose target is ``ignore_index`` do not count.

    Parameters
    ----------
    loss : callable
        The loss with ``reduction='none'``.
    reduction : str
        How torch would reduce it.
    ignore_index : int or None
        The target of positions that do not count.
    """

    loss: Loss
    reduction: str
    ignore_index: int | None = None

    def __call__(self, outputs: Any, targets: Any) -> Tensor:
        """Return one value per example."""
        losses = self.loss(outputs, targets)
        if losses.ndim < 2 or self.reduction == "none":
            return losses
        if self.reduction != "mean":  # "sum", and "batchmean", which divides by the number of examples alone.
            return losses.flatten(1).sum(1)
        if self.ignore_index is None or targets.shape != losses.shape:
            return losses.flatten(1).mean(1)
        counts = (targets != self.ignore_index).flatten(1).sum(1)
        return losses.flatten(1).sum(1) / counts


def underlying(loss: Loss) -> Any:
    """Return the torch loss of :func:`per_example`, by which engines recognise losses that they know."""
    return loss.loss if isinstance(loss, Unreduced) else loss


def check_losses(losses: Tensor, size: int) -> None:
    """Raise unless there is one loss for each of ``size`` examples."""
    if losses.shape != (size,):
        raise ValueError(
            f"The loss must return one value per example, a tensor of shape ({size},), but it returned a tensor of "
            f"shape {tuple(losses.shape)}. Use reduction='none', because an average over the batch hides what one "
            "example contributes."
        )


def _settings(loss: Loss) -> dict[str, Any]:
    """Return the defaults of a function's arguments. Those that a ``partial`` sets are among them."""
    try:
        parameters = inspect.signature(loss).parameters.values()
    except (TypeError, ValueError):  # Functions that are written in C may have none.
        return {}
    return {each.name: each.default for each in parameters if each.default is not inspect.Parameter.empty}
