"""The federated tasks that privet and pfl-research are timed on, without imports from either.

Both sides train the same networks on the same clients with plain SGD, the same batches per epoch, the same clipping
norm and the same noise. The data is synthetic, because times do not depend on its values.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

CHARACTERS = 80


@dataclass(frozen=True)
class Task:
    """A network, its clients, and how they are trained.

    Attributes
    ----------
    description : str
        What the result file says about the task.
    network : callable
        Returns the initial model.
    shape : tuple of int
        The shape of one example.
    sizes : tuple of int
        The smallest and the largest number of examples of a client.
    clients, per_round, rounds : int
        How many clients there are, how many train in a round, and how many rounds are timed.
    learning_rate, batch, epochs : float, int, int
        The local training.
    classes : int
        The number of classes.
    is_text : bool
        Whether examples are sequences of characters, which are numbered like the classes.
    clip_norm, noise_multiplier : float
        The clipping norm of updates, and the noise on their sum relative to it.
    """

    description: str
    network: Callable[[], nn.Module]
    shape: tuple[int, ...]
    sizes: tuple[int, int]
    clients: int
    per_round: int
    rounds: int
    learning_rate: float
    batch: int
    epochs: int
    classes: int = 10
    is_text: bool = False
    clip_norm: float = 0.3
    noise_multiplier: float = 1.0

    def counts(self) -> NDArray[np.int64]:
        """Return the number of examples of each client."""
        low, high = self.sizes
        return np.random.default_rng(0).integers(low, high + 1, self.clients)

    def data(self) -> tuple[NDArray[np.generic], NDArray[np.int64]]:
        """Return the examples of all clients, one client after another."""
        generator = np.random.default_rng(1)
        n = int(self.counts().sum())
        y = generator.integers(0, self.classes, n)
        if self.is_text:
            return generator.integers(0, self.classes, (n, *self.shape)), y
        X = 0.5 * generator.random((self.classes, *self.shape), dtype=np.float32)[y]
        return X + 0.5 * generator.random((n, *self.shape), dtype=np.float32), y


def cnn() -> nn.Module:
    """Return the paper's CNN for SVHN with fewer channels and units: 20,666 weights."""
    conv = partial(nn.Conv2d, kernel_size=5, padding=2)
    first = [conv(3, 8), nn.ReLU(), nn.MaxPool2d(2)]
    second = [conv(8, 16), nn.ReLU(), nn.MaxPool2d(2)]
    full = [nn.Linear(1024, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 10)]
    return nn.Sequential(*first, *second, nn.Flatten(), *full)


class CharacterLSTM(nn.Module):
    """The small LSTM of experiments/fed_lstm.py, which takes characters and returns scores of the next one."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(CHARACTERS, 8)
        self.lstm = nn.LSTM(8, 64, batch_first=True)
        self.scores = nn.Linear(64, CHARACTERS)

    def forward(self, characters: Tensor) -> Tensor:
        """Return the scores after the last character."""
        states, _ = self.lstm(self.embedding(characters))
        scores: Tensor = self.scores(states[:, -1])
        return scores


TASKS = {
    "softmax regression": Task(
        "784 features, 50 of 1000 clients per round with 60 examples each, 5 epochs with batches of 10",
        partial(nn.Linear, 784, 10),
        shape=(784,),
        sizes=(60, 60),
        clients=1000,
        per_round=50,
        rounds=5,
        learning_rate=0.1,
        batch=10,
        epochs=5,
    ),
    "CNN": Task(
        "two 5 x 5 convolutions, 20,666 weights, 30 of 500 clients per round with 10 to 50 pictures of 3 x 32 x 32, "
        "1 epoch with batches of 10",
        cnn,
        shape=(3, 32, 32),
        sizes=(10, 50),
        clients=500,
        per_round=30,
        rounds=10,
        learning_rate=0.1,
        batch=10,
        epochs=1,
    ),
    "LSTM": Task(
        "one layer of 64 units, 10 characters, 30 of 300 clients per round with 50 to 100 examples, 5 epochs with "
        "batches of 50",
        CharacterLSTM,
        shape=(10,),
        sizes=(50, 100),
        clients=300,
        per_round=30,
        rounds=6,
        learning_rate=1.0,
        batch=50,
        epochs=5,
        classes=CHARACTERS,
        is_text=True,
    ),
}
