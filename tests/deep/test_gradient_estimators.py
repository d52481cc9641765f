"""What estimators do besides summing: steps that remain, the epsilon spent, and the adaptive step of DP-SRM."""

import math
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="deep networks need torch: install the extra deep")
from torch import nn  # noqa: E402

from privet.deep import RecursiveMomentum  # noqa: E402
from privet.deep.gradient_estimators import Fresh, Recursive, SpentEpsilon, shrinking  # noqa: E402
from privet.plans import FixedOrder, GradientPlan, Poisson, RecursivePlan  # noqa: E402
from privet.privacy import NoiseSource  # noqa: E402

PLAN = GradientPlan(Poisson(0.5), 50, 1.0, 2.0, public_n=100, delta=1e-5)
RECURSIVE = RecursivePlan(Poisson(0.5), 7, 1.0, 0.1, 0.3, 2.0, 3.0, Poisson(0.9), public_n=100, delta=1e-5)


@pytest.mark.parametrize(
    ("estimator", "steps"), [(Fresh(PLAN), 50), (Recursive(RECURSIVE, []), 7), (Fresh(replace(PLAN, steps=1)), 1)]
)
def test_the_steps_after_those_that_were_spent_remain(estimator, steps):
    for spent in {0, 1, 2, steps - 1, steps, steps + 1}:
        assert len(list(estimator.steps(100, NoiseSource(0), spent))) == max(0, steps - spent)


def test_the_first_step_of_recursive_momentum_has_its_own_plan():
    estimator = Recursive(RECURSIVE, [])
    assert estimator.at(0) == RECURSIVE.first_plan
    assert estimator.at(1) == estimator.at(6) == RECURSIVE.later_plan
    first, *later = estimator.steps(100, NoiseSource(0), 0)
    assert len(first.batch) > 75
    assert max(len(step.batch) for step in later) < 75
    assert max(len(step.batch) for step in estimator.steps(100, NoiseSource(0), 1)) < 75


def test_a_fixed_order_continues_where_it_stopped():
    plan = GradientPlan(FixedOrder(10, 2, 4), None, 1.0, 2.0, delta=1e-5)
    left = [step.batch for step in Fresh(plan).steps(10, NoiseSource(0), 2)]
    assert left == [slice(8, 10), slice(0, 4), slice(4, 8), slice(8, 10)]


@pytest.mark.parametrize("steps", [1, 7, 20, 21, 50])
def test_the_epsilon_on_display_is_that_of_the_next_twentieth(steps):
    estimator = Fresh(replace(PLAN, steps=steps))
    shown, block = SpentEpsilon(estimator), -(-steps // 20)
    found = [shown.bound(spent) for spent in range(1, steps + 1)]
    for spent, epsilon in enumerate(found, start=1):
        until = min(steps, math.ceil(spent / block) * block)
        assert epsilon == estimator.guarantee(until).epsilon >= estimator.guarantee(spent).epsilon
    assert len(set(found)) <= 20
    assert found[-1] == estimator.guarantee(steps).epsilon


def test_an_epsilon_is_computed_once_per_twentieth():
    class Counting(Fresh):
        asked = 0

        def guarantee(self, spent):
            self.asked += 1
            return super().guarantee(spent)

    estimator = Counting(PLAN)
    shown = SpentEpsilon(estimator)
    for spent in [*range(1, 51), 50, 1]:
        shown.bound(spent)
    assert estimator.asked == 17  # 50 steps in blocks of 3


@pytest.mark.parametrize(("max_move", "factor"), [(None, 1.0), (1.0, 0.1), (9.9, 0.99), (10.0, 1.0), (11.0, 1.0)])
def test_a_step_is_shortened_to_the_longest_move(max_move, factor):
    """A gradient of norm 5 in two layers and a learning rate of 2 move the parameters by 10."""
    layers = [torch.tensor([[3.0, 0.0]]), torch.tensor([-4.0])]
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=2.0)
    assert shrinking(layers, optimizer, max_move) == pytest.approx(factor)
    assert shrinking([torch.zeros(2)], optimizer, 1e-3) == 1.0


def test_a_state_of_recursive_momentum_is_for_recursive_momentum_only():
    parameters = [nn.Parameter(torch.ones(2)), nn.Parameter(torch.zeros(1))]
    estimator = Recursive(RECURSIVE, parameters)
    assert estimator.state() == Fresh(PLAN).state() == {}
    estimator.gradient(torch.tensor([1.0, 2.0, 3.0]))
    state = estimator.state()
    assert set(state) == {"estimate", "before.0", "before.1"}
    Fresh(PLAN).load({})
    with pytest.raises(ValueError, match="a training with recursive momentum"):
        Fresh(PLAN).load(state)
    other = Recursive(RECURSIVE, parameters)
    other.load({})
    assert other.state() == {}
    other.load(state)
    assert torch.equal(other.gradient(torch.zeros(3)), torch.tensor([0.7, 1.4, 2.1]))


def test_the_settings_of_recursive_momentum_have_no_first_batch_and_no_longest_move_by_default():
    settings = RecursiveMomentum(0.1, 0.3)
    assert (settings.first_batch_size, settings.max_move) == (None, None)


def test_the_guarantee_states_the_bounds_and_what_is_released():
    for estimator, words in ((Fresh(PLAN), "l2 norm 1,"), (Recursive(RECURSIVE, []), "previous step to 0.1,")):
        for spent in (0, 3):
            guarantee = estimator.guarantee(spent)
            assert words in guarantee.statement(verbose=True)
            assert guarantee.released == "every noisy gradient and all weights"
            assert guarantee.delta == 1e-5
        assert estimator.guarantee(3).epsilon < estimator.guarantee(0).epsilon
