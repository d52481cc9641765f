"""Federated averaging with pfl-research on the tasks of federated_tasks.py, for benchmarks/federated.py.

Runs in a separate environment with pfl 0.6, without privet. Reads names of tasks from the standard input and prints the
seconds per round of each, without its first round, in which pfl also evaluates. With the environment variables
PFL_WORKER_ADDRESSES and PFL_WORKER_RANK, several processes share the clients of each round by their sizes.

    python benchmarks/peer_pfl.py
"""

import sys
import time
from typing import Any

import numpy as np
import torch
from federated_tasks import TASKS, Task
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from pfl.privacy.gaussian_mechanism import GaussianMechanism
from pfl.privacy.privacy_mechanism import CentrallyAppliedPrivacyMechanism
from torch import Tensor, nn


class WithLoss(nn.Module):
    """A network with its loss, as pfl expects it."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.criterion = nn.CrossEntropyLoss()

    def loss(self, X: Tensor, y: Tensor) -> Tensor:
        """Return the mean loss of a batch."""
        value: Tensor = self.criterion(self.network(X), y)
        return value

    def metrics(self, X: Tensor, y: Tensor) -> dict[str, Any]:
        """Return what pfl reports in its first round."""
        return {"loss": Weighted(float(self.loss(X, y)), 1)}


class Clock(TrainingProcessCallback):
    """Records when rounds end."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def after_central_iteration(self, *_args: Any, **_named: Any) -> tuple[bool, Metrics]:
        """Record the time, and continue."""
        self.ends.append(time.perf_counter())
        return False, Metrics()


def backend_of(task: Task) -> SimulatedBackend:
    """Return the clients of a task, which are made once, and the noise."""
    counts = task.counts().tolist()
    X, y = (torch.from_numpy(each).split(counts) for each in task.data())
    datasets = [PyTorchTensorDataset(parts, user_id=str(client)) for client, parts in enumerate(zip(X, y, strict=True))]
    sampler = get_user_sampler("random", list(range(task.clients)))
    data = FederatedDataset(datasets.__getitem__, sampler, dict(enumerate(counts)))
    noise = CentrallyAppliedPrivacyMechanism(GaussianMechanism(task.clip_norm, task.noise_multiplier))
    return SimulatedBackend(data, data, [noise])


def seconds_per_round(task: Task, backend: SimulatedBackend) -> float:
    network = WithLoss(task.network())
    clock = Clock()
    FederatedAveraging().run(
        NNAlgorithmParams(1 + task.rounds, 1 + task.rounds, task.per_round, None),
        backend,
        PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(network.parameters(), lr=1.0)),
        NNTrainHyperParams(
            local_batch_size=task.batch, local_num_epochs=task.epochs, local_learning_rate=task.learning_rate
        ),
        NNEvalHyperParams(local_batch_size=None),
        [clock],
        send_metrics_to_platform=False,
    )
    return (clock.ends[-1] - clock.ends[0]) / task.rounds


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002  pfl draws from this generator, which must be the same in all processes
    backends: dict[str, SimulatedBackend] = {}
    for line in sys.stdin:
        name = line.strip()
        if name not in backends:
            backends[name] = backend_of(TASKS[name])
        print(seconds_per_round(TASKS[name], backends[name]), flush=True)


if __name__ == "__main__":
    main()
