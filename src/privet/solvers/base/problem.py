"""Empirical risk minimisation: the objective, the regulariser and the data, with their constants."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.objectives import BoundedRows, GeneralisedLinear, Regulariser


@dataclass(frozen=True)
class Problem:
    """Minimise the mean loss over bounded rows plus a regulariser."""

    objective: GeneralisedLinear
    regulariser: Regulariser
    rows: BoundedRows
    targets: NDArray[Any]

    def __post_init__(self) -> None:
        if np.shape(self.targets) != (self.rows.n,):
            raise ValueError(f"{self.rows.n} rows need as many targets, got an array of shape {np.shape(self.targets)}")
        self.objective.check_targets(self.targets)

    @property
    def lipschitz(self) -> float:
        """Bound on the gradient of one record's loss."""
        return self.objective.lipschitz(self.rows.norm_bound)

    @property
    def smoothness(self) -> float:
        """Smoothness of the regularised objective."""
        return self.objective.smoothness(self.rows.largest_norm) + self.regulariser.smoothness

    @property
    def strong_convexity(self) -> float:
        """Strong convexity of the regularised objective, which comes from the regulariser; negative if not convex."""
        return self.regulariser.strong_convexity

    @property
    def is_convex(self) -> bool:
        """Whether the regularised objective is convex. All losses are convex, so this depends on the regulariser."""
        return self.regulariser.is_convex

    def start(self) -> NDArray[Any]:
        """Return zero weights in float64 for every type of data, so that small steps and noise are not rounded away."""
        return self.objective.start(self.rows.dimension)

    def value(self, weights: NDArray[Any]) -> float:
        """Return the regularised objective. Not private: for tests, and for reports to the owner of the data."""
        return self.objective.mean_loss(weights, self.rows, self.targets) + self.regulariser.value(weights)

    def gradient_norm(self, weights: NDArray[Any], clip_norm: float = math.inf) -> float:
        """Return the norm of the objective's gradient, with records clipped to ``clip_norm``. Not private."""
        total = self.objective.gradient_sum(weights, self.rows, self.targets, clip_norm)
        return float(np.linalg.norm(total / self.rows.n + self.regulariser.gradient(weights)))
