"""DP-SRM: comparison with per-example autograd, the bound on one example, its noise, and its accounting."""

import math
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="deep networks need torch: install the extra deep")
from torch import nn  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

from privet.deep import RecursiveMomentum, make_private  # noqa: E402
from privet.deep.clipping.summing import room  # noqa: E402
from privet.deep.gradient_estimators import Recursive  # noqa: E402
from privet.deep.training import PrivateTraining  # noqa: E402
from privet.plans import FixedOrder, FullBatch, GradientPlan, PlanError, Poisson, RecursivePlan  # noqa: E402
from privet.privacy import Budget, NoiseSource  # noqa: E402

DELTA = 1e-5
C1, C2, GAMMA = 0.5, 0.05, 0.3
NEGLIGIBLE = 1e-6
"""A noise multiplier so small that the noise can be neglected."""


def data(n=60, d=5):
    X = torch.randn(n, d, generator=torch.Generator().manual_seed(1)) * 3
    return TensorDataset(X, (X[:, 0] > 0).long())


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 2))


def recursive(steps=6, noise=NEGLIGIBLE, first_noise=None, refresh=GAMMA, rate=0.5, first_rate=0.5, n=60):
    return RecursivePlan(Poisson(rate), steps, C1, C2, refresh, noise, first_noise, Poisson(first_rate), public_n=n)


def prepared(plan=None, model=None, dataset=None, *, lr=0.5, **options):
    model = network() if model is None else model
    plan = replace(recursive() if plan is None else plan, delta=DELTA)
    return PrivateTraining(
        model,
        options.pop("optimizer", None) or torch.optim.SGD(model.parameters(), lr=lr),
        data() if dataset is None else dataset,
        plan=Recursive(plan, list(model.parameters())) if isinstance(plan, RecursivePlan) else plan,
        loss=nn.CrossEntropyLoss(),
        random_state=0,
        **options,
    )


def flat(tensors):
    return torch.cat([each.detach().flatten() for each in tensors]).clone()


def gradient(model, x, y):
    """Return the gradient of one example, as autograd computes it."""
    loss = nn.functional.cross_entropy(model(x[None]), y[None])
    return flat(torch.autograd.grad(loss, list(model.parameters())))


def clipped(vector, norm):
    return vector * min(1.0, norm / float(vector.norm()))


def at_point(point, x, y):
    """Return the gradient of one example at a point given as one vector."""
    model = network()
    nn.utils.vector_to_parameters(point, model.parameters())
    return gradient(model, x, y)


# -------------------------------------------------------------------------------------------------- what is computed


def test_six_steps_match_a_direct_implementation_of_the_algorithm():
    private = prepared()
    point = flat(private.model.parameters())
    before, estimate, left = None, None, room(30, torch.float32)
    some_binding = 0
    for X, y in private.batches():
        total = torch.zeros_like(point)
        for one in zip(X, y, strict=True):
            here = at_point(point, *one)
            if before is None:
                total += clipped(here, C1 * left)
            else:
                change = here - at_point(before, *one)
                some_binding += float(change.norm()) > C2
                total += GAMMA * clipped(here, C1 * left) + (1 - GAMMA) * clipped(change, C2 * left)
        remembered = 0 if estimate is None else (1 - GAMMA) * estimate
        estimate = total / 30 + remembered  # The divisor is the expected size, not that of the batch.
        before, point = point, point - 0.5 * estimate
        private.step(X, y)
        torch.testing.assert_close(flat(private.model.parameters()), point, rtol=1e-4, atol=2e-5)
    assert private.steps_done == 6
    assert some_binding > 10


def test_the_first_sum_is_divided_by_the_size_of_the_first_batch():
    private = prepared(recursive(first_rate=1.0))
    X, y = next(batches := private.batches())
    assert len(y) == 60
    private.step(X, y)
    bound = C1 * room(60, torch.float32)
    expected = sum(clipped(gradient(network(), *one), bound) for one in zip(X, y, strict=True)) / 60
    torch.testing.assert_close(flat(each.grad for each in private.model.parameters()), expected, rtol=1e-4, atol=1e-5)
    assert len(next(batches)[1]) < 60


def after_one_step(**options):
    private = prepared(**options)
    private.step(*next(private.batches()))
    return private


@pytest.mark.parametrize("size", [0.001, 1.0, 1e4])
@pytest.mark.parametrize("refresh", [0.0, 0.3, 1.0])
def test_no_example_contributes_more_than_the_plan_accounts_for(refresh, size):
    private = after_one_step(plan=recursive(refresh=refresh), lr=20.0)
    X, y = private.dataset.tensors
    extreme = torch.randn(1, 5, generator=torch.Generator().manual_seed(2)) * size
    without, _ = private._total((X,), y)
    with_it, _ = private._total((torch.cat([X, extreme]),), torch.cat([y, y[:1]]))
    bound = private.plan.contribution_norm
    assert float((with_it - without).norm()) <= bound * (1 + 1e-3) + 1e-5
    alone, _ = private._total((extreme,), y[:1])
    assert float(alone.norm()) <= bound * (1 + 1e-5)


def test_the_first_sum_is_bounded_by_c1():
    private = prepared()
    X, y = private.dataset.tensors
    alone, _ = private._total((X[:1] * 100,), 1 - y[:1])
    assert float(alone.norm()) == pytest.approx(C1 * room(30, torch.float32), rel=1e-5)


def test_an_example_that_is_not_finite_contributes_zero():
    private = after_one_step()
    X, y = private.dataset.tensors
    without, _ = private._total((X[1:],), y[1:])
    spoilt = X.clone()
    spoilt[0, 0] = math.nan
    with_it, _ = private._total((spoilt,), y)
    torch.testing.assert_close(with_it, without)


def test_refresh_of_one_is_noisy_gradient_descent():
    noise = 0.7
    descent = prepared(GradientPlan(Poisson(0.5), 6, C1, noise, public_n=60))
    momentum = prepared(recursive(noise=noise, refresh=1.0))
    for private in (descent, momentum):
        for batch in private.batches():
            private.step(*batch)
    torch.testing.assert_close(flat(descent.model.parameters()), flat(momentum.model.parameters()))


@pytest.mark.parametrize("max_batch", [1, 7, 1000])
def test_max_batch_does_not_change_the_result(max_batch):
    whole, parts = prepared(), prepared(max_batch=max_batch)
    for private in (whole, parts):
        for batch in private.batches():
            private.step(*batch)
    torch.testing.assert_close(flat(whole.model.parameters()), flat(parts.model.parameters()), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("max_batch", [None, 7])
def test_both_points_use_the_same_dropout_masks(max_batch):
    """With learning rate zero both points are the same, so the gradients differ only if the masks do."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Dropout(0.5), nn.Linear(6, 2))
    private = prepared(recursive(refresh=0.0), model, lr=0.0, max_batch=max_batch)
    batches = private.batches()
    private.step(*next(batches))
    X, y = private.dataset.tensors
    total, _ = private._total((X,), y)
    assert float(total.norm()) == 0
    drawn = torch.get_rng_state()
    private._total((X,), y)
    assert not torch.equal(drawn, torch.get_rng_state())  # The next batch gets other masks.


def test_an_empty_batch_keeps_the_estimate():
    private = prepared(recursive(steps=40, rate=0.01, first_rate=0.5), lr=0.1)
    sizes, previous = [], None
    for X, y in private.batches():
        private.step(X, y)
        if len(y) == 0 and previous is not None:
            torch.testing.assert_close(private._estimator._estimate, (1 - GAMMA) * previous, rtol=1e-3, atol=1e-5)
        previous = private._estimator._estimate.clone()
        sizes.append(len(y))
    assert 0 in sizes


def test_zeroing_gradients_does_not_change_the_estimate():
    """Some users zero gradients in place between steps, and some optimizers overwrite them."""
    plain, zeroed = prepared(), prepared()
    for batch in plain.batches():
        plain.step(*batch)
    for batch in zeroed.batches():
        zeroed.step(*batch)
        zeroed.optimizer.zero_grad(set_to_none=False)
    torch.testing.assert_close(flat(plain.model.parameters()), flat(zeroed.model.parameters()))


def test_a_run_that_stopped_early_has_the_plan_of_the_steps_that_it_made():
    plan = RecursivePlan(FixedOrder(60, 2, 20), None, C1, C2, GAMMA, 1.0, first=FullBatch())
    estimator = Recursive(plan, [])
    assert (estimator.so_far(0), estimator.so_far(1), estimator.so_far(plan.steps)) == (plan, plan.first_plan, plan)
    for spent in range(2, plan.steps):
        made = estimator.so_far(spent)
        assert (made.steps, made.sampler.implied_steps, made.first) == (spent, spent - 1, plan.first)


def test_with_several_parameter_groups_the_largest_learning_rate_counts():
    """A bound by any other learning rate would allow longer moves."""
    for rates in ([2.0, 0.1], [0.1, 2.0]):
        model = network()
        groups = [
            {"params": layer.parameters(), "lr": rate} for layer, rate in zip((model[0], model[2]), rates, strict=True)
        ]
        private = prepared(recursive(noise=1.0), model, optimizer=torch.optim.SGD(groups), max_move=0.01)
        for batch in private.batches():
            private.step(*batch)
            gradient = flat(each.grad for each in model.parameters())
            assert 2.0 * float(gradient.norm()) == pytest.approx(0.01, rel=1e-3)


def sums_and_noise(private, monkeypatch):
    """Return lists of the bounds that sums are clipped to, and of the standard deviations of their noise."""
    bounds, noise = [], []
    total, release = private._sums.total, NoiseSource.add_gaussian

    def clipped(inputs, targets, bound, *rest):
        bounds.append(bound)
        return total(inputs, targets, bound, *rest)

    def noisy(source, values, std, *rest):
        noise.append(std)
        return release(source, values, std, *rest)

    private._sums.total = clipped
    monkeypatch.setattr(NoiseSource, "add_gaussian", noisy)
    return bounds, noise


def test_a_write_at_the_previous_point_alone_is_noticed():
    """The second forward pass of a step is at the previous parameters, which later steps use again."""
    private = after_one_step()
    passes = []

    def write_in_every_second_pass(model, inputs):
        passes.append(1)
        if len(passes) == 2:
            model[0].weight.data[0, 0] += 1e-3

    private.model.register_forward_pre_hook(write_in_every_second_pass)
    X, y = private.dataset.tensors
    with pytest.raises(ValueError, match="at the previous point of recursive momentum"):
        private._total((X,), y)


@pytest.mark.parametrize("fault", ["length", "forward"])
def test_after_a_refused_first_batch_each_sum_is_clipped_to_the_bound_of_its_noise(fault, monkeypatch):
    """The first noise is for C1, and later noise for less. A caller may catch the error and continue."""
    private = prepared(recursive(noise=1.0, first_noise=1.0))
    bounds, noise = sums_and_noise(private, monkeypatch)
    batches = private.batches()
    X, y = next(batches)
    with pytest.raises((PlanError, RuntimeError), match="counts as spent" if fault == "length" else "shapes"):
        private.step(X[1:] if fault == "length" else X[:, 1:], y[1:] if fault == "length" else y)
    with pytest.raises(PlanError, match="without a new batch"):
        private.step(X, y)
    assert (private.steps_spent, private.steps_done) == (1, 0)
    for batch in batches:
        private.step(*batch)
    assert noise == [private.plan.later_plan.noise_std] * 5
    assert bounds[-5:] == noise == [private.plan.contribution_norm] * 5  # The noise multiplier is 1.
    assert (private.steps_spent, private.steps_done) == (6, 5)
    X, y = private.dataset.tensors
    private.steps_spent = 0
    with pytest.raises(PlanError, match="The noise of this step is for"):
        private._sums.total((X,), y, private.plan.contribution_norm / 2, 30.0)


@pytest.mark.parametrize("max_move", [1e-3, 0.05])
def test_no_step_moves_further_than_max_move(max_move):
    private = prepared(recursive(noise=1.0), max_move=max_move, lr=2.0)
    moves = []
    for batch in private.batches():
        before = flat(private.model.parameters())
        private.step(*batch)
        moves.append(float((flat(private.model.parameters()) - before).norm()))
    assert max(moves) <= max_move * (1 + 1e-3)
    assert max(moves) == pytest.approx(max_move, rel=1e-2)


def test_a_large_max_move_changes_nothing():
    free, wide = prepared(), prepared(max_move=1e6)
    for private in (free, wide):
        for batch in private.batches():
            private.step(*batch)
    assert torch.equal(flat(free.model.parameters()), flat(wide.model.parameters()))


# ----------------------------------------------------------------------------------------------- noise and accounting


def test_the_noise_on_first_and_later_sums_is_that_of_the_plan():
    """With zero inputs and no bias, the optimizer receives noise and the remembered estimate alone."""
    dataset = TensorDataset(torch.zeros(60, 100), torch.zeros(60).long())
    model = nn.Linear(100, 100, bias=False)
    plan = recursive(steps=3, noise=2.0, first_noise=5.0, rate=0.25, first_rate=0.5)
    private = prepared(plan, model, dataset)
    estimates = []
    for batch in private.batches():
        private.step(*batch)
        estimates.append(model.weight.grad.clone())
    first, second, third = estimates
    assert float(first.std()) == pytest.approx(5.0 * C1 / 30, rel=0.05)
    later = 2.0 * (GAMMA * C1 + (1 - GAMMA) * C2) / 15
    assert float((second - (1 - GAMMA) * first).std()) == pytest.approx(later, rel=0.05)
    assert float((third - (1 - GAMMA) * second).std()) == pytest.approx(later, rel=0.05)


def test_the_guarantee_covers_the_steps_made():
    private = prepared(recursive(steps=5, noise=2.0, first_noise=3.0, rate=0.1, first_rate=0.3))
    plan = private.plan
    whole = plan.guarantee(DELTA).epsilon
    assert private.guarantee.epsilon == whole
    expected = [plan.first_plan.guarantee(DELTA).epsilon]
    expected += [replace(plan, steps=k).guarantee(DELTA).epsilon for k in range(2, 6)]
    found = []
    for batch in private.batches():
        private.step(*batch)
        found.append(private.guarantee.epsilon)
    assert found == expected
    assert found == sorted(found)
    assert found[-1] == whole
    assert f"{plan.contribution_norm:.6g} to a later one" in private.guarantee.statement(verbose=True)


def test_the_budget_holds_with_a_larger_first_batch():
    dataset = data(200)
    model = network()
    private = make_private(
        model,
        torch.optim.Adam(model.parameters(), lr=0.01),
        dataset,
        loss=nn.CrossEntropyLoss(),
        budget=Budget(4.0, DELTA),
        epochs=2,
        batch_size=20,
        clip_norm=1.0,
        recursion=RecursiveMomentum(difference_norm=0.1, refresh=0.2, first_batch_size=100, max_move=0.1),
        random_state=0,
    )
    for batch in private.batches():
        private.step(*batch)
    assert 0.98 * 4 < private.guarantee.epsilon <= 4
    assert private.plan.first.rate == 0.5


def test_impossible_settings_are_rejected():
    for settings, match in [
        ({"refresh": 1.5, "difference_norm": 0.1}, "refresh"),
        ({"refresh": 0.5, "difference_norm": 0.0}, "difference_norm"),
        ({"refresh": 0.5, "difference_norm": 0.1, "first_batch_size": 61}, "rate"),
        ({"refresh": 0.5, "difference_norm": 0.1, "first_batch_size": 0}, "rate"),
        ({"refresh": 0.5, "difference_norm": 0.1, "max_move": 0.0}, "max_move"),
    ]:
        model = network()
        with pytest.raises(ValueError, match=match):
            make_private(
                model,
                torch.optim.SGD(model.parameters(), lr=0.1),
                data(),
                loss=nn.CrossEntropyLoss(),
                budget=Budget(4.0, DELTA),
                epochs=2,
                batch_size=20,
                clip_norm=1.0,
                recursion=RecursiveMomentum(**settings),
            )
