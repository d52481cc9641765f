"""The task that the test, the server and the clients share."""

from unittest import mock

import numpy as np
import torch
from torch import nn

from privet.denoise import LaplacianSmoothing
from privet.federated import ClientTrainer, LocalTraining, Partitioned
from privet.federated.partition import iid
from privet.plans import GradientPlan, Poisson
from privet.privacy import NoiseSource
from trial import CLIENTS

DELTA = 1e-3
CLIP = 0.4
SMOOTHING = 0.3
PLAN = GradientPlan(Poisson(0.75), 3, CLIP, 1.0, public_n=8)
LOCAL = LocalTraining(0.2, batch_size=8, epochs=2, decay=0.9)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))


def clients() -> Partitioned:
    generator = np.random.default_rng(0)
    y = generator.integers(0, 3, 150)
    X = generator.normal(size=(150, 6)) + 3 * np.eye(6)[y]
    return Partitioned((X.astype(np.float32), y), iid(150, CLIENTS, generator))


def trainer() -> ClientTrainer:
    return ClientTrainer(model(), nn.CrossEntropyLoss(), LOCAL, CLIP)


def denoiser() -> LaplacianSmoothing:
    return LaplacianSmoothing(SMOOTHING)


def without_noise():
    """Switch the noise off, so that models can be compared."""
    return mock.patch.object(NoiseSource, "add_gaussian", lambda self, values, std, *_: values.copy())
