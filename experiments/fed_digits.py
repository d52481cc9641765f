"""Data, network, start and single trainings of the experiments with a CNN on SVHN.

Images are standardised one by one, and initial weights are those of He and others. Without these two, nothing is learnt
in so few rounds even without noise. Training starts from weights trained on MNIST in colour as public data.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from fed_data import Examples, mnist_in_colour, small_cnn, svhn_images
from fed_grids import LOOKS, TRIAL_SEED, watched
from fed_runs import Setting, Task
from torch import Tensor, nn

from privet.federated import LocalTraining

Network = Callable[[], nn.Module]
SIDE = 16


@dataclass(frozen=True)
class Run:
    """One training."""

    sampling: str
    multiplier: float
    sigma: float
    rate: float
    seed: int = TRIAL_SEED
    n: int = 20_000
    n_clients: int = 2_000
    rounds: int = 200
    clip_norm: float = 0.3
    pretraining: int = 60_000

    @property
    def setting(self) -> Setting:
        """The setting of the federated training."""
        per_round = self.n_clients // 20
        local = LocalTraining(self.rate, batch_size=10, epochs=2, decay=0.99, weight_decay=4e-5)
        return Setting(
            self.n_clients,
            per_round,
            self.rounds,
            self.clip_norm,
            local,
            sampling=self.sampling,
            noise_multiplier=self.multiplier,
        ).smoothed(self.sigma)


def standardised(X: Tensor) -> Tensor:
    """Return images with mean 0 and deviation 1 each."""
    dims = (1, 2, 3)
    return (X - X.mean(dims, keepdim=True)) / X.std(dims, keepdim=True).clamp(min=0.05)


@lru_cache(maxsize=1)
def digits(n: int, side: int = SIDE) -> Examples:
    """Return SVHN with standardised images."""
    data = svhn_images(n, side)
    return replace(
        data,
        X=standardised(data.X),
        X_validation=standardised(data.X_validation),
        X_test=standardised(data.X_test),
    )


def initialise(layer: nn.Module) -> None:
    """Give a layer the initial weights of He and others."""
    if isinstance(layer, nn.Conv2d | nn.Linear):
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        nn.init.zeros_(layer.bias)


@lru_cache(maxsize=1)
def start(n: int, network: Network = small_cnn, side: int = SIDE) -> dict[str, Tensor]:
    """Return the weights after two passes over ``n`` images of MNIST in colour, without privacy."""
    torch.manual_seed(0)
    model = network()
    model.apply(initialise)
    X, y = mnist_in_colour(n, side)
    X = standardised(X)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss = nn.CrossEntropyLoss()
    for _ in range(2):
        for rows in torch.randperm(n).split(64):
            optimizer.zero_grad()
            loss(model(X[rows]), y[rows]).backward()
            optimizer.step()
    return model.state_dict()


def pretrained(n: int, network: Network = small_cnn, side: int = SIDE) -> nn.Module:
    """Return the network with the weights of :func:`start`."""
    model = network()
    model.load_state_dict(start(n, network, side))
    return model


def size(pretraining: int) -> int:
    """Return the number of weights of the network."""
    return sum(weights.numel() for weights in start(pretraining).values())


def majority(data: Examples) -> float:
    """Return the accuracy of always predicting the most common digit of the test images, in per cent."""
    labels = torch.bincount(data.y_test).double()
    return 100 * float(labels.max() / labels.sum())


def outcome(run: Run, looks: int = LOOKS) -> dict[str, Any]:
    """Return accuracies in per cent on test and validation images, the latter by round, and the epsilon."""
    data = digits(run.n)
    task = Task(lambda: pretrained(run.pretraining), data.clients, data.test)
    return watched(task, run.setting, run.seed, data.validate, looks)
