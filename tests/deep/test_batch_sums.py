"""Sums over a batch and its parts: how they are added up, and what is counted besides."""

import math
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="deep networks need torch: install the extra deep")
from torch import nn  # noqa: E402

from privet.deep import batch_sums as module  # noqa: E402
from privet.deep.batch_sums import BatchSums  # noqa: E402
from privet.deep.clipping import batch_gradients  # noqa: E402
from privet.deep.clipping.summing import Summation, reserved_share, room  # noqa: E402
from privet.deep.gradient_estimators import Fresh, Recursive  # noqa: E402
from privet.plans import GradientPlan, Poisson, RecursivePlan  # noqa: E402

PLAN = GradientPlan(Poisson(0.5), 3, 1.0, 1.0, public_n=100, delta=1e-5)
RECURSIVE = RecursivePlan(Poisson(0.5), 3, 1.0, 0.1, 0.3, 1.0, None, Poisson(0.5), public_n=100)


def squares(outputs, targets):
    return (outputs.flatten(1) - targets[:, None]).square().sum(1)


class Mixed(nn.Module):
    """A model with one layer in single and one in double precision."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 2), nn.Linear(2, 1, dtype=torch.float64)

    def forward(self, x):
        return self.second(self.first(x).double())


def sums(model, estimator=None, **options):
    return BatchSums(model, squares, estimator or Fresh(PLAN), list(model.parameters()), **options)


@pytest.mark.parametrize(
    ("model", "narrowest", "dtype"),
    [
        (nn.Linear(3, 1), torch.float32, torch.float32),
        (nn.Linear(3, 1, dtype=torch.float64), torch.float64, torch.float64),
        (nn.Linear(3, 1, dtype=torch.bfloat16), torch.float32, torch.float32),
        (Mixed(), torch.float32, torch.float64),
    ],
)
@pytest.mark.parametrize("processes", [None, 1, 3])
def test_the_error_of_a_sum_is_divided_among_two_neighbours_and_all_processes(
    model, narrowest, dtype, processes, monkeypatch
):
    """The narrowest format of the parameters determines the rounding, and the widest one the result."""
    chosen = []

    def watched(*arguments):
        chosen.append(arguments[-1])
        return batch_gradients(*arguments)

    monkeypatch.setattr(module, "batch_gradients", watched)
    found = sums(model, **({} if processes is None else {"processes": processes}))
    inputs = torch.ones(400, 3, dtype=next(model.parameters()).dtype)
    total, losses, zeros = found.total((inputs,), torch.zeros(400), 1.0, 50.0)
    error = reserved_share(50.0, narrowest) / 2 / (processes or 1)
    assert chosen == [Summation.within(error, 400, narrowest)]
    assert found.dtype is dtype
    assert total.dtype is chosen[0].slot_dtype(dtype, 1)
    assert (len(losses), zeros) == (400, 0)


def test_one_example_contributes_the_bound_times_the_room():
    model = nn.Linear(3, 1)
    for bound, expected in ((1.0, 50.0), (0.25, 2048.0)):
        total, *_ = sums(model).total((torch.full((1, 3), 1e3),), torch.zeros(1), bound, expected)
        assert float(total.norm()) == pytest.approx(bound * room(expected, torch.float32), rel=1e-6)


@pytest.mark.parametrize(("max_batch", "parts"), [(None, 1), (1, 5), (2, 3), (5, 1), (9, 1)])
def test_losses_and_examples_without_finite_gradients_are_counted_over_all_parts(max_batch, parts):
    model, calls = nn.Linear(3, 1), []
    inputs = torch.ones(5, 3)
    inputs[1], inputs[3] = math.nan, math.inf
    found = sums(model, max_batch=max_batch)
    total, losses, zeros = found.total((inputs,), torch.zeros(5), 1.0, 50.0, lambda: calls.append(1))
    assert zeros == 2
    assert len(calls) == parts
    assert torch.isfinite(losses).tolist() == [True, False, True, False, True]
    alone, *_ = found.total((inputs[:1],), torch.zeros(1), 1.0, 50.0)
    torch.testing.assert_close(total, 3 * alone)
    assert found.max_batch == max_batch


@pytest.mark.parametrize("max_batch", [None, 3])
def test_an_empty_batch_has_a_sum_of_zero(max_batch):
    total, losses, zeros = sums(nn.Linear(3, 2), max_batch=max_batch).total(
        (torch.ones(0, 3),), torch.zeros(0), 1.0, 5.0
    )
    assert total.tolist() == [0.0] * 8
    assert (losses.tolist(), zeros) == ([], 0)


def test_several_sums_are_mixed_in_double_precision():
    model = nn.Linear(3, 1)
    recursive = sums(model, Recursive(RECURSIVE, list(model.parameters())))
    total, *_ = recursive.total((torch.ones(2, 3),), torch.zeros(2), 1.0, 50.0)
    assert total.dtype is torch.float64
    assert recursive.dtype is torch.float32


@pytest.mark.parametrize("max_batch", [0, -1, 1.5])
def test_an_impossible_part_of_a_batch_is_refused(max_batch):
    with pytest.raises(ValueError, match="max_batch must be"):
        sums(nn.Linear(3, 1), max_batch=max_batch)


def test_the_norm_of_differences_must_be_in_the_range_of_single_precision():
    model = nn.Linear(3, 1)
    for norm in (1e-13, 1e26):
        plan = replace(RECURSIVE, difference_norm=norm)
        with pytest.raises(ValueError, match="difference_norm"):
            sums(model, Recursive(plan, list(model.parameters())))


def test_a_batch_is_checked_once_and_names_the_counters_of_the_model():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 1)
            self.register_buffer("calls", torch.zeros((), dtype=torch.long))

        def forward(self, x):
            self.calls += 1
            return self.layer(x)

    found = sums(Counts())
    assert found.counters == frozenset()
    assert not found.check((torch.full((2, 3), math.nan), torch.zeros(2)), lambda: (torch.ones(0, 3), torch.zeros(0)))
    assert found.checked is None
    assert found.check((torch.randn(4, 3), torch.zeros(4)), lambda: pytest.fail("the batch is enough"))
    first = found.checked
    assert first.is_complete
    assert any("calls" in name for name in found.counters)
    assert found.check((torch.randn(4, 3), torch.zeros(4)), lambda: pytest.fail("it was checked"))
    assert found.checked is first
