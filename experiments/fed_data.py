"""The data and networks of the federated experiments.

- MNIST: 50,000 training images for the clients and the other 10,000 for validation, as in the paper.
- SVHN: a subset with 20,000 of the paper's 604,388 training images and 5,000 test images, half of them for validation.
- Shakespeare's plays: a client is a role, whose text is split chronologically into 70 % / 10 % / 20 %.
"""

import gzip
import json
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
import torch
from deep_runs import images
from numpy.typing import NDArray
from support import data_file
from torch import Tensor, nn
from torch.nn import functional

from privet.federated import Partitioned, accuracy
from privet.federated.partition import Parts, iid

SVHN = "svhn_20k_5k.npz"
MNIST = "mnist.npz"
PLAYS = "shakespeare_plays.jsonl.gz"


@dataclass(frozen=True)
class Examples:
    """Examples for training, validation and test."""

    X: Tensor
    y: Tensor
    X_validation: Tensor
    y_validation: Tensor
    X_test: Tensor
    y_test: Tensor

    def clients(self, number: int, seed: int) -> Partitioned:
        """Return clients with random examples, in parts of equal size."""
        return Partitioned((self.X, self.y), iid(len(self.y), number, np.random.default_rng(seed)))

    def validate(self, model: nn.Module) -> float:
        """Return the accuracy on the validation set, in per cent."""
        return 100 * accuracy(self.X_validation, self.y_validation)(model)

    def test(self, model: nn.Module) -> float:
        """Return the accuracy on the test set, in per cent."""
        return 100 * accuracy(self.X_test, self.y_test)(model)


# ------------------------------------------------------------------------------------------------------------- images


@lru_cache(maxsize=1)
def mnist_pixels(n: int = 50_000, n_validation: int = 10_000) -> Examples:
    """Return MNIST with 784 pixels from 0 to 1 per image. The last training images are for validation."""
    training, test = (part.tensors for part in images(MNIST, "from_zero_to_one", 60_000))
    X, X_test = training[0].flatten(1), test[0].flatten(1)
    y, last = training[1], slice(60_000 - n_validation, 60_000)
    return Examples(X[:n], y[:n], X[last], y[last], X_test, test[1])


@lru_cache(maxsize=2)
def svhn_images(n: int, side: int = 32) -> Examples:
    """Return SVHN with the first ``n`` training images and pixels from -1 to 1. ``side=16`` averages 2 x 2 pixels."""
    (X, y), (X_test, y_test) = (part.tensors for part in images(SVHN, "from_minus_one", n))
    if side != X.shape[-1]:
        X, X_test = (functional.avg_pool2d(each, X.shape[-1] // side) for each in (X, X_test))
    half = len(y_test) // 2
    return Examples(X, y, X_test[:half], y_test[:half], X_test[half:], y_test[half:])


def mnist_in_colour(n: int, side: int) -> tuple[Tensor, Tensor]:
    """Return MNIST images with the shape and scale of SVHN, as public data for pretraining.

    House numbers are dark on bright as often as bright on dark. Digits and backgrounds therefore get random colours.
    """
    (X, y), _ = (part.tensors for part in images(MNIST, "from_zero_to_one", n, 1))
    shapes = functional.avg_pool2d(functional.pad(X, (2, 2, 2, 2)), 32 // side)
    colours = torch.rand(2, n, 3, 1, 1, generator=torch.Generator().manual_seed(0)) * 2 - 1
    return torch.lerp(colours[0], colours[1], shapes), y


# --------------------------------------------------------------------------------------------------------------- text


@dataclass(frozen=True)
class Roles:
    """The texts of roles as numbers, one example per row: a sequence of characters, and the next character."""

    training: Partitioned
    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    n_characters: int

    def __len__(self) -> int:
        return len(self.training)


def role_texts() -> dict[str, str]:
    """Return the text of each role in reading order. A role is a speaker in a play."""
    texts: dict[str, list[str]] = {}
    with gzip.open(data_file(PLAYS), "rt", encoding="utf-8") as lines:
        for line in lines:
            speech = json.loads(line)
            if speech["speaker"]:
                texts.setdefault(f"{speech['play']}: {speech['speaker'].upper()}", []).append(speech["text"])
    return {role: "\n".join(speeches) for role, speeches in texts.items()}


def windows(text: NDArray[np.int64], length: int, most: int) -> NDArray[np.int64]:
    """Return windows of ``length`` + 1 characters: all of them, or ``most`` that are evenly spread.

    The latter start in the middle of equal intervals, because the last window of a text often ends with a full stop.
    """
    starts = np.arange(len(text) - length)
    if len(starts) > most:
        starts = starts[((np.arange(most) + 0.5) * len(starts) / most).astype(np.int64)]
    return np.asarray(text[starts[:, None] + np.arange(length + 1)])


def roles_of(texts: dict[str, str], length: int, least: int, most: int, n_clients: int | None = None) -> Roles:
    """Return the roles with at least ``least`` examples as clients, each with at most ``most`` training examples.

    Parameters
    ----------
    texts : dict
        The text of each role.
    length : int
        Number of characters from which the next one is predicted.
    least : int
        Roles with fewer windows are left out.
    most : int
        Largest number of training examples of a role, evenly spread over its text. Validation and test sets have a
        tenth as many.
    n_clients : int or None
        Number of roles to keep, in the order of ``texts``; None keeps all.
    """
    alphabet = sorted(set("".join(texts.values())))
    number = {character: place for place, character in enumerate(alphabet)}
    kept = [text for text in texts.values() if len(text) - length >= least][:n_clients]
    parts: dict[str, list[NDArray[np.int64]]] = {"training": [], "validation": [], "test": []}
    for text in kept:
        coded = np.array([number[character] for character in text], dtype=np.int64)
        cuts = [0, int(0.7 * len(coded)), int(0.8 * len(coded)), len(coded)]
        for name, begin, end in zip(parts, cuts, cuts[1:], strict=False):
            parts[name].append(windows(coded[begin:end], length, most if name == "training" else max(1, most // 10)))
    whole = np.concatenate(parts["training"])
    ends = np.cumsum([len(part) for part in parts["training"]])
    rows: Parts = [np.arange(end - len(part), end) for part, end in zip(parts["training"], ends, strict=True)]
    return Roles(
        Partitioned((whole[:, :-1], whole[:, -1]), rows),
        _split(parts["validation"]),
        _split(parts["test"]),
        len(alphabet),
    )


def _split(parts: list[NDArray[np.int64]]) -> tuple[Tensor, Tensor]:
    whole = torch.from_numpy(np.concatenate(parts))
    return whole[:, :-1], whole[:, -1]


# ----------------------------------------------------------------------------------------------------------- networks


def softmax_regression() -> nn.Module:
    """Return logistic regression for ten classes, with zero weights."""
    model = nn.Linear(784, 10)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    return model


def paper_cnn() -> nn.Module:
    """Return the paper's CNN for SVHN: two 5 x 5 convolutions, 384 and 192 units, 3.4 million weights."""
    return _cnn(32, (64, 128), (384, 192))


def small_cnn() -> nn.Module:
    """Return a similar CNN for 16 x 16 pixels, with 22,682 weights."""
    return _cnn(16, (8, 16), (64, 32))


def _cnn(side: int, channels: tuple[int, int], units: tuple[int, int]) -> nn.Module:
    conv = partial(nn.Conv2d, kernel_size=5, padding=2)
    first = [conv(3, channels[0]), nn.ReLU(), nn.MaxPool2d(2)]
    second = [conv(channels[0], channels[1]), nn.ReLU(), nn.MaxPool2d(2)]
    flat = channels[1] * (side // 4) ** 2
    full = [nn.Linear(flat, units[0]), nn.ReLU(), nn.Linear(units[0], units[1]), nn.ReLU(), nn.Linear(units[1], 10)]
    return nn.Sequential(*first, *second, nn.Flatten(), *full)


class CharacterLSTM(nn.Module):
    """The paper's LSTM for the plays, which takes characters and returns scores of the next one."""

    def __init__(self, n_characters: int, units: int = 256, layers: int = 2, embedding: int = 8) -> None:
        super().__init__()
        self.embedding = nn.Embedding(n_characters, embedding)
        self.lstm = nn.LSTM(embedding, units, layers, batch_first=True)
        self.scores = nn.Linear(units, n_characters)

    def forward(self, characters: Tensor) -> Tensor:
        """Return the scores after the last character."""
        states, _ = self.lstm(self.embedding(characters))
        scores: Tensor = self.scores(states[:, -1])
        return scores


class SmallLSTM(nn.Module):
    """One LSTM layer for the plays, in elementary operations, so that many clients can be trained in one batch.

    Recurrent weights begin orthogonal and input weights at three times PyTorch's default. With the default, the network
    predicts the most common character for tens of rounds before it begins to learn.
    """

    def __init__(self, n_characters: int, units: int = 32, embedding: int = 8) -> None:
        super().__init__()
        self.embedding = nn.Embedding(n_characters, embedding)
        self.inputs = nn.Linear(embedding, 4 * units)
        self.hidden = nn.Linear(units, 4 * units, bias=False)
        self.scores = nn.Linear(units, n_characters)
        nn.init.orthogonal_(self.hidden.weight)
        with torch.no_grad():
            self.inputs.weight.mul_(3.0)

    def forward(self, characters: Tensor) -> Tensor:
        """Return the scores after the last character."""
        inputs = self.inputs(self.embedding(characters))
        state = cell = inputs.new_zeros(self.hidden.in_features)
        for step in inputs.unbind(-2):
            enter, keep, content, leave = (step + self.hidden(state)).chunk(4, -1)
            cell = torch.sigmoid(keep) * cell + torch.sigmoid(enter) * torch.tanh(content)
            state = torch.sigmoid(leave) * torch.tanh(cell)
        scores: Tensor = self.scores(state)
        return scores
