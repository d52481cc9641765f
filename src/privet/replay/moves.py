"""How far the values of a release moved between two neighbouring datasets."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.privacy.noise.watch import Tilted

SLACK = 1e-11  # relative error of computed distances
VOLUME_SLACK = 1e-5  # relative error of computed changes of volume
_STEP = 1e-4  # for second derivatives


@dataclass(frozen=True)
class Move:
    """How far one release moved, and how far it was allowed to.

    Attributes
    ----------
    place : int
        Number of the release in the run, beginning with 1.
    kind : str
        The law of its noise.
    distance : float
        How far the values moved: the l2 distance of sums, or the range of the changes of scores.
    allowed : float
        The bound of the plan, 0 if the differing unit does not take part, and infinite if the plan claims nothing.
    scale : float
        Scale of the noise.
    choices : int
        Number of indices that were chosen, for choices.
    """

    place: int
    kind: str
    distance: float
    allowed: float
    scale: float
    choices: int = 1

    @property
    def is_too_far(self) -> bool:
        """Whether the values moved further than claimed."""
        return not self.distance <= self.allowed * (1 + SLACK)

    def __str__(self) -> str:
        what = f"release {self.place} ({self.kind})"
        if self.allowed == 0:
            return (
                f"{what} moved by {self.distance:.4g}, although the differing unit is not in its batch and it must not "
                "move at all"
            )
        return f"{what} moved by {self.distance / self.allowed:.6g} times the bound of {self.allowed:.6g}"


def shape(values: Any) -> tuple[int, ...]:
    """Return the shape of an array."""
    return tuple(np.shape(values))


def distance_of(first: NDArray[Any], second: NDArray[Any]) -> float:
    """Return the l2 distance, 0 only if all bits agree, and infinity if a value is not finite."""
    if first.dtype == second.dtype and np.array_equal(_bits(first), _bits(second)):
        return 0.0
    change = np.asarray(second, np.float64) - np.asarray(first, np.float64)
    if not np.isfinite(change).all():
        return math.inf
    largest = float(np.abs(change).max())
    distance = largest * float(np.linalg.norm(change / largest)) if largest else 0.0
    return max(distance, math.ulp(0.0))


def _bits(values: NDArray[Any]) -> NDArray[Any]:
    flat = np.ascontiguousarray(values).reshape(-1)
    return flat.view(np.uint64 if flat.dtype.itemsize == 8 else np.uint8)


def range_of(change: NDArray[Any]) -> float:
    """Return the difference of the largest and the smallest change of scores."""
    return float(change.max() - change.min()) if np.isfinite(change).all() else math.inf


def point_range(first: Any, second: Any) -> float:
    """Return the range of the changes of scores that are constant between starts."""
    starts = np.union1d(first[0], second[0])
    old, new = (each[1][np.searchsorted(each[0], starts, side="right") - 1] for each in (first, second))
    return range_of(new - old)


def log_volume(objective: Tilted, weights: NDArray[Any]) -> float:
    """Return the logarithm of the Jacobian determinant of the map from minimisers to linear terms.

    The matrix of second derivatives is computed from differences of gradients.
    """
    steps = _STEP * np.eye(weights.size)
    columns = [objective.gradient(weights + step) - objective.gradient(weights - step) for step in steps]
    return float(np.linalg.slogdet(np.array(columns) / (2 * _STEP))[1])
