"""Replays of deep training: every gradient rule is consistent, and planted bugs are refuted without knowing of them."""

import copy
import itertools
import math
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="deep networks need torch: install the extra deep")
from torch import nn  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

from privet.audit import replay  # noqa: E402
from privet.deep import batch_sums, make_private, selfcheck  # noqa: E402
from privet.deep.batch_sums import BatchSums  # noqa: E402
from privet.deep.changes import Changes  # noqa: E402
from privet.deep.clipping import BatchGradients, batch  # noqa: E402
from privet.deep.clipping.rules import _INSIDE, _RULES  # noqa: E402
from privet.deep.clipping.summing import Summation  # noqa: E402
from privet.deep.gradient_estimators import Recursive  # noqa: E402
from privet.deep.training import PrivateTraining  # noqa: E402
from privet.plans import GradientPlan, PlanError, Poisson, RecursivePlan  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*in a batch have a gradient that is not finite"),
    pytest.mark.filterwarnings("ignore:There is no gradient rule"),
]
CLIP = 0.7


def signed(outputs, targets):
    """A loss whose gradients do not become small, however large the outputs are."""
    return outputs[:, 0] * (2.0 * targets - 1)


def trainer(model, loss=signed, *, plan=None, steps=4, rate=0.5, n=16, loop=None, **options):
    """Return a function that trains a new model on a dataset. ``model()`` makes it."""

    def train(data):
        torch.manual_seed(0)
        made = model()
        chosen = plan or GradientPlan(Poisson(rate), steps, CLIP, 1.0, public_n=n, delta=1e-5)
        trained = [each for each in made.parameters() if each.requires_grad]
        private = PrivateTraining(
            made,
            torch.optim.SGD(trained, lr=0.1, momentum=0.9),
            TensorDataset(*data),
            plan=Recursive(chosen, trained) if isinstance(chosen, RecursivePlan) else chosen,
            loss=loss,
            **options,
        )
        for drawn in private.batches():
            (loop or PrivateTraining.step)(private, *drawn)
        return private

    return train


def recursive(steps=4, n=16, rate=0.5):
    return RecursivePlan(Poisson(rate), steps, CLIP, CLIP / 20, 0.2, 1.0, public_n=n, delta=1e-5)


def numbers(*shape, n=16):
    X = torch.randn(n, *shape, generator=torch.Generator().manual_seed(0))
    return X, torch.arange(n) % 2


def without(data, place):
    kept = torch.arange(len(data[0])) != place
    return tuple(each[kept] for each in data)


def replayed(train, data, place=7):
    """Replay a training with and without one example."""
    return replay(train, data, without(data, place))


# ---------------------------------------------------------------------------------------------------- no false alarms


class Called(nn.Module):
    """A layer that is called in its own way, followed by a linear layer."""

    def __init__(self, layer, call, width):
        super().__init__()
        self.layer, self.call, self.last = layer, call, nn.Linear(width, 2)

    def forward(self, x):
        return self.last(self.call(self.layer, x).flatten(1))


def called(layer, shape, width, call=lambda layer, x: layer(x)):
    """Return how to make a model of a layer, and its inputs."""
    return lambda: Called(layer(), call, width), numbers(*shape)


def all_steps(layer, x):
    return layer(x)[0]


def first_of_cell(layer, x):
    found = layer(x)
    return found[0] if isinstance(found, tuple) else found


def words(*shape):
    return torch.randint(0, 9, (16, *shape), generator=torch.Generator().manual_seed(0)), torch.arange(16) % 2


def conv1d(outputs, inputs):
    from transformers.pytorch_utils import Conv1D

    layer = Conv1D(outputs, inputs)
    nn.init.normal_(layer.weight)
    return layer


LAYERS = {
    nn.Linear: called(lambda: nn.Linear(5, 3), (4, 5), 12),
    nn.Conv1d: called(lambda: nn.Conv1d(2, 3, 2), (2, 5), 12),
    nn.Conv2d: called(lambda: nn.Conv2d(2, 4, 2, groups=2), (2, 4, 4), 36),
    nn.Conv3d: called(lambda: nn.Conv3d(1, 2, 2), (1, 3, 3, 3), 16),
    nn.Embedding: (lambda: Called(nn.Embedding(9, 3), lambda layer, x: layer(x), 12), words(4)),
    nn.LayerNorm: called(lambda: nn.LayerNorm(5), (4, 5), 20),
    nn.RMSNorm: called(lambda: nn.RMSNorm(5), (4, 5), 20),
    "transformers.pytorch_utils.Conv1D": called(lambda: conv1d(5, 4), (4, 4), 20),
    nn.GroupNorm: called(lambda: nn.GroupNorm(2, 4), (4, 5), 20),
    nn.InstanceNorm1d: called(lambda: nn.InstanceNorm1d(4, affine=True), (4, 5), 20),
    nn.InstanceNorm2d: called(lambda: nn.InstanceNorm2d(2, affine=True), (2, 3, 3), 18),
    nn.InstanceNorm3d: called(lambda: nn.InstanceNorm3d(1, affine=True), (1, 2, 2, 3), 12),
    nn.RNN: called(lambda: nn.RNN(3, 4, batch_first=True), (5, 3), 20, all_steps),
    nn.GRU: called(lambda: nn.GRU(3, 4, batch_first=True), (5, 3), 20, all_steps),
    nn.LSTM: called(lambda: nn.LSTM(3, 4, batch_first=True), (5, 3), 20, all_steps),
    nn.RNNCell: called(lambda: nn.RNNCell(3, 4), (3,), 4, first_of_cell),
    nn.GRUCell: called(lambda: nn.GRUCell(3, 4), (3,), 4, first_of_cell),
    nn.LSTMCell: called(lambda: nn.LSTMCell(3, 4), (3,), 4, first_of_cell),
    nn.MultiheadAttention: called(
        lambda: nn.MultiheadAttention(4, 2, batch_first=True), (3, 4), 12, lambda layer, x: layer(x, x, x)[0]
    ),
}


def test_every_gradient_rule_is_replayed():
    assert LAYERS.keys() == _RULES.keys() | _INSIDE.keys()


@pytest.mark.parametrize("kind", [*LAYERS, nn.PReLU], ids=lambda kind: getattr(kind, "__name__", kind))
@pytest.mark.parametrize("is_recursive", [False, True], ids=["fresh", "recursive"])
def test_every_gradient_rule_is_consistent(kind, is_recursive):
    model, (X, y) = LAYERS.get(kind) or called(nn.PReLU, (5,), 5)
    if X.is_floating_point():
        X[7] *= 1e3
    found = replayed(trainer(model, plan=recursive() if is_recursive else None), (X, y))
    assert not found.is_violation, found
    assert found.releases == 4
    assert 0.3 < found.largest <= 1


EXTREME = [1e22, 1e-22, 1e38, 1e-45, -0.0, math.nan, math.inf]


@pytest.mark.parametrize("value", EXTREME)
def test_extreme_values_are_consistent(value):
    X, y = numbers(5)
    X[7] = X[7] * value if abs(value) > 0 else value
    found = replayed(trainer(lambda: nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2))), (X, y))
    assert not found.is_violation, found


@pytest.mark.parametrize("place", [0, 3])
def test_one_finite_example_among_missing_ones_is_consistent(place):
    """In one run the model is checked on the first batch, and in the other one on none."""
    X, _ = numbers(5, n=4)
    targets = torch.full((4,), math.nan)
    targets[place] = 5.0
    train = trainer(lambda: nn.Linear(5, 1), lambda o, t: (o[:, 0] - t).square(), rate=0.9, n=4)
    found = replayed(train, (X, targets), place)
    assert not found.is_violation, found
    assert found.largest > 0.9


def test_saved_files_are_consistent(tmp_path):
    train = trainer(lambda: nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2)), random_state=3)

    def saved(data):
        train(data).save(tmp_path / "run")

    data = numbers(5)
    found = replay(saved, data, without(data, 7), folder=tmp_path)
    assert not found.is_violation, found
    assert (tmp_path / "run").exists()


# --------------------------------------------------------------------------------------------------------- planted bugs


def unchecked(monkeypatch):
    """Switch off the check of the first batch and that of each step."""
    passed = selfcheck.Checked(selfcheck.as_given, frozenset(), is_complete=True)
    monkeypatch.setattr(BatchSums, "check", lambda self, *_: setattr(self, "checked", passed) or True)
    monkeypatch.setattr(Changes, "check_forward", lambda *_: None)
    monkeypatch.setattr(Changes, "warn_about_caller", lambda *_: None)


def assert_refuted(train, data, match, place=7):
    found = replayed(train, data, place)
    assert any(match in problem for problem in found.problems), found.problems or found


def test_a_frozen_embedding_that_rescales_its_rows_is_refuted(monkeypatch):
    tokens, y = torch.zeros(16, 3, dtype=torch.long), torch.arange(16) % 2
    tokens[7] = 5

    def model():
        table = nn.Embedding(9, 4, max_norm=1.0).requires_grad_(False)
        table.weight.fill_(3.0)
        return nn.Sequential(table, nn.Flatten(), nn.Linear(12, 2))

    with pytest.raises(ValueError, match="max_norm"):
        trainer(model)((tokens, y))
    unchecked(monkeypatch)
    monkeypatch.setattr(batch, "_check_layer", lambda layer: None)
    assert_refuted(trainer(model), (tokens, y), "differs at result.model")


class ActNorm(nn.Module):
    """Initialised from the first examples that it sees."""

    def __init__(self):
        super().__init__()
        self.shift, self.is_ready = nn.Parameter(torch.zeros(5), requires_grad=False), False

    def forward(self, x):
        if not self.is_ready:
            self.shift.data.copy_(-x.detach().mean(0))
            self.is_ready = True
        return x + self.shift


def test_an_initialisation_from_the_first_batch_is_refuted(monkeypatch):
    unchecked(monkeypatch)
    assert_refuted(trainer(lambda: nn.Sequential(ActNorm(), nn.Linear(5, 2))), numbers(5), "differs at result.model")


class Centred(nn.Module):
    """Subtracts the mean of the batch."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(5, 1)

    def forward(self, x):
        return self.last(x - x.mean(0))


def squares(outputs, targets):
    return (outputs[:, 0] - targets).square()


def test_a_check_that_a_missing_label_switches_off_is_refuted(monkeypatch):
    """The label of one example decides whether a model that mixes examples is refused."""
    X, _ = numbers(5)
    y = torch.zeros(16)
    y[7] = math.nan
    check = BatchSums.check

    def skipped(self, given, others):
        return bool(given[-1].isnan().any()) or check(self, given, others)

    monkeypatch.setattr(BatchSums, "check", skipped)
    assert_refuted(trainer(Centred, squares, rate=1.0), (X, y), "The first run ends with")


def test_a_model_that_mixes_examples_is_refuted(monkeypatch):
    unchecked(monkeypatch)
    X, _ = numbers(5)
    X[7] *= 1e4
    assert_refuted(trainer(Centred, squares), (X, torch.zeros(16)), "times the bound")


class RunningMean(nn.Module):
    """Subtracts a slowly changing mean, which it keeps in a plain attribute or, out of sight, in a closure."""

    def __init__(self, is_hidden):
        super().__init__()
        self.last = nn.Linear(5, 1)
        kept = [torch.zeros(5)]
        self.mean = None if is_hidden else kept
        self.kept = (lambda: kept) if is_hidden else None

    def forward(self, x):
        kept = self.mean or self.kept()
        shifted = x - kept[0]
        kept[0] = 0.9999 * kept[0] + 1e-4 * x.detach().mean(0)
        return self.last(shifted)


@pytest.mark.parametrize("is_hidden", [False, True])
def test_a_running_mean_outside_the_buffers_is_refuted(is_hidden, monkeypatch):
    X, _ = numbers(5)
    X[7] *= 1e8
    train = trainer(lambda: RunningMean(is_hidden), squares, steps=6)
    unchecked(monkeypatch)
    assert_refuted(train, (X, torch.zeros(16)), "and it must not move at all")


def test_a_clip_out_of_step_with_its_noise_is_refuted(monkeypatch):
    """The first batch is refused, the caller continues, and the next sum gets the noise of a later step."""
    X, y = numbers(5)
    X[7] *= 100
    refused = []

    def loop(private, *batch):
        if refused and refused[-1] is private:
            private.step(*batch)
            return
        refused.append(private)
        with pytest.raises(PlanError, match="received 0 examples"):
            private.step(*(each[:0] for each in batch))

    train = trainer(lambda: nn.Linear(5, 2), plan=recursive(rate=1.0), loop=loop)
    consistent = replayed(train, (X, y))
    assert not consistent.is_violation, consistent
    refused.clear()
    step, total = PrivateTraining.step, PrivateTraining._checked_total

    def not_counted(self, *batch):
        if len(batch[-1]) == self._drawn:
            return step(self, *batch)
        self._step = None
        raise PlanError("received 0 examples")

    def by_the_count(self, batch, step, divisor):
        step.clip_norm = self._estimator.at(self.steps_spent - 1).clip_norm
        return total(self, batch, step, divisor)

    monkeypatch.setattr(PrivateTraining, "step", not_counted)
    monkeypatch.setattr(PrivateTraining, "_checked_total", by_the_count)
    assert_refuted(train, (X, y), "times the bound")


def is_refuted_for_some_rows():
    """Return whether one example moves a rounded sum too far, which depends on the batch size and on the rows."""
    train = trainer(lambda: nn.Linear(2, 1, bias=False), signed, rate=1.0, steps=2, n=600)
    for n, second in itertools.product((600, 599, 598, 300), (0.0, 1.0, 5.0)):
        rows = torch.tensor([4.0, second]).expand(n, 2).clone()
        if any("times the bound" in each for each in replayed(train, (rows, torch.ones(n)), 0).problems):
            return True
    return False


def test_sums_in_bfloat16_are_refuted(monkeypatch):
    assert not is_refuted_for_some_rows()

    def add(self, clip_norm, slots):
        norms = self.norms()
        for parameter, part in self.parts.items():
            values = part.written_out().to(torch.bfloat16)
            factors = (clip_norm / norms).clamp_max(1.0).to(torch.bfloat16)
            total = (factors[:, None] * values.flatten(1)).double().sum(0).to(torch.bfloat16)
            slots[parameter] += total.to(slots[parameter].dtype)
        return torch.zeros(len(norms), dtype=torch.bool)

    monkeypatch.setattr(BatchGradients, "add_clipped_sum", add)
    assert is_refuted_for_some_rows()


def test_sums_in_float32_without_room_for_rounding_are_refuted(monkeypatch):
    monkeypatch.setattr(batch_sums, "room", lambda *_: 1.0)
    monkeypatch.setattr(
        Summation, "within", classmethod(lambda cls, error, terms, *_: cls(terms, terms, 1, False, 2.0**-24))
    )
    assert is_refuted_for_some_rows()


# ------------------------------------------------------------------------------------------------------ private.check()


def prepared(model, dataset, loss=signed, plan=None, **options):
    plan = plan or GradientPlan(Poisson(0.1), 50, CLIP, 1.0, public_n=len(dataset), delta=1e-5)
    return PrivateTraining(
        model, torch.optim.Adam(model.parameters(), lr=0.1), dataset, plan=plan, loss=loss, random_state=3, **options
    )


def test_check_accepts_a_good_training_and_leaves_everything_as_it_was():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Dropout(0.5), nn.Linear(4, 2))
    private = prepared(model, TensorDataset(*numbers(5, n=60)), denoiser=None, max_batch=5)
    batches = private.batches()
    private.step(*next(batches))
    before = copy.deepcopy((model.state_dict(), private.optimizer.state_dict(), private.guarantee, private.steps_spent))
    generators = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = private.check(steps=2, examples=6)
    assert len(found) > 5
    assert not any(each.is_violation for each in found)
    assert max(each.largest for each in found) > 0.9
    after = model.state_dict(), private.optimizer.state_dict(), private.guarantee, private.steps_spent
    assert repr(before) == repr(after)
    assert torch.equal(generators[0], torch.get_rng_state())
    assert generators[1] == np.random.get_state()[1].tolist()  # noqa: NPY002
    assert model[2].training
    private.step(*next(batches))


def test_check_works_with_words_and_recursive_momentum():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(9, 3), nn.Flatten(), nn.Linear(12, 2))
    plan = Recursive(recursive(), list(model.parameters()))
    assert len(prepared(model, TensorDataset(*words(4)), plan=plan).check(steps=3, examples=4)) >= 4


class Late(nn.Module):
    """Remembers unusual examples."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(5, 2)
        self.seen = None

    def forward(self, x):
        if float(x.detach().abs().max()) > 100:
            self.seen = float(x.detach().abs().max())
        return self.last(x)


def mixed_up(X, y):
    return 0.7 * X + 0.3 * X.flip(0), y


def test_check_finds_what_the_check_of_the_first_batch_cannot_see():
    dataset = TensorDataset(*numbers(5, n=60))
    private = prepared(Late(), dataset)
    private.step(*next(private.batches()))
    with pytest.raises(
        ValueError, match=r"with and without an example with large values\. .* attribute seen depends on the examples"
    ):
        prepared(Late(), dataset).check(steps=2, examples=4)
    assert private.model.seen is None
    prepared(nn.Linear(5, 2), dataset).check(steps=2, examples=4, prepare=lambda X, y: (X / 2, y))
    with pytest.raises(ValueError, match="does not keep its guarantee"):
        prepared(nn.Linear(5, 2), dataset).check(steps=2, examples=4, prepare=mixed_up)


def test_check_does_not_pass_a_training_whose_steps_fail():
    class Centred(nn.Linear):
        def forward(self, x):
            self.mean = x.mean(0)
            return super().forward(x)

    with pytest.raises(ValueError, match="cannot be checked, because its steps fail"):
        prepared(Centred(5, 2), TensorDataset(*numbers(5, n=24))).check(steps=2, examples=16)


def test_check_says_what_it_needs():
    dataset = TensorDataset(*numbers(5))
    with pytest.raises(ValueError, match="at least two examples"):
        prepared(nn.Linear(5, 2), TensorDataset(*numbers(5, n=1))).check()
    model = nn.Linear(5, 2)
    model.last = model(torch.zeros(1, 5))
    with pytest.raises(ValueError, match="cannot be copied"):
        prepared(model, dataset).check()


def test_dropout_is_no_alarm_wherever_the_example_is_that_was_removed():
    inputs, targets = torch.randn(12, 3), torch.randint(0, 2, (12,))

    def train(data):
        model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 2))
        private = make_private(
            model,
            torch.optim.SGD(model.parameters(), 0.1),
            data,
            loss=nn.CrossEntropyLoss(),
            budget=(3.0, 1e-5),
            epochs=2,
            batch_size=6,
            clip_norm=1.0,
            public_n=12,
        )
        for drawn in private.batches():
            private.step(*drawn)
        return private

    whole = TensorDataset(inputs, targets)
    for place in (0, 5, 11):
        kept = torch.arange(12) != place
        found = replay(train, whole, TensorDataset(inputs[kept], targets[kept]))
        assert not found.is_violation, found
        assert found.moved > 0
