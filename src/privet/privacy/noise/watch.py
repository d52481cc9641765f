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
    volume : float or None
        For a random linear term: how far the logarithm of the Jacobian determinant can move, by which minimisers and
        linear terms correspond.
    """

    bound: float
    batch: NDArray[np.int64] | slice | None = None
    n: int | None = None
    scale: float | None = None
    volume: float | None = None


class Tilted(Protocol):
    """An objective to which a random linear term is added."""

    def gradient(self, weights: NDArray[Any]) -> NDArray[Any]:
        """Return the gradient of the sum of losses and penalties, without the linear term."""
        ...


class Source(Protocol):
    """A source of noise, as a watcher sees it."""

    purpose: str


@dataclass(frozen=True)
class Request:
    """A request for noise.

    Attributes
    ----------
    source : Source
        Where the noise is drawn.
    kind : str
        The law of the noise, or the kind of choice.
    values : Any
        What gets the noise: a sum, or scores. None for the random linear term of an objective.
    scale : float
        Scale of the noise.
    claim : Claim or None
        What the plan says about the values.
    objective : Tilted or None
        The objective that gets a random linear term.
    """

    source: Source
    kind: str
    values: Any
    scale: float
    claim: Claim | None
    objective: Tilted | None = None


class Watcher(Protocol):
    """Sees all draws of each source, in their order, and returns what the caller gets in their place."""

    def sample(self, source: Source, kind: str, n: int, draw: Callable[[], T]) -> T:
        """Return a random sample of, or an order of, ``n`` units."""
        ...

    def release(self, request: Request, draw: Callable[[], T]) -> T:
        """Return the values with their noise, or a choice by noisy scores."""
        ...

    def tilt(self, request: Request, draw: Callable[[], T]) -> T:
        """Return the random linear term of an objective, with a bound on its error."""
        ...

    def secret(self, draw: Callable[[], bytes]) -> bytes:
        """Return the key of random orders on which no guarantee rests."""
        ...

    def unit(self, place: int) -> int:
        """Return a number for the unit at a place of the dataset. It is the same in neighbouring datasets."""
        ...


_watchers: list[Watcher] = []  # at most one
_lock = threading.Lock()


def sample(source: Source, kind: str, n: int, draw: Callable[[], T]) -> T:
    """Draw a sample, and show it to the watcher if there is one."""
    return _watchers[0].sample(source, kind, n, draw) if _watchers else draw()


def release(request: Request, draw: Callable[[], T]) -> T:
    """Draw a noisy release, and show it to the watcher if there is one."""
    return _watchers[0].release(request, draw) if _watchers else draw()


def tilt(request: Request, draw: Callable[[], T]) -> T:
    """Draw a random linear term, and show it to the watcher if there is one."""
    return _watchers[0].tilt(request, draw) if _watchers else draw()


def secret(draw: Callable[[], bytes]) -> bytes:
    """Draw the key of random orders on which no guarantee rests. A watcher makes it the same in both runs."""
    return _watchers[0].secret(draw) if _watchers else draw()


def unit(place: int) -> int:
    """Return a number for the unit at a place of the dataset: the place itself, unless a watcher matches units."""
    return _watchers[0].unit(place) if _watchers else place


def is_watching() -> bool:
    """Return whether a watcher sees the draws of this process."""
    return bool(_watchers)


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
