"""Networks, sizes and initial weights of experiments/fed_cnn.py."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
from fed_cnn_paper import MULTIPLIERS, RATES
from fed_data import mnist_in_colour, paper_cnn, small_cnn, svhn_images
from fed_runs import Setting, Task
from torch import nn

from privet.federated import LocalTraining

THEIRS = LocalTraining(0.1, batch_size=64, epochs=10, decay=0.99, weight_decay=4e-5)


@dataclass(frozen=True)
class Preset:
    """Network, sizes, and the cells of the tables that are run."""

    network: Callable[[], nn.Module] = paper_cnn
    side: int = 32
    n: int = 20_000
    n_clients: int = 200
    clients_per_round: int = 100
    rounds: int = 200
    high_per_round: tuple[int, ...] = (100,)
    high_rounds: int = 200
    is_high_pretrained: bool = False
    local: LocalTraining = THEIRS
    clip_norm: float = 0.3
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    high_seeds: tuple[int, ...] = (1,)
    samplings: tuple[str, ...] = ("uniform", "poisson")
    multipliers: tuple[float, ...] = MULTIPLIERS
    sigmas: tuple[float, ...] = (0.0, 0.5, 1.0, 1.5)
    order_sigmas: tuple[float, ...] = (0.5, 1.0, 1.5)
    high: tuple[float, ...] = (3.0, 3.5, 4.0)
    rates: tuple[float, ...] = RATES
    pretraining: int = 60_000

    @property
    def in_words(self) -> str:
        """A description of what is run."""
        return (
            f"{self.network.__name__}, {self.side} x {self.side} pixels, {self.n_clients} clients, local epochs "
            f"{self.local.epochs}; tables: {self.clients_per_round} per round, {self.rounds} rounds, {len(self.seeds)} "
            f"seeds; figure 6: {self.high_rounds} rounds, {len(self.high_seeds)} seeds, "
            f"{'weights trained on MNIST' if self.is_high_pretrained else 'random initial weights'}"
        )


SMALL = LocalTraining(0.1, batch_size=20, epochs=1, decay=0.99, weight_decay=4e-5)
PRESETS = {
    "full": Preset(),
    "preset": Preset(
        network=small_cnn,
        side=16,
        clients_per_round=30,
        rounds=20,
        high_per_round=(50, 30),
        high_rounds=30,
        is_high_pretrained=True,
        local=SMALL,
        seeds=(1, 2),
        high_seeds=(1, 2),
        samplings=("poisson",),
        multipliers=(2.4, 1.8),
        order_sigmas=(1.0,),
        rates=(0.1,),
        pretraining=40_000,
    ),
    "quick": Preset(
        network=small_cnn,
        side=16,
        n=400,
        n_clients=20,
        clients_per_round=10,
        rounds=2,
        high_per_round=(10,),
        high_rounds=2,
        local=SMALL,
        seeds=(1,),
        samplings=("poisson",),
        multipliers=(2.0,),
        sigmas=(0.0, 1.0),
        order_sigmas=(1.0,),
        high=(3.0,),
        rates=(0.1,),
        pretraining=200,
    ),
}


# ---------------------------------------------------------------------------------------------------------------- tasks


def scratch(preset: Preset) -> Task:
    """Return the task on SVHN with random initial weights."""
    data = svhn_images(preset.n, preset.side)
    return Task(preset.network, data.clients, data.test)


def prepared(preset: Preset) -> Task:
    """Return the task on SVHN with weights pretrained on MNIST without privacy, the same for all seeds."""
    data = svhn_images(preset.n, preset.side)
    return Task(lambda: pretrained(preset.network, preset.side, preset.pretraining), data.clients, data.test)


@lru_cache(maxsize=1)
def pretrained(network: Callable[[], nn.Module], side: int, n: int) -> nn.Module:
    """Return a network after one pass over ``n`` images of MNIST."""
    torch.manual_seed(0)
    model = network()
    X, y = mnist_in_colour(n, side)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loss = nn.CrossEntropyLoss()
    for rows in torch.randperm(n).split(64):
        optimizer.zero_grad()
        loss(model(X[rows]), y[rows]).backward()
        optimizer.step()
    return model


def setting(preset: Preset, sampling: str, multiplier: float) -> Setting:
    """Return the setting for a noise multiplier, without a denoiser."""
    return Setting(
        preset.n_clients,
        preset.clients_per_round,
        preset.rounds,
        preset.clip_norm,
        preset.local,
        sampling=sampling,
        noise_multiplier=multiplier,
    )
