"""The parameters of a model as dictionaries of arrays or tensors, and as one vector."""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from privet.networks.norms import wide

Weights = dict[str, NDArray[Any]]
"""Parameters of a model, or changes of them, as arrays by name."""

TensorDict = dict[str, Tensor]
"""Parameters of a model, or changes of them, as tensors by name."""

Vector = NDArray[np.float64]
"""All parameters of a model in one vector."""


def trained_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters of a model that require gradients, by name."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def trained_weights(model: nn.Module) -> Weights:
    """Return copies of the parameters that require gradients, as arrays by name. Half precision becomes single."""
    return {name: wide(each.detach()).cpu().numpy().copy() for name, each in trained_parameters(model).items()}


def with_weights(model: nn.Module, weights: Mapping[str, NDArray[Any]]) -> nn.Module:
    """Return a copy of the model with the given weights, in eval mode."""
    result = copy.deepcopy(model)
    with torch.no_grad():
        for name, parameter in result.named_parameters():
            if name in weights:
                parameter.copy_(torch.as_tensor(weights[name]))
    return result.eval()


def check_trainable(model: nn.Module) -> None:
    """Raise if no parameter of the model requires gradients."""
    if not trained_parameters(model):
        raise ValueError("The model has no parameters to train. Set requires_grad on at least one of them.")


def refuse_batch_norm(model: nn.Module, reason: str, *, if_frozen: bool = True) -> None:
    """Raise if the model has a batch normalisation layer.

    Parameters
    ----------
    model : nn.Module
        The model.
    reason : str
        Completes the sentence "BatchNorm2d ...".
    if_frozen : bool
        Whether layers are also refused that are in eval mode, use stored statistics, and have no trained parameters.
        Such a layer is a fixed linear map.
    """
    for layer in model.modules():
        if not isinstance(layer, nn.modules.batchnorm._BatchNorm) or not (if_frozen or _mixes(layer)):
            continue
        remedy = "Use nn.GroupNorm(min(32, channels), channels) or nn.LayerNorm instead."
        if not if_frozen:
            remedy += (
                " If its statistics come from public data, freeze the layer: call layer.requires_grad_(False), and "
                "layer.eval() after each model.train()."
            )
        raise ValueError(f"{type(layer).__name__} {reason}. {remedy}")


def _mixes(layer: nn.modules.batchnorm._BatchNorm) -> bool:
    """Return whether a batch normalisation uses statistics of the batch, or is trained."""
    is_fixed = not layer.training and layer.running_mean is not None and layer.running_var is not None
    return not is_fixed or any(parameter.requires_grad for parameter in layer.parameters())


class UpdateError(ValueError):
    """An update that does not fit the model. The message names the cause without revealing any of its values."""


@dataclass(frozen=True)
class ParameterShapes:
    """Names and shapes of a model's parameters, in the order in which a vector holds them."""

    shapes: dict[str, tuple[int, ...]]

    @classmethod
    def of(cls, weights: Mapping[str, NDArray[Any]]) -> "ParameterShapes":
        """Return the shapes of a model's weights, which must be finite."""
        if not weights:
            raise ValueError("The model has no parameters to train.")
        shapes = cls({name: np.shape(weight) for name, weight in weights.items()})
        try:
            shapes.vector(weights)
        except UpdateError as error:
            raise ValueError(f"The initial model cannot be trained: it has {error}.") from error
        return shapes

    @cached_property
    def size(self) -> int:
        """The number of scalars in all parameters."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def vector(self, update: Any) -> Vector:
        """Return an update as one vector.

        The update may come from an untrusted client and may be any object. Raise :class:`UpdateError` unless it is a
        dictionary with the names and shapes of this model's parameters and with finite values.
        """
        if not isinstance(update, Mapping):
            raise UpdateError("not a dictionary of parameters")
        try:
            values = dict(update)
        except Exception as error:  # An untrusted object may raise anything when it is read.
            raise UpdateError(f"a dictionary that cannot be read ({type(error).__name__})") from error
        if values.keys() != self.shapes.keys():
            raise UpdateError("parameters with other names than the model's")
        vector = np.empty(self.size)
        for name, place in self.split(vector).items():
            _fill(place, values[name])
        if not np.isfinite(vector).all():
            raise UpdateError("a value that is not finite")
        return vector

    def split(self, vector: Vector) -> Weights:
        """Return the parameters in a vector by name, as views of the vector."""
        found: Weights = {}
        start = 0
        for name, shape in self.shapes.items():
            end = start + math.prod(shape)
            found[name] = vector[start:end].reshape(shape)
            start = end
        return found


def _fill(place: Vector, value: Any) -> None:
    """Write one parameter of an update into its place in the vector."""
    try:
        array = np.asarray(value)
    except Exception as error:  # An untrusted object may raise anything when it is converted.
        raise UpdateError(f"a parameter that is not an array ({type(error).__name__})") from error
    if array.dtype.kind not in "fiub":
        # The name of a structured dtype would contain names that the client chose.
        raise UpdateError(f"a parameter of type {array.dtype.type.__name__}")
    if array.shape != place.shape:
        raise UpdateError(f"a parameter of shape {array.shape} where the model has {place.shape}")
    place[...] = array
