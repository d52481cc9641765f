"""One door to all accounting: an event and an adjacency in, an epsilon out.

Which analysis is used
----------------------
* Full batch (:class:`GaussianRelease`): the exact Gaussian profile, no accountant needed.
* Poisson batches, under add-or-remove, and batches of fixed size, under replace-one: privacy loss distributions; Renyi
  divergences where delta is so small that the rounding of a Fourier transform could be felt.
* Last iterates: Gaussian, by the taut string of :mod:`~privet.privacy.iteration`; with a secret stop or order an
  average of Gaussian profiles, exactly for one run and by loss distributions for several.
* Nearly Gaussian releases: as the Gaussian ones that they are close to; a total variation distance t between what ran
  and what is analysed costs t (1 + e^epsilon) of delta.
* Always also what is certified without any sampling; the best of all that applies is returned.

The two conventions of dp-accounting
------------------------------------
For an event under REPLACE_ONE, dp-accounting's RDP accountant reads a noise multiplier relative to the replace-one
sensitivity (2C), its PLD accountant relative to the add-or-remove one (C). Events here are always relative to C: Renyi
bounds divide by :attr:`Adjacency.factor`, and privacy loss distributions are built for the pair of laws itself,
never through REPLACE_ONE. A test holds both against the exact Gaussian profile.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from privet.checks import delta_value
from privet.privacy.analyses.loss_distribution import (
    FINE,
    LARGEST_LOSS,
    Precision,
    fourier_floor,
    largest_loss,
    loss_distribution_epsilon,
)
from privet.privacy.analyses.renyi import renyi_epsilon
from privet.privacy.analyses.unsampled import is_gaussian, takes_everybody, unsampled_epsilon, unsampled_mu
from privet.privacy.budget import Adjacency
from privet.privacy.events import (
    Event,
    FixedSizeGaussian,
    GaussianRelease,
    LastIterate,
    NearlyGaussian,
    PoissonGaussian,
    leaves,
)
from privet.privacy.iteration import averaged_epsilon, mixture

Bound = Callable[[Sequence[Event], Adjacency, float, Precision], float]


def epsilon(event: Event, adjacency: Adjacency, delta: float, *, analysis: str = "tightest") -> float:
    """Return the smallest epsilon that is certified for ``event`` at ``delta``.

    Parameters
    ----------
    event : Event
        What was released.
    adjacency : Adjacency
        Which datasets count as neighbours; an event whose analysis does not hold under it is refused.
    delta : float
        In [0, 1). At 0 only pure releases have a finite epsilon.
    analysis : {"tightest", "rdp", "pld", "unsampled"}
        ``tightest`` takes the best that applies. The others are for comparison; one that does not cover an event
        raises.

    Formal guarantees
    -----------------
    The release is (returned, delta)-DP under ``adjacency``, whatever the analysis.
    """
    return _epsilon(event, Adjacency(adjacency), delta_value(delta), analysis)


@lru_cache(maxsize=1024)  # one plan is asked many times: by checks, by its guarantee, by repeated runs
def _epsilon(event: Event, adjacency: Adjacency, delta: float, analysis: str) -> float:
    return bound_of(analysis)(merged(event, adjacency), adjacency, delta, FINE)


def merged(event: Event, adjacency: Adjacency) -> tuple[Event, ...]:
    """Return the elementary events, merged exactly: all Gaussians without sampling, and all runs of one kind."""
    gaussians: list[float] = []
    others: list[Event] = []
    runs: dict[Event, int] = {}
    distance = 0.0
    for part in leaves(event):
        if adjacency not in part.adjacencies:
            names = " or ".join(sorted(part.adjacencies))
            raise ValueError(f"{type(part).__name__} is accounted for under {names} adjacency, not {adjacency}")
        if isinstance(part, GaussianRelease) or takes_everybody(part):
            gaussians.append(unsampled_mu(part, adjacency))
        elif isinstance(part, NearlyGaussian):
            gaussians.append(part.mu)
            distance += part.distance
        elif isinstance(part, PoissonGaussian | FixedSizeGaussian):
            one_step = replace(part, steps=1)
            runs[one_step] = runs.get(one_step, 0) + part.steps
        elif isinstance(part, LastIterate):
            one_run = replace(part, runs=1)
            runs[one_run] = runs.get(one_run, 0) + part.runs
        else:
            others.append(part)
    if gaussians:
        others.insert(0, GaussianRelease(math.hypot(*gaussians)))
    if distance:
        others.append(NearlyGaussian(0.0, distance))
    return (*others, *(_times(one, number) for one, number in runs.items()))


def _times(one: Event, number: int) -> Event:
    """Return so many of one event, as one event."""
    if isinstance(one, LastIterate):
        return replace(one, runs=number)
    assert isinstance(one, PoissonGaussian | FixedSizeGaussian)
    return replace(one, steps=number)


def _tightest(parts: Sequence[Event], adjacency: Adjacency, delta: float, precision: Precision) -> float:
    """Return the best of the bounds that cover the events; each of them is valid."""
    plain = unsampled_epsilon(parts, adjacency, delta)
    if delta == 0 or plain == 0 or is_gaussian(parts):
        return plain
    if delta >= _chance_of_contact(parts):
        return 0.0
    if len(parts) == 1 and isinstance(parts[0], LastIterate) and parts[0].runs == 1:
        return min(plain, averaged_epsilon(*mixture(parts[0]), delta))
    if delta < fourier_floor(parts) or largest_loss(parts) > LARGEST_LOSS:
        return min(plain, renyi_epsilon(parts, adjacency, delta))
    by_losses = loss_distribution_epsilon(parts, adjacency, delta, precision)
    return min(plain, by_losses if math.isfinite(by_losses) else renyi_epsilon(parts, adjacency, delta))


def _chance_of_contact(parts: Sequence[Event]) -> float:
    """Return the chance that a unit is ever in a batch: without contact, neighbours are the same."""
    missed = 0.0
    for part in parts:
        if not isinstance(part, PoissonGaussian | FixedSizeGaussian):
            return 1.0
        missed += part.steps * math.log1p(-part.rate)
    return -math.expm1(missed)


_ANALYSES: dict[str, Bound] = {
    "tightest": _tightest,
    "rdp": lambda parts, adjacency, delta, precision: renyi_epsilon(parts, adjacency, delta),
    "pld": loss_distribution_epsilon,
    "unsampled": lambda parts, adjacency, delta, precision: unsampled_epsilon(parts, adjacency, delta),
}


def bound_of(analysis: str) -> Bound:
    """Return the analysis of that name."""
    if analysis not in _ANALYSES:
        raise ValueError(f"unknown analysis {analysis!r}: use {', '.join(_ANALYSES)}")
    return _despite_distance(_ANALYSES[analysis])


def _despite_distance(bound: Bound) -> Bound:
    """Return the analysis for what ran, given one of what it is close to.

    If P is within t of P', Q within t of Q', and (P', Q') satisfy (epsilon, delta'), then for every outcome E
    P(E) <= P'(E) + t <= e^epsilon Q'(E) + delta' + t <= e^epsilon Q(E) + delta' + t (1 + e^epsilon).
    """

    def corrected(parts: Sequence[Event], adjacency: Adjacency, delta: float, precision: Precision) -> float:
        near = [part for part in parts if isinstance(part, NearlyGaussian)]
        exact = [part for part in parts if not isinstance(part, NearlyGaussian)]
        distance = sum(part.distance for part in near)
        if not distance:
            return bound(exact, adjacency, delta, precision) if exact else 0.0
        found = 0.0
        while math.isfinite(found):
            room = delta - distance * (1 + math.exp(min(found, 700.0)))
            if room <= 0:
                return math.inf
            needed = bound(exact, adjacency, room, precision) if exact else 0.0
            if needed <= found:
                return found
            found = needed * (1 + 1e-9)  # up to a point that its own room certifies
        return found

    return corrected
