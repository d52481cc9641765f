"""The methods of Table 3 of "Efficient Private ERM for Smooth Objectives", by rules made of public numbers only.

- ``gradient``: noise in every step, the method that privet's ``auto`` takes for delta > 0. One rule for all problems:
  100 full-batch steps whose size AlignedStep finds from the noisy gradients, up to privet's limit; the average of the
  last half of the iterates is released. Where mu is 0, rows are centred first at a noisy mean (5 % of the budget),
  which makes them shorter, and gradients are clipped at half of their bound. Where mu > 0, neither is done: the penalty
  is not on weights of centred rows, and a clip would move the minimum.
- ``output``: Algorithm 1 of the paper with the sensitivity that is attained and the smallest noise for it. Steps as in
  Theorems 2 and 3, where constants are taken to be 1 and ||w_hat|| at most L/mu, or for mu = 0 at most three times the
  scale of scores; at most 3000.
- ``printed``: the same descent with sensitivity and noise as printed.
- ``sgd``: noisy SGD of Bassily et al. with batches of 50, drawn without replacement, with the accountant's noise. Two
  passes over the data; the paper's took minutes. Steps are D/(G sqrt(T)) for mu = 0 and 1/(mu t) otherwise.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from efficient_erm_data import Dataset, Floats
from scipy.optimize import minimize
from support import Spread, timed

from privet.linear.methods.gradient import CENTRE_SHARE, longest_step
from privet.plans import CentredPlan, FixedSize, FullBatch, GradientPlan, OutputPlan
from privet.privacy import Budget, NoiseSource
from privet.solvers import (
    AlignedStep,
    ConstantStep,
    DecayingStep,
    Problem,
    Release,
    Run,
    StepSize,
    centred_gradient_descent,
    noisy_gradient_descent,
)
from privet.solvers.output_perturbation import descent_stability

DELTA, EPSILONS = 0.001, (0.1, 0.5, 1.0, 2.0)
STEPS, AVERAGED, CLIP_OF_CENTRED = 100, 0.5, 0.5
MOST_STEPS, REACH = 3000, 3.0  # for Algorithm 1; REACH times the scale of scores bounds ||w_hat|| where mu is 0
BATCH, PASSES = 50, 2
SETTINGS = {
    "delta": DELTA,
    "steps": STEPS,
    "averaged": AVERAGED,
    "clip_of_centred": CLIP_OF_CENTRED,
    "centre_share": CENTRE_SHARE,
    "most_steps": MOST_STEPS,
    "reach": REACH,
    "batch": BATCH,
    "passes": PASSES,
}


@dataclass(frozen=True)
class Study:
    """A problem, its minimum, and how often a method is run on it."""

    data: Dataset
    problem: Problem
    mu: float
    least: float
    runs: int

    def error(self, weights: Floats) -> float:
        """Return F(w) - F(w_hat)."""
        return self.problem.value(weights) - self.least

    def outcome(self, weights: Sequence[Floats], seconds: Sequence[float]) -> dict[str, Any]:
        """Return the errors of all runs, and the processor time of one run."""
        return {"error": asdict(Spread.of([self.error(w) for w in weights])), "seconds": float(np.mean(seconds))}

    def repeated(self, run: Callable[[NoiseSource], Release], runs: int, budget: Budget) -> dict[str, Any]:
        """Run a solver several times, and check its guarantee."""
        done = [timed(lambda seed=seed: run(NoiseSource(seed))) for seed in range(runs)]
        if any(release.guarantee.epsilon > budget.epsilon for release, _ in done):
            raise AssertionError("a release exceeds its budget")
        return self.outcome([release.weights for release, _ in done], [seconds for _, seconds in done])


def minimum(problem: Problem) -> tuple[float, float]:
    """Return F(w_hat), and the norm of the gradient there."""

    def function(weights: Floats) -> tuple[float, Floats]:
        gradient = problem.objective.gradient_sum(weights, problem.rows, problem.targets, math.inf) / problem.rows.n
        return problem.value(weights), gradient + problem.regulariser.gradient(weights)

    options = {"maxiter": 5000, "maxfun": 10_000, "maxcor": 30, "ftol": 0, "gtol": 1e-10}
    weights = problem.start()
    for _ in range(3):  # L-BFGS stops where rounding hides a descent. A restart often descends further.
        weights = minimize(function, weights, jac=True, method="L-BFGS-B", options=options).x
    return problem.value(weights), problem.gradient_norm(weights)


# ------------------------------------------------------------------------------------------------------------ methods


def gradient(study: Study, budget: Budget) -> dict[str, Any]:
    """Noise in every step, by the rule at the top of this file."""
    problem, rows = study.problem, study.problem.rows

    def step_size(plan: GradientPlan) -> StepSize:
        longest = longest_step(plan.noise_std / rows.n, STEPS, rows.row_norm, study.data.worth)
        return AlignedStep(first=1.8 / problem.smoothness, longest=longest)

    if study.mu > 0:
        plain = GradientPlan.for_budget(budget, sampler=FullBatch(), steps=STEPS, clip_norm=problem.lipschitz)
        solver, plan, rule = noisy_gradient_descent, plain, step_size(plain)
    else:
        clip, length = CLIP_OF_CENTRED * problem.lipschitz, rows.weight_in_total
        centred = CentredPlan.for_budget(budget, steps=STEPS, clip_norm=clip, row_norm=length, share=CENTRE_SHARE)
        solver, plan, rule = centred_gradient_descent, centred, step_size(centred.gradients)

    def run(source: NoiseSource) -> Release:
        return solver(problem, Run(plan, source), step_size=rule, averaged=AVERAGED)

    return study.repeated(run, study.runs, budget)


def sgd(study: Study, budget: Budget) -> dict[str, Any]:
    """Noisy SGD of Bassily et al. with batches, for a part of the runs only, because it is slow."""
    problem, n = study.problem, study.problem.rows.n
    steps = PASSES * n // BATCH
    plan = GradientPlan.for_budget(budget, sampler=FixedSize(BATCH, n), steps=steps, clip_norm=problem.lipschitz)
    longest = math.hypot(problem.lipschitz, plan.noise_std / BATCH * math.sqrt(problem.rows.dimension))
    constant = ConstantStep(REACH * study.data.worth / (longest * math.sqrt(steps)))
    rule: StepSize = DecayingStep(1 / study.mu) if study.mu > 0 else constant

    def run(source: NoiseSource) -> Release:
        return noisy_gradient_descent(problem, Run(plan, source), step_size=rule, averaged=AVERAGED)

    return study.repeated(run, math.ceil(study.runs / 5), budget)


def algorithm1(study: Study) -> dict[float, dict[str, Any]]:
    """Algorithm 1 of the paper at all epsilons. One descent serves all runs, because noise is added at its end."""
    problem = study.problem
    step_size = 1 / problem.smoothness
    stops = {epsilon: theorem_steps(study, epsilon) for epsilon in EPSILONS}
    path, seconds = descent(problem, step_size, max(stops.values()), kept=set(stops.values()))
    outcomes = {}
    for epsilon, steps in stops.items():
        stability = descent_stability(problem, step_size, steps)
        plan = OutputPlan.for_budget(Budget(epsilon, DELTA), stability=stability)
        std = printed_sensitivity(study, steps) * math.sqrt(2 * math.log(2 / DELTA)) / epsilon
        draws = [np.random.default_rng(seed).normal(0, std, path[steps].shape) for seed in range(study.runs)]
        noisy = {
            "printed": [path[steps] + draw for draw in draws],
            "output": [plan.noisy(path[steps], NoiseSource(seed)) for seed in range(study.runs)],
        }
        noise = {"printed": std, "output": plan.scale}
        outcomes[epsilon] = {
            kind: study.outcome(weights, [seconds * steps]) | {"steps": steps, "noise": noise[kind]}
            for kind, weights in noisy.items()
        }
    return outcomes


def theorem_steps(study: Study, epsilon: float) -> int:
    """Return T of Theorem 2 (mu > 0) or 3, with constants equal to 1."""
    problem, mu = study.problem, study.mu
    lipschitz, beta = problem.lipschitz, problem.smoothness - mu
    signal = (problem.rows.n * epsilon) ** 2 / (lipschitz**2 * problem.rows.dimension * math.log(1 / DELTA))
    if mu > 0:  # the minimiser of a penalised L-Lipschitz loss has a norm of at most L/mu
        steps = (mu**2 + beta**2) / (mu * beta) * math.log(signal * mu**2 * (lipschitz / mu) ** 2)
    else:
        steps = (signal * (beta * REACH * study.data.worth) ** 2) ** (1 / 3)
    return int(min(max(steps, 1), MOST_STEPS))


def printed_sensitivity(study: Study, steps: int) -> float:
    """Return Delta of Theorem 2 (mu > 0) or 3."""
    lipschitz, beta, n = study.problem.lipschitz, study.problem.smoothness - study.mu, study.problem.rows.n
    return 5 * lipschitz * (1 + beta / study.mu) / (n * beta) if study.mu > 0 else 3 * lipschitz * steps / (beta * n)


def descent(problem: Problem, step_size: float, steps: int, kept: set[int]) -> tuple[dict[int, Floats], float]:
    """Return the weights after the steps in ``kept``, and the seconds per step: the descent without its noise."""
    path, weights = {}, problem.start()
    begin = time.process_time()
    for done in range(1, steps + 1):
        total = problem.objective.gradient_sum(weights, problem.rows, problem.targets, problem.lipschitz)
        weights = weights - step_size * (total / problem.rows.n + problem.regulariser.gradient(weights))
        if done in kept:
            path[done] = weights
    return path, (time.process_time() - begin) / steps
