"""What server and clients have in common: the model, the training of a client, and who has which images."""

import numpy as np
from flwr.app import Context
from sklearn.datasets import load_digits
from torch import nn

from privet.federated import ClientTrainer, LocalTraining
from privet.federated.partition import iid

IMAGES, PUBLIC = 1797, 360  # the last images are nobody's: the server scores models on them


def model() -> nn.Module:
    """Return softmax regression at zero: a first model that owes nothing to anybody's data."""
    layer = nn.Linear(64, 10)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def images() -> tuple[np.ndarray, np.ndarray]:
    """Return images as rows of 64 numbers from 0 to 1, and their digits."""
    X, y = load_digits(return_X_y=True)
    return (X / 16).astype(np.float32), y


def public_images() -> tuple[np.ndarray, np.ndarray]:
    """Return the images that models are scored on."""
    X, y = images()
    return X[-PUBLIC:], y[-PUBLIC:]


def own_images(context: Context) -> tuple[np.ndarray, np.ndarray]:
    """Return the images of one client. A real client would read its own files here."""
    X, y = images()
    parts = iid(IMAGES - PUBLIC, int(context.run_config["clients"]), np.random.default_rng(0))
    rows = parts[int(context.node_config["partition-id"])]
    return X[rows], y[rows]


def trainer(context: Context) -> ClientTrainer:
    """Return what a client does in a round."""
    told = context.run_config
    local = LocalTraining(
        float(told["learning-rate"]), batch_size=int(told["batch-size"]), epochs=int(told["local-epochs"])
    )
    return ClientTrainer(model(), nn.CrossEntropyLoss(), local, float(told["clip-norm"]))
