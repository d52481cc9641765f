"""The methods of the DP-LSSGD experiment: the authors' code, the same with a guarantee, and privet.

The task is multinomial logistic regression on MNIST. dp_lssgd_table2.py describes the comparison and runs it.
"""

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np
import support
from numpy.typing import NDArray

from privet import PrivateLogisticRegression
from privet.denoise import LaplacianSmoothing, laplacian_smoothing
from privet.objectives import L2, BoundedRows, Multinomial
from privet.plans import FixedSize, GradientPlan
from privet.privacy import Budget, NoiseSource
from privet.solvers import Problem, Release, Run, centred_gradient_descent, noisy_gradient_descent
from privet.solvers.base.interface import Chooser, DecayingStep, StepSize

Labelled = tuple[Any, NDArray[Any]]

EPSILONS = (0.30, 0.25, 0.20, 0.15, 0.10)
DELTA, ALPHA, BATCH, CLASSES = 1e-5, 1e-4, 128, 10
PUBLISHED_NOISE = dict(zip(EPSILONS, (0.1162, 0.1393, 0.1739, 0.2316, 0.3471), strict=True))  # for the mean of a batch
FIGURE_EPSILONS, CURVE_POINTS = (0.20, 0.10), 20


@dataclass(frozen=True)
class Preset:
    """The size of the experiment. ``factor`` multiplies every epsilon: ten for a tenth of the rows."""

    name: str
    epochs: int
    runs: int
    privet_runs: int
    step_runs: int = 1
    long_epochs: int = 0
    n: int = 50_000
    factor: float = 1.0
    epsilons: tuple[float, ...] = EPSILONS
    workers: int = 2

    def in_words(self) -> str:
        """Return a description of what is run, compared with the paper."""
        return (
            f"Preset {self.name}: {self.n:,} images, {self.epochs} epochs (the paper: 50,000 and 50); "
            f"{self.privet_runs} runs of privet's defaults, {self.runs} of the rest, {self.step_runs} for figure 4 "
            f"(the paper: 5); {self.factor:g} times the paper's epsilons."
        )

    @property
    def figure_epsilons(self) -> tuple[float, ...]:
        """Return the epsilons of the figures that are run."""
        return tuple(epsilon for epsilon in FIGURE_EPSILONS if epsilon in self.epsilons)


@dataclass(frozen=True)
class Space:
    """How pixels are converted to rows: shifted and scaled by public constants, bounded, with a constant column."""

    centre: float
    scale: float
    norm: float
    constant: float

    def rows(self, X: NDArray[Any]) -> BoundedRows:
        """Return the rows of some images."""
        X = X if (self.centre, self.scale) == (0, 1) else (X - self.centre) / self.scale
        return BoundedRows(X, self.norm, self.constant)


PIXELS = Space(0.0, 1.0, norm=6.0, constant=1.2)  # the estimator's constant column: feature_norm * intercept_scaling
STANDARDISED = Space(
    0.1307, 0.3081, norm=79.1, constant=1.0
)  # the norm of an image is at most 28 (1 - 0.1307) / 0.3081


@dataclass(frozen=True)
class Job:
    """One training. ``epsilon`` is the column of the paper's table, and ``run`` the seed."""

    kind: str
    epsilon: float
    sigma: int
    run: int
    preset: Preset
    a: float = 1.0
    with_curve: bool = False

    @property
    def budget(self) -> Budget:
        """Return the budget of the training."""
        return Budget(self.epsilon * self.preset.factor, DELTA)


@dataclass(frozen=True)
class Outcome:
    """Accuracy in per cent, losses at some iterations if requested, and processor time."""

    accuracy: float
    seconds: float
    curve: dict[str, list[float]]


@cache
def images(n: int) -> dict[str, Labelled]:
    """Return pixels and labels of the first ``n`` training images, and of the validation and test images."""
    split = support.mnist(60_000)
    return {
        "training": (split.X[:n], split.y[:n]),
        "validation": (split.X[50_000 : 50_000 + n], split.y[50_000 : 50_000 + n]),
        "test": (split.X_test, split.y_test),
    }


@cache
def bounded(n: int, space: Space) -> dict[str, Labelled]:
    """Return the same, converted to rows of the model."""
    return {name: (space.rows(X), y) for name, (X, y) in images(n).items()}


@dataclass(frozen=True)
class EpochStep(StepSize):
    """Step size ``first / t``, where t is updated at the start of each epoch and is 1 during the first one."""

    first: float
    epoch: int

    def start(self, noise_std: float) -> Chooser:
        """Reset the step count."""
        steps = itertools.count()
        return lambda _: self.first / (1 + next(steps) // self.epoch * self.epoch)


def published(job: Job) -> list[NDArray[Any]]:
    """Return the iterates of the authors' code, whose noise does not hide the influence of one record."""
    rows, labels = bounded(job.preset.n, STANDARDISED)["training"]
    objective, generator, noise = Multinomial(CLASSES), np.random.default_rng(job.run), PUBLISHED_NOISE[job.epsilon]
    size = EpochStep(job.a, math.ceil(rows.n / BATCH)).start(noise)
    weights, iterates = objective.start(rows.dimension), []

    def noisy(part: NDArray[Any]) -> NDArray[Any]:
        clipped = part / max(1.0, float(np.linalg.norm(part)))
        return laplacian_smoothing(clipped + noise * generator.standard_normal(part.shape), job.sigma)

    for _ in range(job.preset.epochs):
        order = generator.permutation(rows.n)
        for batch in np.split(order, range(BATCH, rows.n, BATCH)):
            mean = objective.gradient_sum(weights, rows.take(batch), labels[batch], math.inf) / len(batch)
            direction = np.vstack(
                [noisy(mean[:-1].T).T, noisy(mean[-1:])]
            )  # first the weights class by class, then the intercepts
            weights = weights - size(mean) * (direction + ALPHA * weights)
            if job.with_curve:
                iterates.append(weights)
    return [*iterates, weights]


@cache
def least_noise(budget: Budget, n: int, steps: int) -> GradientPlan:
    """Return the plan with Poisson sampling and records clipped to norm 1."""
    return GradientPlan.for_budget(budget, sampler=FixedSize(BATCH, n), steps=steps, clip_norm=1.0)


def records_clipped(job: Job) -> list[NDArray[Any]]:
    """Return all iterates of DP-LSSGD with records clipped to norm 1 and noise from the accountant."""
    rows, labels = bounded(job.preset.n, STANDARDISED)["training"]
    epoch = rows.n // BATCH
    plan = least_noise(job.budget, rows.n, steps=job.preset.epochs * epoch)
    release = noisy_gradient_descent(
        Problem(Multinomial(CLASSES), L2(ALPHA), rows, labels),
        Run(plan, NoiseSource(job.run)),
        step_size=DecayingStep(job.a) if job.kind == "text" else EpochStep(job.a, epoch),
        denoiser=LaplacianSmoothing(job.sigma) if job.sigma else None,
        keep_iterates=job.with_curve,
    )
    return [*release.trace.get("iterates", []), release.weights]


def estimator(job: Job) -> PrivateLogisticRegression:
    """Return privet's estimator with its defaults. The bound on the norm of rows is a public choice."""
    return PrivateLogisticRegression(
        job.budget.epsilon,
        DELTA,
        feature_norm=PIXELS.norm,
        smoothing=float(job.sigma),
        classes=range(CLASSES),
        random_state=job.run,
    )


def fitted(job: Job) -> list[NDArray[Any]]:
    """Return the weights of the fitted estimator, preceded by all iterates if requested."""
    iterates: list[NDArray[Any]] = []

    def watched(*args: Any, **options: Any) -> Release:
        release = centred_gradient_descent(*args, **options, keep_iterates=job.with_curve)
        iterates.extend(release.trace.get("iterates", ()))
        return release

    with patch("privet.linear.methods.gradient.centred_gradient_descent", watched):
        model = estimator(job).fit(*images(job.preset.n)["training"])
    return [*iterates, np.vstack([model.coef_.T, model.intercept_ / PIXELS.constant])]


def work(job: Job) -> Outcome:
    """Return the outcome of one training."""
    begin = time.process_time()
    if job.kind == "privet":
        space, iterates = PIXELS, fitted(job)
    else:
        space, iterates = STANDARDISED, published(job) if job.kind == "published" else records_clipped(job)
    parts = bounded(job.preset.n, space)
    rows, labels = parts["test"]
    accuracy = 100 * float(np.mean(rows.scores(iterates[-1]).argmax(axis=1) == labels))
    curve = losses(iterates[:-1], parts) if job.with_curve else {}
    return Outcome(accuracy, time.process_time() - begin, curve)


def losses(iterates: Sequence[NDArray[Any]], parts: dict[str, Labelled]) -> dict[str, list[float]]:
    """Return the mean log-loss of some iterates, more densely at the beginning, and their indices."""
    places = np.unique(np.geomspace(1, len(iterates), CURVE_POINTS).round().astype(int))
    stacked = np.hstack([iterates[place - 1] for place in places])
    curve = {"iteration": [float(place) for place in places]}
    for name in ("training", "validation"):
        rows, labels = parts[name]
        scores = np.split(rows.scores(stacked), len(places), axis=1)  # one matrix product for all iterates
        curve[name] = [float(np.mean(Multinomial(CLASSES).loss(each, labels))) for each in scores]
    return curve
