"""What a training keeps an eye on: what it has spent, and whether somebody else changed its parameters."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
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
    """Whether parameters are what they were: sums of all their bits.

    Counts of changes and places in memory would not do: ``.data`` changes numbers behind both, and weights that are
    exchanged for an evaluation and put back were not changed.
    """

    marks: tuple[tuple[int, int, bytes], ...]

    @classmethod
    def of(cls, parameters: Sequence[nn.Parameter]) -> "Fingerprint":
        """Look at the parameters."""
        with torch.no_grad():
            return cls(tuple(_mark(each) for each in parameters))


def _mark(tensor: Tensor) -> tuple[int, int, bytes]:
    """Return sums of a tensor's bits in words of 64: of the first third and of the rest, which shows another order."""
    raw = tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy()
    whole = len(raw) // 8 * 8
    words = raw[:whole].view(np.uint64)
    third = len(words) // 3
    return int(words[:third].sum()), int(words[third:].sum()), raw[whole:].tobytes()
