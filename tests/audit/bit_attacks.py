"""An attack on the exact bits of releases, and the float noise that it breaks, to be planted.

Float noise releases ``fl(value + fl(std * z))``. Two roundings leave a trace of the value in the bits of the release:

- A sum of two floats is a multiple of the smaller of their units in the last place. If a release is smaller in
  magnitude than the value and the noise, it is therefore a multiple of a unit that the value determines.
- The products ``fl(std * z)`` skip up to half of all floats, because a factor with a large significand stretches the
  spacing of z. Near zero, z itself skips floats too: it is an integer of 52 bits times one of 256 constants.

An attacker who knows the values under two neighbouring datasets checks which of them could have led to a release. If
only one could, the dataset is identified with certainty, however large the noise is. This is the attack of Mironov ("On
Significance of the Least Significant Bits for Differential Privacy"), for normal noise.

Values inside a run are heard with :func:`recording`. The values of a run on another dataset that would have released
the same numbers are heard with :func:`replaying`.
"""

import inspect
import math
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from privet.plans.aggregation import AggregationPlan
from privet.privacy import NoiseSource
from privet.privacy.noise import release
from privet.privacy.noise.release import grid_step

# ----------------------------------------------------------------------------------------------------- the attack

_DENSE = 0.25  # above, the 256 constants together reach almost every float, so all floats count as possible
_REACH = 4  # neighbours of the difference that are tried as noise


def could_have_come_from(
    released: ArrayLike, value: ArrayLike, std: ArrayLike | None, dtype: Any = np.float64
) -> NDArray[np.bool_]:
    """Return for each released number whether float noise on ``value`` can lead to it.

    Parameters
    ----------
    released, value : arrays of the same shape
    std : array, float or None
        The factor of standard normal numbers drawn by numpy. None if the noise may be any float, as for the product of
        a direction and a radius.
    dtype : float32 or float64
        The type of noise and value, in which they are added.

    Notes
    -----
    False is certain. True is not: where too many candidates would have to be tried, the answer is True.
    """
    kind = np.dtype(dtype).type
    pair = np.broadcast_arrays(np.asarray(released, dtype=kind), np.asarray(value, dtype=kind))
    y, v = (np.ravel(each) for each in pair)
    possible = np.zeros(y.shape, dtype=bool)
    for noise, is_farthest in _neighbours(y - v, _REACH):
        fits = ~possible & (noise + v == y)
        if std is not None and kind is np.float64 and not is_farthest:
            fits[fits] = _is_product(noise[fits], np.broadcast_to(std, pair[0].shape).ravel()[fits])
        possible |= fits
    return possible.reshape(pair[0].shape)


def _is_product(noise: NDArray[Any], std: NDArray[Any]) -> NDArray[np.bool_]:
    """Return whether each number is fl(std * z) for a z that numpy can draw."""
    found = np.zeros(noise.shape, dtype=bool)
    for z, _ in _neighbours(noise / std, 2):
        fits = ~found & (z * std == noise)
        fits[fits] = _is_normal(z[fits])
        found |= fits
    return found


def _is_normal(z: NDArray[Any]) -> NDArray[np.bool_]:
    """Return whether numpy can draw each normal number: an integer below 2^52 times one of 256 constants."""
    found = np.abs(z) >= _DENSE
    small, units = np.abs(z[~found, None]), ziggurat_units()
    nearest = np.rint(small / units)
    candidates = (nearest - 1, nearest, nearest + 1)
    found[~found] = sum(((each * units == small) & (each >= 0) & (each < 2.0**52)).any(axis=1) for each in candidates)
    return found


def _neighbours(numbers: NDArray[Any], reach: int) -> Iterator[tuple[NDArray[Any], bool]]:
    """Yield the floats around each number, from the number outwards, and whether they are the farthest ones."""
    yield numbers, False
    up = down = numbers
    infinity = numbers.dtype.type(np.inf)
    for distance in range(1, reach + 1):
        up, down = np.nextafter(up, infinity), np.nextafter(down, -infinity)
        yield up, distance == reach
        yield down, distance == reach


@cache
def ziggurat_units() -> NDArray[np.float64]:
    """Return the constants of numpy's ziggurat, which numpy reveals when it draws with words of our choice."""
    from randomgen import UserBitGenerator

    words: list[int] = []
    generator = np.random.Generator(UserBitGenerator(lambda _: words.pop(), 64))
    found = []
    for place in range(256):
        words[:] = [0, 1 << 9 | place]  # the integer 1 in the chosen rectangle, and a uniform number that accepts it
        found.append(float(generator.standard_normal()))
    return np.array(found)


# ------------------------------------------------------------------------------------------------- what is overheard


@dataclass(frozen=True)
class Heard:
    """One release: the kind of noise, the value before noise, the scale and grid of the noise, and what is released.

    ``other`` is the value under the other dataset, if that had released the same until then. ``reach`` is the largest
    absolute value of the noise.
    """

    name: str
    value: NDArray[Any]
    scale: float
    grid: float
    released: NDArray[Any]
    other: NDArray[Any] | None = None
    reach: float = math.inf

    @property
    def is_in_support(self) -> NDArray[np.bool_]:
        """Whether exact noise can lead from both values to each released number: to a multiple of the grid.

        The data influence neither the grid nor the scale, which :func:`replaying` checks.
        """
        places = np.asarray(self.released, dtype=np.float64) / self.grid  # exact: the grid is a power of two
        is_near = np.abs(self.released - self.value) <= self.reach
        if self.other is not None:
            is_near &= np.abs(self.released - self.other) <= self.reach
        return is_near & (places == np.rint(places))


class Claims(NamedTuple):
    """What the attack on float noise claims about released numbers.

    Attributes
    ----------
    numbers : int
        Those whose values under the two datasets differ, so that something could be learnt from them.
    right, wrong : int
        For how many of them it names the true dataset, and for how many the other one.
    impossible : int
        How many could not have been released on the true dataset with float noise.
    """

    numbers: int
    right: int
    wrong: int
    impossible: int


def attacked(runs: Sequence[Sequence[Heard]]) -> list[Claims]:
    """Return the claims about each run. All runs are attacked together, because few large attacks are fast."""
    found = np.zeros((len(runs), 4), dtype=np.int64)
    pools: dict[Any, list[tuple[int, Heard]]] = defaultdict(list)
    for which, run in enumerate(runs):
        for each in run:
            kind = np.float32 if each.released.dtype == np.float32 else np.float64
            pools[kind, each.name == "add_k_norm"].append((which, each))
    for (kind, is_k_norm), pool in pools.items():
        sizes = [each.released.size for _, each in pool]
        owners = np.repeat([which for which, _ in pool], sizes)
        stds = None if is_k_norm else np.repeat([each.scale for _, each in pool], sizes)
        released, value, other = (
            np.concatenate([np.ravel(getattr(each, field)) for _, each in pool])
            for field in ("released", "value", "other")
        )
        is_true, is_other = (could_have_come_from(released, each, stds, kind) for each in (value, other))
        columns = value != other, is_true & ~is_other, is_other & ~is_true, ~is_true
        found += np.stack([np.bincount(owners, column, len(runs)) for column in columns], axis=1).astype(np.int64)
    return [Claims(*map(int, row)) for row in found]


ADDS = ("add_gaussian", "add_k_norm")
CHOICES = ("top", "index", "below")
_REAL = ("real_gaussian", "real_k_norm")
_BATCHES = ("poisson_batch", "fixed_batch", "permutation")
HEARD = (*ADDS, *CHOICES, *_REAL, *_BATCHES, "lattice")

Answer = Callable[[str, dict[str, Any], Callable[[], Any]], Any]


@contextmanager
def _intercepted(answer: Answer) -> Iterator[None]:
    """Let ``answer(name, arguments, call)`` answer every request to a source, but not those that follow from it."""
    inside = threading.local()

    def wrapped(name: str) -> Callable[..., Any]:
        method = getattr(NoiseSource, name)
        signature = inspect.signature(method)

        def request(self: NoiseSource, *args: Any, **options: Any) -> Any:
            if getattr(inside, "depth", 0):
                return method(self, *args, **options)
            bound = signature.bind(self, *args, **options)
            bound.apply_defaults()
            inside.depth = 1
            try:
                return answer(name, dict(bound.arguments), lambda: method(self, *args, **options))
            finally:
                inside.depth = 0

        return request

    with patch.multiple(NoiseSource, **{name: wrapped(name) for name in HEARD}):
        yield


class _Totals:
    """The sum that several parties put on a lattice before its noise is drawn."""

    def __init__(self) -> None:
        self._sum: Any = 0

    @contextmanager
    def followed(self) -> Iterator[None]:
        on_lattice = AggregationPlan.on_lattice

        def adding(plan: AggregationPlan, values: NDArray[Any]) -> NDArray[np.int64]:
            summand = on_lattice(plan, values)
            self._sum = self._sum + summand
            return summand

        with patch.object(AggregationPlan, "on_lattice", adding):
            yield

    def taken(self, size: int) -> NDArray[Any]:
        """Return the sum, once for each of several runs that are made together."""
        total, self._sum = np.atleast_1d(self._sum), 0
        return np.tile(total, size // total.size)


class Recorded:
    """All requests of a run to its noise sources: those that add noise to numbers, and the answers to all."""

    def __init__(self) -> None:
        self.releases: list[Heard] = []
        self.answers: dict[str, list[Any]] = defaultdict(list)

    @property
    def requests(self) -> int:
        """Number of requests for noise or random choices."""
        return sum(len(self.answers[name]) for name in (*ADDS, *CHOICES, "lattice"))


@contextmanager
def recording() -> Iterator[Recorded]:
    """Record all requests of a run."""
    record, totals = Recorded(), _Totals()

    def answer(name: str, arguments: dict[str, Any], call: Callable[[], Any]) -> Any:
        result = call()
        if name in ADDS:
            record.releases.append(_release(name, arguments, result))
        if name == "lattice":
            record.releases.append(_lattice_release(arguments, totals, result))
        record.answers[name].append(result.copy() if isinstance(result, np.ndarray) else result)
        return result

    with _intercepted(answer), totals.followed():
        yield record


@contextmanager
def replaying(record: Recorded) -> Iterator[list[Heard]]:
    """Give the recorded answers to a run on another dataset, and list what it would have released.

    The values of that run are those of an attacker who tries the other dataset as an explanation of all releases.
    """
    left = {name: deque(answers) for name, answers in record.answers.items()}
    heard, totals = deque(record.releases), _Totals()
    explained: list[Heard] = []

    def answer(name: str, arguments: dict[str, Any], call: Callable[[], Any]) -> Any:
        assert left.get(name), f"the other dataset leads to one more {name}"
        result = left[name].popleft()
        if name in ADDS:
            explained.append(_explained(heard.popleft(), _release(name, arguments, result)))
        if name == "lattice":
            release = heard.popleft()
            explained.append(_explained(release, _lattice_release(arguments, totals, result)))
            return release.released - explained[-1].other
        if name == "poisson_batch":
            return result[result < arguments["n"]]
        if name in CHOICES:
            return _nearest_choice(name, arguments, result)
        return result.copy() if isinstance(result, np.ndarray) else result

    with _intercepted(answer), totals.followed():
        yield explained
    assert not any(left[name] for name in (*ADDS, "lattice") if name in left), "the other dataset ends earlier"


def _release(name: str, arguments: dict[str, Any], result: NDArray[Any]) -> Heard:
    value = np.array(arguments["values"])
    if name == "add_k_norm":
        scale = arguments["scale"]
        return Heard(name, value, scale, grid_step(scale * math.sqrt(value.size + 1)), result.copy())
    std = arguments["std"]
    return Heard(name, value, std, arguments.get("grid") or grid_step(std), result.copy())


def _lattice_release(arguments: dict[str, Any], totals: _Totals, noise: NDArray[Any]) -> Heard:
    total = totals.taken(arguments["size"])
    law = arguments["law"]
    return Heard("lattice", total, law.std, 1.0, total + noise, reach=law.reach)


def _explained(true: Heard, other: Heard) -> Heard:
    """Return the release with the value of the other dataset. Everything but the value must be the same."""
    for field in ("name", "scale", "grid"):
        assert getattr(true, field) == getattr(other, field), f"the {field} of the noise depends on the data"
    assert true.value.shape == other.value.shape, "the shape of a release depends on the data"
    return replace(true, other=other.value)


def _nearest_choice(name: str, arguments: dict[str, Any], chosen: Any) -> Any:
    """Return the recorded choice, or the nearest that the other dataset offers (equal scores may be one choice)."""
    offered = {"top": "scores", "index": "weights"}
    last = (len(arguments[offered[name]]) if name in offered else arguments["bound"]) - 1
    return np.minimum(chosen, last) if name == "top" else min(chosen, last)


def overheard(mechanism: Callable[[Any, NoiseSource], Any], pair: Sequence[Any], source: NoiseSource) -> list[Heard]:
    """Run a mechanism on the first dataset of a pair, and return its releases with the values of both datasets."""
    first, second = pair
    with recording() as record:
        mechanism(first, source)
    assert record.requests, "the mechanism made no request to a noise source"
    with replaying(record) as explained:
        mechanism(second, source)
    return explained


# ------------------------------------------------------------------------------------------------- planted float noise


def plant_float_noise(monkeypatch: pytest.MonkeyPatch, seed: int = 0) -> None:
    """Make every release a float plus float noise, as before noise was exact."""
    generator = np.random.default_rng(seed)

    def add_gaussian(self: NoiseSource, values: NDArray[Any], std: float, *unused: Any) -> NDArray[Any]:
        noise = (generator.standard_normal(np.shape(values)) * std).astype(values.dtype)
        noise += values
        return noise

    def add_k_norm(self: NoiseSource, values: NDArray[Any], scale: float, *unused: Any) -> NDArray[Any]:
        direction = generator.standard_normal(np.shape(values))
        radius = generator.gamma(direction.size, scale)
        return (direction * (radius / np.linalg.norm(direction))).astype(values.dtype) + values

    def top(self: NoiseSource, scores: NDArray[Any], scale: float, number: int = 1, *unused: Any) -> Any:
        noisy = scores + generator.gumbel(0.0, scale, scores.size)
        return np.sort(np.argsort(-noisy, kind="stable")[:number])

    def top_point(self: NoiseSource, starts: Any, scores: NDArray[Any], end: int, scale: float, *unused: Any) -> int:
        sizes = np.diff(starts, append=end)
        noisy = scores + scale * np.log(sizes) + generator.gumbel(0.0, scale, scores.size)
        run = int(np.argmax(noisy))
        return int(starts[run] + generator.integers(sizes[run]))

    def lattice(self: NoiseSource, size: int, law: Any) -> NDArray[Any]:
        return law.std * generator.standard_normal(size)

    for planted in (add_gaussian, add_k_norm, top, top_point, lattice):
        monkeypatch.setattr(NoiseSource, planted.__name__, planted)


def force_exact_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the first pass in floats decide nothing, so that exact arithmetic rounds every number."""
    add_rounded = release._add_rounded

    def add(values: Any, result: Any, noise: Any, slope: float, margin: float, *others: Any) -> None:
        add_rounded(values, result, noise, slope, math.inf, *others)

    monkeypatch.setattr(release, "_add_rounded", add)
