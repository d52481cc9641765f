"""What a client does in a round: local SGD from the global model, never further from it than the clip."""

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from privet.checks import count, nonnegative, positive, probability
from privet.federated.clients import Data
from privet.federated.parameters import Weights
from privet.privacy.noise.source import OrderSource

Loss = Callable[[Any, Any], Tensor]
Named = dict[str, Tensor]


@dataclass(frozen=True)
class LocalTraining:
    """How a client trains in a round.

    Parameters
    ----------
    learning_rate : float
        The local step eta_l of the first round.
    batch_size : int
        Examples a step; the last batch of an epoch may be smaller.
    epochs, steps : int or None
        How long: so many passes over the client's examples, or so many steps; one of the two.
    decay : float
        Factor of the learning rate from one round to the next.
    weight_decay, momentum : float
        As in ``torch.optim.SGD``; momentum begins at zero in every round.
    """

    learning_rate: float
    batch_size: int
    epochs: int | None = None
    steps: int | None = None
    decay: float = 1.0
    weight_decay: float = 0.0
    momentum: float = 0.0

    def __post_init__(self) -> None:
        positive("learning_rate", self.learning_rate)
        count("batch_size", self.batch_size)
        if (self.epochs is None) == (self.steps is None):
            raise ValueError("a client trains for a number of epochs or of steps: give one of the two")
        count("epochs" if self.steps is None else "steps", self.epochs or self.steps or 0)
        probability("decay", self.decay)
        nonnegative("weight_decay", self.weight_decay)
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must lie in [0, 1), got {self.momentum!r}")

    def rate(self, rounds_done: int) -> float:
        """Return the learning rate of a round."""
        return self.learning_rate * self.decay**rounds_done

    def schedule(self, n: int, source: OrderSource) -> NDArray[np.int64]:
        """Return the examples of all steps, one batch a row; -1 fills up a batch that is not full.

        The order is drawn anew for each epoch. It stays inside the client, and no privacy rests on it.
        """
        if n == 0:
            return np.empty((0, self.batch_size), dtype=np.int64)
        in_epoch = math.ceil(n / self.batch_size)
        epochs = self.epochs or math.ceil((self.steps or 0) / in_epoch)
        orders = np.full((epochs, in_epoch * self.batch_size), -1, dtype=np.int64)
        orders[:, :n] = source.orders(epochs, n)
        return orders.reshape(-1, self.batch_size)[: self.steps]


def order_source(seed: int | None, rounds_done: int, client: int) -> OrderSource:
    """Return the randomness of one client in one round: the same in every engine, if there is a seed."""
    return OrderSource(seed, purpose=f"local order of client {client} in round {rounds_done}")


class ClientTrainer:
    """The function CLIENTUPDATE of Algorithm 1, for one model and one loss.

    Parameters
    ----------
    model : nn.Module
        Its parameters are not touched: only those that a round is given count.
    loss : callable
        ``loss(outputs, targets)`` with one number an example; a ``torch.nn`` loss is told to make no average.
    local : LocalTraining
        How a client trains.
    clip_norm : float
        How far from the global model a client may go, after each step; infinity for no clip.

    Notes
    -----
    Buffers start from the model's in every round and are not sent back. What a client learnt without noise would
    otherwise pass on to the next. Layers that live by their buffers (batch norms) are refused.
    """

    def __init__(self, model: nn.Module, loss: Loss, local: LocalTraining, clip_norm: float) -> None:
        _check_model(model)
        self.model = copy.deepcopy(model).train()
        self.local, self.clip_norm, self.loss = local, clip_norm, _per_example(loss)
        self.names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
        self.kind = next(parameter.dtype for parameter in model.parameters() if parameter.requires_grad)
        self._fixed = {
            name: value.detach().clone()
            for name, value in (*model.named_parameters(), *model.named_buffers())
            if name not in set(self.names)
        }

    def start(self, weights: Mapping[str, NDArray[Any]]) -> Named:
        """Return the global model as tensors of the model's kind."""
        return {name: torch.as_tensor(weights[name]).to(self.kind) for name in self.names}

    def objective(self, parameters: Named, inputs: tuple[Tensor, ...], targets: Tensor) -> Tensor:
        """Return the loss of each example at the given parameters."""
        fixed = {name: value.clone() for name, value in self._fixed.items()}  # a forward may write into buffers
        outputs = functional_call(self.model, {**parameters, **fixed}, inputs)
        losses = self.loss(outputs, targets)
        if losses.ndim == 0 or len(losses) != len(targets):
            raise ValueError(
                f"the loss must be one number an example, {len(targets)} here, got the shape {tuple(losses.shape)}: "
                "use reduction='none'"
            )
        return losses.flatten(1).mean(1) if losses.ndim > 1 else losses

    def update(self, weights: Mapping[str, NDArray[Any]], data: Data, rounds_done: int, source: OrderSource) -> Weights:
        """Return how far one client moves from the global model."""
        begun = self.start(weights)
        moved = {name: torch.zeros_like(value) for name, value in begun.items()}
        speed = {name: torch.zeros_like(value) for name, value in begun.items()} if self.local.momentum else {}
        rate = self.local.rate(rounds_done)
        *inputs, targets = data
        for rows in self.local.schedule(len(targets), source):
            chosen = torch.from_numpy(rows[rows >= 0])
            here = {name: (begun[name] + moved[name]).requires_grad_() for name in self.names}
            losses = self.objective(here, tuple(each[chosen] for each in inputs), targets[chosen])
            slopes = torch.autograd.grad(losses.mean(), list(here.values()), allow_unused=True)
            with torch.no_grad():
                for name, slope in zip(self.names, slopes, strict=True):
                    change = here[name].detach() * self.local.weight_decay
                    change = change if slope is None else change + slope
                    if speed:
                        change = speed[name].mul_(self.local.momentum).add_(change)
                    moved[name].sub_(change, alpha=rate)
                self._pull_back(moved)
        return {name: value.numpy() for name, value in moved.items()}

    def _pull_back(self, moved: Named) -> None:
        """Project onto the ball around the global model."""
        length = float(torch.stack([torch.linalg.vector_norm(value) for value in moved.values()]).norm())
        if length > self.clip_norm:
            for value in moved.values():
                value.mul_(self.clip_norm / length)


def trained_weights(model: nn.Module) -> Weights:
    """Return the parameters of a model that are trained, as arrays."""
    return {
        name: parameter.detach().cpu().numpy().copy()
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    }


def with_weights(model: nn.Module, weights: Mapping[str, NDArray[Any]]) -> nn.Module:
    """Return a copy of the model that has these weights, ready to predict."""
    result = copy.deepcopy(model)
    with torch.no_grad():
        for name, parameter in result.named_parameters():
            if name in weights:
                parameter.copy_(torch.as_tensor(weights[name]))
    return result.eval()


def _check_model(model: nn.Module) -> None:
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError("the model has no parameters to train: set requires_grad on some")
    for layer in model.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            raise ValueError(
                f"{type(layer).__name__} keeps averages of clients' data outside the noisy sum: use "
                "nn.GroupNorm(min(32, channels), channels) or nn.LayerNorm instead"
            )


def _per_example(loss: Loss) -> Loss:
    """Return the loss without its average: of a torch.nn loss a copy that reduces nothing."""
    if not isinstance(loss, nn.Module) or not hasattr(loss, "reduction"):
        return loss
    reducing: Any = copy.copy(loss)
    reducing.reduction = "none"
    unreduced: Loss = reducing
    return unreduced
