"""What a solver returns."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from privet.privacy.guarantees.guarantee import Guarantee

Progress = Callable[[int, int], None]
"""Called after each step with the number of steps done and the number planned."""


@dataclass(frozen=True)
class Release:
    """The private weights, their guarantee, and facts about the run.

    ``trace`` contains public facts only, such as steps, step size and noise. Nothing in it was computed from the data
    without noise.
    """

    weights: NDArray[Any]
    guarantee: Guarantee
    trace: Mapping[str, Any] = field(default_factory=dict)
