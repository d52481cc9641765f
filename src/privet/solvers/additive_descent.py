"""Additive models: noisy counts lay out one curve per column, and noisy gradient descent trains all curves together."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from privet.objectives import L2, BoundedRows, GeneralisedLinear
from privet.objectives.binned import BinnedRows
from privet.objectives.curves import CELLS, Curve, Pair, lay_out, resolution
from privet.plans.additive import AdditivePlan, half_move_of_counts, one_cell_per_column
from privet.plans.gradient import GradientPlan
from privet.privacy.noise.source import NoiseSource
from privet.solvers.base.heavy_ball import noise_of_average
from privet.solvers.base.interface import Problem, Release, Run, gradients_bounded_by
from privet.solvers.noisy_gradient import noisy_gradient_descent

MOMENTUM, AVERAGED = 0.9, 0.3
_LONGEST = 4.0  # the longest step, in units of the inverse of the curvature of a typical row
_TYPICAL_CURVATURE = 0.07  # of the largest, at the scores of a trained model with one score
_OF_SEVERAL_SCORES = 0.25  # of that, where clipped gradients of several classes are hardly curved (measured)
_SHRINKAGE = 0.25  # of the noise in a weight, which is taken off its square
_TARGET_STEPS = 1024  # targets in [-1, 1] are rounded to this many steps per unit before their moments are summed
_USUAL_MEAN, _USUAL_VARIANCE, _LEAST_VARIANCE = 0.3, 0.06, 0.001  # of targets in [-1, 1]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class AdditiveProblem:
    """Minimise the mean loss of a sum of one curve per column.

    Parameters
    ----------
    cells : array of int of shape (n, columns)
        The cell of each record in each column, by public bounds and levels.
    sizes : sequence of int or None
        The number of levels of each category. None for a number, which has :data:`~privet.objectives.curves.CELLS`.
    objective : GeneralisedLinear
    targets : array of shape (n,)
    worth : float
        The deviation of a score that noise may cause.
    alpha : float
        Strength of the l2 penalty on the weights of features.
    pairs : tuple of pairs of int
        Columns with a joint term, by their positions.
    standardises : bool
        Whether targets are numbers in [-1, 1], which are measured in noisy standard deviations from their noisy mean.
        ``worth`` and the clip are then in these units.
    """

    cells: NDArray[Any]
    sizes: Sequence[int | None]
    objective: GeneralisedLinear
    targets: NDArray[Any]
    worth: float = 1.0
    alpha: float = 0.0
    pairs: tuple[tuple[int, int], ...] = ()
    standardises: bool = False

    def __post_init__(self) -> None:
        if self.cells.ndim != 2 or self.cells.shape[1] != len(self.sizes) or not len(self.sizes):
            raise ValueError(f"cells must have one column per size, got {self.cells.shape} and {len(self.sizes)} sizes")
        for j, size in enumerate(self.n_cells):
            column = self.cells[:, j]
            if len(column) and not 0 <= int(column.min()) <= int(column.max()) < size:
                raise ValueError(f"column {j} has a cell outside 0 to {size - 1}")
        self.objective.check_targets(self.targets)
        if self.standardises and len(self.targets) and np.abs(self.targets).max() > 1:
            raise ValueError("targets that are standardised must lie in [-1, 1]")

    @property
    def n(self) -> int:
        """Number of records."""
        return len(self.cells)

    @property
    def n_cells(self) -> list[int]:
        """Number of cells of each column."""
        return [CELLS if size is None else size for size in self.sizes]

    @property
    def n_counted(self) -> int:
        """Number of columns that are counted, where the two moments of standardised targets move as far as two."""
        return len(self.sizes) + 2 * self.standardises


def additive_descent(problem: AdditiveProblem, run: Run[AdditivePlan], *, keep_iterates: bool = False) -> Release:
    """Release noisy counts, lay out curves by them, and descend along noisy gradients with heavy-ball momentum.

    Weights are the values of the bins, column after column, then those of pairs, and the intercept at the end. The
    trace has the ``curves`` and ``pairs``, and as ``bin_noise`` the standard deviation of the noise in each value,
    estimated from the noise, the steps and the noisy counts alone.

    Formal guarantees
    -----------------
    The guarantee is that of the plan: the data is seen through one vector of noisy counts, and in each step through one
    noisy sum of gradients, each clipped to ``plan.gradients.clip_norm``. Bins, features, step size, average, shrinkage
    and centring are computed from these and from public numbers.
    """
    plan, source = run.plan, run.source
    if plan.mean.clip_norm < half_move_of_counts(problem.n_counted):
        raise ValueError(f"The plan does not cover the counts of {problem.n_counted} columns.")
    of_counts = one_cell_per_column(problem.n_counted, problem.standardises)
    bounds = of_counts, gradients_bounded_by(plan.gradients.clip_norm)
    guarantee = run.guarantee(bounds=bounds)
    counts, (middle, unit) = _noisy_counts(problem, plan.mean, source)
    ordered = [size is None for size in problem.sizes]
    curves = [
        lay_out(each, plan.mean.noise_std, problem.n, is_ordered=is_ordered)
        for each, is_ordered in zip(counts, ordered, strict=True)
    ]
    pairs = [Pair.of((i, j), curves[i], curves[j]) for i, j in problem.pairs]
    gradients = replace(plan.gradients, delta=guarantee.delta)
    rows = BinnedRows(problem.cells, curves, gradients.clip_norm, pairs)
    targets = (problem.targets - middle) / unit if problem.standardises else problem.targets
    linear = Problem(problem.objective, L2(problem.alpha), cast(BoundedRows, rows), targets)
    step_size = heavy_ball_step(problem, gradients)
    descent = noisy_gradient_descent(
        linear,
        Run(gradients, source, run.progress, None),
        step_size=step_size,
        momentum=MOMENTUM,
        averaged=AVERAGED,
        keep_iterates=keep_iterates,
    )
    terms = [*curves, *(pair.curve for pair in pairs)]
    weights, noise = _shrunk(descent.weights, problem, rows, terms, gradients, step_size)
    values = rows.bin_values(weights)
    intercept = rows.intercept * weights[rows.n_features]
    if values.ndim == 2:  # probabilities do not change if the scores of all classes rise together, but noise does that
        values, intercept = values - values.mean(axis=1, keepdims=True), intercept - intercept.mean()
    values, noise, moved = _without_margins(values, noise, curves, pairs)
    values, noise, level = _centred(values, noise, terms, plan.mean.noise_std / problem.n)
    intercept = intercept + moved + level
    trace = dict(descent.trace) | {"curves": tuple(curves), "pairs": tuple(pairs), "bin_noise": unit * noise}
    found = np.concatenate([values * unit, (middle + unit * intercept)[None]])
    return Release(found, guarantee, trace)


def heavy_ball_step(problem: AdditiveProblem, plan: GradientPlan) -> float:
    """Return the longest step whose noise the scores tolerate, and at which the descent is stable."""
    noise = plan.noise_std / plan.divisor(problem.n) * np.sqrt(plan.steps)
    longest = _LONGEST / problem.objective.start_curvature
    return longest * share_of_step(problem.objective, problem.worth, noise)


def share_of_step(objective: GeneralisedLinear, worth: float, noise: float) -> float:
    """Return how long a step can be, compared with a run without noise, for this noise in the sum of mean gradients."""
    longest = _LONGEST / objective.start_curvature
    return float(min(1.0, (1 - MOMENTUM) * worth / (longest * noise))) if noise else 1.0


def _noisy_counts(
    problem: AdditiveProblem, plan: GradientPlan, source: NoiseSource
) -> tuple[list[Floats], tuple[float, float]]:
    """Return the noisy number of records in each cell of each column, and the middle and the unit of the targets."""
    cells = resolution(plan.noise_std, problem.n)
    exact: list[NDArray[Any]] = []
    for j, size in enumerate(problem.sizes):
        found = np.bincount(problem.cells[:, j], minlength=CELLS if size is None else size)
        exact.append(found.reshape(cells, -1).sum(axis=1) if size is None else found)
    ends = np.cumsum([len(each) for each in exact])
    if problem.standardises:
        coarse = np.rint(problem.targets * _TARGET_STEPS)  # so that sums of squares are exact
        exact.append(np.array([coarse.sum() / _TARGET_STEPS, (coarse * coarse).sum() / _TARGET_STEPS**2]))
    (noisy,) = (step.noisy(np.concatenate(exact).astype(np.float64)) for step in plan.run(problem.n, source))
    *counts, moments = np.split(noisy, ends)
    if not problem.standardises:
        return counts, (0.0, 1.0)
    return counts, _standard(moments / problem.n, plan.noise_std / problem.n)


def _standard(moments: Floats, noise_std: float) -> tuple[float, float]:
    """Return a mean and a standard deviation of targets in [-1, 1] from noisy moments and their usual size."""
    trust = [usual**2 / (usual**2 + noise_std**2) for usual in (_USUAL_MEAN, _USUAL_VARIANCE)]
    mean = trust[0] * float(np.clip(moments[0], -1, 1))
    variance = _USUAL_VARIANCE + trust[1] * (float(moments[1] - moments[0] ** 2) - _USUAL_VARIANCE)
    return mean, float(np.sqrt(np.clip(variance, _LEAST_VARIANCE, 1)))


def _shrunk(
    weights: Floats,
    problem: AdditiveProblem,
    rows: BinnedRows,
    curves: Sequence[Curve],
    plan: GradientPlan,
    step_size: float,
) -> tuple[Floats, Floats]:
    """Return the weights of features shrunk by what is expected to be noise, and the noise in the value of each bin.

    The descent is approximated by that on a quadratic whose curvature along each feature follows from noisy counts.
    """
    parts = [curve.shares @ (each * each) for curve, each in zip(curves, rows.features, strict=True)]
    typical = _TYPICAL_CURVATURE * (_OF_SEVERAL_SCORES if weights.ndim == 2 else 1.0)
    curvatures = typical * problem.objective.start_curvature * np.concatenate(parts) + problem.alpha
    n_tail = max(1, int(np.ceil(AVERAGED * plan.steps)))
    variances = noise_of_average(curvatures, step_size, MOMENTUM, plan.steps, n_tail)
    variances = variances * (plan.noise_std / plan.divisor(problem.n)) ** 2
    result = weights.copy()
    of_features = result.reshape(len(result), -1)[: rows.n_features]
    squares = np.maximum(of_features**2, np.finfo(np.float64).tiny)
    of_features *= np.maximum(0, 1 - _SHRINKAGE * variances[:, None] / squares)
    starts = np.cumsum([each.shape[1] for each in rows.features])[:-1]
    by_column = zip(rows.features, np.split(variances, starts), strict=True)
    noise = np.concatenate([np.sqrt((each * each) @ variance) for each, variance in by_column])
    return result, noise


def _without_margins(
    values: Floats, noise: Floats, curves: Sequence[Curve], pairs: Sequence[Pair]
) -> tuple[Floats, Floats, Any]:
    """Return the values and their noise after the means of pairs over either column have moved to its own curve.

    The sum of all terms stays the same, but for the constant that is returned last. Without this, a pair and the curves
    of its columns could represent the same function in many ways, and noise would move them against each other.
    """
    result, spread, moved = values.copy(), noise.copy(), np.zeros(values.shape[1:])
    starts = np.cumsum([0, *(curve.n_bins for curve in curves), *(pair.curve.n_bins for pair in pairs)])
    for place, pair in enumerate(pairs, start=len(curves)):
        own = slice(starts[place], starts[place + 1])
        sizes = [int(groups.max()) + 1 for groups in pair.groups]
        joint, variances = result[own].reshape(*sizes, *values.shape[1:]), noise[own].reshape(sizes) ** 2
        sides = [curves[j].shares for j in pair.columns]
        shares = [np.bincount(groups, weights=side) for groups, side in zip(pair.groups, sides, strict=True)]
        means = [np.tensordot(shares[1 - axis], joint, (0, 1 - axis)) for axis in (0, 1)]
        overall = np.tensordot(shares[0], means[0], (0, 0))
        for axis, (j, groups) in enumerate(zip(pair.columns, pair.groups, strict=True)):
            curve = slice(starts[j], starts[j + 1])
            result[curve] += means[axis][groups]
            of_mean = np.tensordot(shares[1 - axis] ** 2, variances, (0, 1 - axis))
            spread[curve] = np.sqrt(spread[curve] ** 2 + of_mean[groups])
        joint = joint - means[0][:, None] - means[1][None] + overall
        result[own] = joint.reshape(result[own].shape)
        moved = moved - overall
    return result, spread, moved


def _centred(
    values: Floats, noise: Floats, curves: Sequence[Curve], count_noise: float
) -> tuple[Floats, Floats, NDArray[Any]]:
    """Return the values with a mean of zero over each curve, their noise, and the sum of the means.

    Means are taken by noisy shares, whose noise of ``count_noise`` per cell moves all values of a curve together.
    """
    result, spread, start, level = values.copy(), noise.copy(), 0, np.zeros(values.shape[1:])
    for curve in curves:
        place = slice(start, start + curve.n_bins)
        mean = curve.shares @ result[place]
        result[place] -= mean
        level = level + mean
        n_cells = np.bincount(curve.bin_of_cell, minlength=curve.n_bins)
        largest = np.abs(result[place]).reshape(curve.n_bins, -1).max(axis=1)
        spread[place] = np.sqrt(spread[place] ** 2 + count_noise**2 * float(n_cells @ largest**2))
        start += curve.n_bins
    return result, spread, np.asarray(level)
