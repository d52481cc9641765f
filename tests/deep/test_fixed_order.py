"""Plans whose sampler implies the number of steps: the guarantee after each step, and after a resume."""

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="deep networks need torch: install the extra deep")
from torch import nn  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

from privet.deep.training import PrivateTraining  # noqa: E402
from privet.plans import FixedOrder, GradientPlan, PlanError, SecretOrder  # noqa: E402

DELTA = 1e-5


def in_fixed_order(**options):
    """Return a training with a plan of implied steps: two passes over 8 examples, two at a time."""
    torch.manual_seed(0)
    model = nn.Linear(5, 2)
    X = torch.randn(8, 5, generator=torch.Generator().manual_seed(0))
    return PrivateTraining(
        model,
        torch.optim.SGD(model.parameters(), lr=0.5),
        TensorDataset(X, (X[:, 0] > 0).long()),
        plan=GradientPlan(FixedOrder(8, passes=2, size=2), None, 1.0, 3.0, delta=DELTA),
        loss=nn.CrossEntropyLoss(),
        **options,
    )


def visited(private, steps=None):
    """Train for some steps, and return the examples of each."""
    found = []
    for _, batch in zip(range(8 if steps is None else steps), private.batches(), strict=False):
        private.step(*batch)
        found.append([int((private.dataset.tensors[0] == row).all(1).nonzero()) for row in batch[0]])
    return found


def test_a_training_in_a_fixed_order_states_its_guarantee_after_each_step():
    private = in_fixed_order()
    whole = private.guarantee.epsilon
    epsilons = []
    for batch in private.batches():
        private.step(*batch)
        epsilons.append(private.guarantee.epsilon)
    one_pass = GradientPlan(FixedOrder(8, passes=1, size=2), None, 1.0, 3.0, delta=DELTA).guarantee().epsilon
    assert epsilons == pytest.approx([one_pass] * 4 + [whole] * 4)
    assert one_pass < whole


def test_a_resumed_training_in_a_fixed_order_continues_where_it_stopped(tmp_path):
    """If it started again, its first examples would be visited more often than the plan accounts for."""
    before = in_fixed_order()
    first = visited(before, 3)
    before.save(tmp_path / "run")
    spent = before.guarantee.epsilon
    before._files.close()
    after = in_fixed_order()
    after.resume(tmp_path / "run")
    assert after.guarantee.epsilon == spent
    assert first + visited(after) == [[0, 1], [2, 3], [4, 5], [6, 7]] * 2
    assert after.guarantee.epsilon == in_fixed_order().guarantee.epsilon


@pytest.mark.parametrize("order", [SecretOrder(8, 2, 2), FixedOrder(8, 2, 2, shuffled=True)], ids=repr)
def test_a_training_in_a_secret_order_is_not_resumed(tmp_path, order):
    """The generator that drew the order is not saved, so the resumed run could not continue the same order."""

    def training():
        private = in_fixed_order()
        private._estimator.plan = replace(private.plan, sampler=order)
        return private

    before = training()
    visited(before, 3)
    before.save(tmp_path / "run")
    before._files.close()
    after = training()
    after.resume(tmp_path / "run")
    with pytest.raises(PlanError, match="cannot be resumed"):
        next(after.batches())
