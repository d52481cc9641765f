"""Privacy bugs are planted one at a time. The audit must flag each, and must not flag the same run without the bug.

A bug is a patch of the package, as a mistake of its authors would be, or a published claim. If several released numbers
share the same noise, the attacker first computes quantities without it, which is post-processing.
"""

import importlib
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privet.audit import Distinguished, pairs
from privet.denoise import beta, laplacian_smoothing
from privet.objectives import L2, BoundedRows, Logistic, Multinomial, glm
from privet.plans import (
    CentredPlan,
    DescentStability,
    FixedOrder,
    FullBatch,
    GradientPlan,
    OutputPlan,
    Poisson,
    RandomStop,
    SecretOrder,
)
from privet.plans.contraction import Descent
from privet.plans.gradient import Step
from privet.plans.recursive import RecursivePlan
from privet.privacy import Adjacency, Budget, NoiseSource
from privet.privacy.analyses import accounting
from privet.privacy.events import PoissonGaussian
from privet.solvers import Problem, Run, noisy_gradient_descent, output_perturbation
from privet.solvers.base.hidden_steps import Rounding
from privet.solvers.noisy_gradient import centred_gradient_descent
from privet.solvers.output_perturbation import descent_stability
from privet.solvers.recursive_momentum import recursive_momentum

sys.path.insert(0, str(Path(__file__).parent))

from games import Bugs, Game, fixed_seed, scaled_noise

CLIP, DELTA = 0.1, 1e-5
STILL = 1e-3  # a step so short that gradients remain those at zero weights
# The package exports functions of the same names as these modules.
hidden_steps = importlib.import_module("privet.solvers.projected_sgd")
centring = importlib.import_module("privet.solvers.base.centring")


BUGS = Bugs()
planted = BUGS.planted


@pytest.fixture(autouse=True)
def forgetful_accountant():
    accounting._epsilon.cache_clear()
    yield
    accounting._epsilon.cache_clear()


# ---------------------------------------------------------------------------------------------- scenarios: descents


def problem(table: pairs.Table, *, objective: Any = None, intercept: float = 0.0, alpha: float = 0.0) -> Problem:
    X, y = table
    return Problem(objective or Logistic(), L2(alpha), BoundedRows(X, 1.0, intercept), y)


def noisy_gradients(iterates: list[Any], kept: float = 1.0) -> Any:
    """Return what a step added to ``kept`` times the iterate before it: the noisy gradient, up to a factor."""
    return np.array([after - kept * before for before, after in pairwise([0 * iterates[0], *iterates])])


def descent_game(plan: GradientPlan, first: Problem, second: Problem, *, runs: int = 1000, see: Any = None) -> Game:
    def mechanism(data: Problem, source: NoiseSource) -> Any:
        release = noisy_gradient_descent(
            data, Run(replace(plan, delta=DELTA), source), step_size=STILL, keep_iterates=True
        )
        gradients = noisy_gradients(release.trace["iterates"])
        return gradients if see is None else see(gradients)

    return Game(plan.guarantee(DELTA), first, second, mechanism, runs=runs)


def full_batch(steps: int = 2, runs: int = 1000) -> Game:
    """One record's label flips and all other rows are zero, so every noisy sum moves by 2C."""
    plan = GradientPlan(FullBatch(), steps, CLIP, 2 * math.sqrt(steps) / 0.6)  # mu = 0.6
    first, second = map(problem, pairs.label_flip())
    return descent_game(plan, first, second, runs=runs)


def full_batch_long() -> Game:
    """The same with enough runs to detect a factor of sqrt(2)."""
    return full_batch(runs=5000)


def full_batch_intercept() -> Game:
    """All rows are zero besides a constant column, so the record whose label flips affects only the intercept."""
    X = np.zeros((3, 1))
    plan = GradientPlan(FullBatch(), 2, CLIP, 2 * math.sqrt(2) / 0.6)
    first, second = (problem((X, np.array([label, 0, 1])), intercept=1.0) for label in (0, 1))
    return descent_game(plan, first, second)


def full_batch_classes() -> Game:
    """Three classes; the label of one record changes from the first to the last."""
    X = pairs.label_flip().first[0]
    plan = GradientPlan(FullBatch(), 2, CLIP, 2 * math.sqrt(2) / 0.6)
    labels = (np.array([0, 1, 2]), np.array([2, 1, 2]))
    first, second = (problem((X, y), objective=Multinomial(3)) for y in labels)
    return descent_game(plan, first, second)


def full_batch_scaled() -> Game:
    """Nine equal rows and a tenth in another direction, which has norm 1 or is far beyond the bound."""
    X = np.zeros((10, 2))
    X[1:, 0], X[0, 1] = 1.0, 1.0
    plan = GradientPlan(FullBatch(), 2, 1.0, 2 * math.sqrt(2) / 0.6)
    long = X.copy()
    long[0, 1] = 1e6
    first, second = (problem((rows, np.ones(10, dtype=int))) for rows in (X, long))
    return descent_game(plan, first, second)


def full_batch_smooth() -> Game:
    """A row with equal entries, which smoothing does not change."""
    X = np.zeros((3, 16))
    X[0] = 0.25
    plan = GradientPlan(FullBatch(), 2, CLIP, 2 * math.sqrt(2) / 0.6)
    first, second = (problem((X, np.array([label, 0, 1]))) for label in (0, 1))
    return descent_game(plan, first, second)


def one_pass() -> Game:
    """Two records, one after the other; the attacker also looks at the difference of the two noisy gradients."""
    plan = GradientPlan(FixedOrder(2), None, CLIP, 2 / 0.6)
    first, second = map(problem, pairs.label_flip(n=2))
    return descent_game(
        plan, first, second, see=lambda gradients: np.vstack([gradients, gradients[:1] - gradients[1:]])
    )


def poisson(size: int = 20) -> Game:
    """All records pull one way, and the added record pulls the other way: docs/errata.md (k)."""
    X, y = np.ones((size + 1, 1)), np.append(np.ones(size, dtype=int), 0)
    plan = GradientPlan(Poisson(0.5), 4, CLIP, 1.4, public_n=size)
    return descent_game(plan, problem((X[:-1], y[:-1])), problem((X, y)), runs=3000)


def poisson_few() -> Game:
    """One record without a gradient, or two of them: only a divisor that depends on the table could differ."""
    X, y = np.zeros((2, 1)), np.zeros(2, dtype=int)
    plan = GradientPlan(Poisson(0.5), 4, CLIP, 5.0, public_n=1)
    return descent_game(plan, problem((X[:1], y[:1])), problem((X, y)), runs=600)


def poisson_canary() -> Game:
    """One record among rows of zeros, which is present in only one of the tables."""
    X, y = np.zeros((4, 1)), np.zeros(4, dtype=int)
    X[0] = 1.0
    plan = GradientPlan(Poisson(0.5), 4, CLIP, 1.4, public_n=3)
    return descent_game(plan, problem((X[1:], y[1:])), problem((X, y)), runs=2000)


def recursive() -> Game:
    """Recursive momentum whose first release has less noise than the others."""
    plan = RecursivePlan(FullBatch(), 3, CLIP, CLIP / 10, 0.9, 8.0, 3.0)
    first, second = map(problem, pairs.label_flip())

    def mechanism(data: Problem, source: NoiseSource) -> Any:
        options: dict[str, Any] = {"step_size": STILL, "max_move": math.inf, "keep_iterates": True}
        release = recursive_momentum(data, Run(replace(plan, delta=DELTA), source), **options)
        return noisy_gradients(noisy_gradients(release.trace["iterates"]), 1 - plan.refresh)

    return Game(plan.guarantee(DELTA), first, second, mechanism)


def centred() -> Game:
    """A row against its opposite. The noisy mean is released with the rest."""
    plan = CentredPlan.for_budget(Budget(2.0, DELTA), steps=2, clip_norm=CLIP, row_norm=1.1)
    first, second = (problem(table, intercept=1.0) for table in pairs.opposite_row())

    def mechanism(data: Problem, source: NoiseSource) -> Any:
        centres: list[Any] = []
        with pytest.MonkeyPatch.context() as spy:
            brought_back = centring._in_ball
            spy.setattr(centring, "_in_ball", lambda *args: centres.append(brought_back(*args)) or centres[-1])
            release = centred_gradient_descent(data, Run(replace(plan, delta=DELTA), source), step_size=STILL)
        return np.concatenate([centres[0], release.weights])

    return Game(plan.guarantee(DELTA), first, second, mechanism)


def fresh_noise() -> Game:
    """Each run creates its own noise source, as a program does each time it is started."""
    game = full_batch(runs=300)
    return replace(game, mechanism=lambda data, source: game.mechanism(data, NoiseSource(source.below(10**15))))


# ------------------------------------------------------------------------------------- scenarios: hidden iterates


CONTRACTING = Descent(
    step_size=0.8, smoothness=1.25, strong_convexity=1.0
)  # contracts to a fifth, so early noise hides little


def hidden_game(plan: GradientPlan, first: Problem, second: Problem, runs: int) -> Game:
    """The attacker sees the last iterate and everything else that the solver returns."""

    def mechanism(data: Problem, source: NoiseSource) -> Any:
        release = hidden_steps.projected_sgd(data, Run(replace(plan, delta=DELTA), source))
        if "iterates" not in release.trace:
            return release.weights
        return noisy_gradients(release.trace["iterates"], 1 - plan.descent.step_size * data.regulariser.alpha)

    return Game(plan.guarantee(DELTA), first, second, mechanism, runs=runs)


def hidden_full_batch() -> Game:
    """Twelve steps on a strongly convex objective. Each step halves the influence of earlier ones."""
    descent = Descent(step_size=0.5, smoothness=1.25, strong_convexity=1.0)
    plan = GradientPlan(FullBatch(), 12, CLIP, 5.0, release="last", descent=descent)
    first, second = (problem(table, alpha=1.0) for table in pairs.label_flip())
    return hidden_game(plan, first, second, runs=600)


def hidden_passes(step_size: float = 0.8) -> Game:
    """Twenty passes over two records, the last of which is replaced."""
    descent = Descent(step_size=step_size, smoothness=1.25, strong_convexity=1.0)
    plan = GradientPlan(FixedOrder(2, 20), None, CLIP, 4.0, release="last", descent=descent)
    first, second = (problem(table, alpha=1.0) for table in pairs.last_record(n=2))
    return hidden_game(plan, first, second, runs=350)


def hidden_public(place: int = 0) -> Game:
    """One private record, which is replaced, followed by three public ones."""
    plan = GradientPlan(FixedOrder(1, public=3), None, CLIP, 2.0, release="last", descent=CONTRACTING)
    tables = []
    for label in (0, 1):
        X, y = np.zeros((4, 1)), np.zeros(4, dtype=int)
        X[place], y[place] = 1.0, label
        tables.append(problem((X, y), alpha=1.0))
    return hidden_game(plan, *tables, runs=1000)


def secret_order(sampler: type[FixedOrder] = SecretOrder, place: int = -1) -> Game:
    """Eight records in a secret order; the last one's label flips."""
    plan = GradientPlan(sampler(8), None, CLIP, 1.5, release="last", descent=CONTRACTING)
    tables = []
    for label in (0, 1):
        X, y = np.zeros((8, 1)), np.zeros(8, dtype=int)
        X[place], y[place] = 1.0, label
        tables.append(problem((X, y), alpha=1.0))
    return hidden_game(plan, *tables, runs=700)


def secret_stop() -> Game:
    """Eight records up to a secret stop; the first one's label flips."""
    return secret_order(RandomStop, place=0)


# --------------------------------------------------------------------------------------- scenarios: noise added once


def output_game(plan: OutputPlan, d: int, see: Callable[[Any], Any] | None = None, runs: int = 3000) -> Game:
    """A result that moves by the full sensitivity, equally in all coordinates."""
    results = (np.zeros(d), np.full(d, plan.stability.sensitivity / math.sqrt(d)))

    def mechanism(result: Any, source: NoiseSource) -> Any:
        released = plan.noisy(result, source)
        return released if see is None else see(released)

    return Game(plan.guarantee(0.0 if plan.is_pure else DELTA), *results, mechanism, runs=runs)


def output() -> Game:
    """One step of gradient descent, then noise: the label flip attains its sensitivity."""
    first, second = map(problem, pairs.label_flip())
    stability = descent_stability(first, step_size=1.0, steps=1)
    plan = OutputPlan(stability, stability.sensitivity / 0.6, is_pure=False)
    return Game(
        plan.guarantee(DELTA),
        first,
        second,
        lambda data, source: output_perturbation(data, Run(replace(plan, delta=DELTA), source)).weights,
    )


def pure_output() -> Game:
    """One number, with noise for epsilon 1."""
    stability = DescentStability(n=100, lipschitz=1.0, smoothness=1.0, strong_convexity=0.0, step_size=1.0, steps=1)
    return output_game(OutputPlan.for_budget(Budget(1.0), stability=stability), d=1)


def pure_output_wide() -> Game:
    """122 numbers with noise for epsilon 1/2: docs/errata.md (b).

    The attacker counts the numbers that are closer to the second dataset.
    """
    stability = DescentStability(n=100, lipschitz=1.0, smoothness=1.0, strong_convexity=0.0, step_size=1.0, steps=1)
    middle = stability.sensitivity / math.sqrt(122) / 2
    plan = OutputPlan.for_budget(Budget(0.5), stability=stability)
    return output_game(plan, d=122, see=lambda released: np.sum(released > middle), runs=30_000)


def hard_threshold(epsilon: float = 10.0, noise_multiplier: float | None = None) -> Game:
    """DP-IGHT: the noisy gradients of iterative hard thresholding, all runs at once, at delta 0.01."""
    budget, steps, n = Budget(epsilon, 0.01), 5, 100
    claim = GradientPlan.for_budget(budget, sampler=FullBatch(), steps=steps, clip_norm=1.0)
    plan = replace(claim, noise_multiplier=noise_multiplier or claim.noise_multiplier)

    def outputs(sign: float, source: NoiseSource, runs: int) -> Any:
        theta, seen = np.zeros((runs, 2)), []
        for step in plan.run(n, source):
            total = np.zeros((runs, 2))
            total[:, 0] = sign  # one record's gradient, clipped; all others are zero
            seen.append(step.noisy(total) / plan.divisor(n))
            theta = theta - 0.5 * seen[-1]
            theta[np.arange(runs), np.abs(theta).argmin(axis=1)] = 0.0
        return np.hstack([*seen, theta])

    return Game(claim.guarantee(0.01), 1.0, -1.0, outputs=outputs, runs=40_000)


# ------------------------------------------------------------------------------------------------- bugs: the noise


@planted(full_batch)
def noise_dropped(monkeypatch):
    scaled_noise(monkeypatch, 0.0)


@planted(full_batch)
def noise_halved(monkeypatch):
    scaled_noise(monkeypatch, 0.5)


@planted(full_batch)
def noise_divided_by_n_twice(monkeypatch):
    monkeypatch.setattr(GradientPlan, "noise_std", property(lambda plan: plan.noise_multiplier * plan.clip_norm / 3))


@planted(one_pass)
def noise_reused_across_steps(monkeypatch):
    run = GradientPlan.run

    def one_noise(self, n, source, **options):
        kept: list[Any] = []
        for step in run(self, n, source, **options):
            fresh = step.noisy

            def noisy(total, fresh=fresh):
                kept.append(fresh(0 * total))
                return total + kept[0]

            step.noisy = noisy
            yield step

    monkeypatch.setattr(GradientPlan, "run", one_noise)


@planted(fresh_noise)
def seed_fixed(monkeypatch):
    fixed_seed(monkeypatch)


@planted(pure_output)
def tails_cut_off(monkeypatch):
    add_k_norm = NoiseSource.add_k_norm

    def clipped(self, values, scale, *_):
        return values + np.clip(add_k_norm(self, np.zeros_like(values), scale), -3 * scale, 3 * scale)

    monkeypatch.setattr(NoiseSource, "add_k_norm", clipped)


@planted(pure_output_wide)
def laplace_in_each_coordinate(monkeypatch):
    monkeypatch.setattr(
        NoiseSource,
        "add_k_norm",
        lambda self, values, scale, *_: values + self._live().laplace(0.0, scale, values.shape),
    )


@planted(hard_threshold)
def dp_ight_at_10(_):
    return {"noise_multiplier": published_multiplier(10.0)}


def hard_threshold_at_8(noise_multiplier: float | None = None) -> Game:
    """The game of :func:`hard_threshold` at epsilon 8."""
    return hard_threshold(8.0, noise_multiplier)


@planted(hard_threshold_at_8)
def dp_ight_at_8(_):
    return {"noise_multiplier": published_multiplier(8.0)}


def published_multiplier(epsilon: float, delta: float = 0.01, steps: int = 5) -> float:
    """Theorem 2.5.2: sigma^2 = T G^2 / (n^2 rho), in units of G/n."""
    rho = (math.sqrt(epsilon - math.log(delta)) - math.sqrt(-math.log(delta))) ** 2
    return math.sqrt(steps / rho)


@planted(centred)
def mean_released_without_noise(monkeypatch):
    total = BoundedRows.total
    noisy, exact = Step.noisy, []

    def remembered(self):
        exact.append(total(self))
        return exact[-1]

    monkeypatch.setattr(BoundedRows, "total", remembered)
    monkeypatch.setattr(
        Step, "noisy", lambda step, value: value if exact and value is exact[-1] else noisy(step, value)
    )


# -------------------------------------------------------------------------------------------------- bugs: the bound


@planted(full_batch)
def clip_after_the_mean(monkeypatch):
    def gradient_sum(self, weights, rows, targets, clip_norm):
        mean = rows.combine(self.residuals(rows.scores(weights), targets)) / rows.n
        return rows.n * mean * min(1.0, clip_norm / (np.linalg.norm(mean) + 1e-300))

    monkeypatch.setattr(Logistic, "gradient_sum", gradient_sum)


@planted(full_batch_intercept)
def intercept_left_out_of_the_norm(monkeypatch):
    def without_intercept(rows: BoundedRows) -> Any:
        return np.sqrt(np.maximum(vars(rows)["_norms"] ** 2 - getattr(rows, "intercept", 0.0) ** 2, 1e-12))

    stored = property(without_intercept, lambda rows, norms: vars(rows).update(_norms=norms))
    monkeypatch.setattr(BoundedRows, "_norms", stored, raising=False)


@planted(full_batch_classes)
def one_class_not_clipped(monkeypatch):
    clipped = glm.clipped

    def all_but_one(residuals, rows, clip_norm):
        result = residuals.copy()
        result[:, 1:] = clipped(residuals[:, 1:], rows, clip_norm)
        return result

    monkeypatch.setattr(glm, "clipped", all_but_one)


@planted(full_batch)
def one_record_not_clipped(monkeypatch):
    clipped = glm.clipped
    monkeypatch.setattr(
        glm, "clipped", lambda residuals, *bound: np.append(residuals[:1], clipped(residuals, *bound)[1:])
    )


@planted(full_batch_scaled)
def rows_scaled_by_their_own_maximum(monkeypatch):
    init = BoundedRows.__init__

    def scaled(self, X, row_norm, intercept=0.0):
        init(self, X * (row_norm / np.linalg.norm(X, axis=1).max()), row_norm, intercept)

    monkeypatch.setattr(BoundedRows, "__init__", scaled)


@planted(full_batch)
def sensitivity_of_one_record_instead_of_two(monkeypatch):
    monkeypatch.setattr(Adjacency, "factor", property(lambda _: 1))


@planted(output)
def output_sensitivity_halved(monkeypatch):
    sensitivity = DescentStability.sensitivity
    monkeypatch.setattr(DescentStability, "sensitivity", property(lambda self: sensitivity.fget(self) / 2))


@planted(full_batch_smooth)
def smoothing_taken_to_lower_the_sensitivity(monkeypatch):
    def noisy(step, total):
        spared = math.sqrt(beta(total.size, 3.0))
        return step._source.add_gaussian(laplacian_smoothing(total, 3.0), spared * step._noise_std)

    monkeypatch.setattr(Step, "noisy", noisy)


@planted(recursive)
def clips_of_gradient_and_difference_swapped(monkeypatch):
    monkeypatch.setattr(
        RecursivePlan,
        "contribution_norm",
        property(lambda plan: (1 - plan.refresh) * plan.clip_norm + plan.refresh * plan.difference_norm),
    )


# ---------------------------------------------------------------------------------------------- bugs: the sampling


@planted(poisson)
def divided_by_the_realised_batch(monkeypatch):
    noisy = Step.noisy
    monkeypatch.setattr(Step, "noisy", lambda step, total: noisy(step, total) * (10 / max(1, step.batch.size)))


@planted(poisson_few)
def divided_by_the_expected_batch_of_the_table(monkeypatch):
    """The divisor is the rate times the true number of records, which is private under add-or-remove."""
    monkeypatch.setattr(GradientPlan, "divisor", lambda plan, n: plan.sampler.nominal_size(n))


@planted(poisson)
def fixed_size_instead_of_poisson(monkeypatch):
    def batches(self, n, steps, source):
        return (source.fixed_batch(n, 10) for _ in range(steps))

    monkeypatch.setattr(Poisson, "batches", batches)


@planted(poisson)
def shuffled_instead_of_poisson(monkeypatch):
    def batches(self, n, steps, source):
        for _ in range(steps // 2):
            order = source.permutation(n)
            yield order[:10]
            yield order[10:20]

    monkeypatch.setattr(Poisson, "batches", batches)


@planted(poisson_canary)
def one_record_in_every_batch(monkeypatch):
    batches = Poisson.batches

    def with_the_first(self, n, steps, source):
        return (np.union1d(batch, [0]) for batch in batches(self, n, steps, source))

    monkeypatch.setattr(Poisson, "batches", with_the_first)


@planted(poisson_canary)
def accountant_told_a_lower_rate(monkeypatch):
    monkeypatch.setattr(Poisson, "event", lambda self, z, steps, _: PoissonGaussian(z, self.rate / 10, steps))


@planted(secret_order)
def secret_order_is_the_given_one(monkeypatch):
    monkeypatch.setattr(NoiseSource, "permutation", lambda self, n: np.arange(n))


@planted(secret_stop)
def secret_stop_is_always_the_first_step(monkeypatch):
    monkeypatch.setattr(NoiseSource, "below", lambda self, bound: 0)


# -------------------------------------------------------------------------------------------- bugs: the accounting


@planted(full_batch_long)
def square_root_of_two_missing(monkeypatch):
    event = FullBatch.event

    def halved_variance(self, noise_multiplier, steps, adjacency):
        return event(self, math.sqrt(2) * noise_multiplier, steps, adjacency)

    monkeypatch.setattr(FullBatch, "event", halved_variance)


@planted(recursive)
def first_step_unaccounted(monkeypatch):
    monkeypatch.setattr(RecursivePlan, "event", property(lambda plan: plan.later_plan.event))


@planted(full_batch)
def delta_off_by_n(monkeypatch):
    epsilon = accounting.epsilon
    monkeypatch.setattr(accounting, "epsilon", lambda event, adjacency, delta: epsilon(event, adjacency, 1000 * delta))


def leaky_solver(monkeypatch: pytest.MonkeyPatch, leak: Callable[[Any, list[Any]], Any]) -> None:
    """Make projected_sgd return more than its last iterate."""
    solve, projected, seen = hidden_steps.projected_sgd, Rounding.projected, []

    def remembered(rounding, weights):
        seen.append(projected(rounding, weights))
        return seen[-1]

    def leaking(*args, **options):
        seen.clear()
        release = solve(*args, **options)
        return leak(release, seen[1:])  # without the start

    monkeypatch.setattr(Rounding, "projected", remembered)
    monkeypatch.setattr(hidden_steps, "projected_sgd", leaking)


@planted(hidden_full_batch)
def all_iterates_released_last_accounted(monkeypatch):
    leaky_solver(monkeypatch, lambda release, seen: replace(release, trace={**release.trace, "iterates": list(seen)}))


@planted(hidden_full_batch)
def average_released_last_accounted(monkeypatch):
    leaky_solver(monkeypatch, lambda release, seen: replace(release, weights=np.mean(seen, axis=0)))


@planted(hidden_passes)
def steps_too_long_to_contract(monkeypatch):
    monkeypatch.setattr(Descent, "__post_init__", lambda self: None)
    monkeypatch.setattr(
        Descent, "contraction", property(lambda self: max(1 - self.step_size * self.strong_convexity, 0.0))
    )
    return {"step_size": 2.05}


@planted(hidden_public)
def public_records_visited_first(monkeypatch):
    monkeypatch.setattr(FixedOrder, "_pass", lambda self: iter([slice(1, 2), slice(2, 3), slice(3, 4), slice(0, 1)]))


@planted(hidden_public)
def public_record_is_private(_):
    return {"place": 3}


# ------------------------------------------------------------------------------------------------------- the tests


@cache
def without_bug(scenario: Callable[..., Game]) -> Distinguished:
    return BUGS.play_without(scenario)


@pytest.mark.parametrize("name", BUGS)
def test_bug_is_flagged(name, monkeypatch):
    found = BUGS.play(name, monkeypatch)
    assert found.is_violation, str(found)


@pytest.mark.parametrize("name", BUGS)
def test_the_same_run_without_the_bug_is_not_flagged(name):
    found = without_bug(BUGS[name].scenario)
    assert not found.is_violation, str(found)


def test_there_are_enough_planted_bugs():
    assert len(BUGS) >= 20
