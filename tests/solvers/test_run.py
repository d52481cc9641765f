"""A run of a plan: its steps, its progress, and a guarantee that states the source of the noise."""

import pytest

from privet.plans import AdaptivePlan, FullBatch, GradientPlan
from privet.plans.gradient import PlanError
from privet.privacy import NoiseSource
from privet.privacy.guarantees.guarantee import enforced
from privet.solvers import Run

PLAN = GradientPlan(FullBatch(), 4, 1.0, 2.0, delta=1e-5)


def test_progress_is_reported_after_each_step():
    calls = []
    seen = [len(calls) for _ in Run(PLAN, NoiseSource(0), lambda *call: calls.append(call)).steps(10)]
    assert seen == [0, 1, 2, 3]
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_a_run_that_ends_early_closes_its_last_step():
    calls = []
    steps = list(Run(PLAN, NoiseSource(0), lambda *call: calls.append(call)).steps(10, at_most=2))
    assert calls == [(1, 2), (2, 2)]
    with pytest.raises(PlanError):
        steps[-1].noisy(PLAN.noise_std)


@pytest.mark.parametrize("at_most", [0, -1, 1.5])
def test_a_run_of_no_step_is_refused_instead_of_run_to_its_end(at_most):
    with pytest.raises(ValueError, match="at_most"):
        next(Run(PLAN, NoiseSource(0)).steps(10, at_most=at_most))


def test_a_solver_that_releases_something_else_than_planned_is_refused():
    with pytest.raises(PlanError, match="release"):
        next(Run(PLAN).steps(10, release="last"))


def test_the_guarantee_adds_what_the_source_assumes():
    bound = enforced("gradients are clipped")
    seeded = Run(PLAN, NoiseSource(1)).guarantee(bound=bound, released="weights")
    assert seeded.delta == 1e-5
    assert seeded.released == "weights"
    assert seeded.assumptions[0] == bound
    assert seeded.assumptions[-1] == NoiseSource(1).assumption()
    assert seeded.is_conditional
    assert not Run(PLAN).guarantee(bound=bound).is_conditional  # by default, the operating system keys the noise


def test_an_infinite_epsilon_is_refused():
    with pytest.raises(ValueError, match=r"no finite epsilon at delta = 0.*set delta > 0"):
        Run(AdaptivePlan(1.0, delta=0.0)).guarantee()


def test_a_plan_without_delta_is_refused():
    with pytest.raises(ValueError, match="has no delta"):
        Run(AdaptivePlan(1.0)).guarantee()
