"""How an audit sees, and may replace, everything that the noise sources of this process draw.

Noise and samples are drawn in one place, so one observer there sees each random sample, each sum before its noise, and
each released value (:mod:`privet.replay`). Without an observer, nothing is kept.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")


@dataclass(frozen=True)
class Claim:
    """What the plan of a release says about the values that get noise.

    Parameters
    ----------
    bound : float
        How far the values can move between neighbouring datasets, including rounding errors: the l2 norm for sums, the
        difference of the largest and the smallest change for scores.
    batch : array of int, slice or None
        The units that take part. None if every unit does.
    n : int or None
        The number of units that the batch was taken from.
    scale : float or None
        The standard deviation of the Gaussian noise, or the scale of the exponential noise, that the guarantee accounts
        for. None if it is that of the draw.
    """

    bound: float
    batch: NDArray[np.int64] | slice | None = None
    n: int | None = None
    scale: float | None = None


class Tilted(Protocol):
    """An objective to which a random linear term is added."""

    def gradient(self, weights: NDArray[Any]) -> NDArray[Any]:
        """Return the gradient of the sum of losses and penalties, without the linear term."""
        ...

    def hessian(self, weights: NDArray[Any]) -> NDArray[Any]:
        """Return the matrix of second derivatives of the same sum."""
        ...


class Watcher(Protocol):
    """Sees all draws, in their order, and returns what the caller gets in their place."""

    def sample(self, kind: str, n: int, draw: Callable[[], T]) -> T:
        """Return a random sample of, or an order of, ``n`` units."""
        ...

    def release(self, kind: str, values: Any, scale: float, claim: Claim | None, draw: Callable[[], T]) -> T:
        """Return the values with their noise, or a choice by noisy scores. ``kind`` names the law of the noise."""
        ...

    def tilt(self, kind: str, scale: float, claim: Claim | None, objective: Tilted | None, draw: Callable[[], T]) -> T:
        """Return the random linear term of an objective, with a bound on its error."""
        ...


_watchers: list[Watcher] = []  # at most one
_lock = threading.Lock()


def sample(kind: str, n: int, draw: Callable[[], T]) -> T:
    """Draw a sample, before the eyes of the watcher if there is one."""
    return _watchers[0].sample(kind, n, draw) if _watchers else draw()


def release(kind: str, values: Any, scale: float, claim: Claim | None, draw: Callable[[], T]) -> T:
    """Draw a noisy release, before the eyes of the watcher if there is one."""
    return _watchers[0].release(kind, values, scale, claim, draw) if _watchers else draw()


def tilt(kind: str, scale: float, claim: Claim | None, objective: Tilted | None, draw: Callable[[], T]) -> T:
    """Draw a random linear term, before the eyes of the watcher if there is one."""
    return _watchers[0].tilt(kind, scale, claim, objective, draw) if _watchers else draw()


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    """Show all draws of this process to a watcher. One watcher at a time sees those of all threads."""
    with _lock:
        if _watchers:
            raise RuntimeError("Another replay is running in this process. Run one replay after the other.")
        _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.clear()
