"""make_private: noise, clipping, sampling and accounting of a training; empty batches; rejected settings."""

import copy
import math
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="deep networks need torch: install the extra deep")
from torch import nn  # noqa: E402
from torch.utils.data import Dataset, TensorDataset  # noqa: E402

from privet.deep import RecursiveMomentum, make_private  # noqa: E402
from privet.deep import loop as loop_module  # noqa: E402
from privet.deep.fingerprint import batch_checksum  # noqa: E402
from privet.deep.training import PrivateTraining  # noqa: E402
from privet.denoise import LaplacianSmoothing  # noqa: E402
from privet.plans import GradientPlan, PlanError, Poisson  # noqa: E402
from privet.privacy import Adjacency, Budget, NoiseSource  # noqa: E402
from privet.privacy.budget import default_delta  # noqa: E402


def problem(n=200, d=5, seed=0):
    torch.manual_seed(seed)
    X = torch.randn(n, d)
    return TensorDataset(X, (X[:, 0] > 0).long())


def prepared(dataset=None, model=None, **options):
    dataset = problem() if dataset is None else dataset
    torch.manual_seed(0)  # of the weights
    model = model or nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2))
    settings = {
        "loss": nn.CrossEntropyLoss(),
        "budget": Budget(8.0, 1e-4),
        "epochs": 5,
        "batch_size": 20,
        "clip_norm": 1.0,
        "random_state": 0,
    } | options
    optimizer = settings.pop("optimizer", None) or torch.optim.SGD(model.parameters(), lr=0.5)
    return make_private(model, optimizer, dataset, **settings)


def train(private):
    return [private.step(*batch) for batch in private.batches()]


def test_training_learns_within_the_budget():
    dataset = problem(2000)
    private = prepared(dataset, epochs=10, batch_size=100)
    train(private)
    X, y = dataset.tensors
    assert float((private.model(X).argmax(1) == y).float().mean()) > 0.9
    assert private.steps_done == private.plan.steps == 200
    guarantee = private.guarantee
    assert 0.99 * 8 < guarantee.epsilon <= 8
    assert guarantee.adjacency is Adjacency.ADD_OR_REMOVE
    assert "the number of examples" in guarantee.statement(verbose=True)


def test_the_guarantee_covers_the_steps_made():
    private = prepared()
    batches = private.batches()
    spent = []
    for _ in range(3):
        private.step(*next(batches))
        spent.append(private.guarantee.epsilon)
    assert spent[0] < spent[1] < spent[2] < private.plan.guarantee(1e-4).epsilon


def test_a_model_without_gradients_moves_by_the_planned_noise_alone():
    """With zero inputs and no bias, the weights are the noise divided by the expected batch size."""
    dataset = TensorDataset(torch.zeros(100, 50), torch.zeros(100).long())
    model = nn.Linear(50, 40, bias=False)
    with torch.no_grad():
        model.weight.zero_()
    private = prepared(dataset, model, epochs=1, batch_size=10, optimizer=torch.optim.SGD(model.parameters(), lr=1.0))
    train(private)
    expected = private.plan.noise_std / 10 * math.sqrt(private.plan.steps)
    assert float(model.weight.detach().std()) == pytest.approx(expected, rel=0.08)


def test_one_example_moves_the_sum_by_at_most_the_clip():
    private = prepared(clip_norm=0.3)
    X, y = private.dataset.tensors
    with_it, _ = private._total((X[:20] * 100,), y[:20])
    without, _ = private._total((X[1:20] * 100,), y[1:20])
    assert float((with_it - without).norm()) == pytest.approx(0.3, rel=1e-3)


@pytest.mark.parametrize("max_batch", [1, 7, 1000])
def test_max_batch_does_not_change_the_result(max_batch):
    whole, parts = prepared(), prepared(max_batch=max_batch)
    train(whole)
    train(parts)
    for one, other in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


class Listed(Dataset):
    """A map-style dataset that is not made of tensors."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, index):
        x, y = self.dataset[index]
        return x.numpy(), int(y)


def test_any_map_style_dataset_gives_the_same_training():
    tensors, listed = prepared(), prepared(Listed(problem()))
    train(tensors)
    train(listed)
    for one, other in zip(tensors.model.parameters(), listed.model.parameters(), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("wrap", [lambda dataset: dataset, Listed])
def test_empty_batches_are_steps_with_noise_alone(wrap):
    private = prepared(wrap(problem(40)), batch_size=1, epochs=3)
    losses = train(private)
    assert any(len(each) == 0 for each in losses)
    assert private.steps_done == private.plan.steps
    assert all(torch.isfinite(parameter).all() for parameter in private.model.parameters())


def test_batches_are_poisson():
    private = prepared(problem(500), batch_size=50, epochs=20)
    sizes = [len(each) for each in train(private)]
    assert np.mean(sizes) == pytest.approx(50, abs=4 * math.sqrt(45 / len(sizes)))
    assert np.var(sizes) == pytest.approx(45, rel=0.5)


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop])
def test_other_optimizers_schedules_groups_and_frozen_layers_work(kind):
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2))
    model[0].weight.requires_grad_(False)
    kept = model[0].weight.clone()
    groups = [{"params": [model[0].bias], "lr": 0.1}, {"params": model[2].parameters()}]
    optimizer = kind(groups, lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    private = prepared(model=model, optimizer=optimizer)
    for batch in private.batches():
        private.step(*batch)
        schedule.step()
    assert torch.equal(model[0].weight, kept)
    assert optimizer.param_groups[0]["lr"] < 0.1


def test_smoothing_is_applied_to_each_layer_after_the_noise():
    plain, smoothed = prepared(), prepared(denoiser=LaplacianSmoothing(1.0))
    for private in (plain, smoothed):
        private.step(*next(private.batches()))
    smooth = LaplacianSmoothing(1.0)
    for one, other in zip(plain.model.parameters(), smoothed.model.parameters(), strict=True):
        torch.testing.assert_close(smooth(one.grad.flatten()), other.grad.flatten(), rtol=1e-4, atol=1e-6)


def test_equal_seeds_repeat_a_run_and_others_do_not():
    weights = []
    for seed in (0, 0, 1):
        private = prepared(random_state=seed)
        train(private)
        weights.append(torch.cat([parameter.flatten() for parameter in private.model.parameters()]).detach())
    assert torch.equal(weights[0], weights[1])
    assert not torch.allclose(weights[0], weights[2])


def test_a_batch_is_used_exactly_once():
    private = prepared()
    with pytest.raises(PlanError, match="without a new batch"):
        private.step(torch.zeros(1, 5), torch.zeros(1).long())
    batches = private.batches()
    batch = next(batches)
    with pytest.raises(PlanError, match="drawn and not used"):
        next(batches)
    with pytest.raises(PlanError, match="without a new batch"):
        private = prepared()
        batch = next(private.batches())
        private.step(*batch)
        private.step(*batch)
    with pytest.raises(PlanError, match="only once per training"):
        next(private.batches())


def mixed_up(X, y):
    return 0.7 * X + 0.3 * X.flip(0), y


def shuffled_labels(X, y):
    return X, y.roll(1)


def scaled_in_place(X, y):
    X.numpy()[:] *= 2
    return X, y


@pytest.mark.parametrize("change", [mixed_up, shuffled_labels, scaled_in_place])
def test_a_batch_that_the_caller_changed_warns_and_becomes_an_assumption(change):
    private = prepared()
    batches = private.batches()
    private.step(*next(batches))
    assert "before step()" not in private.guarantee.statement(verbose=True)
    with pytest.warns(UserWarning, match="MixUp"):
        private.step(*change(*next(batches)))
    assert "what the caller changed in a batch before step() treats each" in private.guarantee.statement(verbose=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # The warning is given once.
        private.step(*change(*next(batches)))


def test_a_batch_in_another_place_or_format_is_unchanged():
    X = torch.randn(40, 3, 4, 4, dtype=torch.bfloat16)
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 2, dtype=torch.bfloat16))
    private = prepared(TensorDataset(X, torch.arange(40) % 2), model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for X, y in private.batches():
            private.step(X.clone().contiguous(memory_format=torch.channels_last), y.clone())
    assert "before step()" not in private.guarantee.statement(verbose=True)


def test_checksums_of_batches_see_every_kind_of_content():
    batch = (torch.ones(2, 3), {"a": [torch.zeros(2, dtype=torch.bool)], "b": ["x", "y"]}, torch.tensor(1.0))
    found = batch_checksum(batch)
    assert found == batch_checksum(copy.deepcopy(batch))
    for other in (
        (batch[0].flip(0) + torch.tensor([[0.0], [1.0]]), *batch[1:]),
        (batch[0], {"a": [torch.tensor([True, False])], "b": ["x", "y"]}, batch[2]),
        (batch[0], {"a": batch[1]["a"], "b": ["y", "x"]}, batch[2]),
        (*batch[:2], torch.tensor(2.0)),
        (torch.ones(3, 2), *batch[1:]),
    ):
        assert batch_checksum(other) != found
    assert batch_checksum(torch.zeros(0, 3)) != batch_checksum(torch.zeros(1, 3))


def test_impossible_settings_raise_before_anything_is_spent():
    with pytest.raises(ValueError, match=r"nn.GroupNorm"):
        prepared(model=nn.Sequential(nn.Linear(5, 2), nn.BatchNorm1d(2)))
    with pytest.raises(ValueError, match="does not hold all parameters"):
        prepared(optimizer=torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1))
    with pytest.raises(ValueError, match="no parameters to train"):
        model = nn.Linear(5, 2).requires_grad_(False)
        prepared(model=model, optimizer=torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1))
    with pytest.raises(ValueError, match="batch_size"):
        prepared(batch_size=0)
    with pytest.raises(ValueError, match="batch_size = 201 exceeds the number of examples, 200"):
        prepared(batch_size=201)
    with pytest.raises(ValueError, match="one value per example"):
        train(prepared(loss=lambda outputs, targets: nn.functional.cross_entropy(outputs, targets).mean()))


@pytest.mark.parametrize(
    "given", [{"budget": (8.0, 1e-4)}, {"budget": [8.0, 1e-4]}, {"budget": None, "epsilon": 8.0, "delta": 1e-4}]
)
def test_a_budget_can_be_given_as_a_pair_or_by_its_parts(given):
    assert prepared(**given).plan == prepared().plan
    assert prepared(**given).guarantee.delta == 1e-4


@pytest.mark.parametrize("given", [{"budget": 8.0}, {"budget": None, "epsilon": 8}])
def test_a_budget_without_delta_gets_the_default_for_n(given):
    assert prepared(**given).guarantee.delta == default_delta(200)


def test_with_a_public_n_the_default_delta_and_the_guarantee_do_not_reveal_the_number_of_examples():
    one, other = (prepared(problem(n), budget=8.0, public_n=50_000, batch_size=500).guarantee for n in (200, 300))
    assert one.to_json() == other.to_json()
    assert one.delta == default_delta(50_000) < default_delta(200)


@pytest.mark.parametrize(
    ("given", "cause"),
    [
        ({"budget": None}, "Give one of budget, epsilon and noise_multiplier"),
        ({"epsilon": 8.0}, "Give one of budget, epsilon and noise_multiplier"),
        ({"noise_multiplier": 0}, "Give one of budget, epsilon and noise_multiplier"),
        ({"delta": 1e-4}, "cannot be given together"),
        ({"budget": "8"}, "a budget must be"),
    ],
)
def test_an_ambiguous_budget_is_rejected(given, cause):
    with pytest.raises(ValueError, match=cause):
        prepared(**given)


def test_progress_is_called_with_steps_spent_and_planned():
    private, calls = prepared(epochs=1), []
    for batch in private.batches(progress=lambda done, planned: calls.append((done, planned))):
        private.step(*batch)
    assert calls == [(done, 10) for done in range(1, 11)]


def test_deprecated_argument_names_still_work():
    with pytest.warns(DeprecationWarning, match="verbose"):
        batches = prepared(epochs=1).batches(progress=False)
    assert next(batches)
    settings = RecursiveMomentum(difference_norm=0.1, refresh=0.2)
    with pytest.warns(DeprecationWarning, match="'recursion'"):
        old = prepared(momentum=settings)
    assert old.plan == prepared(recursion=settings).plan
    with pytest.raises(TypeError, match="both"):
        prepared(momentum=settings, recursion=settings)


def directly(plan=None, dataset=None, **options):
    """Return a training that is made from a plan, without make_private."""
    plan = plan or GradientPlan(Poisson(0.1), 10, 1.0, 1.0, public_n=200, delta=1e-5)
    model = nn.Linear(5, 2)
    settings = {"plan": plan, "loss": nn.CrossEntropyLoss(), "random_state": 0} | options
    return PrivateTraining(model, torch.optim.SGD(model.parameters(), lr=0.5), dataset or problem(), **settings)


def test_a_plan_without_delta_is_refused():
    with pytest.raises(ValueError, match="The plan has no delta"):
        directly(GradientPlan(Poisson(0.1), 10, 1.0, 1.0, public_n=200))


@pytest.mark.parametrize(
    ("options", "is_said"), [({}, False), ({"n_is_public": False}, False), ({"n_is_public": True}, True)]
)
def test_the_guarantee_says_that_the_number_of_examples_is_public_only_if_it_is(options, is_said):
    statement = directly(**options).guarantee.statement(verbose=True)
    assert ("the number of examples, from which the sampling rate is computed" in statement) is is_said


def test_a_step_in_a_forked_process_is_refused_and_would_not_be_counted():
    private = directly()
    batch = next(private.batches())
    private._process += 1  # as if this process were a copy
    with pytest.raises(PlanError, match="forked process"):
        private.step(*batch)
    assert (private.steps_spent, private.steps_done) == (0, 0)


def test_the_number_of_targets_must_be_that_of_the_drawn_batch():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(5, 2)

        def forward(self, one, other):
            return self.layer(one + other)

    X, y = problem().tensors
    private = prepared(TensorDataset(X, X, y), Both())
    one, other, targets = next(private.batches())
    with pytest.raises(PlanError, match="step\\(\\) received"):
        private.step(one, other, targets[1:])
    assert (private.steps_spent, private.steps_done) == (1, 0)


def test_the_last_loss_is_the_mean_of_the_last_batch_with_examples():
    private = prepared(problem(40), batch_size=1, epochs=1)
    assert math.isnan(private._last_loss)
    shown = []
    for batch in private.batches():
        losses = private.step(*batch)
        if len(losses):
            shown.append(float(losses.mean()))
        if shown:
            assert private._last_loss == shown[-1]
    assert 0 < len(shown) < private.plan.steps


def test_a_check_replays_four_steps_of_sixteen_examples_unless_told_otherwise(monkeypatch):
    asked = []
    monkeypatch.setattr(loop_module, "check", lambda private, **how: asked.append(how) or [])
    private = directly()
    assert private.check() == []
    private.check(steps=2, examples=5, prepare=tuple)
    assert asked == [
        {"steps": 4, "examples": 16, "prepare": None},
        {"steps": 2, "examples": 5, "prepare": tuple},
    ]


def test_noise_comes_from_a_stream_of_its_own():
    """The same seed in another process, or for another purpose, must not repeat draws."""
    drawn = directly()._source.below(10**12)
    assert drawn == NoiseSource(0, purpose="make_private in process 0").below(10**12)
    others = [
        NoiseSource(0),
        NoiseSource(0, purpose="make_private"),
        NoiseSource(0, purpose="make_private in process 1"),
    ]
    assert drawn not in [other.below(10**12) for other in others]


@pytest.mark.parametrize(("steps", "ahead"), [(1, 1), (1000, 1), (1001, 2), (2500, 3)])
def test_a_thousandth_of_the_steps_is_counted_ahead(steps, ahead):
    """A crash loses at most this many steps, and the journal is written a thousand times."""
    plan = GradientPlan(Poisson(0.1), steps, 1.0, 1.0, public_n=200, delta=1e-5)
    assert directly(plan)._files._ahead == ahead


class Slopes(nn.Module):
    """A layer without a gradient rule, whose parameters enter a function that has no rule either."""

    def __init__(self):
        super().__init__()
        self.slopes = nn.Parameter(torch.full((8,), 0.3))

    def forward(self, x):
        return nn.functional.prelu(x, self.slopes)


def test_a_layer_without_a_gradient_rule_is_trained_with_a_warning():
    model = nn.Sequential(nn.Linear(5, 8), Slopes(), nn.Linear(8, 2))
    private = prepared(model=model)
    with pytest.warns(UserWarning, match="no gradient rule for Slopes"):
        train(private)
    assert not torch.equal(model[1].slopes, torch.full((8,), 0.3))
