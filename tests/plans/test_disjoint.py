import pytest

from privet.plans.output import OutputPlan
from privet.plans.stabilities.disjoint import DisjointStability
from privet.privacy import Adjacency, Budget


def test_scores_move_by_the_diameter_of_the_ball_divided_by_the_number_of_teachers():
    stability = DisjointStability(20, 3.0, 7.0)
    assert stability.sensitivity == pytest.approx(2 * 3.0 * 7.0 / 20)
    assert stability.adjacency is Adjacency.REPLACE_ONE
    assert "one of 20 teachers" in stability.in_words()
    assert "clipped to norm 3" in stability.in_words()
    plan = OutputPlan.for_budget(Budget(1.0, 1e-5), stability=stability)
    assert plan.scale == pytest.approx(2.1 * 3.7306, rel=1e-4)


@pytest.mark.parametrize(("fields", "cause"), [((0, 1, 1), "teachers"), ((1, 0, 1), "radius"), ((1, 1, 0), "stretch")])
def test_impossible_numbers_are_refused(fields, cause):
    with pytest.raises(ValueError, match=cause):
        DisjointStability(*fields)
