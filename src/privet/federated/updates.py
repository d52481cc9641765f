"""How the server sums updates: it clips each one, with room for rounding errors."""

import math
from dataclasses import dataclass

import numpy as np

from privet.networks import Vector
from privet.privacy import Assumption, enforced

ROOM = 1 - 1e-5
"""Share of the clipping norm that one update may use. The rest is for the rounding of sums in double precision."""

_BLOCK, _LARGEST_SUM = 1 << 10, 1 << 22
"""How many updates are added up before their sum is added to the total, and for how many the error bound holds."""

_SMALLEST_FACTOR = float(np.finfo(np.float64).tiny)


def clipped(vector: Vector, clip_norm: float) -> Vector:
    """Return a finite vector, scaled down to the l2 norm ``clip_norm`` if it is longer.

    If its squares might overflow or underflow, the vector is first divided by its largest entry. Otherwise an infinite
    norm would scale the whole vector to zero. A factor below the normal range, which would be rounded up to twice its
    value, makes the vector zero.
    """
    with np.errstate(over="ignore"):
        square = float(np.square(vector).sum())  # The threads of np.dot would keep a processor busy after each call.
    if 1e-200 < square < 1e200 and clip_norm > 1e-100:  # then the factor is not subnormal
        length = math.sqrt(square)
        return vector if length <= clip_norm else vector * (clip_norm / length)
    peak = float(np.abs(vector).max(initial=0.0))
    if peak == 0:
        return vector
    direction = vector / peak
    length = float(np.linalg.norm(direction))
    if peak * length <= clip_norm:
        return vector
    factor = clip_norm / length
    return direction * factor if factor >= _SMALLEST_FACTOR else np.zeros_like(vector)


class UpdateSum:
    """The sum of clipped updates, in double precision.

    Formal guarantees
    -----------------
    The computed sums over two sets of clients, one of which has one client more, differ by at most ``clip_norm``: each
    update is clipped to slightly less, and the rest covers the rounding errors of both sums (docs/proofs.md, section
    24).
    """

    def __init__(self, size: int, clip_norm: float) -> None:
        self._total: Vector | None = None  # Memory for one vector is enough for small rounds.
        self._block, self._count = np.zeros(size), 0
        self._bound = clip_norm * ROOM

    def add(self, update: Vector) -> None:
        """Add a finite update after clipping it."""
        self._count += 1
        if self._count > _LARGEST_SUM:
            raise ValueError(
                f"More than {_LARGEST_SUM} clients took part in one round. The rounding errors of longer sums are not "
                "covered. Sample fewer clients per round."
            )
        self._block += clipped(update, self._bound)
        if self._count % _BLOCK == 0:
            self._total, self._block = self.total(), np.zeros_like(self._block)

    def total(self) -> Vector:
        """Return the sum of all updates so far."""
        return self._block if self._total is None else self._total + self._block


@dataclass(frozen=True)
class Summation:
    """How a server that is trusted with the updates adds them up."""

    clip_norm: float

    released = "the global model of every round, and thus all averages of them"

    @property
    def bound(self) -> Assumption:
        """The bound on an update, as the server enforces it."""
        return enforced(
            f"the server clips each client's update to l2 norm {self.clip_norm:.6g} over all layers; "
            "an update that is missing, non-finite or of the wrong shape counts as zero"
        )

    def start_sum(self, size: int) -> UpdateSum:
        """Return an empty sum of updates with ``size`` weights."""
        return UpdateSum(size, self.clip_norm)
