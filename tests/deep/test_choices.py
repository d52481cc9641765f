"""Choices of make_private: noise in place of a budget, fixed-size batches, and the order of a convolution's weights."""

import math

import pytest

torch = pytest.importorskip("torch", reason="deep networks need torch: install the extra deep")
from torch import nn  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

from privet.deep import RecursiveMomentum, make_private  # noqa: E402
from privet.denoise import LaplacianSmoothing  # noqa: E402
from privet.networks import LayerDenoiser  # noqa: E402
from privet.plans import FixedSize, GradientPlan, Poisson  # noqa: E402
from privet.privacy import Adjacency, AttackRate, NoiseMultiplier  # noqa: E402

N = 60
NONE = "No differential privacy: the noise multiplier is 0, so no record is protected."


def prepared(model=None, X=None, **options):
    torch.manual_seed(0)
    X = torch.randn(N, 4) if X is None else X
    model = model or nn.Linear(4, 2)
    settings = {"loss": nn.CrossEntropyLoss(), "epochs": 2, "batch_size": 20, "clip_norm": 0.5, "delta": 1e-5}
    settings |= {"random_state": 0} | options
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    return make_private(model, optimizer, TensorDataset(X, (X.flatten(1)[:, 0] > 0).long()), **settings)


def trained(private):
    for batch in private.batches():
        private.step(*batch)
    return private


@pytest.mark.parametrize("multiplier", [0.7, 3.0])
def test_the_noise_and_the_guarantee_are_those_of_the_multiplier(multiplier):
    model = nn.Linear(50, 40, bias=False)
    nn.init.zeros_(model.weight)
    private = trained(prepared(model, torch.zeros(N, 50), noise_multiplier=multiplier))
    assert private.plan.noise_multiplier == multiplier
    expected = GradientPlan(Poisson(20 / N), 6, 0.5, multiplier, public_n=N).guarantee(1e-5).epsilon
    assert private.guarantee.epsilon == expected
    assert float(model.weight.detach().std()) == pytest.approx(multiplier * 0.5 / 20 * math.sqrt(6), rel=0.1)


def test_the_multiplier_may_be_given_as_the_budget_and_delta_has_its_default():
    private = prepared(budget=NoiseMultiplier(2.0), delta=None)
    assert (private.plan.noise_multiplier, private.plan.delta) == (2.0, 1e-6)


@pytest.mark.parametrize("options", [{}, {"sampling": "uniform"}, {"recursion": RecursiveMomentum(0.1, 0.5, 30)}])
def test_the_noise_may_be_calibrated_to_a_rate(options):
    private = prepared(budget=AttackRate(0.01, 0.05), delta=None, **options)
    assert 0.0495 < private.plan.guarantee().tpr(0.01) <= 0.05
    assert private.plan.delta == 1e-6


def test_the_multiplier_of_recursive_momentum_is_that_of_later_sums():
    plan = prepared(noise_multiplier=2.0, recursion=RecursiveMomentum(0.1, 0.5, first_batch_size=40)).plan
    assert plan.noise_multiplier == 2.0
    assert plan.first == Poisson(40 / N)
    assert plan.first_noise_multiplier != 2.0


@pytest.mark.parametrize("recursion", [None, RecursiveMomentum(10.0, 0.5)])
def test_without_noise_training_is_plain_gradient_descent(recursion, tmp_path):
    X = torch.randn(N, 4, generator=torch.Generator().manual_seed(1))
    y = (X[:, 0] > 0).long()
    options = {"noise_multiplier": 0, "clip_norm": 100.0, "batch_size": N, "epochs": 3, "recursion": recursion}
    private = prepared(X=X, **options)
    torch.manual_seed(0)
    plain = nn.Linear(4, 2)
    plain.load_state_dict(private.model.state_dict())
    optimizer = torch.optim.SGD(plain.parameters(), lr=1.0)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(plain(X), y).backward()
        optimizer.step()
    assert str(private.guarantee).splitlines()[0] == NONE
    trained(private)
    assert torch.allclose(private.model.weight, plain.weight, atol=1e-5)
    assert private.guarantee.epsilon == math.inf
    private.save(tmp_path / "run")
    del private
    again = prepared(X=X, **options)
    again.resume(tmp_path / "run")
    assert str(again.guarantee).splitlines()[0] == NONE


def test_check_accepts_a_training_without_noise_and_sees_its_bound():
    found = prepared(noise_multiplier=0.0).check(steps=2, examples=2)
    assert not any(each.is_violation for each in found)
    assert max(each.largest for each in found) > 0.9


# --- batches of a fixed size ---------------------------------------------------------------------------------------


def test_uniform_batches_have_the_given_size_and_their_own_accounting():
    private = prepared(epsilon=2.0, sampling="uniform")
    sizes = []
    for batch in private.batches():
        sizes.append(len(batch[-1]))
        private.step(*batch)
    assert sizes == [20] * 6
    assert private.plan.sampler == FixedSize(20, N)
    guarantee = private.guarantee
    assert guarantee.adjacency is Adjacency.REPLACE_ONE
    assert 0.99 * 2 < guarantee.epsilon <= 2
    assert "is public" not in guarantee.statement(verbose=True)  # n is public by definition


def test_uniform_batches_work_with_recursive_momentum():
    private = trained(prepared(noise_multiplier=2.0, sampling="uniform", recursion=RecursiveMomentum(0.1, 0.5, 30)))
    assert (private.plan.first, private.plan.sampler) == (FixedSize(30, N), FixedSize(20, N))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampling": "shuffled"}, "sampling must be one of poisson, uniform, got 'shuffled'"),
        ({"sampling": "uniform", "public_n": N + 1}, f"n = {N + 1}"),
        ({"sampling": "uniform", "batch_size": N + 1}, "exceeds the number of examples"),
    ],
)
def test_impossible_samplings_are_refused_before_training(options, message):
    with pytest.raises(ValueError, match=message):
        prepared(noise_multiplier=1.0, **options)


# --- the order of a convolution's weights --------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["OIHW", "OWHI"])
def test_convolutions_are_smoothed_in_the_given_order(order):
    def step(**options):
        torch.manual_seed(3)
        model = nn.Sequential(nn.Conv2d(2, 3, (2, 3)), nn.Flatten(), nn.Linear(12, 2))
        private = prepared(model, torch.randn(N, 2, 3, 4), noise_multiplier=1.0, **options)
        private.step(*next(private.batches()))
        return private

    smooth = LayerDenoiser(LaplacianSmoothing(2.0), order)
    plain, smoothed = step(), step(denoiser=LaplacianSmoothing(2.0), order=order)
    for one, other in zip(plain.model.parameters(), smoothed.model.parameters(), strict=True):
        assert torch.allclose(smooth(one.grad), other.grad, atol=1e-6)
    if order == "OWHI":
        assert not any(each.is_violation for each in smoothed.check(steps=2, examples=2))


def test_an_unknown_order_is_refused():
    with pytest.raises(ValueError, match="order must be one of OIHW"):
        prepared(noise_multiplier=1.0, order="HWIO")
