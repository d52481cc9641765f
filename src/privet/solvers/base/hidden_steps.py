"""How the steps of a descent with hidden iterates are rounded, so that the plan's charge for rounding covers them.

Amplification by iteration is proved for maps of real numbers that move no two points apart. The steps that are computed
differ from such maps by rounding errors. Each error acts as a small shift between neighbouring datasets, in every step,
for which the plan charges a fixed share of its mu. This module chooses, from public numbers, how coarsely the noisy
iterates are rounded and how large they may become, so that the charge suffices: docs/proofs.md, section 16.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.plans import Descent, GradientPlan
from privet.privacy.events import LastIterate
from privet.privacy.iteration import last_iterate_mu
from privet.solvers.base.interface import Problem
from privet.solvers.base.rounding import UNIT_ROUNDOFF, rounding_besides_sums

_GRID_SHARE, _FLOAT_SHARE = 0.25, 0.49  # of the charge; the rest is for the rounding of the noise's standard deviation
_COARSEST, _FINEST = 2.0**-20, 2.0**-41  # steps of the grid, divided by the standard deviation of the noise
_LARGEST_RADIUS = 2.0**100
_LEAST_STEPS = 32  # the ball must have room for this many of the longest steps without noise


@dataclass(frozen=True)
class Rounding:
    """The grid on which the iterates of a descent lie, and the ball that bounds them.

    Attributes
    ----------
    grids : tuple of floats
        Noisy iterates are rounded to multiples of these powers of two. One per step size of the descent.
    radius : float
        Iterates are projected onto the ball around zero with this radius: that of the descent, or a larger one that
        bounds rounding errors, which are relative to the size of the weights.
    """

    grids: tuple[float, ...]
    radius: float

    def projected(self, weights: NDArray[Any]) -> NDArray[Any]:
        """Return the weights projected onto the ball, with an error of at most 40 u times its radius."""
        # np.sum adds in pairs. The error of the dot product in np.linalg.norm would grow with the dimension.
        length = math.sqrt(float(np.sum(np.square(weights.ravel()))))
        return weights if length <= self.radius else np.asarray(weights * (self.radius / length))


def rounding_of(problems: Sequence[Problem], plan: GradientPlan, n: int) -> Rounding:
    """Return how to round the steps of ``plan``, whose batches come from any of ``problems`` with ``n`` records in all.

    Formal guarantees
    -----------------
    The rounding errors of all steps together increase the mu of a run by at most ``plan.event.rounding_mu()``. Raise
    ValueError if that is not certain, before any noise is drawn.
    """
    event, descent = plan.event, plan.descent
    assert descent is not None
    if not plan.has_noise:  # Nothing is charged. Iterates are not rounded, so the grids have no effect.
        return Rounding((1.0,) * len(descent.step_sizes), _radius(descent))
    assert isinstance(event, LastIterate)
    charge, dimension = event.rounding_mu(), problems[0].start().size
    sizes, divisor = np.asarray(descent.step_sizes), plan.divisor(n)
    noise = sizes * (plan.noise_std / divisor)
    per_noise, per_length = _mus(noise, descent.contraction, plan.steps)
    # Rounding moves each of the two iterates by half a step of the grid per coordinate, before the next step. One share
    # of the charge is for grids in proportion to the noise of that step, the other one for a least step of the grid,
    # because exact noise on a fine grid takes longer.
    grid_mu = _GRID_SHARE * charge / math.sqrt(dimension)
    share, least = min(grid_mu / per_noise, _COARSEST), grid_mu / per_length
    # All other errors of a step of size eta are at most eta (fixed + slope |w|) + still |w|.
    errors = [step_error(problem, plan.clip_norm, int(divisor)) for problem in problems]
    fixed, slope, still = (max(error[part] for error in errors) for part in range(3))
    per_step = per_noise * divisor / plan.noise_std
    room = (_FLOAT_SHARE * charge - fixed * per_step) / (slope * per_step + still * per_length)
    radius = _radius(descent)
    needed = min(radius, _LEAST_STEPS * float(sizes.max()) * min(plan.clip_norm, problems[0].lipschitz))
    if share < _FINEST or room < needed:
        raise ValueError(
            f"the rounding errors of {plan.steps} steps on batches of {divisor:.6g} records may exceed what the plan "
            f"charges for them, unless weights have norm at most {max(room, 0.0):.3g} (needed: {needed:.3g}) and noisy "
            f"steps are rounded to {share:.3g} of their noise (possible: {_FINEST:.3g}). Make fewer steps, steps of "
            'more similar sizes, or smaller batches; or release all iterates (release="all", method="gradient").'
        )
    following = np.append(noise[1:], noise[-1])
    return Rounding(tuple(_power_of_two(max(share * std, least)) for std in following.tolist()), min(radius, room))


def _radius(descent: Descent) -> float:
    """Return the radius of the ball onto which the descent projects, or a large one if it does not project."""
    return _LARGEST_RADIUS if descent.diameter is None else descent.diameter / 2


def step_error(problem: Problem, clip_norm: float, batch: int) -> tuple[float, float, float]:
    """Return a bound on the errors of one step in the runs on two neighbours together: (fixed, slope, still).

    A step of size eta on the mean gradient of ``batch`` records, from weights in a ball of radius r onto which they
    were projected, errs by at most eta (fixed + slope r) + still r. This includes the errors of the projection, and
    constants by which steps contract a little less than computed. It does not include the grid.
    """
    bound, smoothness = min(clip_norm, problem.lipschitz), problem.smoothness
    fixed = rounding_besides_sums(problem, bound, 0.0)
    slope = rounding_besides_sums(problem, bound, 1.0) - fixed
    sums = problem.rows.sum_error(batch, bound, problem.objective.residual_bound) / batch
    # Errors occur in both runs. That of a constant is multiplied by the distance of the weights, which is at most 2 r.
    doubled = 2.02 * UNIT_ROUNDOFF
    return 2.02 * (fixed + sums) + 8 * doubled * bound, 2.02 * slope + 32 * doubled * smoothness, 48 * doubled


def _mus(noise: NDArray[Any], contraction: float | tuple[float, ...], steps: int) -> tuple[float, float]:
    """Return the mus of shifts in every step: of the length of the noise's standard deviation, and of length 1."""
    if noise.size == 1:
        # The noise multiplier 2 makes the noise as large as the shift by which a replacement moves a step.
        per_noise = float(LastIterate(2.0, n=1, passes=steps, contraction=contraction).place_mus()[0])
        return per_noise, per_noise / float(noise[0])
    return last_iterate_mu(noise, noise, contraction), last_iterate_mu(np.ones(steps), noise, contraction)


def _power_of_two(value: float) -> float:
    """Return the largest power of two that is at most ``value``."""
    return math.ldexp(1.0, math.frexp(value)[1] - 1)
