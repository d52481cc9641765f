import math

import numpy as np
import pytest

from privet import PrivateLogisticRegression
from privet.denoise import beta
from privet.linear.methods import METHODS, Task, named
from privet.linear.methods.gradient import averaged_share, gradient_steps, longest_step, precision, record_clip
from privet.linear.methods.output import best_descent
from privet.objectives import L2, BoundedRows, Logistic, Squared
from privet.privacy import Budget, NoiseSource
from privet.solvers import Problem


def task(n=5000, epsilon=1.0, delta=1e-6, alpha=1e-4, d=20, objective=None, **fields):
    """Return a task on zero rows, since defaults must not depend on the values in the rows."""
    rows = BoundedRows(np.zeros((1, d)), 2.0, 0.4)
    rows.n = n  # defaults use the number of rows only
    problem = Problem.__new__(Problem)
    for name, value in {
        "objective": objective or Logistic(),
        "regulariser": L2(alpha),
        "rows": rows,
        "targets": np.zeros(0),
    }.items():
        object.__setattr__(problem, name, value)
    return Task(problem, Budget(epsilon, delta), NoiseSource(0), **fields)


def expected(**fields):
    given = task(**fields)
    able = [method for method in PrivateLogisticRegression.offered_methods().values() if method.excess]
    if given.budget.is_pure:
        able = [method for method in able if method.is_pure]
    return {method.name: method.excess(given) for method in able}


def test_auto_prefers_a_descent_for_weak_penalties_and_the_minimum_for_strong_ones():
    weak, strong = expected(n=30_000, alpha=1e-4), expected(n=30_000, alpha=1.0)
    assert min(weak, key=weak.get) == "gradient"
    assert min(strong, key=strong.get) in {"objective", "minimiser", "output"}
    assert strong["gradient"] > 2 * min(strong.values())
    pure = expected(n=30_000, delta=0.0)
    assert min(pure, key=pure.get) == "objective"


def test_noise_on_the_minimum_is_out_of_the_question_without_a_penalty():
    assert expected(alpha=0.0)["minimiser"] == math.inf
    assert math.isfinite(expected(alpha=0.0)["objective"])


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_more_data_or_budget_never_makes_a_method_expect_more_excess(delta):
    for few, many in (({"n": 500}, {"n": 5000}), ({"epsilon": 0.2}, {"epsilon": 2.0})):
        before, after = expected(delta=delta, **few), expected(delta=delta, **many)
        assert all(after[name] < before[name] for name in before)


def test_the_clip_grows_to_the_bound_as_noise_vanishes():
    clips = [record_clip(task(n=n), 0.2) for n in (100, 20_000, 10**6, 10**9)]
    assert clips[0] == pytest.approx(0.2 * 2.0)
    assert record_clip(task(n=100)) == pytest.approx(0.4 * 2.0)
    assert clips == sorted(clips)
    assert clips[-1] == task().problem.lipschitz
    assert record_clip(task(n=20_000, alpha=1.0)) > record_clip(task(n=20_000, alpha=0.0))
    assert record_clip(task(clip_norm=0.3)) == 0.3
    assert record_clip(task(n=10**9, objective=Squared(), scale=3.0)) == task().problem.rows.norm_bound * 3.0


def test_a_strong_penalty_averages_more_iterates():
    assert averaged_share(task(n=50_000, alpha=0.1)) > averaged_share(task(n=50_000, alpha=1e-4))
    assert averaged_share(task(n=50_000, alpha=0.0)) == averaged_share(task(n=50_000, alpha=1e-4))


def test_smoothing_lengthens_steps_by_as_much_as_it_removes_noise(binary):
    X, y = binary
    problem = Problem(Logistic(), L2(1e-4), BoundedRows(X, 1.0, 0.2), y)
    budget = Budget(0.01, 1e-6)
    plain, smooth = (
        METHODS["gradient"].train(Task(problem, budget, NoiseSource(0), smoothing=smoothing))
        for smoothing in (0.0, 4.0)
    )
    gain = smooth.trace["step_size"] / plain.trace["step_size"]
    assert gain == pytest.approx(beta(X.shape[1], 4.0) ** -0.5)


def test_pure_epsilon_asked_of_gaussian_noise_is_refused(no_noise):
    pure = [method for method in PrivateLogisticRegression.offered_methods().values() if method.is_pure]
    with pytest.raises(ValueError, match=f"no pure epsilon guarantee.* or use {named(pure)}"):
        PrivateLogisticRegression(delta=0.0, method="gradient").fit(np.ones((4, 1)), [0, 1, 0, 1])


@pytest.mark.parametrize("method", ["sgd", "", None, 3, ["output"]])
def test_an_unknown_method_is_refused_by_name(method, no_noise):
    *names, last = PrivateLogisticRegression.offered_methods()
    with pytest.raises(ValueError, match=f"method must be auto, {', '.join(names)} or {last}"):
        PrivateLogisticRegression(method=method).fit(np.ones((4, 1)), [0, 1, 0, 1])


@pytest.mark.parametrize("n", [1, 2, 1000, 10**9])
@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 1e3])
@pytest.mark.parametrize("delta", [0.0, 1e-12, 0.4])
@pytest.mark.parametrize("alpha", [0.0, 1e-4, 10.0])
def test_defaults_are_sane_at_the_extremes(n, epsilon, delta, alpha):
    given = task(n=n, epsilon=epsilon, delta=delta, alpha=alpha)
    descent = best_descent(given)
    assert 3 <= descent.steps <= 3000
    assert descent.step_size * (given.problem.smoothness + alpha) <= 2 or descent.centred_norm is not None
    assert 0 < descent.lipschitz <= given.problem.lipschitz
    assert descent.centred_norm is None or delta > 0
    assert all(excess > 0 for excess in expected(n=n, epsilon=epsilon, delta=delta, alpha=alpha).values())
    if delta > 0:
        assert 50 <= gradient_steps(precision(given.budget, n, 21)) <= 400


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_more_budget_or_data_buys_no_fewer_steps(delta):
    def steps(**fields):
        given = task(delta=delta, **fields)
        counts = [best_descent(given).steps]
        if delta > 0:
            counts.append(gradient_steps(precision(given.budget, given.problem.rows.n, given.problem.start().size)))
        return counts

    assert steps(n=2000) <= steps(n=5000) <= steps(n=10**8)
    assert steps(epsilon=0.1) <= steps(epsilon=1.0) <= steps(epsilon=10.0)
    assert steps(d=200) <= steps(d=20)


def test_the_longest_step_gives_scores_the_tolerated_noise():
    step = longest_step(0.01, steps=25, row_norm=2.0, scale=3.0)
    assert step * 0.01 * 5 * 2.0 == pytest.approx(1.5 * 3.0)
