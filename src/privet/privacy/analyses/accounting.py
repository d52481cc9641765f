"""The accountant: it computes the epsilon of an event.

Which analysis is used
----------------------
* Full batch (:class:`GaussianRelease`): the exact Gaussian profile.
* Poisson batches under add-or-remove, and batches of fixed size under replace-one: privacy loss distributions, or Renyi
  divergences if delta is so small that the rounding errors of a Fourier transform would matter.
* Last iterates: Gaussian, by the taut string of :mod:`~privet.privacy.analyses.taut_string`; with a secret stop or
  order an average of Gaussian profiles, exactly for one run (also together with Gaussian releases) and by loss
  distributions for several.
* Nearly Gaussian releases: as the Gaussian releases that they are close to. A total variation distance t between what
  ran and what is analysed costs t (1 + e^epsilon) of delta.
* A release without noise: epsilon is infinite, also in composition with others.
* In all other cases the bound that ignores sampling is computed too, and the smallest epsilon is returned.

The analyses ask the events for everything they need (:class:`~privet.privacy.events.base.Event`), so a new event needs
no change here.

The two conventions of dp-accounting
------------------------------------
For an event under REPLACE_ONE, dp-accounting's RDP accountant reads a noise multiplier relative to the replace-one
sensitivity (2C), its PLD accountant relative to the add-or-remove one (C). Events here are always relative to C: Renyi
bounds divide by :attr:`Adjacency.factor`, and privacy loss distributions are built for the pair of laws itself,
never through REPLACE_ONE. A test compares both with the exact Gaussian profile.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache

from privet.checks import delta_value
from privet.privacy.analyses.gaussian import gdp_epsilon
from privet.privacy.analyses.loss_distribution import (
    COARSE,
    FINE,
    LARGEST_LOSS,
    Precision,
    fourier_floor,
    largest_loss,
    loss_distribution_epsilon,
)
from privet.privacy.analyses.renyi import renyi_epsilon
from privet.privacy.budget import Adjacency
from privet.privacy.events.base import Event, GaussianRelease, NearlyGaussian

_LARGEST_EXPONENT = 700.0  # Beyond it, an exponential may overflow.

Bound = Callable[[Sequence[Event], Adjacency, float, Precision], float]


def epsilon(event: Event, adjacency: Adjacency, delta: float, *, analysis: str = "tightest") -> float:
    """Return the smallest epsilon that is certified for ``event`` at ``delta``.

    Parameters
    ----------
    event : Event
        What was released.
    adjacency : Adjacency
        Which datasets are neighbours. An event that is not analysed under this adjacency raises an error.
    delta : float
        In [0, 1). At 0 only pure releases have a finite epsilon.
    analysis : {"tightest", "rdp", "pld", "unsampled"}
        ``tightest`` takes the smallest epsilon. The others are for comparison, and raise if they do not cover an event.

    Formal guarantees
    -----------------
    The release is (epsilon, delta)-DP under ``adjacency``, with the returned epsilon of any analysis.
    """
    return _epsilon(event, Adjacency(adjacency), delta_value(delta), analysis)


@lru_cache(maxsize=1024)  # Checks, guarantees and repeated runs ask for the same event many times.
def _epsilon(event: Event, adjacency: Adjacency, delta: float, analysis: str) -> float:
    return merged_epsilon(merged(event, adjacency), adjacency, delta, analysis=analysis)


def merged(event: Event, adjacency: Adjacency) -> tuple[Event, ...]:
    """Return the elementary events, merged without loss: all exact Gaussians into one, and equal events into one."""
    return merged_counts(Counter(event.leaves()), adjacency)


def merged_counts(counts: Mapping[Event, int], adjacency: Adjacency) -> tuple[Event, ...]:
    """Return what :func:`merged` returns for a composition in which each elementary event occurs this many times."""
    gaussians: list[float] = []
    others: list[Event] = []
    runs: dict[Event, int] = {}
    error = 0.0
    for part, times in counts.items():
        if adjacency not in part.adjacencies:
            names = " or ".join(sorted(part.adjacencies))
            raise ValueError(f"{type(part).__name__} is accounted for under {names} adjacency, not {adjacency}")
        error += times * part.approximation_error
        if (mu := part.gaussian_mu(adjacency)) is not None:
            gaussians += [mu] * times
        elif part.is_repeatable:
            one = part.repeated(1)
            runs[one] = runs.get(one, 0) + times * part.repeats
        else:
            others += [part] * times
    if gaussians:
        others.insert(0, GaussianRelease(math.hypot(*gaussians)))
    if error:
        others.append(NearlyGaussian(0.0, error))
    for one, number in runs.items():
        others.append(one.repeated(number))
    return tuple(others)


def epsilon_of_counts(counts: Mapping[Event, int], adjacency: Adjacency, delta: float) -> float:
    """Return the epsilon of a composition in which each elementary event occurs this many times."""
    return merged_epsilon(merged_counts(counts, adjacency), adjacency, delta, analysis="tightest")


def epsilon_bounds(counts: Mapping[Event, int], adjacency: Adjacency, delta: float) -> Iterator[float]:
    """Yield bounds on what :func:`epsilon_of_counts` returns: two that are computed fast, then the value itself."""
    parts = merged_counts(counts, adjacency)
    yield merged_epsilon(parts, adjacency, delta, analysis="unsampled")
    # Renyi divergences of black boxes are fast, while the loss distribution of many of them needs a fine grid.
    is_simple = all(part.is_black_box or isinstance(part, GaussianRelease | NearlyGaussian) for part in parts)
    yield merged_epsilon(parts, adjacency, delta, analysis="rdp" if is_simple else "tightest", precision=COARSE)
    yield merged_epsilon(parts, adjacency, delta, analysis="tightest")


def gaussian_mu(event: Event, adjacency: Adjacency) -> float | None:
    """Return the mu of an event that is exactly mu-GDP, None for all other events."""
    parts = merged(event, adjacency)
    return parts[0].gaussian_mu(adjacency) if len(parts) == 1 and not parts[0].approximation_error else None


def merged_epsilon(
    parts: Sequence[Event], adjacency: Adjacency, delta: float, *, analysis: str, precision: Precision = FINE
) -> float:
    """Return the epsilon of events that :func:`merged` returned, corrected for their approximation errors.

    Suppose that P is within total variation distance t of P', Q within t of Q', and (P', Q') satisfy (epsilon,
    delta'). Then for every set of outcomes E
    P(E) <= P'(E) + t <= e^epsilon Q'(E) + delta' + t <= e^epsilon Q(E) + delta' + t (1 + e^epsilon).
    """
    if analysis not in _ANALYSES:
        raise ValueError(f"unknown analysis {analysis!r}: use {', '.join(_ANALYSES)}")
    if not all(part.has_noise for part in parts):
        return math.inf
    bound = _ANALYSES[analysis]
    exact, error = without_errors(parts)
    if not error:
        return bound(exact, adjacency, delta, precision) if exact else 0.0
    found = 0.0
    while math.isfinite(found):
        room = delta - error * (1 + math.exp(found)) if found < _LARGEST_EXPONENT else 0.0
        if room <= 0:
            return math.inf
        needed = bound(exact, adjacency, room, precision) if exact else 0.0
        if needed <= found:
            return found
        found = needed * (1 + 1e-9)  # Increase epsilon until the delta that it leaves certifies it.
    return found


def without_errors(parts: Sequence[Event]) -> tuple[list[Event], float]:
    """Return what the analyses describe exactly, and the total variation distance of what ran from it.

    :func:`merged` collects all approximation errors in one part.
    """
    exact = [part for part in parts if not isinstance(part, NearlyGaussian)]
    return exact, sum(part.approximation_error for part in parts if isinstance(part, NearlyGaussian))


def unsampled_epsilon(parts: Sequence[Event], adjacency: Adjacency, delta: float) -> float:
    """Return an epsilon that ignores sampling and secrets: Gaussians compose exactly, black boxes add up."""
    mu_squared, epsilon, slack = 0.0, 0.0, 0.0
    for part in parts:
        mu, extra_epsilon, extra_delta = part.unsampled(adjacency)
        mu_squared, epsilon, slack = mu_squared + mu**2, epsilon + extra_epsilon, slack + extra_delta
    if mu_squared == 0:
        return epsilon if slack <= delta else math.inf
    return epsilon + gdp_epsilon(math.sqrt(mu_squared), delta - slack) if delta > slack else math.inf


def _tightest(parts: Sequence[Event], adjacency: Adjacency, delta: float, precision: Precision) -> float:
    """Return the smallest of the bounds that cover the events. Each of them is valid."""
    plain = unsampled_epsilon(parts, adjacency, delta)
    if delta == 0 or plain == 0:
        return plain
    if len(parts) == 1 and parts[0].gaussian_mu(adjacency) is not None:
        return plain
    if delta >= -math.expm1(sum(part.log_chance_of_no_contact() for part in parts)):
        return 0.0  # The differing unit is used with probability at most delta.
    if (exact := _closed_form_epsilon(parts, adjacency, delta)) is not None:
        return min(plain, exact)
    if delta < fourier_floor(parts) or largest_loss(parts) > LARGEST_LOSS:
        return min(plain, renyi_epsilon(parts, adjacency, delta))
    by_losses = loss_distribution_epsilon(parts, adjacency, delta, precision)
    return min(plain, by_losses if math.isfinite(by_losses) else renyi_epsilon(parts, adjacency, delta))


def _closed_form_epsilon(parts: Sequence[Event], adjacency: Adjacency, delta: float) -> float | None:
    """Return the epsilon of one event, alone or together with Gaussian releases, by its own formula, or None."""
    mu, others = gaussians_and_other(parts, adjacency)
    return others[0].closed_form_epsilon(delta, mu) if len(others) == 1 else None


def gaussians_and_other(parts: Sequence[Event], adjacency: Adjacency) -> tuple[float, list[Event]]:
    """Return the mu of all Gaussian releases together, and the other events."""
    mus = [part.gaussian_mu(adjacency) for part in parts]
    others = [part for part, mu in zip(parts, mus, strict=True) if mu is None]
    return math.hypot(*filter(None, mus), 0.0), others


_ANALYSES: dict[str, Bound] = {
    "tightest": _tightest,
    "rdp": lambda parts, adjacency, delta, precision: renyi_epsilon(parts, adjacency, delta),
    "pld": loss_distribution_epsilon,
    "unsampled": lambda parts, adjacency, delta, precision: unsampled_epsilon(parts, adjacency, delta),
}
