"""Weighted averages of all global models, the output rule of Algorithm 1 of DP-Fed-LS.

The guarantee covers the release of every global model. Any average of them is therefore post-processing and costs
nothing, whether it is chosen before or after the run.
"""

from collections.abc import Callable

from privet.checks import count, positive, probability
from privet.networks import Vector

AverageWeight = Callable[[int], float]
"""Returns the nonnegative weight a_t of the model after t rounds, for t = 0, 1, ..., rounds."""


def tail(rounds: int, share: float = 0.5) -> AverageWeight:
    """Return the weights of a plain average of the last models: a share of ``rounds``, but at least one model."""
    first = count("rounds", rounds) - max(1, round(probability("share", share) * rounds)) + 1
    return lambda t: float(t >= first)


def geometric(ratio: float) -> AverageWeight:
    """Return weights that grow by the factor ``ratio`` per round, as in the strongly convex case of Theorem 4."""
    growth = positive("ratio", ratio)
    return lambda t: growth**t


class Average:
    """A running weighted mean of the global models."""

    def __init__(self, weight: AverageWeight) -> None:
        self._weight = weight
        self.total = 0.0
        self.mean: Vector | None = None

    def add(self, vector: Vector, t: int) -> None:
        """Include the model after ``t`` rounds."""
        weight = float(self._weight(t))
        if not 0 <= weight < float("inf"):
            raise ValueError(f"The weight of the model after {t} rounds must be finite and at least 0, got {weight}.")
        self.total += weight
        if self.mean is None:
            self.mean = vector.copy()
        if weight > 0:
            self.mean += (weight / self.total) * (vector - self.mean)

    def output(self) -> Vector:
        """Return the mean, or the initial model while all weights are zero."""
        assert self.mean is not None
        return self.mean.copy()
