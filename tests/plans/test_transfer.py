import math

import pytest

from privet.plans.output import OutputPlan
from privet.plans.stabilities.minimiser import MinimiserStability
from privet.plans.stabilities.transfer import PaperTransferStability, TransferStability
from privet.privacy import Budget

MINIMISER = MinimiserStability(100, 2.0, 0.5, 0.001)
PAPER = {"n": 1001, "n_public": 800, "n_nonzero": 3, "gradient_bound": 0.5, "alpha": 0.1, "covariance_norm": 1 / 3}


def test_scores_move_by_the_operator_norm_times_the_minimiser():
    stability = TransferStability(MINIMISER, 7.0)
    assert stability.sensitivity == pytest.approx(7 * 2 * (2.0 / 100 + 0.001) / 0.5)
    assert "operator norm at most 7" in stability.in_words()
    plan = OutputPlan.for_budget(Budget(1.0, 1e-5), stability=stability)
    assert plan.scale == pytest.approx(stability.sensitivity * 3.7306, rel=1e-4)
    with pytest.raises(ValueError, match="operator norm"):
        TransferStability(MINIMISER, 0.0)


def test_the_papers_numbers_are_those_of_theorem_3_3_3():
    stability, budget = PaperTransferStability(**PAPER), Budget(0.8, 1e-3)
    variance = 8 * 800 / 3 * 3 * 0.5**2 * math.log(2.5 / 1e-3) / (1001 * 0.8 * 0.1) ** 2
    assert stability.scale(budget) ** 2 == pytest.approx(variance)
    assert "its proof is wrong" in stability.in_words()
    plan = OutputPlan(stability, stability.scale(budget), is_pure=False)
    assert plan.guarantee(1e-3).is_conditional
    assert plan.guarantee(1e-3).epsilon <= 0.8


@pytest.mark.parametrize("name", PAPER)
def test_impossible_numbers_are_refused(name):
    with pytest.raises(ValueError, match=f"^{name} must"):
        PaperTransferStability(**PAPER | {name: 0})
