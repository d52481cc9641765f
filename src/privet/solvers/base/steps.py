"""Step sizes: constant, decaying, or derived from the noisy gradients.

Formal guarantees
-----------------
A rule sees only noisy gradients and public numbers, so it is post-processing and costs no privacy.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.checks import positive

Chooser = Callable[[NDArray[Any]], float]
"""Returns the size of the next step, given the noisy gradient of that step."""


class StepSize(ABC):
    """A rule for step sizes."""

    @abstractmethod
    def start(self, noise_std: float) -> Chooser:
        """Return the chooser of one descent, whose gradients have noise of this standard deviation per coordinate."""


@dataclass(frozen=True)
class ConstantStep(StepSize):
    """The same size for all steps."""

    size: float

    def __post_init__(self) -> None:
        positive("step_size", self.size)

    def start(self, noise_std: float) -> Chooser:
        """Return a chooser that always returns ``size``."""
        return lambda _: self.size


@dataclass(frozen=True)
class DecayingStep(StepSize):
    """``first / t`` in step t, as in the experiments of DP-LSSGD."""

    first: float

    def __post_init__(self) -> None:
        positive("first", self.first)

    def start(self, noise_std: float) -> Chooser:
        """Return a chooser that counts the steps."""
        taken = 0

        def choose(_: NDArray[Any]) -> float:
            nonlocal taken
            taken += 1
            return self.first / taken

        return choose


@dataclass(frozen=True)
class AlignedStep(StepSize):
    """Longer steps while successive gradients agree, and shorter steps when they point in opposite directions.

    The safe step size of a smooth objective, 2 divided by its worst-case smoothness, is too small for most data,
    because rows are spread over many directions. If steps are too short, successive gradients are almost equal; if they
    are too long, the iterate jumps across the minimum and the gradient changes direction. Both are visible in the inner
    product of two successive noisy gradients, whose noise level is known. In addition, no step moves the weights more
    than twice as far as the previous one, or as noise, could have: steps that grew on a plateau must not become huge
    when the gradient grows.

    Parameters
    ----------
    first, longest : float
        Size of the first step, and a limit for all steps. The limit matters because the noise is multiplied by the
        step size, too.
    growth, cut : float
        Factors applied to the size when gradients agree, and when they point in opposite directions.
    agreement : float
        Gradients agree if their inner product exceeds this share of the previous gradient's squared norm.
    """

    first: float
    longest: float = math.inf
    growth: float = 1.5
    cut: float = 0.5
    agreement: float = 0.3

    def __post_init__(self) -> None:
        positive("first", self.first)
        if not (self.growth >= 1 and 0 < self.cut <= 1 and self.longest > 0):
            raise ValueError("growth must be at least 1, cut in (0, 1], longest above 0")

    def start(self, noise_std: float) -> Chooser:
        """Return a chooser that compares each gradient with the previous one."""
        size = previous = min(self.first, self.longest)
        last: NDArray[Any] | None = None

        def choose(gradient: NDArray[Any]) -> float:
            nonlocal size, last, previous
            if last is not None:
                product = float(np.vdot(gradient, last))
                squares = float(np.vdot(last, last))
                doubt = 2 * noise_std * math.sqrt(squares + float(np.vdot(gradient, gradient)))  # two deviations
                signal = max(squares - last.size * noise_std * noise_std, 0.0)
                if product < -doubt:
                    size *= self.cut
                elif product > self.agreement * signal - doubt:  # if noise dominates, only ``longest`` limits
                    size = min(size * self.growth, self.longest)
                noise = 2 * noise_std * math.sqrt(last.size)
                reach = 2 * previous * max(math.sqrt(squares), noise)
                length = math.sqrt(float(np.vdot(gradient, gradient)))
                if size * length > reach and length < math.inf:
                    size = max(reach / length, min(self.first, self.longest))
            last, previous = gradient, size
            return size

        return choose


def as_step_size(step_size: "float | StepSize") -> StepSize:
    """Return a rule for step sizes; a number stands for a constant."""
    return step_size if isinstance(step_size, StepSize) else ConstantStep(step_size)
