"""Opacus under the audit by replay: an adapter for its Poisson sampler and its optimizer, and the scenarios.

``DPOptimizer.add_noise`` gets the clipped sum of each parameter. All of them together are one release, whose claim is
that a record moves it by at most ``max_grad_norm``, or by twice as much if it is replaced.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from opacus import PrivacyEngine
from opacus.optimizers import DPOptimizer
from opacus.utils.batch_memory_manager import BatchMemoryManager
from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from replay_peers import REMOVED, REPLACED, Scenario
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from privet.privacy.noise import watch
from privet.privacy.noise.watch import Claim

CLIP = 1.0


# -------------------------------------------------------------------------------------------------------- the adapter


@contextmanager
def watched(moves: float) -> Iterator[None]:
    """Show batches and noisy sums to the watcher of a replay. A sum may move by ``moves`` times the clip."""
    source = SimpleNamespace(purpose="opacus")
    drawn: list[Any] = [None, 0]
    batches, add_noise = UniformWithReplacementSampler.__iter__, DPOptimizer.add_noise

    def sampled(sampler: Any) -> Iterator[list[int]]:
        for batch in batches(sampler):
            n = sampler.num_samples
            chosen = watch.sample(source, "Poisson batch", n, lambda batch=batch: np.array(batch, dtype=np.int64))
            drawn[:] = [chosen, n]
            yield chosen.tolist()

    def noisy(optimizer: Any) -> None:
        sums = [parameter.summed_grad for parameter in optimizer.params]
        values = torch.cat([each.detach().double().flatten() for each in sums]).numpy()
        claim = Claim(moves * optimizer.max_grad_norm, *drawn)

        def draw() -> Any:
            add_noise(optimizer)
            grads = [parameter.grad.double().flatten() for parameter in optimizer.params]
            return torch.cat(grads).numpy()

        std = optimizer.noise_multiplier * optimizer.max_grad_norm
        released = torch.from_numpy(watch.release(source, "Gaussian noise", values, std, claim, draw))
        sizes = [parameter.numel() for parameter in optimizer.params]
        for parameter, each in zip(optimizer.params, released.split(sizes), strict=True):
            parameter.grad = each.view_as(parameter).to(parameter.dtype)
            parameter.summed_grad._processed = True

    UniformWithReplacementSampler.__iter__, DPOptimizer.add_noise = sampled, noisy
    try:
        yield
    finally:
        UniformWithReplacementSampler.__iter__, DPOptimizer.add_noise = batches, add_noise


def trained(
    make: Callable[[], nn.Module],
    *,
    loss: Callable[..., Tensor] = functional.mse_loss,
    batch_size: int = 4,
    moves: float = 2.0,
    physical: int | None = None,
) -> Callable[[TensorDataset], Any]:
    """Return a training of one epoch, whose result is the model without the gradients of examples."""

    def train(data: TensorDataset) -> Any:
        torch.manual_seed(0)
        with watched(moves):
            model = make()
            optimizer: Any = torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=0.1)
            private, optimizer, loader = PrivacyEngine().make_private(
                module=model,
                optimizer=optimizer,
                data_loader=DataLoader(data, batch_size=batch_size),
                noise_multiplier=1.0,
                max_grad_norm=CLIP,
            )
            if physical is None:
                epoch(private, optimizer, loader, loss)
            else:
                with BatchMemoryManager(
                    data_loader=loader, max_physical_batch_size=physical, optimizer=optimizer
                ) as parts:
                    epoch(private, optimizer, parts, loss)
        return without_gradients(private.to_standard_module())

    return train


def epoch(model: nn.Module, optimizer: Any, loader: Any, loss: Callable[..., Tensor]) -> None:
    """Train for one epoch, as the documentation of Opacus shows."""
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss(model(inputs), targets).backward()
        optimizer.step()


def without_gradients(model: nn.Module) -> nn.Module:
    """Return the model without what the last step left at its parameters."""
    for parameter in model.parameters():
        parameter.grad = None
        for name in list(vars(parameter)):
            delattr(parameter, name)
    return model


# ------------------------------------------------------------------------------------------------------------- models


class ActNorm(nn.Module):
    """A layer whose shift is initialised by the first batch."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.is_ready = False

    def forward(self, x: Tensor) -> Tensor:
        """Initialise if needed, and apply the layer."""
        if not self.is_ready:
            with torch.no_grad():
                self.layer.bias.copy_(-x.mean(0))
            self.is_ready = True
        return self.layer(x)


class Centred(nn.Module):
    """Subtracts the mean of the batch."""

    def forward(self, x: Tensor) -> Tensor:
        """Subtract."""
        return x - x.mean(0)


class RunningMean(nn.Module):
    """Subtracts a running mean, which is kept in an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.mean: Any = 0.0

    def forward(self, x: Tensor) -> Tensor:
        """Update the mean, and subtract it."""
        if len(x):
            self.mean = 0.99 * self.mean + 0.01 * x.detach().mean(0)
        return x - self.mean


class Words(nn.Module):
    """A frozen embedding whose rows are renormalised when they are used, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(6, 3, max_norm=1.0)
        self.words.weight.requires_grad_(False)
        self.last = nn.Linear(3, 1)

    def forward(self, words: Tensor) -> Tensor:
        """Return the scores of words."""
        return self.last(self.words(words))


class Aligned(nn.Module):
    """One layer in half precision, whose inputs arrive in single precision."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(1, 1, bias=False).to(torch.bfloat16)

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores."""
        return self.last(x.to(torch.bfloat16))


# ---------------------------------------------------------------------------------------------------------- scenarios


def scenarios() -> list[Scenario]:
    """Return all scenarios."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(12, 3, generator=generator)
    y = torch.randn(12, 1, generator=generator)
    huge = torch.tensor([[50.0, -50.0, 50.0]])

    def table(*columns: Tensor) -> TensorDataset:
        return TensorDataset(*columns)

    def replaced(X: Tensor, y: Tensor, row: Tensor, target: Tensor) -> dict[str, Any]:
        return {REPLACED: table(torch.cat([X[:-1], row]), torch.cat([y[:-1], target]))}

    def mlp() -> nn.Module:
        return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

    words = torch.arange(12) % 5
    rows = torch.ones(303, 1)  # sums of 301 and 303 are rounded to 300 and 304
    plain, changed = table(X, y), replaced(X, y, huge, torch.tensor([[9.0]]))
    return [
        Scenario("MLP", trained(mlp), plain, changed),
        Scenario("MLP, parts of a batch (BatchMemoryManager)", trained(mlp, physical=2, batch_size=6), plain, changed),
        Scenario(
            "MLP, one record less",
            trained(mlp, moves=1.0),
            plain,
            {REMOVED: table(X[:-1], y[:-1])},
            "The divisor of the sum (`expected_batch_size`) and the sampling rate are computed from the number of "
            "records: Opacus treats it as public, which add-or-remove adjacency does not.",
        ),
        Scenario(
            "MLP, empty batches", trained(mlp, batch_size=1), table(X[:4], y[:4]), replaced(X[:4], y[:4], huge, y[:1])
        ),
        Scenario(
            "MLP, one missing label",
            trained(mlp),
            plain,
            replaced(X, y, X[-1:], torch.tensor([[torch.nan]])),
            "A gradient that is not finite is not left out, so one missing label makes the sum and the model NaN.",
        ),
        Scenario(
            "BatchNorm",
            trained(lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))),
            plain,
            changed,
        ),
        Scenario(
            "examples minus the mean of their batch",
            trained(lambda: nn.Sequential(Centred(), mlp())),
            plain,
            changed,
            "Nothing checks whether examples of a batch affect each other's gradients. The documentation asks for "
            "models that do not mix them.",
        ),
        Scenario(
            "ActNorm, initialised by the first batch",
            trained(lambda: nn.Sequential(ActNorm(3), mlp())),
            plain,
            changed,
            "A forward pass may write into parameters, so the mean of the first batch stays in the model.",
        ),
        Scenario(
            "running mean in an attribute",
            trained(lambda: nn.Sequential(RunningMean(), mlp())),
            plain,
            changed,
            "The validator knows layers with running statistics by their type. This mean stays in the model and moves "
            "later sums.",
        ),
        Scenario(
            "frozen Embedding(max_norm=1)",
            trained(Words),
            table(words, y),
            {REPLACED: table(torch.cat([words[:-1], torch.tensor([5])]), y)},
            "Rows of the table are renormalised in place when they are used, so the model shows which words occur.",
        ),
        Scenario(
            "bfloat16, a large batch",
            trained(Aligned, loss=lambda outputs, targets: (outputs.float() * targets).mean(), batch_size=303),
            table(rows, rows),
            replaced(rows, rows, rows[:1], -rows[:1]),
            "Clipped gradients are added in the precision of the parameters, and the noise is calibrated without room "
            "for rounding errors.",
        ),
    ]
