"""What a training keeps an eye on: what it has spent, and whether somebody else changed its parameters."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from privet.deep.estimates import Estimate


class Spent:
    """Epsilon after so many steps, rounded up to the next of a few numbers of steps: accounting takes its time."""

    def __init__(self, estimate: Estimate, delta: float) -> None:
        self._estimate, self._delta = estimate, delta
        self._found: dict[int, float] = {}

    def bound(self, spent: int) -> float:
        """Return a bound on epsilon."""
        planned = self._estimate.plan.steps
        block = math.ceil(planned / 20)
        steps = min(planned, math.ceil(spent / block) * block)
        if steps not in self._found:
            self._found[steps] = self._estimate.guarantee(steps, self._delta).epsilon
        return self._found[steps]


@dataclass(frozen=True)
class Fingerprint:
    """Whether parameters are what they were: counts of changes, places in memory, and a few of their numbers."""

    marks: tuple[tuple[int, int, str], ...]

    @classmethod
    def of(cls, parameters: Sequence[nn.Parameter]) -> "Fingerprint":
        """Look at the parameters."""
        with torch.no_grad():
            return cls(tuple((each._version, each.data_ptr(), _few(each)) for each in parameters))


def _few(tensor: Tensor, few: int = 16) -> str:
    """Return some numbers as a text: not a number is equal to itself there."""
    flat = tensor.detach().reshape(-1)
    return str(flat[:: max(1, flat.numel() // few)].tolist())
