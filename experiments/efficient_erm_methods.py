"""The methods of Table 3 of "Efficient Private ERM for Smooth Objectives", by rules made of public numbers only.

- ``auto``, and each method among which it chooses: privet's estimators, PrivateLogisticRegression and
  PrivateHuberRegressor, with their defaults, the bounds of the data and the penalty of the problem. ``output`` is the
  paper's Algorithm 1 as privet runs it. ``minimiser`` needs a penalty and is left out where mu is 0.
- ``printed``: the paper's Algorithm 1 with sensitivity and noise as printed. Steps as in Theorems 2 and 3, where
  constants are taken to be 1 and ||w_hat|| at most L/mu, or for mu = 0 at most three times the scale of scores; at most
  3000.
- ``sgd``: noisy SGD of Bassily et al. with batches of 50, drawn without replacement, with the accountant's noise. Two
  passes over the data; the paper's took minutes. Steps are D/(G sqrt(T)) for mu = 0 and 1/(mu t) otherwise.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from efficient_erm_data import HUBER_THRESHOLD, Dataset, Floats
from scipy.optimize import minimize
from support import Spread, timed

from privet import PrivateHuberRegressor, PrivateLogisticRegression
from privet.plans import FixedSize, GradientPlan
from privet.privacy import Budget, NoiseSource
from privet.solvers import ConstantStep, DecayingStep, Problem, Release, Run, StepSize, noisy_gradient_descent

DELTA, EPSILONS = 0.001, (0.1, 0.5, 1.0, 2.0)
AVERAGED, BATCH, PASSES = 0.5, 50, 2  # of SGD
MOST_STEPS, REACH = 3000, 3.0  # for Algorithm 1; REACH times the scale of scores bounds ||w_hat|| where mu is 0
SETTINGS = {
    "delta": DELTA,
    "most_steps": MOST_STEPS,
    "reach": REACH,
    "batch": BATCH,
    "passes": PASSES,
    "averaged": AVERAGED,
}
CHOICES = tuple(name for name, method in PrivateLogisticRegression.offered_methods().items() if method.excess)


@dataclass(frozen=True)
class Study:
    """A problem, its minimum, and how often a method is run on it."""

    data: Dataset
    problem: Problem
    mu: float
    least: float
    runs: int

    @property
    def methods(self) -> tuple[str, ...]:
        """Return ``auto`` and the methods among which it can choose."""
        return ("auto", *(name for name in CHOICES if self.mu > 0 or name != "minimiser"))

    def error(self, weights: Floats) -> float:
        """Return F(w) - F(w_hat)."""
        return self.problem.value(weights) - self.least

    def outcome(self, weights: Sequence[Floats], seconds: Sequence[float]) -> dict[str, Any]:
        """Return the errors of all runs, and the processor time of one run."""
        return {"error": asdict(Spread.of([self.error(w) for w in weights])), "seconds": float(np.mean(seconds))}


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


def estimator(study: Study, method: str, epsilon: float, seed: int | None = None) -> Any:
    """Return the estimator of the problem, with defaults apart from its method."""
    data = study.data
    settings: dict[str, Any] = {
        "epsilon": epsilon,
        "delta": DELTA,
        "alpha": study.mu,
        "method": method,
        "feature_norm": data.feature_norm * (1 + 1e-12),  # room for rounding
        "intercept_scaling": data.factor / data.feature_norm,
        "random_state": seed,
    }
    if data.is_regression:
        return PrivateHuberRegressor(threshold=HUBER_THRESHOLD, target_bound=data.top, **settings)
    return PrivateLogisticRegression(classes=[0, 1], **settings)


def fitted(study: Study, method: str, epsilon: float) -> dict[str, Any]:
    """Fit the estimator once per run, and check its guarantee."""
    data, weights, times = study.data, [], []
    X = data.columns * data.factor
    for seed in range(study.runs):
        model = estimator(study, method, epsilon, seed)
        _, seconds = timed(lambda model=model: model.fit(X, data.targets))
        if model.guarantee_.epsilon > epsilon or model.guarantee_.delta > DELTA:
            raise AssertionError("a release exceeds its budget")
        weights.append(np.append(np.ravel(model.coef_), model.intercept_ / data.factor))
        times.append(seconds)
    return study.outcome(weights, times) | {"method": model.method_, "steps": model.n_iter_}


def sgd(study: Study, epsilon: float) -> dict[str, Any]:
    """Noisy SGD of Bassily et al. with batches, for a part of the runs only, because it is slow."""
    problem, n, budget = study.problem, study.problem.rows.n, Budget(epsilon, DELTA)
    steps = PASSES * n // BATCH
    plan = GradientPlan.for_budget(budget, sampler=FixedSize(BATCH, n), steps=steps, clip_norm=problem.lipschitz)
    longest = math.hypot(problem.lipschitz, plan.noise_std / BATCH * math.sqrt(problem.rows.dimension))
    constant = ConstantStep(REACH * study.data.worth / (longest * math.sqrt(steps)))
    rule: StepSize = DecayingStep(1 / study.mu) if study.mu > 0 else constant

    def run(seed: int) -> Release:
        return noisy_gradient_descent(problem, Run(plan, NoiseSource(seed)), step_size=rule, averaged=AVERAGED)

    done = [timed(lambda seed=seed: run(seed)) for seed in range(math.ceil(study.runs / 5))]
    if any(release.guarantee.epsilon > epsilon for release, _ in done):
        raise AssertionError("a release exceeds its budget")
    return study.outcome([release.weights for release, _ in done], [seconds for _, seconds in done])


def printed(study: Study) -> dict[float, dict[str, Any]]:
    """Algorithm 1 as printed, at all epsilons. One descent serves all runs, because noise is added at its end."""
    stops = {epsilon: theorem_steps(study, epsilon) for epsilon in EPSILONS}
    path, seconds = descent(study.problem, 1 / study.problem.smoothness, set(stops.values()))
    outcomes = {}
    for epsilon, steps in stops.items():
        std = printed_sensitivity(study, steps) * math.sqrt(2 * math.log(2 / DELTA)) / epsilon
        draws = [np.random.default_rng(seed).normal(0, std, path[steps].shape) for seed in range(study.runs)]
        outcome = study.outcome([path[steps] + draw for draw in draws], [seconds * steps])
        outcomes[epsilon] = outcome | {"steps": steps, "noise": std}
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


def descent(problem: Problem, step_size: float, kept: set[int]) -> tuple[dict[int, Floats], float]:
    """Return the weights after the steps in ``kept``, and the seconds per step: the descent without its noise."""
    path, weights, steps = {}, problem.start(), max(kept)
    begin = time.process_time()
    for done in range(1, steps + 1):
        total = problem.objective.gradient_sum(weights, problem.rows, problem.targets, problem.lipschitz)
        weights = weights - step_size * (total / problem.rows.n + problem.regulariser.gradient(weights))
        if done in kept:
            path[done] = weights
    return path, (time.process_time() - begin) / steps
