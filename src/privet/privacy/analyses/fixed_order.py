"""Privacy of units that are visited in a fixed order, if only the last iterate is released.

The taut string of :mod:`~privet.privacy.analyses.taut_string`, evaluated for all places of the order at once where all
steps are alike: docs/proofs.md, section 17.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from privet.privacy.analyses.taut_string import MARGIN, last_iterate_mu

Floats = NDArray[np.float64]

_MOST_VISITS = 256
_MOST_WORK = 10**8
_MOST_PLACES = 10**7


@dataclass(frozen=True)
class VisitSchedule:
    """Passes over the same places in the same order, with noise of half a replacement's shift in every step.

    Attributes
    ----------
    places : int
        Number of steps per pass that visit private units.
    length : int
        Number of steps per pass.
    passes : int
    contraction, step_size : float, or tuple with one number per step
    diameter : float or None
        As for :class:`~privet.privacy.events.LastIterate`.
    """

    places: int
    length: int
    passes: int
    contraction: float | tuple[float, ...]
    step_size: float | tuple[float, ...]
    diameter: float | None

    @property
    def steps(self) -> int:
        """Number of steps of all passes."""
        return self.passes * self.length

    @property
    def is_uniform(self) -> bool:
        """Whether all steps have the same contraction and the same size."""
        return isinstance(self.contraction, float) and isinstance(self.step_size, float)


def worst_place_mu(schedule: VisitSchedule) -> float:
    """Return the largest mu over all places.

    If all steps are alike, it is the mu of the last place. The payments that suffice for a place also suffice for the
    place before it, each made one step earlier: its visits come one step earlier, and one more step follows them.
    """
    return _last_place_mu(schedule) if schedule.is_uniform else float(place_mus(schedule).max())


@lru_cache(maxsize=1024)  # A run asks for the same mu several times. Uniform schedules take little memory.
def _last_place_mu(schedule: VisitSchedule) -> float:
    return float(_uniform_mus(schedule, np.array([schedule.places - 1.0]))[0])


def place_mus(schedule: VisitSchedule) -> Floats:
    """Return the mu of the units of each place in the order, as a read-only array."""
    if schedule.places > _MOST_PLACES:
        raise ValueError(f"{schedule.places:,} places in the order are too many to analyse: use larger batches")
    return _cached_mus(schedule)


@lru_cache(maxsize=64)
def _cached_mus(schedule: VisitSchedule) -> Floats:
    everywhere = np.arange(schedule.places, dtype=np.float64)
    mus = _uniform_mus(schedule, everywhere) if schedule.is_uniform else _scheduled_mus(schedule)
    mus.flags.writeable = False
    return mus


def _scheduled_mus(schedule: VisitSchedule) -> Floats:
    """Return the mus for steps of any sizes, one place at a time."""
    sizes = np.broadcast_to(np.asarray(schedule.step_size), schedule.steps)
    if schedule.places * schedule.steps > _MOST_WORK:
        raise ValueError(
            f"steps of changing sizes are analysed for few batches only, got {schedule.places:,} batches in "
            f"{schedule.steps:,} steps: use one size"
        )
    mus = np.empty(schedule.places)
    for place in range(schedule.places):
        shifts = np.zeros(schedule.steps)
        shifts[place :: schedule.length] = 1.0
        mus[place] = last_iterate_mu(shifts * sizes, sizes / 2, schedule.contraction, diameter=schedule.diameter)
    return mus


@dataclass(frozen=True)
class _Stretch:
    """Consecutive steps: what they add to the distance and to the variance, and the product of their contractions."""

    rise: Floats
    room: Floats
    factor: Floats

    def then(self, later: "_Stretch") -> "_Stretch":
        """Return both stretches as one, measured at the end of the later one."""
        return _Stretch(
            self.rise * later.factor + later.rise,
            self.room * later.factor**2 + later.room,
            self.factor * later.factor,
        )

    def is_steeper_than(self, later: "_Stretch") -> NDArray[np.bool_]:
        """Whether this stretch adds more distance per variance than the stretch that follows it."""
        return np.asarray(self.rise * later.room >= later.rise * self.room * later.factor)

    @property
    def cost(self) -> Floats:
        """Squared mu if the distance is paid for evenly."""
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            return np.where(self.rise > 0, (self.rise / np.sqrt(self.room)) ** 2, 0.0)


def _uniform_mus(schedule: VisitSchedule, places: Floats) -> Floats:
    """Return the mus for steps of one size, at several places at once.

    Between two visits to a unit there is one pass. All stretches of one pass are equal, and later ones count for more,
    so the taut string pools them into one. The last, shorter stretch may or may not be pooled with them.
    """
    c, length = float(schedule.contraction), schedule.length  # type: ignore[arg-type]
    ending = _visit(c, length - places)
    squares = _taut([_repeated(_visit(c, np.float64(length)), schedule.passes - 1), ending])
    if schedule.diameter is not None:
        apart = schedule.diameter / schedule.step_size  # type: ignore[operator]
        for visits in _restarts(schedule.passes):  # the number of visits after the restart
            if visits == 0:
                chain = [_idle(c, length - 1 - places, apart)]
            else:
                again = _repeated(_visit(c, np.float64(length)), visits - 1)
                chain = [_idle(c, np.float64(length - 1), apart), again, ending]
            squares = np.minimum(squares, _taut(chain))
    return np.asarray(np.sqrt(squares) * MARGIN)


def _restarts(passes: int) -> list[int]:
    """Return the numbers of visits to try. All are valid, so of very many only some are tried."""
    numbers = np.arange(passes) if passes <= _MOST_VISITS else np.geomspace(1, passes, _MOST_VISITS) - 1
    return sorted(set(numbers.astype(int).tolist()))


def _visit(c: float, length: "Floats | np.float64") -> _Stretch:
    """Return the step that visits a unit and the steps up to the next visit, ``length`` steps in total."""
    return _Stretch(np.asarray(c ** (length - 1)), np.asarray(_squares(c, length) / 4), np.asarray(c**length))


def _idle(c: float, length: "Floats | np.float64", apart: float) -> _Stretch:
    """Return steps without a visit that begin at the distance ``apart``."""
    return _Stretch(np.asarray(apart * c**length), np.asarray(_squares(c, length) / 4), np.asarray(c**length))


def _squares(c: float, length: "Floats | np.float64") -> "Floats | np.float64":
    """Return 1 + c^2 + ... + c^(2 length - 2)."""
    if c in (0, 1):
        return length if c == 1 else np.minimum(length, 1.0)
    return np.asarray(
        np.expm1(2 * length * math.log(c)) / math.expm1(2 * math.log(c))
    )  # expm1 avoids cancellation near c = 1


def _repeated(stretch: _Stretch, times: int) -> _Stretch:
    """Return ``times`` consecutive copies of a stretch, by doubling."""
    result = _Stretch(np.zeros(()), np.zeros(()), np.ones(()))
    while times:
        if times % 2:
            result = result.then(stretch)
        stretch, times = stretch.then(stretch), times // 2
    return result


def _taut(stretches: Sequence[_Stretch]) -> Floats:
    """Return the cost of the taut string over a few stretches, for all places at once: pool adjacent violators."""
    return _pooled((), stretches)


def _pooled(done: tuple[_Stretch, ...], rest: Sequence[_Stretch]) -> Floats:
    """Return the cost if the stretches in ``done`` are pooled already, each steeper than the one before."""
    if not rest:
        return np.asarray(sum(stretch.cost for stretch in done))
    return _pushed(done, rest[0], rest[1:])


def _pushed(done: tuple[_Stretch, ...], new: _Stretch, rest: Sequence[_Stretch]) -> Floats:
    """Return the cost with one more stretch, pooled with the last one where the last one is steeper."""
    apart = _pooled((*done, new), rest)
    if not done:
        return apart
    return np.where(done[-1].is_steeper_than(new), _pushed(done[:-1], done[-1].then(new), rest), apart)
