"""The output rule of Algorithm 1: a weighted average of all global models, which is post-processing.

Every global model is released and paid for, so that any average of them, chosen before or after, is free.
"""

from collections.abc import Callable

from privet.checks import count, positive, probability
from privet.networks import Vector

AverageWeight = Callable[[int], float]
"""The weight a_t of the model after t rounds, t = 0, 1, ..., rounds; at least 0."""


def tail(rounds: int, share: float = 0.5) -> AverageWeight:
    """Return the weights of a plain average of the last models: the given share of ``rounds``, one at least."""
    first = count("rounds", rounds) - max(1, round(probability("share", share) * rounds)) + 1
    return lambda t: float(t >= first)


def geometric(ratio: float) -> AverageWeight:
    """Return weights that grow by ``ratio`` a round: those of the paper's strongly convex case (Theorem 4)."""
    growth = positive("ratio", ratio)
    return lambda t: growth**t


class Average:
    """A running weighted mean of the global models."""

    def __init__(self, weight: AverageWeight) -> None:
        self._weight = weight
        self.total = 0.0
        self.mean: Vector | None = None

    def add(self, vector: Vector, t: int) -> None:
        """Take in the model after ``t`` rounds."""
        weight = float(self._weight(t))
        if not 0 <= weight < float("inf"):
            raise ValueError(f"the weight of the model after {t} rounds must be finite and at least 0, got {weight}")
        self.total += weight
        if self.mean is None:
            self.mean = vector.copy()
        if weight > 0:
            self.mean += (weight / self.total) * (vector - self.mean)

    def output(self) -> Vector:
        """Return the mean; the first model while all weights were zero."""
        assert self.mean is not None
        return self.mean.copy()
