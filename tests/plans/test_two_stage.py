"""The plan of a private choice of features and objective perturbation on them: what both cost together."""

import pytest

from privet.plans import AdaptivePlan, ObjectivePlan, TwoStagePlan
from privet.privacy import Adjacency, Budget, compose, enforced
from privet.privacy.events import Composition

SELECTION = AdaptivePlan.for_budget(Budget(0.4, 2e-6))
FIT = ObjectivePlan.for_budget(Budget(0.6, 3e-6), n=100, lipschitz=1.0, smoothness=0.25, strong_convexity=0.1)
PLAN = TwoStagePlan(SELECTION, FIT, delta=5e-6)


def test_both_stages_compose():
    assert PLAN.event == Composition((SELECTION.event, FIT.event))
    guarantee = PLAN.guarantee()
    assert guarantee.epsilon == pytest.approx(compose([SELECTION.guarantee(), FIT.guarantee()], 5e-6).epsilon)
    assert max(0.4, 0.6) < guarantee.epsilon <= 1.0
    assert (PLAN.adjacency, PLAN.tasks) == (Adjacency.REPLACE_ONE, 1)


def test_the_guarantee_says_what_both_stages_release_and_on_what_they_rest():
    bare = PLAN.guarantee()
    assert bare.is_conditional
    for words in ("the features chosen by noisy votes", "the minimiser of the randomly tilted objective"):
        assert words in bare.released
    held = PLAN.guarantee(bounds=(enforced("votes are bounded"), enforced("losses are smooth")))
    assert not held.is_conditional
    assert {"votes are bounded", "losses are smooth"} <= {each.text for each in held.assumptions}
    assert held.epsilon == bare.epsilon


def test_another_delta_can_be_stated():
    assert PLAN.guarantee(1e-4).delta == 1e-4
    assert PLAN.guarantee(1e-4).epsilon < PLAN.guarantee().epsilon
    assert TwoStagePlan(SELECTION, FIT) == PLAN
    with pytest.raises(ValueError, match="has no delta"):
        TwoStagePlan(SELECTION, FIT).guarantee()
