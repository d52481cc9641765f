"""Step sizes: constant, decaying, or found from the noisy gradients themselves.

Formal guarantees
-----------------
A rule sees noisy gradients and public numbers only, so whatever it does is post-processing and costs no privacy.
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
"""Returns the size of the next step, given the noisy gradient along which it goes."""


class StepSize(ABC):
    """A rule for the sizes of steps."""

    @abstractmethod
    def start(self, noise_std: float) -> Chooser:
        """Begin a descent whose gradients carry noise of that standard deviation in each coordinate."""


@dataclass(frozen=True)
class ConstantStep(StepSize):
    """The same size throughout."""

    size: float

    def __post_init__(self) -> None:
        positive("step_size", self.size)

    def start(self, noise_std: float) -> Chooser:
        """Return the constant."""
        return lambda _: self.size


@dataclass(frozen=True)
class DecayingStep(StepSize):
    """``first / t`` in step t, as in the experiments of DP-LSSGD."""

    first: float

    def __post_init__(self) -> None:
        positive("first", self.first)

    def start(self, noise_std: float) -> Chooser:
        """Count the steps."""
        taken = 0

        def choose(_: NDArray[Any]) -> float:
            nonlocal taken
            taken += 1
            return self.first / taken

        return choose


@dataclass(frozen=True)
class AlignedStep(StepSize):
    """Longer steps while successive gradients agree, shorter ones as soon as they point against each other.

    The safe step of a smooth objective, 2 over its worst-case smoothness, is far too short for most data: real rows
    spread over many directions. Where steps are too short, one gradient is nearly the last one; where they are too
    long, the iterate jumps over the valley and the gradient turns round. Both show in the inner product of two
    successive noisy gradients, whose noise is known. And no step moves the weights more than twice as far as the last
    one, or as noise, could have: steps that grew on a plateau must not leap when the gradient turns long.

    Parameters
    ----------
    first, longest : float
        Size of the first step, and a limit for all: noise, too, is multiplied by the step.
    growth, cut : float
        Factors applied when gradients agree, and when they oppose each other.
    agreement : float
        Share of the last gradient's squared length below which an inner product no longer counts as agreement.
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
        """Compare each gradient with the last."""
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
                elif product > self.agreement * signal - doubt:  # where noise hides both, ``longest`` is the limit
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
    """Return a rule; a number is a constant."""
    return step_size if isinstance(step_size, StepSize) else ConstantStep(step_size)
