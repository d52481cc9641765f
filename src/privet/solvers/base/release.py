"""What a solver hands back."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from privet.privacy.guarantees.guarantee import Guarantee

Progress = Callable[[int, int], None]
"""Called after each step with the steps done and the steps planned."""


@dataclass(frozen=True)
class Release:
    """The private weights, the guarantee under which they were released, and how they came about.

    ``trace`` holds public facts only (steps, step size, noise): nothing in it was computed from the data without noise.
    """

    weights: NDArray[Any]
    guarantee: Guarantee
    trace: Mapping[str, Any] = field(default_factory=dict)
