"""The prescriptions of noisy passes: noise against the analysis, excess against simulated passes."""

import math

import numpy as np
import pytest
from mpmath import mpf, sqrt

from privet.objectives import L2, BoundedRows, Logistic
from privet.plans import Descent, FixedOrder, GradientPlan, RandomSkip, RandomStop
from privet.plans.prescriptions import (
    local_pass,
    many_passes_noise,
    noisy_pass_plan,
    several_tasks,
    skipping_pass,
    smoothing_width,
)
from privet.privacy import Budget, NoiseSource, gaussian_epsilon, gdp_mu
from privet.privacy.iteration import last_iterate_mu
from privet.solvers import Problem, Run, projected_sgd

PROBLEM = {"lipschitz": 1.0, "radius": 1.0}


def passes(n, d, prescription, first, rng):
    """Return the excess of Stop-PNSGD (``first=1``) or of Skip-PNSGD on losses <w, x> with mean gradient 0.3 e1."""
    weights, excesses = np.zeros(d), []
    for step in range(n):
        gradient = np.where(rng.random(d) < 0.65, 1.0, -1.0) * (np.arange(d) == 0)
        moved = weights - prescription.step_size * (gradient + prescription.noise * rng.normal(size=d))
        weights = moved / max(1.0, np.linalg.norm(moved))
        if step + 1 >= first:
            excesses.append(0.3 * (weights[0] + 1.0))  # the best weights are -e1
    return np.mean(excesses)


def test_excess_of_simulated_passes_is_below_the_bound_and_of_its_order():
    n, d, rng = 4000, 10, np.random.default_rng(2)
    local = local_pass(n, d, (3.0, 1e-3), **PROBLEM)
    assert local.excess / 20 <= passes(n, d, local, 1, rng) <= local.excess
    skipping = skipping_pass(n, d, (3.0, 1e-3), smoothness=1.0, n_public=50, **PROBLEM)
    assert skipping.excess / 20 <= passes(n, d, skipping, n // 2, rng) <= skipping.excess


def test_noise_meets_the_budget_exactly():
    budget = Budget(0.8, 1e-5)
    local = local_pass(100, 5, budget, **PROBLEM)
    assert gaussian_epsilon(2.0, local.noise, budget.delta) == pytest.approx(0.8, rel=1e-6)
    n, m = 500, 60
    public = skipping_pass(n, 5, budget, smoothness=0.1, n_public=m, **PROBLEM)
    shifts = np.zeros(n)
    shifts[n - m - 1] = 2.0  # the last private record, in units of the step size
    mu = last_iterate_mu(shifts, np.full(n, public.noise))
    assert gaussian_epsilon(mu, 1.0, budget.delta) == pytest.approx(0.8, rel=1e-6)
    printed = 2 * math.sqrt(math.log(1.25 / budget.delta) / m) / budget.epsilon
    assert gaussian_epsilon(2.0 / (printed * math.sqrt(m + 1)), 1.0, budget.delta) > 0.8  # the missing sqrt(2)


def test_noise_of_many_passes_is_that_of_a_plan_and_below_the_papers():
    budget, n = Budget(0.5, 1e-5), 40
    plan = GradientPlan.for_budget(
        budget, sampler=FixedOrder(n, n), clip_norm=1.0, release="last", descent=Descent(1.0, smoothness=1.0)
    )
    noise = many_passes_noise(n, budget, lipschitz=1.0)
    assert noise == pytest.approx(plan.noise_std, rel=1e-3)
    assert noise < 5 * math.sqrt(math.log(1 / budget.delta)) / budget.epsilon


def test_noise_of_several_tasks_is_enough_for_the_budget():
    n, budget = 300, Budget(0.9, 1e-5)
    for tasks in (1, 40):
        noise = several_tasks(n, 5, budget, tasks=tasks, smoothness=0.5, **PROBLEM).noise
        plan = GradientPlan(
            RandomStop(n), None, 1.0, noise, release="last", descent=Descent(1.0, smoothness=1.0), tasks=tasks
        )
        assert plan.guarantee(budget.delta).epsilon <= budget.epsilon
    same, more = (several_tasks(n, 5, budget, tasks=k, smoothness=0.5, **PROBLEM).noise for k in (1, 10 * n))
    assert more > same  # many tasks per record cost noise


def test_the_least_smoothing_width_makes_the_step_contractive_and_is_at_most_that_of_corollary_34():
    n, d, budget = 10_000, 20, Budget(0.5, 1e-6)
    step = skipping_pass(n, d, budget, smoothness=1e-3, **PROBLEM).step_size
    width = smoothing_width(step, 1.0)
    assert step == pytest.approx(2 / (1.0 / width))
    assert width <= 0.5 / (2 * math.sqrt(n * math.log(1 / budget.delta)))


def test_conditions_are_checked():
    with pytest.raises(ValueError, match="exceeds 2/smoothness"):
        skipping_pass(100, 1, (1.0, 1e-5), smoothness=100.0, **PROBLEM)
    with pytest.raises(ValueError, match="needs epsilon < 1"):
        several_tasks(100, 1, (1.0, 1e-5), tasks=2, smoothness=0.1, **PROBLEM)
    with pytest.raises(ValueError, match="n must be at least 3"):
        several_tasks(2, 1, (0.5, 1e-5), tasks=2, smoothness=0.1, **PROBLEM)
    with pytest.raises(ValueError, match="n_public must be at most 99"):
        skipping_pass(100, 1, (1.0, 1e-5), smoothness=0.1, n_public=100, **PROBLEM)


@pytest.mark.parametrize(
    ("sampler", "factor", "tasks"),
    [
        (FixedOrder(300), 2.0, 1),
        (RandomStop(300), 2.0, 1),
        (RandomStop(300, size=4), 2.0, 1),
        (RandomSkip(300, public=20), math.sqrt(8), 1),
        (RandomStop(300), 4.0, 2),
    ],
    ids=repr,
)
def test_a_planned_pass_has_the_theorems_step_size_and_stays_within_the_budget_and_the_ball(sampler, factor, tasks):
    rng, n = np.random.default_rng(0), sampler.expected_n
    X, y = rng.uniform(-0.5, 0.5, (n, 4)), rng.integers(0, 2, n).astype(float)
    problem = Problem(Logistic(), L2(0.02), BoundedRows(X, 1.0), y)
    constants = {"smoothness": problem.smoothness, "strong_convexity": problem.strong_convexity}
    radius, budget = 0.7, Budget(2.0, 1e-5)
    fields = {"clip_norm": problem.lipschitz, "dimension": 4, "radius": radius, "tasks": tasks}
    plan = noisy_pass_plan(budget, sampler=sampler, **fields, **constants)
    spread = math.hypot(problem.lipschitz, 2 * plan.noise_std / sampler.size)
    assert plan.descent.step_size == pytest.approx(factor * radius / (spread * math.sqrt(plan.steps)))
    assert plan.descent.step_size <= 2 / problem.smoothness
    assert plan.descent.diameter == 2 * radius
    run = Run(plan, NoiseSource(0))
    releases = [projected_sgd(problem, run) for _ in range(tasks)]
    assert all(np.linalg.norm(release.weights) <= radius * (1 + 1e-9) for release in releases)
    assert 0.5 * budget.epsilon < releases[0].guarantee.epsilon <= budget.epsilon
    assert (releases[0].guarantee.local is None) == (sampler.size > 1)


def test_a_pass_that_the_theorems_do_not_cover_is_refused():
    fields = {"clip_norm": 1.0, "dimension": 3, "smoothness": 1.0}
    with pytest.raises(ValueError, match=r"for one pass, got passes = 2"):
        noisy_pass_plan(Budget(1.0, 1e-5), sampler=FixedOrder(10, 2), radius=1.0, **fields)
    with pytest.raises(ValueError, match=r"exceeds 2/smoothness = 2"):
        noisy_pass_plan(Budget(50.0, 1e-5), sampler=FixedOrder(10), radius=100.0, **fields)


EXACT = [
    # n, dimension, budget, lipschitz, radius
    (37, 5, Budget(0.9, 1e-4), 1.7, 2.3),
    (400, 11, Budget(3.0, 1e-6), 0.3, 0.6),
]


def by_hand(n, dimension, noise, lipschitz, radius, step_factor, excess_factor):
    """Return step size and excess with 30 digits."""
    squared = mpf(lipschitz) ** 2 + dimension * mpf(noise) ** 2
    return float(step_factor * radius / sqrt(n * squared)), float(excess_factor * radius * sqrt(squared / n))


@pytest.mark.parametrize(("n", "dimension", "budget", "lipschitz", "radius"), EXACT)
def test_local_passes_are_those_of_theorem_29(n, dimension, budget, lipschitz, radius):
    found = local_pass(n, dimension, budget, lipschitz=lipschitz, radius=radius)
    assert found.noise == pytest.approx(2 * lipschitz / gdp_mu(budget), rel=1e-12)
    expected = by_hand(n, dimension, found.noise, lipschitz, radius, 2, 4)
    assert (found.step_size, found.excess) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("n_public", [None, 7])
@pytest.mark.parametrize(("n", "dimension", "budget", "lipschitz", "radius"), EXACT)
def test_skipping_passes_are_those_of_theorem_30_and_corollary_31(n, dimension, budget, lipschitz, radius, n_public):
    public = {} if n_public is None else {"n_public": n_public}
    found = skipping_pass(n, dimension, budget, lipschitz=lipschitz, radius=radius, smoothness=0.1, **public)
    squared = 4 * lipschitz**2 / (gdp_mu(budget) ** 2 * (1 + (n_public or 0)))
    assert found.noise**2 == pytest.approx(squared, rel=1e-12)
    expected = by_hand(n, dimension, found.noise, lipschitz, radius, sqrt(mpf(8)), sqrt(mpf(32)))
    assert (found.step_size, found.excess) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("n", "tasks"), [(3, 1), (300, 1), (300, 5000)])
def test_passes_of_several_tasks_are_those_of_theorem_32(n, tasks):
    """With 5000 tasks, 2 k log(n)/n = 190 exceeds 2 log(1/delta) = 18, and with one it does not."""
    found = several_tasks(n, 7, (0.8, 1e-4), tasks=tasks, lipschitz=1.3, smoothness=0.01, radius=0.7)
    log = -math.log(1e-4)
    shared = 2 * tasks * math.log(n) / n if tasks > 1 else 2 * log
    assert found.noise**2 == pytest.approx(16 * 1.3**2 * shared * log / 0.64, rel=1e-12)
    assert (found.step_size, found.excess) == pytest.approx(by_hand(n, 7, found.noise, 1.3, 0.7, 4, 4), rel=1e-12)


def test_the_ranges_of_theorem_32_end_where_it_says():
    fields = {"tasks": 2, "smoothness": 1e-3, "lipschitz": 1.0, "radius": 1.0}
    for budget in ((math.nextafter(1.0, 0), 1e-5), (0.5, math.nextafter(0.5, 0))):
        assert several_tasks(100, 3, budget, **fields).noise > 0
    for budget in ((1.0, 1e-5), (0.5, 0.5)):
        with pytest.raises(ValueError, match=r"epsilon < 1 and delta < 1/2"):
            several_tasks(100, 3, budget, **fields)


def test_a_step_of_exactly_two_over_smoothness_contracts_and_a_longer_one_does_not():
    def skipping(radius, smoothness):
        return skipping_pass(64, 3, (1.0, 1e-5), lipschitz=1.0, smoothness=smoothness, radius=radius).step_size

    steps = {radius: skipping(radius, 1e-3) for radius in (1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7)}
    radius, step = next((radius, step) for radius, step in steps.items() if 2 / (2 / step) == step)
    assert skipping(radius, 2 / step) == step
    for smoothness in (2 / step * (1 + 1e-12), 3.8 / step):
        with pytest.raises(ValueError, match="exceeds 2/smoothness"):
            skipping(radius, smoothness)
    task = several_tasks(64, 3, (0.5, 1e-5), tasks=1, smoothness=1e-3, **PROBLEM).step_size
    with pytest.raises(ValueError, match="exceeds 2/smoothness"):
        several_tasks(64, 3, (0.5, 1e-5), tasks=1, smoothness=2 / task * (1 + 1e-12), **PROBLEM)


@pytest.mark.parametrize(("passes", "factor"), [(None, 1.0), (1, 0.0), (9, 0.2)])
def test_noise_of_many_passes_by_hand(passes, factor):
    """sigma = (2 L/mu) sqrt((E - 1)/n + 1), where E = n is the default."""
    n, budget = 40, Budget(0.7, 1e-5)
    more = factor if passes else (n - 1) / n
    found = many_passes_noise(n, budget, lipschitz=1.3, passes=passes)
    assert found**2 == pytest.approx(4 * 1.69 / gdp_mu(budget) ** 2 * (more + 1), rel=1e-12)


def test_the_smoothing_width_is_half_of_the_step_times_the_lipschitz_constant():
    assert smoothing_width(0.6, 7.0) == pytest.approx(2.1)


def test_a_planned_pass_is_convex_and_for_one_task_by_default():
    fields = {"clip_norm": 1.5, "dimension": 3, "smoothness": 4.0, "radius": 0.01}
    plain = noisy_pass_plan(Budget(1.0, 1e-5), sampler=FixedOrder(50), **fields)
    assert plain == noisy_pass_plan(Budget(1.0, 1e-5), sampler=FixedOrder(50), strong_convexity=0, tasks=1, **fields)
    assert plain.clip_norm == 1.5
    assert plain.descent == Descent(plain.descent.step_size, 4.0, 0.0, 0.02)
    strong = noisy_pass_plan(Budget(1.0, 1e-5), sampler=FixedOrder(50), strong_convexity=0.5, **fields)
    assert strong.descent.strong_convexity == 0.5
    assert strong.noise_multiplier == plain.noise_multiplier


def local(**changed):
    return local_pass(**{"n": 100, "dimension": 3, "budget": (0.5, 1e-5), **PROBLEM, **changed})


def skip(**changed):
    fields = {"n": 100, "dimension": 3, "budget": (0.5, 1e-5), "smoothness": 0.1, "n_public": 0, **PROBLEM}
    return skipping_pass(**fields | changed)


def several(**changed):
    fields = {"n": 100, "dimension": 3, "budget": (0.5, 1e-5), "smoothness": 0.1, "tasks": 1, **PROBLEM}
    return several_tasks(**fields | changed)


def many(**changed):
    return many_passes_noise(**{"n": 100, "budget": (0.5, 1e-5), "lipschitz": 1.0, "passes": 1, **changed})


def width(**changed):
    return smoothing_width(**{"step_size": 1.0, "lipschitz": 1.0, **changed})


def planned(**changed):
    fields = {"budget": (0.5, 1e-5), "sampler": FixedOrder(50), "clip_norm": 1.0, "dimension": 3}
    return noisy_pass_plan(**fields | {"smoothness": 0.1, "radius": 1.0} | changed)


@pytest.mark.parametrize(
    ("prescribe", "name", "value"),
    [
        *((local, name, 0) for name in ("n", "dimension", "lipschitz", "radius")),
        *((skip, name, 0) for name in ("n", "dimension", "lipschitz", "radius", "smoothness")),
        *((skip, "n_public", value) for value in (-1, 100)),
        *((several, name, 0) for name in ("dimension", "tasks", "lipschitz", "radius", "smoothness")),
        *((many, name, 0) for name in ("n", "lipschitz", "passes")),
        *((width, name, 0.0) for name in ("step_size", "lipschitz")),
        *((planned, name, 0) for name in ("clip_norm", "dimension", "smoothness", "radius", "tasks")),
    ],
)
def test_arguments_out_of_range_are_refused_by_name(prescribe, name, value):
    prescribe()
    with pytest.raises(ValueError, match=f"^{name} must be"):
        prescribe(**{name: value})


@pytest.mark.parametrize("prescribe", [local, skip, several, many])
def test_a_delta_is_needed_and_by_default_it_is_that_of_the_number_of_records(prescribe):
    assert prescribe(n=50_000, budget=0.5) == prescribe(n=50_000, budget=(0.5, 2e-7))
    with pytest.raises(ValueError, match=r"Theorem \d\d is about Gaussian noise"):
        prescribe(budget=(0.5, 0.0))


def test_all_records_but_one_may_be_public():
    assert skip(n_public=99).noise == pytest.approx(skip().noise / 10)
