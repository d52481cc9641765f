"""A run of a plan: its steps, its progress, and a guarantee that states the source of the noise."""

import copy
import threading
import time

import numpy as np
import pytest

from privet.objectives import L2, BoundedRows, Logistic
from privet.plans import AdaptivePlan, CentredPlan, FullBatch, GradientPlan
from privet.plans.gradient import PlanError
from privet.privacy import NoiseSource
from privet.privacy.guarantees.guarantee import enforced
from privet.solvers import Problem, Run, centred_gradient_descent, noisy_gradient_descent
from privet.solvers.base.tally import Tally

PLAN = GradientPlan(FullBatch(), 4, 1.0, 2.0, delta=1e-5)


def test_progress_is_reported_after_each_step():
    calls = []
    seen = [len(calls) for _ in Run(PLAN, NoiseSource(0), lambda *call: calls.append(call)).steps(10)]
    assert seen == [0, 1, 2, 3]
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_what_a_run_has_counted_is_not_shown():
    assert "Tally" not in repr(Run(PLAN, NoiseSource(0)))


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


# --------------------------------------------------------------------------------------------------------------- tasks


def problem(*labels, intercept=0.0):
    X = np.array([[0.6, 0.8], [1.0, 0.0], [0.0, -1.0]])
    return Problem(Logistic(), L2(0.1), BoundedRows(X, 1.0, intercept), np.array(labels, dtype=float))


@pytest.mark.parametrize("tasks", [1, 3])
def test_a_plan_is_run_once_per_task_and_never_more_often(tasks):
    plan = GradientPlan(FullBatch(), 2, 1.0, 2.0, tasks=tasks, delta=1e-5)
    drawn = []
    run = Run(plan, NoiseSource(0), lambda *step: drawn.append(step))
    for _ in range(tasks):
        noisy_gradient_descent(problem(0, 1, 1), run, step_size=0.5)
    assert len(drawn) == 2 * tasks
    with pytest.raises(PlanError, match=f"run {tasks + 1} would be an additional release.*tasks={tasks + 1}"):
        noisy_gradient_descent(problem(0, 1, 1), run, step_size=0.5)
    assert len(drawn) == 2 * tasks  # nothing was released


def test_the_steps_of_a_run_are_counted_even_if_a_solver_asks_for_no_guarantee():
    run = Run(PLAN, NoiseSource(0))
    list(run.steps(3))
    with pytest.raises(PlanError, match="covers one run"):
        next(run.steps(3))


def test_a_run_that_is_refused_before_it_begins_is_not_counted():
    run = Run(PLAN, NoiseSource(0))
    with pytest.raises(ValueError, match="momentum"):
        noisy_gradient_descent(problem(0, 1, 1), run, step_size=0.5, momentum=2.0)
    noisy_gradient_descent(problem(0, 1, 1), run, step_size=0.5)


def test_a_run_cannot_be_copied_to_get_around_the_count():
    with pytest.raises(TypeError, match="cannot be pickled or copied"):
        copy.deepcopy(Run(PLAN, NoiseSource(0)))


def test_the_guarantee_of_several_tasks_says_so_and_is_shown_once_before_training():
    shown = []
    plan = GradientPlan(FullBatch(), 2, 1.0, 2.0, tasks=2, delta=1e-5)
    run = Run(plan, NoiseSource(0), before_training=shown.append)
    first, second = (noisy_gradient_descent(problem(*y), run, step_size=0.5) for y in ((0, 1, 1), (1, 1, 0)))
    assert first.guarantee == second.guarantee
    assert first.guarantee.released.startswith("of 2 tasks: ")
    assert any("runs are counted: 2, one per task" in each.text for each in first.guarantee.assumptions)
    assert len(shown) == 1
    assert shown[0].epsilon == first.guarantee.epsilon == GradientPlan(FullBatch(), 4, 1.0, 2.0).guarantee(1e-5).epsilon
    assert not np.array_equal(first.weights, second.weights)


def test_tasks_share_one_noisy_mean_of_the_rows():
    both = [problem(*y, intercept=0.5) for y in ((0, 1, 1), (1, 1, 0))]
    fields = {"clip_norm": 1.0, "row_norm": both[0].rows.weight_in_total, "steps": 2, "share": 0.3}
    plan = CentredPlan.for_budget((1.0, 1e-5), tasks=2, **fields)
    assert 0.999 < plan.guarantee().epsilon <= 1.0
    source = NoiseSource(0)
    released, draw = [], source.add_gaussian
    source.add_gaussian = lambda *args: released.append(args[1]) or draw(*args)
    run = Run(plan, source)
    for each in both:
        centred_gradient_descent(each, run, step_size=0.5)
    assert released == [plan.mean.noise_std] + [plan.gradients.noise_std] * 4  # one mean, then two descents
    with pytest.raises(PlanError, match="run 3"):
        centred_gradient_descent(both[0], run, step_size=0.5)


def test_threads_release_what_they_share_once():
    tally, released, found = Tally(), [], []
    begin = threading.Barrier(4)

    def release():
        released.append(object())
        time.sleep(0.01)  # long enough for the other threads to ask for it
        return released[-1]

    def ask():
        begin.wait()
        found.append(tally.shared("centre", release))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(released) == 1
    assert found == released * 4
