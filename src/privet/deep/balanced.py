"""Balanced classes: noisy numbers of examples per class, which give the weights, and a training with the rest."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privet import global_generators
from privet.checks import count
from privet.deep.datasets import Examples
from privet.deep.gradient_estimators import Fresh
from privet.deep.objective import Objective
from privet.deep.processes import Processes
from privet.deep.rows import as_batch
from privet.plans import GradientPlan, PlanError
from privet.plans.class_counts import ClassCounts
from privet.privacy import Budget
from privet.privacy.analyses.calibration import calibrate
from privet.privacy.budget import BudgetOrNoise
from privet.privacy.events import Composition, Event

if TYPE_CHECKING:
    from privet.deep.training import PrivateTraining

_CHUNK = 256  # examples in memory at once, while classes are counted


def balanced_estimator(budget: BudgetOrNoise, n_classes: int | None, settings: Mapping[str, Any]) -> Fresh:
    """Return DP-SGD with the least noise that stays within the budget together with noisy counts of the classes.

    Formal guarantees
    -----------------
    Adaptive composition. The plan is made before the counts are drawn, so its event does not depend on them.
    """
    if n_classes is None:
        raise ValueError(
            "class_weight='balanced' needs n_classes, the number of classes, because the labels that occur are private."
        )
    if not isinstance(budget, Budget):
        raise ValueError(
            f"class_weight='balanced' shares a budget between noisy counts and the training, which {budget} does not "
            "determine. Give budget=(epsilon, delta), or a dictionary of public weights."
        )
    draft = GradientPlan(**settings, noise_multiplier=1.0)
    counts = ClassCounts.for_budget(budget, count("n_classes", n_classes, at_least=2), draft.adjacency)

    def event_at(multiplier: float) -> Event:
        return Composition((counts.event, draft.event_at(multiplier)))

    multiplier = calibrate(event_at, draft.adjacency, budget)
    return Fresh(replace(draft, noise_multiplier=multiplier, delta=budget.delta), counts)


def check_processes(counts: ClassCounts | None, processes: Processes) -> None:
    """Raise ValueError if several processes would count the classes."""
    if counts is not None and processes.size > 1:
        raise ValueError("class_weight='balanced' works in one process only. Give a dictionary of public weights.")


def release_weights(private: "PrivateTraining") -> None:
    """Draw the noisy counts of the classes of all examples, and use the weights that follow."""
    if os.getpid() != private._process:
        raise PlanError("The training was created in another process. Create it in the process that uses it.")
    counts = private._estimator.counts
    assert counts is not None
    codes = _codes(private._examples, private._loss)
    set_weights(private, dict(enumerate(counts.weights(codes, private._source).tolist())))


def set_weights(private: "PrivateTraining", weights: Mapping[int, float]) -> None:
    """Use weights of classes that were released."""
    assert private._loss.class_weight is not None
    private._loss.class_weight.update(weights)
    private._has_weights = True


def _codes(examples: Examples, objective: Objective) -> NDArray[np.int64]:
    """Return the class number of each example. Every example is read once.

    Random transforms of the dataset draw from global generators. These are restored, because how much was drawn would
    depend on the number of examples.
    """
    found, restore_generators = [np.zeros(0, np.int64)], global_generators.kept()
    for start in range(0, len(examples), _CHUNK):
        batch = as_batch(examples.collated(np.arange(start, min(start + _CHUNK, len(examples)))))
        classes = objective.classes(batch) if isinstance(batch, Mapping) else batch[-1]
        if not isinstance(classes, Tensor) or classes.dtype.is_floating_point or classes.ndim != 1:
            raise ValueError("class_weight='balanced' needs one class number per example as target.")
        found.append(classes.to("cpu", torch.int64).numpy())
    restore_generators()
    return np.concatenate(found)
