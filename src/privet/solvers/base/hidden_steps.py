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

from privet.plans import GradientPlan
from privet.privacy.events import LastIterate
from privet.privacy.iteration import last_iterate_mu
from privet.solvers.base.interface import Problem

_UNIT_ROUNDOFF = 2.0**-53
_GRID_SHARE, _FLOAT_SHARE = 0.25, 0.49  # of the charge; the rest is for the rounding of the noise's standard deviation
_COARSEST, _FINEST = 2.0**-20, 2.0**-41  # steps of the grid, divided by the standard deviation of the noise
_LARGEST_RADIUS = 2.0**100
_LEAST_STEPS = 32  # number of longest steps without noise for which the ball must have room


@dataclass(frozen=True)
class Rounding:
    """The grid on which the iterates of a descent lie, and the ball that bounds them.

    Attributes
    ----------
    grids : tuple of floats
        Noisy iterates are rounded to multiples of these powers of two, one per step size of the descent.
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
    The rounding errors of all steps together increase the mu of a run by at most ``plan.event.rounding_mu()``, for
    losses and regularisers that are as accurate as :func:`step_error` says. All of privet's are. Raise ValueError if
    the charge does not suffice, before any noise is drawn.
    """
    event, descent = plan.event, plan.descent
    assert isinstance(event, LastIterate) and descent is not None
    charge, dimension = event.rounding_mu(), problems[0].start().size
    sizes, divisor = np.asarray(descent.step_sizes), plan.divisor(n)
    noise = sizes * (plan.noise_std / divisor)
    per_noise, per_length = _mus(noise, descent.contraction, plan.steps)
    # Rounding moves each of the two iterates by half a step of the grid per coordinate. One share of the charge pays for
    # grids in proportion to the noise, the other one for a least step, as rounding small steps finely takes long.
    grid_mu = _GRID_SHARE * charge / math.sqrt(dimension)
    share, least = min(grid_mu / per_noise, _COARSEST), grid_mu / per_length
    # All other errors of a step of size eta are at most eta (fixed + slope |w|) + still |w|.
    errors = [step_error(problem, plan.clip_norm, int(divisor)) for problem in problems]
    fixed, slope, still = (max(error[part] for error in errors) for part in range(3))
    per_step = per_noise * divisor / plan.noise_std
    room = (_FLOAT_SHARE * charge - fixed * per_step) / (slope * per_step + still * per_length)
    radius = _LARGEST_RADIUS if descent.diameter is None else descent.diameter / 2
    needed = min(radius, _LEAST_STEPS * float(sizes.max()) * min(plan.clip_norm, problems[0].lipschitz))
    if share < _FINEST or room < needed:
        raise ValueError(
            f"the rounding errors of {plan.steps} steps on batches of {divisor:.6g} records may exceed what the plan "
            f"charges for them, unless weights have norm at most {max(room, 0.0):.3g} (needed: {needed:.3g}) and noisy "
            f"steps are rounded to {share:.3g} of their noise (possible: {_FINEST:.3g}). Make fewer steps, steps of "
            'more similar sizes, or smaller batches; or release all iterates (release="all", method="gradient").'
        )
    return Rounding(tuple(_power_of_two(max(share * std, least)) for std in noise.tolist()), min(radius, room))


def step_error(problem: Problem, clip_norm: float, batch: int) -> tuple[float, float, float]:
    """Return a bound on the errors of one step in the runs on two neighbours together: (fixed, slope, still).

    A step of size eta on the mean gradient of ``batch`` records, from weights in a ball of radius r onto which they
    were projected, errs by at most eta (fixed + slope r) + still r. This includes the errors of the projection, and
    constants by which steps contract a little less than computed. It does not include the grid.

    The residuals of a loss must be accurate to (256 + outputs) u relative to their bound (to themselves, if they are
    unbounded), apart from what a change of the score s by 8 u (1 + |s|) explains. The gradient of a regulariser must be
    accurate to 4 u relative to the largest norm that its smoothness allows.
    """
    u, rows, loss, penalty = _UNIT_ROUNDOFF, problem.rows, problem.objective, problem.regulariser
    d, size = rows.dimension, problem.start().size
    bound = min(clip_norm, problem.lipschitz)
    length, curvature = rows.largest_norm, loss.curvature_bound
    largest = loss.residual_bound * length if math.isfinite(loss.residual_bound) else bound
    residuals = (256 + size / d) * u * largest + 8 * u * curvature * length
    scores = (d + 24) * u * curvature * length * rows.reach
    sums = rows.sum_error(batch, bound, loss.residual_bound) / batch
    at_zero = float(np.linalg.norm(penalty.gradient(np.zeros_like(problem.start()))))
    fixed = residuals + sums + 8 * u * (bound + at_zero)
    slope = scores + 8 * u * penalty.smoothness
    steeper = 24 * u * problem.smoothness  # step sizes and constants are rounded, too
    return 2.02 * fixed, 2.02 * (slope + steeper), 2.02 * 48 * u


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
