"""The step of local SGD: momentum, weight decay, and projection onto a ball around the start.

The rule applies to anything that is a :class:`Displacement`: one model, many models stacked along a first axis, or the
coefficients of a linear model in the span of its examples.
"""

import math
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

import torch
from torch import Tensor

from privet.networks.norms import lengths, wide
from privet.networks.parameters import TensorDict

_SHORT = 1 << 14
"""Number of entries up to which float32 sums have a relative error far below 1e-5."""

Gradient_contra = TypeVar("Gradient_contra", contravariant=True)


class Displacement(Protocol[Gradient_contra]):
    """How far one or several models have moved from their common start. All operations work in place."""

    def scale(self, factor: float | Tensor) -> None:
        """Multiply by a number, or by one number per model."""

    def add(self, other: Self, factor: float) -> None:
        """Add a multiple of another displacement."""

    def add_weights(self, moved: Self, factor: float) -> None:
        """Add a multiple of the weights, which are the start plus ``moved``."""

    def add_gradient(self, gradient: Gradient_contra, factor: float) -> None:
        """Add a multiple of a gradient."""

    def lengths(self) -> Tensor:
        """Return the l2 norm of each model's displacement."""
        ...


Moved = TypeVar("Moved", bound=Displacement[Any])


@dataclass(frozen=True)
class LocalSGD:
    """SGD as in ``torch.optim.SGD``, kept within a ball around the start.

    Parameters
    ----------
    learning_rate : float
        The step size.
    momentum, weight_decay : float
        As in ``torch.optim.SGD``.
    radius : float
        Largest l2 norm of the displacement after each step; infinity for no projection.
    """

    learning_rate: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    radius: float = math.inf

    def step(self, moved: Moved, velocity: Moved | None, gradient: Any) -> None:
        """Take one step in place. ``velocity`` is None without momentum."""
        into, factor = (moved, -self.learning_rate) if velocity is None else (velocity, 1.0)
        if velocity is not None:
            velocity.scale(self.momentum)
        if self.weight_decay:
            into.add_weights(moved, factor * self.weight_decay)
        into.add_gradient(gradient, factor)
        if velocity is not None:
            moved.add(velocity, -self.learning_rate)
        if math.isfinite(self.radius):
            factors = self.radius / moved.lengths()
            if bool((factors < 1).any()):
                moved.scale(factors.clamp_max_(1.0))


@dataclass(frozen=True)
class TensorDisplacement:
    """The displacement of one model, or of many models that are stacked along a first axis.

    Parameters
    ----------
    values : dict of tensors
        The displacement of each parameter.
    start : dict of tensors
        The weights of the common start, without the axis of models.
    is_stacked : bool
        Whether the tensors in ``values`` have a first axis of models.
    """

    values: TensorDict
    start: TensorDict
    is_stacked: bool = False

    @classmethod
    def zero(cls, start: TensorDict, models: int | None = None) -> "TensorDisplacement":
        """Return the displacement of one model, or of several stacked models, that have not moved."""
        lead = () if models is None else (models,)
        values = {name: value.new_zeros(*lead, *value.shape) for name, value in start.items()}
        return cls(values, start, models is not None)

    def first(self, models: int) -> "TensorDisplacement":
        """Return the displacement of the first models, which shares memory with this one."""
        return TensorDisplacement({name: value[:models] for name, value in self.values.items()}, self.start, True)

    def scale(self, factor: float | Tensor) -> None:
        """Multiply by a number, or by one number per model."""
        for value in self.values.values():
            if isinstance(factor, Tensor) and self.is_stacked:
                value.mul_(factor.view(-1, *[1] * (value.ndim - 1)))
            else:
                value.mul_(factor)

    def add(self, other: "TensorDisplacement", factor: float) -> None:
        """Add a multiple of another displacement."""
        for name, value in self.values.items():
            value.add_(other.values[name], alpha=factor)

    def add_weights(self, moved: "TensorDisplacement", factor: float) -> None:
        """Add a multiple of the weights, which are the start plus ``moved``."""
        self.add(moved, factor)
        for name, value in self.values.items():
            value.add_(self.start[name], alpha=factor)

    def add_gradient(self, gradient: TensorDict, factor: float) -> None:
        """Add a multiple of a gradient."""
        for name, value in self.values.items():
            value.add_(gradient[name], alpha=factor)

    def lengths(self) -> Tensor:
        """Return the l2 norm of each model's displacement, over all parameters together."""
        norms = [
            _norms(value.reshape(len(value), -1) if self.is_stacked else value.reshape(-1))
            for value in self.values.values()
        ]
        return torch.stack(norms).norm(dim=0)

    def write_weights(self, into: TensorDict) -> None:
        """Write the weights, which are the start plus this displacement, into tensors of the same shapes."""
        for name, value in self.values.items():
            torch.add(self.start[name], value, out=into[name])


def _norms(values: Tensor) -> Tensor:
    """Return norms over the last dimension. Long vectors, and those in half precision, need more than one float32 sum.

    The server clips updates again, so these norms need not be exact.
    """
    is_short = values.dtype.itemsize >= 4 and values.shape[-1] <= _SHORT
    return torch.linalg.vector_norm(values, dim=-1) if is_short else lengths(values).to(wide(values).dtype)
