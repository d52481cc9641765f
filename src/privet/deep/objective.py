"""What is minimised: a loss with one value per example, and how the model is called to compute it."""

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from privet.deep.model_loss import ModelLoss
from privet.deep.rows import Build, Parts, Rows, is_flat
from privet.networks import Loss, per_example
from privet.networks.losses import Unreduced
from privet.privacy import assumed

PUBLIC_WEIGHTS = assumed("the weights of the classes are public")

_TARGETS = ("labels", "label")
"""The entries of a dictionary that hold the classes, by convention."""


@dataclass(frozen=True)
class Objective:
    """A loss with one value per example, for batches that are tuples or dictionaries.

    Parameters
    ----------
    loss : callable
        ``loss(outputs, targets)`` for tuples. For dictionaries, ``loss(outputs, batch)`` gets the whole batch, except
        that a torch loss gets the one entry that the model does not take.
    accepted : frozenset of str or None
        The entries of a dictionary that the model takes. None stands for all.
    class_weight : dict or None
        Weights that are public or released, by which the losses of the examples of a class are multiplied before
        clipping. Those of balanced classes are 1 until they are released.
    """

    loss: Loss
    accepted: frozenset[str] | None = None
    class_weight: dict[int, float] | None = None

    @classmethod
    def of(cls, loss: Any, model: nn.Module, class_weight: Mapping[int, float] | str | None = None) -> "Objective":
        """Return the objective of a loss that a user gave, which may be one already."""
        if isinstance(loss, cls):
            return loss
        if isinstance(loss, str):
            if loss != "model":
                raise ValueError(f"loss={loss!r} is not known. Give a callable, or 'model' for the loss of the model.")
            return cls(ModelLoss.of(model), _accepted(model), checked_weights(class_weight))
        if not callable(loss):
            raise TypeError(f"loss must be a callable or 'model', but it is a {type(loss).__name__}.")
        return cls(per_example(loss), _accepted(model), checked_weights(class_weight))

    def __call__(self, outputs: Any, targets: Any) -> Tensor:
        """Return one value per example. ``targets`` is a target, or a dictionary."""
        is_named = isinstance(targets, Mapping)
        if isinstance(self.loss, ModelLoss) and not is_named:
            raise ValueError(
                "loss='model' needs batches that are dictionaries, from which the model takes its inputs and labels. "
                "Return dictionaries from the dataset or collate_fn, or give a callable as loss."
            )
        given = self._target(targets) if is_named and isinstance(self.loss, Unreduced) else targets
        losses = self.loss(outputs, given)
        if self.class_weight is None:
            return losses
        classes = self.classes(targets) if is_named else targets
        return losses * _weights(self.class_weight, classes, losses)

    def arguments(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return the entries of a dictionary that the model takes."""
        return {key: each for key, each in batch.items() if self.accepted is None or key in self.accepted}

    def _target(self, batch: Mapping[str, Any]) -> Any:
        """Return the entry for a torch loss: the only one that the model does not take."""
        rest = [key for key in batch if self.accepted is not None and key not in self.accepted]
        if len(rest) != 1:
            raise ValueError(
                "The target of a torch loss is the one entry of the batch that the model does not take, but of the "
                f"entries {list(batch)}, those are {rest}. Remove others from the batch, give loss=lambda outputs, "
                "batch: ..., which gets the whole batch and returns one value per example, or loss='model' if the "
                "model computes its loss."
            )
        return batch[rest[0]]

    def classes(self, batch: Mapping[str, Any]) -> Any:
        """Return the entry of a dictionary that holds the classes: by its name, or the one the model does not take."""
        found = [key for key in _TARGETS if key in batch]
        return batch[found[0]] if found else self._target(batch)


class Answer(NamedTuple):
    """The outputs of a model, and what the loss compares them with."""

    outputs: Any
    targets: Any


class Called(nn.Module):  # type: ignore[misc]  # torch has no types here
    """A model whose batches are not flat. It takes the rows of a batch, and puts the batch together again."""

    def __init__(self, model: nn.Module, objective: Objective, build: Build) -> None:
        super().__init__()
        self.model, self._objective, self._build = model, objective, build

    def forward(self, *rows: Any) -> Answer:
        """Return the model's outputs, together with the targets or the whole dictionary."""
        batch = self._build(iter(rows))
        if isinstance(batch, Mapping):
            return Answer(self.model(**self._objective.arguments(batch)), batch)
        return Answer(self.model(*batch[:-1]), batch[-1])


@dataclass(frozen=True)
class OfAnswer:
    """The loss of a :class:`Called` model, which returns its targets. Those that belong to the rows are ignored."""

    objective: Objective

    def __call__(self, answer: Answer, _: Any) -> Tensor:
        """Return one value per example."""
        return self.objective(answer.outputs, answer.targets)


class Task(NamedTuple):
    """A batch, and the model and the loss with which it is processed: ``loss(model(*inputs), targets)``.

    ``build`` restores the structure of a batch, for instance a dictionary, from its rows. It is None for a flat tuple.
    """

    model: nn.Module
    loss: Loss
    rows: Rows
    build: Build | None = None

    @classmethod
    def of(cls, model: nn.Module, objective: Objective, batch: Any, size: int) -> "Task":
        """Return the task of a batch of ``size`` examples."""
        if is_flat(batch) and len(batch) > 1:
            Parts.of(batch, size)
            is_plain = objective.class_weight is None and not isinstance(objective.loss, ModelLoss)
            return cls(model, objective.loss if is_plain else objective, batch)
        parts = Parts.of(batch, size)
        # Nothing reads these targets, whose length is that of the batch.
        rows = (*parts.rows, torch.zeros(size, dtype=torch.long))
        return cls(Called(model, objective, parts.build), OfAnswer(objective), rows, parts.build)


def checked_weights(class_weight: Any) -> dict[int, float] | None:
    """Return public weights of classes, which must be finite and not negative."""
    if class_weight is None:
        return None
    if isinstance(class_weight, str):
        raise ValueError(
            f"class_weight={class_weight!r} is not known here. Give 'balanced' to make_private(), or a dictionary of "
            "public weights, such as {0: 1.0, 1: 5.0}."
        )
    if not isinstance(class_weight, Mapping):
        raise TypeError(
            f"class_weight must be a dictionary of public weights by class, such as {{0: 1.0, 1: 5.0}}, but it is a "
            f"{type(class_weight).__name__}. Give dict(enumerate(weights))."
        )
    found = {int(key): float(value) for key, value in class_weight.items()}
    bad = {key: value for key, value in found.items() if not (math.isfinite(value) and value >= 0) or key < 0}
    if bad or not found:
        raise ValueError(f"class_weight must map class numbers to finite weights of at least 0, but it has {bad}.")
    return found


def _weights(class_weight: Mapping[int, float], classes: Any, losses: Tensor) -> Tensor:
    """Return the weight of each example. Classes that are not named have weight 1."""
    if not isinstance(classes, Tensor) or classes.is_floating_point() or classes.shape != losses.shape:
        raise ValueError(
            "class_weight needs one class number per example as target. Multiply the losses by weights of your own in "
            "loss=, which must be public constants."
        )
    result = torch.ones_like(losses)
    for key, value in class_weight.items():
        result = torch.where(classes.to(losses.device) == key, value, result)
    return result


def _accepted(model: nn.Module) -> frozenset[str] | None:
    """Return the names of the arguments of a model, or None if it takes any."""
    parameters = inspect.signature(model.forward).parameters.values()
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters):
        return None
    return frozenset(each.name for each in parameters)
