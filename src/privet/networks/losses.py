"""Losses with one value per example, which is what clipping needs."""

import copy
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

Loss = Callable[[Any, Any], Tensor]
"""``loss(outputs, targets)``, which returns one value per example."""


def per_example(loss: Loss) -> Loss:
    """Return a loss that does not average over examples: a copy of a ``torch.nn`` loss with ``reduction='none'``.

    Any other callable is returned unchanged.
    """
    if not isinstance(loss, nn.Module) or not hasattr(loss, "reduction"):
        return loss
    unreduced: Any = copy.copy(loss)
    unreduced.reduction = "none"
    result: Loss = unreduced
    return result


def check_losses(losses: Tensor, size: int) -> None:
    """Raise unless there is one loss for each of ``size`` examples."""
    if losses.shape != (size,):
        raise ValueError(
            f"The loss must return one value per example, a tensor of shape ({size},), but it returned a tensor of "
            f"shape {tuple(losses.shape)}. Use reduction='none', because an average over the batch hides what one "
            "example contributes."
        )
