import math

import numpy as np
import pytest

from privet import PrivateLogisticRegression
from privet.linear.methods import named
from privet.linear.methods.gradient import gradient_steps, longest_step, precision, record_clip
from privet.linear.methods.output import output_steps
from privet.objectives import L2, BoundedRows, Squared
from privet.privacy import Budget
from privet.solvers import Problem


@pytest.mark.parametrize(
    ("method", "is_pure", "chosen"),
    [
        ("auto", False, "gradient"),
        ("auto", True, "objective"),
        ("output", False, "output"),
        ("output", True, "output"),
        ("gradient", False, "gradient"),
    ],
)
def test_a_method_is_chosen_with_a_reason(method, is_pure, chosen):
    found, reason = PrivateLogisticRegression(method=method)._choose_method(is_pure=is_pure)
    assert found.name == chosen
    assert reason == "asked for" or ("delta" in reason and method == "auto")


def test_pure_epsilon_asked_of_gaussian_noise_is_refused():
    pure = [method for method in PrivateLogisticRegression.offered_methods().values() if method.is_pure]
    with pytest.raises(ValueError, match=f"no pure epsilon guarantee.* or use {named(pure)}"):
        PrivateLogisticRegression(method="gradient")._choose_method(is_pure=True)


@pytest.mark.parametrize("method", ["sgd", "", None, 3, ["output"]])
def test_an_unknown_method_is_refused_by_name(method):
    *names, last = PrivateLogisticRegression.offered_methods()
    with pytest.raises(ValueError, match=f"method must be auto, {', '.join(names)} or {last}"):
        PrivateLogisticRegression(method=method)._choose_method(is_pure=False)


@pytest.mark.parametrize("n", [1, 2, 1000, 10**9])
@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 1e3])
@pytest.mark.parametrize("delta", [0.0, 1e-12, 0.4])
@pytest.mark.parametrize("n_weights", [1, 10**6])
def test_the_number_of_steps_is_sane_at_the_extremes(n, epsilon, delta, n_weights):
    budget = Budget(epsilon, delta)
    steps = output_steps(budget, lipschitz=1.1, n=n, n_weights=n_weights, step_size=1.8 / 0.3, scale=1.0)
    assert isinstance(steps, int)
    assert 3 <= steps <= 400
    if delta > 0:
        reached = precision(budget, n, n_weights)
        assert 50 <= gradient_steps(reached) <= 400
        problem = Problem(Squared(), L2(0.0), BoundedRows(np.ones((1, 1)), 2.0), np.zeros(1))
        clip, unclipped = record_clip(problem, 3.0, reached), record_clip(problem, 3.0, math.inf)
        assert clip in (pytest.approx(2.4), unclipped)
        assert unclipped == problem.rows.norm_bound * 3.0


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_more_budget_or_data_buys_no_fewer_steps(delta):
    def steps(n=5000, epsilon=1.0, n_weights=20):
        budget = Budget(epsilon, delta)
        counts = [output_steps(budget, lipschitz=1.1, n=n, n_weights=n_weights, step_size=6.0, scale=1.0)]
        if delta > 0:
            counts.append(gradient_steps(precision(budget, n, n_weights)))
        return counts

    assert steps(n=2000) <= steps(n=5000) <= steps(n=10**8)
    assert set(steps(n=10**8)) == {400}
    assert steps(epsilon=0.1) <= steps(epsilon=1.0) <= steps(epsilon=10.0)
    assert steps(n_weights=200) <= steps(n_weights=20)


def test_the_longest_step_gives_scores_the_tolerated_noise():
    step = longest_step(0.01, steps=25, row_norm=2.0, scale=3.0)
    assert step * 0.01 * 5 * 2.0 == pytest.approx(1.5 * 3.0)
