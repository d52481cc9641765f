import pytest

from privet.plans.output import OutputPlan
from privet.plans.stabilities.minimiser import MinimiserStability
from privet.plans.stabilities.transfer import TransferStability
from privet.privacy import Budget

MINIMISER = MinimiserStability(100, 2.0, 0.5, 0.001)


def test_scores_move_by_the_operator_norm_times_the_minimiser():
    stability = TransferStability(MINIMISER, 7.0)
    assert stability.sensitivity == pytest.approx(7 * 2 * (2.0 / 100 + 0.001) / 0.5)
    assert "operator norm at most 7" in stability.in_words()
    plan = OutputPlan.for_budget(Budget(1.0, 1e-5), stability=stability)
    assert plan.scale == pytest.approx(stability.sensitivity * 3.7306, rel=1e-4)
    with pytest.raises(ValueError, match="operator norm"):
        TransferStability(MINIMISER, 0.0)
