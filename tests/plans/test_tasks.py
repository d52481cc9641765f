"""Several tasks on the same data: what all runs cost together, and what is left for each."""

import math
from fractions import Fraction

import pytest

from privet.plans.tasks import all_runs, black_box_delta, black_box_share, of_tasks
from privet.privacy import Adjacency, Budget
from privet.privacy.analyses.accounting import epsilon
from privet.privacy.events import ApproximateRelease, Composition, GaussianRelease


def test_runs_compose_and_one_run_is_left_as_it_is():
    event = GaussianRelease(0.7)
    assert all_runs(event, 1) is event
    assert all_runs(event, 2) == Composition((event, event))
    assert of_tasks("weights", 1) == "weights"
    assert of_tasks("weights", 2) == "of 2 tasks: weights"


@pytest.mark.parametrize("total", [1.0, 0.1, 7.3, 1e-3])
def test_pure_shares_add_up_to_the_budget_exactly_or_less_by_the_last_bit(total):
    for tasks in range(2, 60):
        share = black_box_share(Budget(total), tasks)
        assert share.is_pure
        assert Fraction(share.epsilon) * tasks <= Fraction(total)
        assert Fraction(math.nextafter(share.epsilon, math.inf)) * tasks > Fraction(total)


@pytest.mark.parametrize("budget", [Budget(0.7), Budget(0.7, 1e-5)], ids=repr)
def test_one_task_has_the_whole_budget(budget):
    assert black_box_share(budget, 1) is budget
    assert black_box_delta(budget.delta, 1) == budget.delta


@pytest.mark.parametrize("tasks", [2, 5])
@pytest.mark.parametrize("total", [0.5, 4.0])
def test_shares_are_the_largest_that_the_accountant_certifies(total, tasks):
    """Half of delta is spent by the runs, and the rest is left to their composition."""
    share = black_box_share(Budget(total, 1e-5), tasks)
    assert share.delta == black_box_delta(1e-5, tasks) == pytest.approx(1e-5 / 2 / tasks)

    def together(each):
        return epsilon(Composition((ApproximateRelease(each, share.delta),) * tasks), Adjacency.REPLACE_ONE, 1e-5)

    assert together(share.epsilon) <= total < together(share.epsilon * (1 + 1e-9))
    assert share.epsilon >= total / tasks * (1 - 1e-9)


def test_where_composition_gains_nothing_the_shares_of_epsilon_are_equal_parts():
    """With so small a delta, the epsilons of two runs practically add up."""
    share = black_box_share(Budget(4.0, 1e-14), 2)
    together = Composition((ApproximateRelease(share.epsilon, share.delta),) * 2)
    assert epsilon(together, Adjacency.REPLACE_ONE, 1e-14) <= 4.0
    assert 2.0 * (1 - 1.5e-9) <= share.epsilon <= 2.0 * (1 + 1e-9)
