"""The prescriptions of noisy passes: noise against the analysis, excess against simulated passes."""

import math

import numpy as np
import pytest

from privet.plans import Descent, FixedOrder, GradientPlan, RandomStop
from privet.plans.prescriptions import local_pass, many_passes_noise, several_tasks, skipping_pass, smoothing_width
from privet.privacy import Budget, gaussian_epsilon
from privet.privacy.iteration import last_iterate_mu

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
