"""Accounting that forgets samples and secrets: Gaussian releases compose exactly, all others add up."""

import math
from collections.abc import Sequence
from typing import TypeGuard

from privet.privacy.analyses.gaussian import gdp_epsilon
from privet.privacy.budget import Adjacency
from privet.privacy.events import (
    ApproximateRelease,
    Event,
    FixedSizeGaussian,
    GaussianRelease,
    LastIterate,
    PoissonGaussian,
    PureRelease,
    Secret,
)
from privet.privacy.iteration import worst_mu


def unsampled_epsilon(parts: Sequence[Event], adjacency: Adjacency, delta: float) -> float:
    """Forget the sampling: Gaussians compose exactly, pure and black-box releases add up."""
    mu_squared, pure, slack = 0.0, 0.0, 0.0
    for part in parts:
        if isinstance(part, PureRelease):
            pure += part.epsilon
        elif isinstance(part, ApproximateRelease):
            pure, slack = pure + part.epsilon, slack + part.delta
        else:
            mu_squared += unsampled_mu(part, adjacency) ** 2
    if mu_squared == 0:
        return pure if slack <= delta else math.inf
    return pure + gdp_epsilon(math.sqrt(mu_squared), delta - slack) if delta > slack else math.inf


def unsampled_mu(part: Event, adjacency: Adjacency) -> float:
    """Return the mu of all steps together, had each of them used every unit, and in a known order."""
    if isinstance(part, GaussianRelease):
        return part.mu
    if isinstance(part, PoissonGaussian | FixedSizeGaussian):
        return adjacency.factor * math.sqrt(part.steps) / part.noise_multiplier
    if isinstance(part, LastIterate):
        return worst_mu(part)
    raise not_covered("unsampled", part)


def takes_everybody(part: Event) -> bool:
    """Whether nothing is left to chance in an event: its batches are the whole, or its order is known."""
    if isinstance(part, LastIterate):
        return part.secret in (Secret.NOTHING, Secret.SKIP)  # the last unit may never be skipped
    if isinstance(part, PoissonGaussian):
        return part.rate == 1
    return isinstance(part, FixedSizeGaussian) and part.size == part.n


def is_gaussian(parts: Sequence[Event]) -> TypeGuard[tuple[GaussianRelease]]:
    """Whether merged events are one Gaussian release."""
    return len(parts) == 1 and isinstance(parts[0], GaussianRelease)


def not_covered(analysis: str, part: Event) -> ValueError:
    """Return the refusal of an event that an analysis has no bound for, by name."""
    return ValueError(f"the analysis {analysis!r} does not cover {type(part).__name__}")
