"""Privacy amplification by iteration: what the last iterate of noisy contractive steps gives away.

"Privacy Amplification by Iteration" bounds the last iterate by letting the distance between the iterates of two
neighbouring datasets shrink step by step under the noise, each step paying for what it takes off. Here the payments
are chosen best, and counted in Gaussian differential privacy: docs/proofs.md, sections 16 and 17.

Only the last iterate may be released; steps must be Lipschitz maps, as those of convex and smooth losses are.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq, isotonic_regression

from privet.checks import delta_value, nonnegative, positive
from privet.privacy.analyses.gaussian import gdp_epsilon, gdp_epsilons, log_gdp_deltas
from privet.privacy.analyses.loss_masses import coarser
from privet.privacy.events import LastIterate, Secret

Floats = NDArray[np.float64]

# Exceed the rounding of all sums and products below.
_MARGIN, _MARGIN_A_STEP = 1 + 2e-10, 4e-17
_LEAST_RISE, _LEAST_ROOM = 1e-300, 1e-290
_MOST_RESTARTS = 64
_MOST_VISITS = 256
_MOST_WORK = 10**8
_MOST_PLACES = 10**7


def last_iterate_mu(
    shifts: ArrayLike,
    noise: ArrayLike,
    contraction: ArrayLike = 1.0,
    start: float = 0.0,
    diameter: float | None = None,
) -> float:
    """Return the least mu for which the last iterate is known to be mu-GDP.

    Parameters
    ----------
    shifts : array of T numbers
        How far the maps of step t on the two datasets can send the same point apart.
    noise : float or array of T numbers
        Standard deviation, per coordinate, of the Gaussian noise that follows the map of step t.
    contraction : float or array of T numbers
        Lipschitz constant of the map of step t.
    start : float
        Distance between the two starting points.
    diameter : float or None
        Of a ball (or any convex set) onto which the iterates are projected before each map.

    Formal guarantees
    -----------------
    Let X_t = phi_t(X_{t-1}) + N(0, v_t^2 I), and X'_t alike with phi'_t; ||phi_t - phi'_t|| <= s_t everywhere, and one
    of each pair of maps c_t-Lipschitz. For any a_t >= 0 such that z_t = c_t z_{t-1} + s_t - a_t >= 0, z_T = 0, telling
    X_T from X'_T is no easier than telling N(mu, 1) from N(0, 1), mu^2 = sum a_t^2/v_t^2. The returned mu is the least
    of these, rounded up; with a diameter D, the least over all chains that begin at any step with z = D.

    Notes
    -----
    With w_t = c_{t+1} ... c_T, the sums of w_t a_t must stay below those of w_t s_t and reach them at the end, at a
    cost of (w_t a_t)^2 / (w_t v_t)^2: a taut string, that is the greatest convex minorant of the sums of w_t s_t over
    those of (w_t v_t)^2. Its slopes are an isotonic regression, found in linear time.
    """
    s, v, c = _schedule(shifts, noise, contraction)
    if s.size == 0:
        raise ValueError("a schedule needs at least one step")
    s = s.copy()
    s[0] += c[0] * nonnegative("start", start)
    apart = None if diameter is None else positive("diameter", diameter) * c
    if (noisy := np.flatnonzero(v)).size == 0:
        return math.inf if s.any() else 0.0
    last = int(noisy[-1])
    if s[last + 1 :].any():  # what comes after the last noise is seen as it is
        return math.inf
    s, v, c = s[: last + 1], v[: last + 1], c[: last + 1]
    with np.errstate(divide="ignore", over="ignore"):
        log_w = np.append(np.cumsum(np.log(c)[::-1])[::-1][1:], 0.0)  # w_t = c_{t+1} ... c_T
        unit = float(np.max(log_w + np.log(v)))  # everything is measured in the largest noise, as it is at the end
        rise, room = _scaled(log_w + np.log(s) - unit), np.exp(2 * (log_w + np.log(v) - unit))
        room[room < _LEAST_ROOM] = 0.0  # next to no noise counts as none
        best = min(_string(rise, room), float(np.sum(_ratio(s, v) ** 2)))  # to pay at once is always possible
        if apart is not None:
            best = _with_restarts(rise, room, _scaled(log_w + np.log(apart[: last + 1]) - unit), best)
    return math.sqrt(best) * (_MARGIN + _MARGIN_A_STEP * s.size)


def _schedule(shifts: ArrayLike, noise: ArrayLike, contraction: ArrayLike) -> tuple[Floats, Floats, Floats]:
    """Return the three arrays, of one length and checked."""
    s = np.atleast_1d(np.asarray(shifts, dtype=np.float64))
    if s.ndim != 1:
        raise ValueError(f"shifts must be a one-dimensional array, got shape {s.shape}")
    arrays = [s]
    for name, values in (("noise", noise), ("contraction", contraction)):
        array = np.asarray(values, dtype=np.float64)
        if array.ndim > 1 or (array.ndim == 1 and array.shape != s.shape):
            raise ValueError(f"{name} must be a number or as long as shifts ({s.size}), got shape {array.shape}")
        arrays.append(np.broadcast_to(array, s.shape))
    for name, array in zip(("shifts", "noise", "contraction"), arrays, strict=True):
        if not (np.isfinite(array).all() and (array >= 0).all()):
            raise ValueError(f"{name} must be finite numbers of at least 0")
    return arrays[0], arrays[1], arrays[2]


def _scaled(logs: Floats) -> Floats:
    """Return the exponentials, none of them rounded down to zero: a distance must not be forgotten."""
    return np.where(logs > -np.inf, np.maximum(np.exp(logs), _LEAST_RISE), 0.0)


def _ratio(s: Floats, v: Floats) -> Floats:
    """Return s/v, 0 where both are."""
    return np.divide(s, v, out=np.where(s > 0, np.inf, 0.0), where=v > 0)


def _string(rise: Floats, room: Floats) -> float:
    """Return the cost of the taut string: sum of (dS)^2/(d tau) over the edges of the greatest convex minorant."""
    noisy = np.flatnonzero(room > 0)
    if noisy.size == 0 or rise[noisy[-1] + 1 :].any() or not np.isfinite(rise).all():
        return math.inf if rise.any() else 0.0
    # A step without noise, or with next to none, passes its shift on to the next one.
    starts = np.concatenate(([0], noisy[:-1] + 1))
    rise, room = np.add.reduceat(rise[: noisy[-1] + 1], starts), room[noisy]
    slopes = isotonic_regression(rise / room, weights=room).x
    return float(slopes @ (slopes * room))


def _with_restarts(rise: Floats, room: Floats, distance: Floats, best: float) -> float:
    """Return the least cost of a chain that begins anew before some step t, ``distance[t]`` apart (weighted).

    A straight line from there to the end ignores that payments cannot run ahead: no chain from there costs less. So
    beginnings are tried in the order of that bound, until it exceeds what has been found; nearly always at once.
    """
    total_rise, total_room = np.cumsum(rise[::-1])[::-1], np.cumsum(room[::-1])[::-1]
    bounds = np.where(total_room > 0, (distance + total_rise) ** 2 / np.maximum(total_room, 1e-300), np.inf)
    order = np.argsort(bounds)[:_MOST_RESTARTS]
    for t in order:
        if not bounds[t] < best * (1 - 1e-12):
            break
        best = min(best, _string(np.concatenate(([distance[t] + rise[t]], rise[t + 1 :])), room[t:]))
    return best


# ------------------------------------------------------------------------------------------- units in a fixed order


def per_record_epsilon(
    n: int,
    passes: int = 1,
    *,
    noise_multiplier: float,
    delta: float,
    size: int = 1,
    public: int = 0,
    contraction: float = 1.0,
) -> Floats:
    """Return the epsilon of every record of a fixed public order, last iterate only, under replace-one adjacency.

    Parameters
    ----------
    n, passes, size : int
        Records, passes over them in the same order, records a step.
    noise_multiplier : float
        Noise on the sum of a batch, over the bound C of one record's gradient.
    delta : float
    public : int
        Number of public records, visited after the private ones in each pass, ``size`` a step.
    contraction : float
        Lipschitz constant of a step: 1 for convex losses and step sizes up to 2/smoothness.

    Formal guarantees
    -----------------
    Record i is (epsilon_i, delta)-DP: datasets that differ in it alone. The steps must be as in
    :func:`last_iterate_mu`. "Privacy Amplification by Iteration", Theorems 23 and 35, are the cases of one and of n
    passes, with the exact conversion to epsilon.
    """
    event = LastIterate(noise_multiplier, n=n, passes=passes, size=size, public=public, contraction=contraction)
    return epsilons(event, delta)


def epsilons(event: LastIterate, delta: float) -> Floats:
    """Return the epsilon of each of the n units of one run, in the order of the data."""
    delta_value(delta)
    mus, places = place_mus(event), event.places
    if event.secret is Secret.ORDER:  # one's place is anyone's guess
        return np.full(event.n, averaged_epsilon(mus, _shares(event), delta))
    if event.secret is Secret.STOP:
        return np.repeat(_stopped_epsilons(mus, delta), event.size)[: event.n]
    if event.secret is Secret.SKIP:  # a unit is skipped by chance, or else as exposed as without skips
        taken = np.minimum(np.arange(1, places + 1) / (event.steps // 2 + 1), 1.0)
        seen = [gdp_epsilon(mu, min(delta / share, 1 - 1e-16)) for mu, share in zip(mus, taken, strict=True)]
        return np.repeat(seen, event.size)[: event.n]
    return np.repeat(gdp_epsilons(mus, delta), event.size)[: event.n]


def worst_mu(event: LastIterate) -> float:
    """Return a mu for which all runs together are mu-GDP, whatever they keep secret."""
    return _worst_place_mu(event) * math.sqrt(event.runs)


def _worst_place_mu(event: LastIterate) -> float:
    """Return the largest mu of a place: with steps of one size the last one's.

    What the last place but one pays, the last can pay a step later: its visits come one step later, and there is one
    step less after them.
    """
    unit = _unit(event)
    if _is_uniform(unit):
        return float(_uniform_mus(unit, np.array([event.places - 1.0]))[0]) / event.noise_multiplier
    return float(_unit_mus(unit).max()) / event.noise_multiplier


def place_mus(event: LastIterate) -> Floats:
    """Return the mu of the units of each place in the order, for one run whose order and length are known."""
    if event.places > _MOST_PLACES:
        raise ValueError(f"{event.places:,} places are more than can be told apart here: take larger batches")
    return _unit_mus(_unit(event)) / event.noise_multiplier


def _unit(event: LastIterate) -> LastIterate:
    return replace(event, noise_multiplier=1.0, secret=Secret.NOTHING, runs=1)


def _is_uniform(event: LastIterate) -> bool:
    return isinstance(event.contraction, float) and isinstance(event.step_size, float)


def mixture(event: LastIterate) -> tuple[Floats, Floats]:
    """Return mus and their chances: the profile of one run with a secret is at most the average of theirs.

    Given the secret, the run is that of a known place and length, and divergences of mixtures are at most the average
    of divergences. With a secret stop the first unit is worst: it is as exposed as any other after as many steps, and
    reached most often. With a secret skip the last unit is worst, which is skipped least.
    """
    if event.secret is Secret.SKIP or event.secret is Secret.NOTHING:
        return np.array([_worst_place_mu(event)]), np.ones(1)
    mus = place_mus(event)
    return mus, _shares(event) if event.secret is Secret.ORDER else np.full(mus.size, 1 / mus.size)


def averaged_epsilon(mus: Floats, chances: Floats, delta: float) -> float:
    """Return the least epsilon at which the average of Gaussian profiles is at most ``delta``."""
    mus, chances = mus[mus > 0], chances[mus > 0]
    if mus.size == 0 or delta == 0:
        return math.inf if mus.size else 0.0

    def excess(epsilon: float) -> float:
        return float(chances @ np.exp(log_gdp_deltas(mus, np.full(mus.shape, epsilon)))) - delta

    if excess(0.0) <= 0:
        return 0.0
    return float(brentq(excess, 0.0, gdp_epsilon(float(mus.max()), delta), xtol=1e-12)) * (1 + 1e-9) + 1e-11


def _stopped_epsilons(mus: Floats, delta: float) -> Floats:
    """Return each place's epsilon under a secret stop; of many places some, the rest rounded up to their forerunner."""
    places = mus.size
    tried = np.unique(np.linspace(0, places - 1, min(places, 200)).astype(int))
    # A unit at place p sees k = 1 ... places - p steps from its own on, with mus[places - k].
    found = [averaged_epsilon(*coarser(mus[place:], np.full(places - place, 1 / places)), delta) for place in tried]
    return np.asarray(found)[np.searchsorted(tried, np.arange(places), side="right") - 1]


def _shares(event: LastIterate) -> Floats:
    """Return the chance of each place under a random order: the last batch may be smaller."""
    sizes = np.full(event.places, event.size, dtype=np.float64)
    sizes[-1] = event.n - event.size * (event.places - 1)
    return sizes / event.n


@lru_cache(maxsize=64)
def _unit_mus(event: LastIterate) -> Floats:
    """Return the mus at noise multiplier 1: noise of half of what one replacement moves, in every step."""
    everywhere = np.arange(event.places, dtype=np.float64)
    mus = _uniform_mus(event, everywhere) if _is_uniform(event) else _scheduled_mus(event)
    mus.flags.writeable = False
    return mus


def _scheduled_mus(event: LastIterate) -> Floats:
    """Return them for steps of any sizes, place by place."""
    sizes = np.broadcast_to(np.asarray(event.step_size), event.steps)
    if event.places * event.steps > _MOST_WORK:
        raise ValueError("steps of changing sizes are analysed for a full batch or few batches only: use one size")
    mus = np.empty(event.places)
    for place in range(event.places):
        shifts = np.zeros(event.steps)
        shifts[place :: event.steps // event.passes] = 1.0
        mus[place] = last_iterate_mu(shifts * sizes, sizes / 2, event.contraction, diameter=event.diameter)
    return mus


@dataclass(frozen=True)
class _Stretch:
    """Consecutive steps: what they add to the distance, to the noise (squared), and the product of their factors."""

    rise: Floats
    room: Floats
    factor: Floats

    def then(self, later: "_Stretch") -> "_Stretch":
        """Return both as one stretch, in the later one's terms."""
        return _Stretch(
            self.rise * later.factor + later.rise,
            self.room * later.factor**2 + later.room,
            self.factor * later.factor,
        )

    def is_steeper_than(self, later: "_Stretch") -> NDArray[np.bool_]:
        """Whether it adds more distance, for its noise, than the stretch that follows it."""
        return np.asarray(self.rise * later.room >= later.rise * self.room * later.factor)

    @property
    def cost(self) -> Floats:
        """What it costs to pay evenly: the square of a mu."""
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            return np.where(self.rise > 0, (self.rise / np.sqrt(self.room)) ** 2, 0.0)


def _uniform_mus(event: LastIterate, places: Floats) -> Floats:
    """Return them for steps of one size, at several places at once.

    Between two visits to a unit there is one pass. Stretches of a pass each are alike, and a later one counts for more:
    on the taut string they are one. The last, shorter stretch is part of it or not.
    """
    c, length = float(event.contraction), event.steps // event.passes  # type: ignore[arg-type]
    ending = _visit(c, length - places)
    squares = _taut([_repeated(_visit(c, np.float64(length)), event.passes - 1), ending])
    if event.diameter is not None:
        apart = event.diameter / event.step_size  # type: ignore[operator]
        for visits in _restarts(event.passes):  # so many visits are left after the chain began anew
            if visits == 0:
                chain = [_idle(c, length - 1 - places, apart)]
            else:
                again = _repeated(_visit(c, np.float64(length)), visits - 1)
                chain = [_idle(c, np.float64(length - 1), apart), again, ending]
            squares = np.minimum(squares, _taut(chain))
    return np.asarray(np.sqrt(squares) * _MARGIN)


def _restarts(passes: int) -> list[int]:
    """Return the numbers of visits to try; of very many, some: each is valid."""
    numbers = np.arange(passes) if passes <= _MOST_VISITS else np.geomspace(1, passes, _MOST_VISITS) - 1
    return sorted(set(numbers.astype(int).tolist()))


def _visit(c: float, length: "Floats | np.float64") -> _Stretch:
    """Return the step that visits a unit and those up to the next visit, ``length`` in all."""
    return _Stretch(np.asarray(c ** (length - 1)), np.asarray(_squares(c, length) / 4), np.asarray(c**length))


def _idle(c: float, length: "Floats | np.float64", apart: float) -> _Stretch:
    """Return steps without a visit, begun at a distance."""
    return _Stretch(np.asarray(apart * c**length), np.asarray(_squares(c, length) / 4), np.asarray(c**length))


def _squares(c: float, length: "Floats | np.float64") -> "Floats | np.float64":
    """Return 1 + c^2 + ... + c^(2 length - 2)."""
    if c in (0, 1):
        return length if c == 1 else np.minimum(length, 1.0)
    return np.asarray(np.expm1(2 * length * math.log(c)) / math.expm1(2 * math.log(c)))  # no cancellation near c = 1


def _repeated(stretch: _Stretch, times: int) -> _Stretch:
    """Return a stretch ``times`` in a row, doubling."""
    result = _Stretch(np.zeros(()), np.zeros(()), np.ones(()))
    while times:
        if times % 2:
            result = result.then(stretch)
        stretch, times = stretch.then(stretch), times // 2
    return result


def _taut(stretches: Sequence[_Stretch]) -> Floats:
    """Return the cost of the taut string over a few stretches, all places side by side: pool adjacent violators."""
    return _pooled((), stretches)


def _pooled(done: tuple[_Stretch, ...], rest: Sequence[_Stretch]) -> Floats:
    """Return the cost where the stretches done are pooled already, and rise ever more steeply."""
    if not rest:
        return np.asarray(sum(stretch.cost for stretch in done))
    return _pushed(done, rest[0], rest[1:])


def _pushed(done: tuple[_Stretch, ...], new: _Stretch, rest: Sequence[_Stretch]) -> Floats:
    """Return it with one more: a part of the last stretch where that is the steeper, else one of its own."""
    apart = _pooled((*done, new), rest)
    if not done:
        return apart
    return np.where(done[-1].is_steeper_than(new), _pushed(done[:-1], done[-1].then(new), rest), apart)
