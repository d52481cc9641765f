"""The recording of a run, and the second run that follows it draw by draw.

The first run draws as always, and every draw is kept. The second run gets the same samples, for the units that are in
both datasets, and the same released values. What both have seen is then the same before every sum, which is what the
composition of private releases conditions on. A sum may move only as far as its plan claims.
"""

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from privet import global_generators
from privet.privacy.noise.watch import Claim, Request, Source, Tilted
from privet.replay.moves import VOLUME_SLACK, Move, distance_of, log_volume, point_range, range_of, shape
from privet.replay.units import Units

T = TypeVar("T")

_MOST_COLUMNS = 256  # the time for second derivatives grows with the square of the number of columns


class Diverged(BaseException):
    """Ends the second run when it no longer follows the first one.

    It is not an Exception, so that no training catches it by accident.
    """


@dataclass(frozen=True)
class Draw:
    """One draw of the first run.

    Attributes
    ----------
    kind : str
        What was drawn.
    values : Any
        For a release, the values before their noise. For a sample, the number of units.
    scale : float or None
        Scale of the noise. None for a sample.
    claim : Claim or None
        What the plan said about the values.
    drawn : Any
        What the run got: a sample, released values, or a random linear term.
    objective : Tilted or None
        The objective of a random linear term.
    """

    kind: str
    values: Any
    scale: float | None
    claim: Claim | None
    drawn: Any
    objective: Tilted | None = None

    @property
    def is_release(self) -> bool:
        """Whether values were released, rather than units sampled."""
        return self.scale is not None


class Streams:
    """Names the sources of a run by their purpose, and by their order among those with the same purpose.

    Several sources may be used at the same time, in different threads. Each is replayed by itself.
    """

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._kept: list[Source] = []  # so that no two sources have the same id
        self._counts: dict[str, int] = {}

    def name(self, source: Source) -> str:
        """Return the name of a source, which is the same in both runs."""
        if id(source) not in self._names:
            number = self._counts.get(source.purpose, 0)
            self._counts[source.purpose] = number + 1
            self._names[id(source)] = f"{source.purpose} {number}"
            self._kept.append(source)
        return self._names[id(source)]


class Recorder:
    """Keeps every draw of the first run.

    The unit that only the first dataset has is put into every other batch, so that its influence is seen. This is one
    of the samples that could have been drawn, and the checks hold for each of them. Models and datasets may draw from
    global generators, and how many numbers they draw depends on the size of a batch. After each release, these
    generators are therefore seeded alike in both runs.
    """

    def __init__(self, units: Units) -> None:
        self.units = units
        self.draws: dict[str, list[Draw]] = defaultdict(list)
        self.key: bytes | None = None
        self._streams = Streams()
        self._batches: dict[str, int] = defaultdict(int)
        self._releases = 0

    @property
    def all_draws(self) -> list[Draw]:
        """The draws of all sources."""
        return [draw for draws in self.draws.values() for draw in draws]

    def sample(self, source: Source, kind: str, n: int, draw: Callable[[], T]) -> T:
        """Draw a sample, with the differing unit in every other batch, and keep it."""
        drawn: Any = draw()
        mine, stream = self.units.mine, self._streams.name(source)
        if kind in ("batch", "Poisson batch") and n == self.units.place.size and mine is not None:
            self._batches[stream] += 1
            if self._batches[stream] % 2 and mine not in drawn:
                kept = drawn if kind == "Poisson batch" else drawn[1:]
                drawn = np.sort(np.append(kept, mine))
        self.draws[stream].append(Draw(kind, n, None, None, _copied(drawn)))
        return drawn  # type: ignore[no-any-return]

    def release(self, request: Request, draw: Callable[[], T]) -> T:
        """Keep the values, and what was released."""
        values, claim = _copied(request.values), _kept_claim(request.claim)
        drawn = draw()
        kept = Draw(request.kind, values, request.scale, claim, _copied(drawn))
        self.draws[self._streams.name(request.source)].append(kept)
        self._releases += 1
        global_generators.seed(self._releases)
        return drawn

    def tilt(self, request: Request, draw: Callable[[], T]) -> T:
        """Keep the random linear term."""
        drawn = draw()
        self._releases += 1
        kept = Draw(_tilt(request), None, request.scale, request.claim, _copied(drawn), request.objective)
        self.draws[self._streams.name(request.source)].append(kept)
        return drawn

    def secret(self, draw: Callable[[], bytes]) -> bytes:
        """Return one key for all random orders on which no guarantee rests."""
        self.key = draw() if self.key is None else self.key
        return self.key

    def unit(self, place: int) -> int:
        """Return the place in the first dataset."""
        return place


class Player:
    """Gives the second run the samples and the released values of the first one, and measures what moved."""

    def __init__(self, recorded: Recorder) -> None:
        self.units = recorded.units
        self.moves: list[Move] = []
        self.problem: str | None = None
        self._draws, self._key = recorded.draws, recorded.key
        self._streams = Streams()
        self._next: dict[str, int] = defaultdict(int)
        self._releases = 0
        self._batches: dict[str, int] = defaultdict(int)

    @property
    def left(self) -> int:
        """How many draws of the first run the second one did not ask for."""
        return sum(map(len, self._draws.values())) - sum(self._next.values())

    def sample(self, source: Source, kind: str, n: int, draw: Callable[[], T]) -> T:
        """Return the sample of the first run, with the same units."""
        stream, first = self._following(source, kind)
        drawn: Any = first.drawn
        matches = first.values == self.units.place.size and n == self.units.n
        if not matches and kind == "Poisson batch" and abs(first.values - n) == 1:
            drawn = self._share(drawn, n, n > first.values, stream)
        elif not matches and first.values != n:
            raise self._diverged(
                f"a {kind} is drawn from {n} units in the second run, and from {first.values} in the first one"
            )
        if matches and kind in ("batch", "Poisson batch"):
            drawn = self._batch(drawn, stream)
        elif matches and kind == "order":
            drawn = self._order(drawn)
        return drawn if not isinstance(drawn, np.ndarray) else drawn.copy()  # type: ignore[return-value]

    def _batch(self, drawn: NDArray[np.int64], stream: str) -> NDArray[np.int64]:
        places = self.units.counterpart[drawn]
        places = places[places >= 0]
        if self.units.mine is None and self.units.other is not None:  # added: in every other batch
            self._batches[stream] += 1
            if self._batches[stream] % 2:
                places = np.append(places, self.units.other)
        return np.sort(places)

    def _share(self, drawn: NDArray[np.int64], n: int, is_longer: bool, stream: str) -> NDArray[np.int64]:
        """Return a batch of a process whose share of the units is one longer or shorter, at its end."""
        self._batches[stream] += 1
        return np.append(drawn, n - 1) if is_longer and self._batches[stream] % 2 else drawn[drawn < n]

    def _order(self, drawn: NDArray[np.int64]) -> NDArray[np.int64]:
        places = self.units.counterpart[drawn]
        places = places[places >= 0]
        if self.units.mine is None and self.units.other is not None:
            places = np.append(self.units.other, places)
        return places

    def release(self, request: Request, draw: Callable[[], T]) -> T:
        """Return what the first run released, and measure how far the values moved."""
        kind, values, scale, claim = request.kind, request.values, request.scale, request.claim
        _, first = self._following(request.source, kind)
        self._releases += 1
        if first.scale != scale:
            raise self._diverged(
                f"the noise of release {self._releases} has scale {scale!r}, and {first.scale!r} in the first run"
            )
        if kind == "choice of a point":
            distance = point_range(first.values, values)
        elif shape(values) != shape(first.values):
            raise self._diverged(
                f"release {self._releases} has shape {shape(values)}, and {shape(first.values)} in the first run"
            )
        elif kind == "choice":
            distance = range_of(np.asarray(values, np.float64) - first.values)
        else:
            distance = distance_of(first.values, values)
        if distance > 0:
            number = np.size(first.drawn) if kind.startswith("choice") else 1
            noise = scale if claim is None or claim.scale is None else claim.scale
            self.moves.append(Move(self._releases, kind, distance, self._allowed(first.claim, claim), noise, number))
        global_generators.seed(self._releases)
        return _copied(first.drawn)  # type: ignore[no-any-return]

    def tilt(self, request: Request, draw: Callable[[], T]) -> T:
        """Return the linear term with which the second dataset has the same minimiser as the first one."""
        claim, objective = request.claim, request.objective
        stream, first = self._following(request.source, _tilt(request))
        following = self._draws[stream][self._next[stream] :]
        if first.objective is None or objective is None or not following:
            raise self._diverged("a random linear term was drawn without its objective, so it cannot be replayed")
        term, error = first.drawn
        minimiser = following[0].values  # the release that follows the linear term
        change = objective.gradient(minimiser) - first.objective.gradient(minimiser)
        allowed = math.inf if claim is None else claim.bound
        self._releases += 1
        distance = float(np.linalg.norm(change))
        self.moves.append(Move(self._releases, request.kind, distance, allowed, request.scale))
        if minimiser.size <= _MOST_COLUMNS and claim is not None and claim.volume is not None:
            volume = abs(log_volume(objective, minimiser) - log_volume(first.objective, minimiser))
            most = claim.volume * (1 + VOLUME_SLACK)
            self.moves.append(Move(self._releases, "change of volume", volume, most, 1.0))
        return term - change, error  # type: ignore[return-value]

    def secret(self, draw: Callable[[], bytes]) -> bytes:
        """Return the key of the first run."""
        return draw() if self._key is None else self._key

    def unit(self, place: int) -> int:
        """Return the place in the first dataset of the unit at a place in the second one. A new unit has its own."""
        if not self.units.are_known or not 0 <= place < self.units.n:
            return place
        found = np.flatnonzero(self.units.counterpart == place)
        return int(found[0]) if found.size else self.units.place.size

    def _allowed(self, first: Claim | None, second: Claim | None) -> float:
        """Return how far a release may move: not at all if the differing unit is in neither batch."""
        if first is None or second is None:
            return math.inf
        if first.bound != second.bound:
            self.problem = self.problem or (
                f"release {self._releases} has the bound {second.bound!r}, and {first.bound!r} in the first run"
            )
        places = (self.units.mine, self.units.place.size), (self.units.other, self.units.n)
        takes_part = [_may_contain(claim, *place) for claim, place in zip((first, second), places, strict=True)]
        return min(first.bound, second.bound) if any(takes_part) or not self.units.are_known else 0.0

    def _following(self, source: Source, kind: str) -> tuple[str, Draw]:
        """Return the name of a source, and its next draw in the first run, which must be of the same kind."""
        stream = self._streams.name(source)
        draws, place = self._draws.get(stream, []), self._next[stream]
        if place == len(draws):
            raise self._diverged(f"the second run draws more than the first one, which ended after {place} draws")
        self._next[stream] += 1
        if draws[place].kind != kind:
            raise self._diverged(
                f"draw {place + 1} is a {kind} in the second run, and a {draws[place].kind} in the first one"
            )
        return stream, draws[place]

    def _diverged(self, problem: str) -> Diverged:
        """Note a problem, and return the exception that ends the run."""
        self.problem = self.problem or problem
        return Diverged(problem)


def _tilt(request: Request) -> str:
    """Return the kind under which a random linear term is kept."""
    return f"linear term, {request.kind}"


def _may_contain(claim: Claim, place: int | None, n: int) -> bool:
    """Return whether a batch contains the unit at a place, or may contain it because its units are not known."""
    if place is None:
        return False
    if claim.batch is None or claim.n != n:
        return True
    if isinstance(claim.batch, slice):
        return place in range(n)[claim.batch]
    return bool((claim.batch == place).any())


def _kept_claim(claim: Claim | None) -> Claim | None:
    """Return a claim whose batch does not change if the training writes into its array."""
    return None if claim is None else replace(claim, batch=_copied(claim.batch))


def _copied(values: Any) -> Any:
    if isinstance(values, np.ndarray):
        return values.copy()
    return tuple(map(_copied, values)) if isinstance(values, tuple) else values
