"""The training of one client in a round: local SGD that stays within the clipping norm of the global model."""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from privet.checks import count, nonnegative, positive, probability
from privet.denoise import Denoiser
from privet.federated.clients import Data
from privet.global_generators import seeded_alike
from privet.networks import (
    LocalSGD,
    Loss,
    TensorDict,
    TensorDisplacement,
    Weights,
    check_losses,
    check_trainable,
    layer_denoiser,
    per_example,
    refuse_batch_norm,
    trained_parameters,
)
from privet.networks.norms import wide
from privet.privacy.noise.orders import OrderSource


@dataclass(frozen=True)
class LocalTraining:
    """How a client trains in a round.

    Parameters
    ----------
    learning_rate : float
        The local step size eta_l in the first round.
    batch_size : int
        Number of examples per step. The last batch of an epoch may be smaller.
    epochs, steps : int or None
        Length of the training in passes over the client's examples, or in steps. Give one of the two.
    decay : float
        Factor by which the learning rate changes from one round to the next.
    weight_decay, momentum : float
        As in ``torch.optim.SGD``. Momentum starts at zero in every round.
    denoiser : Denoiser or None
        Applied to each layer of the gradient in every local step, before weight decay and momentum. The gradients of a
        client have no added noise, so the denoiser is told a noise level of 0. DP-Fed-LS, section 2, reports that
        Laplacian smoothing of local steps usually makes models worse, and smooths only on the server.
    order : {"OIHW", "OIWH", "OHWI", "OWHI"}
        The order in which that denoiser reads the weights of a convolution.
    """

    learning_rate: float
    batch_size: int
    epochs: int | None = None
    steps: int | None = None
    decay: float = 1.0
    weight_decay: float = 0.0
    momentum: float = 0.0
    denoiser: Denoiser | None = None
    order: str = "OIHW"

    def __post_init__(self) -> None:
        positive("learning_rate", self.learning_rate)
        count("batch_size", self.batch_size)
        if (self.epochs is None) == (self.steps is None):
            raise ValueError(f"Give either epochs or steps, got epochs={self.epochs!r} and steps={self.steps!r}.")
        count("epochs" if self.steps is None else "steps", self.epochs or self.steps or 0)
        probability("decay", self.decay)
        nonnegative("weight_decay", self.weight_decay)
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must lie in [0, 1), got {self.momentum!r}.")
        layer_denoiser(self.denoiser, self.order)  # raises if the order is unknown

    def rate(self, rounds_done: int) -> float:
        """Return the learning rate of a round."""
        return self.learning_rate * self.decay**rounds_done

    def schedule(self, n: int, source: OrderSource) -> NDArray[np.int64]:
        """Return the examples of all steps, one batch per row, with -1 in the free places of incomplete batches.

        Each epoch has a new order. The order never leaves the client, and privacy does not depend on it.
        """
        if n == 0:
            return np.empty((0, self.batch_size), dtype=np.int64)
        in_epoch = math.ceil(n / self.batch_size)
        epochs = self.epochs or math.ceil((self.steps or 0) / in_epoch)
        orders = np.full((epochs, in_epoch * self.batch_size), -1, dtype=np.int64)
        orders[:, :n] = source.orders(epochs, n)
        return orders.reshape(-1, self.batch_size)[: self.steps]


def order_source(random_state: int | None, rounds_done: int, client: int) -> OrderSource:
    """Return the source of one client's example order in one round. An integer makes it the same in every engine."""
    return OrderSource(random_state, f"local order of client {{}} in round {rounds_done}", client)


class ClientTrainer:
    """The function CLIENTUPDATE of Algorithm 1, for one model and one loss.

    Parameters
    ----------
    model : nn.Module
        The architecture. Its parameters are not modified, and each round starts from the weights that it is given.
    loss : callable
        ``loss(outputs, targets)`` must return one value per example. The ``reduction`` of a ``torch.nn`` loss is set
        to ``'none'``.
    local : LocalTraining
        How a client trains.
    clip_norm : float
        Largest distance from the global model after each step; infinity for no limit.

    Notes
    -----
    Buffers are reset to those of the model in every round and are not sent back. Otherwise information about a client
    would pass to the next one without noise. Layers that depend on their buffers (batch norms) are not supported.
    """

    def __init__(self, model: nn.Module, loss: Loss, local: LocalTraining, clip_norm: float) -> None:
        check_trainable(model)
        refuse_batch_norm(model, "keeps averages of the clients' data outside the noisy sum")
        self.model = copy.deepcopy(model).train()
        self.local, self.clip_norm, self.loss = local, clip_norm, per_example(loss)
        self._denoise = layer_denoiser(local.denoiser, local.order)
        trained = trained_parameters(model)
        self.names = list(trained)
        self.kind = next(iter(trained.values())).dtype
        self._fixed = {
            name: value.detach().clone()
            for name, value in (*model.named_parameters(), *model.named_buffers())
            if name not in trained
        }

    def start(self, weights: Mapping[str, NDArray[Any]]) -> TensorDict:
        """Return the global model as tensors of the model's dtype."""
        return {name: torch.as_tensor(weights[name]).to(self.kind) for name in self.names}

    def sgd(self, rounds_done: int) -> LocalSGD:
        """Return the step rule of a round."""
        local = self.local
        return LocalSGD(local.rate(rounds_done), local.momentum, local.weight_decay, self.clip_norm)

    def denoised(self, gradient: TensorDict, *, is_stacked: bool = False) -> TensorDict:
        """Return the gradient of a local step with each layer denoised, or as it is if there is no local denoiser.

        ``is_stacked`` says whether the first axis of each layer runs over clients, which are denoised separately.
        """
        denoise = self._denoise
        if denoise is None:
            return gradient
        if not is_stacked:
            return {name: denoise(layer) for name, layer in gradient.items()}
        return {name: torch.stack([denoise(each) for each in layer]) for name, layer in gradient.items()}

    def objective(self, parameters: TensorDict, inputs: tuple[Tensor, ...], targets: Tensor) -> Tensor:
        """Return the loss of each example at the given parameters."""
        fixed = {name: value.clone() for name, value in self._fixed.items()}  # a forward pass may write into buffers
        return self.losses(functional_call(self.model, {**parameters, **fixed}, inputs), targets)

    def losses(self, outputs: Any, targets: Tensor) -> Tensor:
        """Return the loss of each example, given the outputs of the model."""
        losses = self.loss(outputs, targets)
        losses = losses.flatten(1).mean(1) if losses.ndim > 1 else losses
        check_losses(losses, len(targets))
        return losses

    def check(self, data: Data) -> None:
        """Raise if the model and the loss cannot be applied to such examples, or if there is no gradient."""
        *inputs, targets = data
        here = {name: value.detach().clone().requires_grad_() for name, value in trained_parameters(self.model).items()}
        with torch.random.fork_rng(devices=[]):  # Random layers must not change the numbers of the run.
            losses = self.objective(here, tuple(inputs), targets)
        torch.autograd.grad(losses.mean(), list(here.values()), materialize_grads=True)

    def update(self, weights: Mapping[str, NDArray[Any]], data: Data, rounds_done: int, source: OrderSource) -> Weights:
        """Return one client's update: its model after local training, minus the global model.

        Random layers, such as dropout, draw from generators that are seeded for this client alone. Otherwise what one
        client draws would change the numbers that the next client gets, and thus its update.
        """
        with seeded_alike(source.seed()):
            return self._trained(weights, data, rounds_done, source)

    def _trained(
        self, weights: Mapping[str, NDArray[Any]], data: Data, rounds_done: int, source: OrderSource
    ) -> Weights:
        begun = self.start(weights)
        sgd = self.sgd(rounds_done)
        moved = TensorDisplacement.zero(begun)
        velocity = TensorDisplacement.zero(begun) if sgd.momentum else None
        *inputs, targets = data
        for rows in self.local.schedule(len(targets), source):
            chosen = torch.from_numpy(rows[rows >= 0])
            here = {name: (begun[name] + moved.values[name]).requires_grad_() for name in self.names}
            losses = self.objective(here, tuple(each[chosen] for each in inputs), targets[chosen])
            slopes = torch.autograd.grad(losses.mean(), list(here.values()), materialize_grads=True)
            with torch.no_grad():
                sgd.step(moved, velocity, self.denoised(dict(zip(self.names, slopes, strict=True))))
        return {name: wide(value).numpy() for name, value in moved.values.items()}
