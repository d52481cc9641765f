"""Fast versions of the methods of chapter 6, in one process and for parties of equal size.

Each method has the plan, and therefore the noise, of its original: ``gradient_plan`` and ``output_plan`` of
``privet.multiparty``, with the rounding of each party and the exact distribution of the joint noise, and the plans of
``multiparty_comparisons``. Only the computation is shortened. The minimisers of all parties are computed together
(multiparty_minimisers.py), and a sum of independent Gaussian noises of the parties is drawn at once if nothing else is
needed. The tests compare each method with its original.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from multiparty_comparisons import AveragedMinimisers, afforded_alpha
from multiparty_data import Study
from multiparty_minimisers import minimisers
from numpy.typing import NDArray

from privet.multiparty.protocol.aggregation import JointProblem
from privet.multiparty.protocol.gradient import gradient_plan
from privet.multiparty.protocol.output import output_plan
from privet.objectives import L2, BoundedRows
from privet.plans import FullBatch, GradientPlan, OutputPlan
from privet.plans.aggregation import AggregationPlan
from privet.privacy import Budget, NoiseSource
from privet.privacy.noise.lattice import rounded
from privet.solvers import Problem, Run, noisy_gradient_descent
from privet.solvers.minimiser_perturbation import minimiser_stability
from privet.solvers.objective_perturbation import objective_plan

Floats = NDArray[np.float64]

MPC_GRAD, MPC_OUT = "MPC Grad-P", "MPC Out-P"
LOCAL_GRAD, LOCAL_OBJ, LOCAL_OUT, PATHAK = "Local Grad-P", "Local Obj-P", "Local Out-P", "Pathak"
RAJKUMAR = "Rajkumar-Agarwal (not private)"
CENTRAL = "central noisy GD"
BASELINES = (LOCAL_GRAD, LOCAL_OBJ, LOCAL_OUT, PATHAK)
DESCENTS = (MPC_GRAD, LOCAL_GRAD, RAJKUMAR, CENTRAL)
METHODS = (MPC_GRAD, MPC_OUT, *BASELINES, RAJKUMAR, CENTRAL)


@dataclass(frozen=True)
class Knobs:
    """Settings of a method: the number and size of steps, or the strength of the penalty during training."""

    alpha: float
    steps: int = 1
    step_size: float = 1.0


@dataclass(frozen=True)
class Trained:
    """Weights after some numbers of steps (the last are the result), the epsilon that was really spent, and the noise.

    ``noise_std`` is that of a coordinate of the result, or of a gradient's average for descents.
    """

    path: dict[int, Floats]
    epsilon: float
    noise_std: float


class Deal:
    """A study divided among parties: consecutive rows, the same number for each party."""

    def __init__(self, study: Study, parties: int) -> None:
        if len(study.y) % parties:
            raise ValueError(f"{len(study.y)} rows do not go evenly to {parties} parties")
        self.study, self.parties = study, parties
        self.n, self.d = study.X.shape
        self.rows_each = self.n // parties
        self._rows = BoundedRows(study.X, 1.0)
        self._found: dict[float, Floats] = {}

    def pooled(self, alpha: float) -> Problem:
        """Return the problem of all rows in one place."""
        return Problem(self.study.objective, L2(alpha), self._rows, self.study.y)

    def joint(self, alpha: float) -> JointProblem:
        """Return the public part of the problem of all parties."""
        return JointProblem(self.study.objective, L2(alpha), (self.rows_each,) * self.parties, 1.0, 0.0, self.d)

    def party(self, alpha: float) -> Problem:
        """Return a party's problem on rows of zeros, which has the same constants as any other."""
        return self.joint(alpha).of_zeros(self.rows_each)

    def minimisers(self, alpha: float) -> Floats:
        """Return each party's minimiser. The result is cached for further methods and seeds."""
        if alpha not in self._found:
            self._found[alpha] = self.solved(alpha, minimiser_stability(self.party(alpha)).tolerance)
        return self._found[alpha]

    def solved(self, alpha: float, tolerance: float, tilts: Floats | None = None) -> Floats:
        """Return the parties' minimisers. If tilts are given, each objective has a linear term."""
        study = self.study
        return minimisers(
            study.objective, study.X, study.y, self.parties, alpha=alpha, tolerance=tolerance, tilts=tilts
        )

    @cached_property
    def cells(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """For each entry, its row and the index of its (party, column) pair; and the column of each pair."""
        X = self.study.X
        rows = np.repeat(np.arange(self.n), np.diff(X.indptr))
        pairs, places = np.unique(rows // self.rows_each * self.d + X.indices, return_inverse=True)
        return rows, places, pairs % self.d

    def sum_on_lattice(self, residuals: Floats, scale: float) -> Floats:
        """Return the sum over parties of each party's scaled and rounded sum of row times residual, as integers."""
        rows, places, columns = self.cells
        sums = np.bincount(places, weights=residuals[rows] * self.study.X.data, minlength=columns.size)
        return np.bincount(columns, weights=rounded(sums, scale), minlength=self.d)


# --------------------------------------------------------------------------------------------------------- the protocol


def mpc_gradient(deal: Deal, budget: Budget, knobs: Knobs, source: NoiseSource | None, kept: Sequence[int]) -> Trained:
    """Simulate MPC Grad-P with the rounding of each party and the exact distribution of the noise."""
    joint = deal.joint(knobs.alpha)
    plan = gradient_plan(joint, budget, steps=knobs.steps)

    def mean(weights: Floats) -> Floats:
        residuals = joint.objective.residuals(deal.study.X @ weights, deal.study.y)
        total = deal.sum_on_lattice(residuals, plan.scale)
        noise = 0 if source is None else source.lattice(deal.d, plan.law)
        return plan.off_lattice(total + noise) / deal.n

    path = _descend(mean, deal, knobs, kept)
    return Trained(path, plan.guarantee(budget.delta).epsilon, plan.noise_std / deal.n)


def mpc_output(deal: Deal, budget: Budget, knobs: Knobs, source: NoiseSource | None) -> Trained:
    """Simulate MPC Out-P with the rounding of each party and the exact distribution of the noise."""
    plan = output_plan_of(deal.joint(knobs.alpha), budget)
    total = rounded(deal.minimisers(knobs.alpha) / deal.parties, plan.scale).sum(axis=0)
    noise = 0 if source is None else source.lattice(deal.d, plan.law)
    return Trained({1: plan.off_lattice(total + noise)}, plan.guarantee(budget.delta).epsilon, plan.noise_std)


def output_plan_of(joint: JointProblem, budget: Budget) -> AggregationPlan:
    """Return ``output_plan(joint, budget)`` for parties of equal size, of which only one is examined."""
    one = output_plan(replace(joint, counts=joint.counts[:1]), budget)
    return AggregationPlan.for_budget(
        budget,
        dimension=one.dimension,
        steps=1,
        sensitivity=one.sensitivity / len(joint.counts),
        largest=one.largest,
    )


# ---------------------------------------------------------------------------------------------- what it is held against


def local_gradient(deal: Deal, budget: Budget, knobs: Knobs, source: NoiseSource, kept: Sequence[int]) -> Trained:
    """Simulate Local Grad-P, which averages the noisy gradients of the parties."""
    plan = _descent_plan(deal, budget, knobs.steps)
    std = plan.noise_std / (deal.rows_each * math.sqrt(deal.parties))
    return Trained(_noisy_path(deal, knobs, std, source, kept), plan.guarantee(budget.delta).epsilon, std)


def rajkumar(deal: Deal, budget: Budget, knobs: Knobs, source: NoiseSource, kept: Sequence[int]) -> Trained:
    """Simulate Rajkumar and Agarwal, who add the noise of a single release in every step."""
    once = _descent_plan(deal, budget, 1)
    plan = GradientPlan(FullBatch(), knobs.steps, once.clip_norm, once.noise_multiplier)
    std = plan.noise_std / deal.n
    return Trained(_noisy_path(deal, knobs, std, source, kept), plan.guarantee(budget.delta).epsilon, std)


def central(deal: Deal, budget: Budget, knobs: Knobs, source: NoiseSource, kept: Sequence[int]) -> Trained:
    """Run noisy gradient descent on the pooled rows, which is the goal for joint noise."""
    problem = deal.pooled(knobs.alpha)
    plan = GradientPlan.for_budget(budget, sampler=FullBatch(), steps=knobs.steps, clip_norm=problem.lipschitz)
    release = noisy_gradient_descent(problem, Run(plan, source), step_size=knobs.step_size, keep_iterates=True)
    path = {step: release.trace["iterates"][step - 1] for step in kept if step}
    return Trained({0: problem.start()} | path, release.guarantee.epsilon, release.trace["noise_std"])


def local_output(deal: Deal, budget: Budget, knobs: Knobs, source: NoiseSource) -> Trained:
    """Simulate Local Out-P, where each party adds its own noise to its minimiser."""
    plan = OutputPlan.for_budget(budget, stability=minimiser_stability(deal.party(knobs.alpha)))
    std = plan.scale / math.sqrt(deal.parties)
    return _noised_once(deal, knobs, std, plan.guarantee(budget.delta).epsilon, source)


def pathak(deal: Deal, budget: Budget, knobs: Knobs, source: NoiseSource) -> Trained:
    """Simulate Pathak et al., who add the noise of one party's minimiser to the average of all."""
    scaled = OutputPlan.for_budget(budget, stability=minimiser_stability(deal.party(knobs.alpha)))
    plan = replace(scaled, stability=AveragedMinimisers(scaled.stability, deal.parties))
    return _noised_once(deal, knobs, plan.scale, plan.guarantee(budget.delta).epsilon, source)


def local_objective(deal: Deal, budget: Budget, knobs: Knobs, source: NoiseSource) -> Trained:
    """Simulate Local Obj-P, where each party tilts its objective by its own noise."""
    party = deal.party(knobs.alpha)
    plan = objective_plan(party, budget, added_alpha=afforded_alpha(party, budget))
    tilts, _ = source.real_gaussian((deal.parties, deal.d), plan.scale / deal.rows_each)
    mean = deal.solved(plan.modulus, plan.tolerance, tilts).mean(axis=0)
    noisy = source.add_gaussian(mean, plan.output_scale / math.sqrt(deal.parties))
    return Trained({1: noisy}, plan.epsilon_at(budget.delta), plan.scale / deal.rows_each)


def train(
    method: str, deal: Deal, budget: Budget, knobs: Knobs, source: NoiseSource, kept: Sequence[int] = ()
) -> Trained:
    """Run a method by its name. Descents keep the weights after the given steps and after the last step."""
    descents = {MPC_GRAD: mpc_gradient, LOCAL_GRAD: local_gradient, RAJKUMAR: rajkumar, CENTRAL: central}
    if method in descents:
        return descents[method](deal, budget, knobs, source, [*kept, knobs.steps])
    once = {MPC_OUT: mpc_output, LOCAL_OBJ: local_objective, LOCAL_OUT: local_output, PATHAK: pathak}
    return once[method](deal, budget, knobs, source)


# --------------------------------------------------------------------------------------------------------- shared parts


@lru_cache(maxsize=64)
def _calibrated(budget: Budget, steps: int, clip_norm: float) -> GradientPlan:
    return GradientPlan.for_budget(budget, sampler=FullBatch(), steps=steps, clip_norm=clip_norm)


def _descent_plan(deal: Deal, budget: Budget, steps: int) -> GradientPlan:
    return _calibrated(budget, steps, deal.party(0.0).lipschitz)


def _noised_once(deal: Deal, knobs: Knobs, std: float, epsilon: float, source: NoiseSource) -> Trained:
    mean = deal.minimisers(knobs.alpha).mean(axis=0)
    return Trained({1: source.add_gaussian(mean, std)}, epsilon, std)


def _noisy_path(deal: Deal, knobs: Knobs, std: float, source: NoiseSource, kept: Sequence[int]) -> dict[int, Floats]:
    problem = deal.pooled(knobs.alpha)

    def mean(weights: Floats) -> Floats:
        total = problem.objective.gradient_sum(weights, problem.rows, problem.targets, problem.lipschitz)
        return source.add_gaussian(total / deal.n, std)

    return _descend(mean, deal, knobs, kept)


def _descend(mean: Callable[[Floats], Floats], deal: Deal, knobs: Knobs, kept: Sequence[int]) -> dict[int, Floats]:
    """Return the weights after zero steps and after the numbers of steps in ``kept``."""
    weights = np.zeros(deal.d)
    path, wanted = {0: weights}, set(kept)
    for done in range(1, knobs.steps + 1):
        weights = weights - knobs.step_size * (mean(weights) + knobs.alpha * weights)
        if done in wanted:
            path[done] = weights
    return path
