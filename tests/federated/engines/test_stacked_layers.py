"""Stacked models of known layers give each client the update that it gets alone, and other models are not stacked."""

import operator
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from privet.federated import ClientTrainer, LocalTraining
from privet.federated.engines.base import Engine
from privet.federated.engines.batched import Batched
from privet.federated.engines.known_models import known_graph
from privet.federated.engines.stacked_layers import stacked_gradients
from privet.networks import trained_weights

SIZES = [12, 1, 7, 0, 5, 9, 3, 11, 4, 6, 8]  # more than one share, an empty client, and incomplete batches
LOCAL = LocalTraining(0.3, batch_size=4, epochs=2, momentum=0.5, weight_decay=0.1)


class Functional(nn.Module):
    """A CNN that calls functions and methods."""

    def __init__(self):
        super().__init__()
        self.conv, self.full = nn.Conv2d(2, 3, 3, padding="same", bias=False), nn.Linear(48, 3)

    def forward(self, images):
        pooled = functional.max_pool2d(torch.tanh(self.conv(images)), 2)
        return self.full(functional.relu(pooled).sigmoid().flatten(1))


class Characters(nn.Module):
    """An LSTM for sequences of 7 characters."""

    def __init__(self, layers=1, use=lambda states: states[:, -1], **options):
        super().__init__()
        self.embedding = nn.Embedding(6, 4)
        self.lstm = nn.LSTM(4, 5, layers, **{"batch_first": True, **options})
        self.scores, self.use = nn.Linear(5, 3), use

    def forward(self, characters):
        states, _ = self.lstm(self.embedding(characters))
        return self.scores(self.use(states))


class TiedAndFrozen(nn.Module):
    """A network that uses one layer twice and does not train another."""

    def __init__(self):
        super().__init__()
        self.twice, self.last = nn.Linear(8, 8), nn.Linear(8, 3)
        self.fixed = nn.Linear(8, 8).requires_grad_(False)

    def forward(self, rows):
        return self.last(torch.tanh(self.twice(self.fixed(torch.tanh(self.twice(rows))))))


def cnn(channels=4, groups=1):
    first = [nn.Conv2d(2, channels, 3, padding=1, stride=1), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
    second = [nn.Conv2d(channels, 2 * channels, 3, groups=groups), nn.GroupNorm(2, 2 * channels), nn.GELU()]
    return nn.Sequential(*first, *second, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * channels, 3))


def sequence_norms():
    convolutions = [nn.Conv1d(2, 4, 3, dilation=2), nn.SiLU(), nn.AvgPool1d(2), nn.LayerNorm((4, 2))]
    return nn.Sequential(*convolutions, nn.Flatten(), nn.LayerNorm(8), nn.Linear(8, 3))


MODELS = {
    "cnn": (cnn, (2, 8, 8)),
    "cnn with groups": (partial(cnn, groups=2), (2, 8, 8)),
    "functions": (Functional, (2, 8, 8)),
    "one-dimensional": (sequence_norms, (2, 8)),
    "three-dimensional": (
        lambda: nn.Sequential(nn.Conv3d(1, 2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(16, 3)),
        (1, 4, 4, 4),
    ),
    "tied and frozen": (TiedAndFrozen, (8,)),
    "lstm": (Characters, (7,)),
    "two layers of lstm": (partial(Characters, 2), (7,)),
    "lstm without bias": (partial(Characters, bias=False, use=lambda states: states[:, 2]), (7,)),
}


def trainer(name, loss=None, local=LOCAL, clip_norm=0.5):
    torch.manual_seed(4)
    return ClientTrainer(MODELS[name][0]().double(), loss or nn.CrossEntropyLoss(), local, clip_norm)


def data_of(name, sizes=SIZES):
    generator, shape = torch.Generator().manual_seed(5), MODELS[name][1]
    if "lstm" in name:
        inputs = [torch.randint(6, (n, *shape), generator=generator) for n in sizes]
    else:
        inputs = [torch.randn(n, *shape, generator=generator, dtype=torch.float64) for n in sizes]
    return [(X, torch.randint(3, (len(X),), generator=generator)) for X in inputs]


def answers(made, datas, engine=Batched, **options):
    weights = trained_weights(made.model)
    used = engine(made, 3, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no client falls back to training alone
        found = dict(used.answers(weights, 1, range(len(datas)), lambda client: datas[client]))
    used.close()
    return found


def difference(one, other):
    return max(np.abs(one[name] - other[name]).max() for name in one)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("clip_norm", [0.05, float("inf")])
def test_stacked_updates_equal_those_of_clients_alone(name, clip_norm):
    made, datas = trainer(name, clip_norm=clip_norm), data_of(name)
    assert stacked_gradients(made) is not None
    together, alone = answers(made, datas, workers=2), answers(made, datas, Engine)
    assert together.keys() == alone.keys()
    for client, update in alone.items():
        assert difference(update, together[client]) < 1e-12
    assert max(np.abs(value).max() for value in alone[0].values()) > 1e-3


@pytest.mark.parametrize("name", ["cnn", "one-dimensional", "lstm", "two layers of lstm", "tied and frozen"])
def test_other_examples_of_one_client_leave_all_other_updates_as_they_are(name):
    made, datas = trainer(name), data_of(name)
    X, y = datas[2]
    other = [*datas[:2], (X.flip(1), (y + 1) % 3), *datas[3:]]
    before, after = answers(made, datas, workers=1), answers(made, other, workers=1)
    assert difference(before[2], after[2]) > 1e-4
    for client in set(before) - {2}:
        assert difference(before[client], after[client]) == 0.0


@pytest.mark.parametrize("name", ["cnn", "one-dimensional", "lstm", "tied and frozen"])
def test_a_larger_client_changes_others_by_rounding_only(name):
    made, datas = trainer(name), data_of(name)
    (larger,) = data_of(name, [40])
    before, after = answers(made, datas, workers=1), answers(made, [*datas[:2], larger, *datas[3:]], workers=1)
    for client in set(before) - {2}:
        assert difference(before[client], after[client]) < 1e-12


@pytest.mark.parametrize("channels", [2, 3, 4, 8, 16])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_a_nan_of_one_client_changes_no_bit_of_another(channels, kind):
    torch.manual_seed(4)
    made = ClientTrainer(cnn(2 * channels).to(kind), nn.CrossEntropyLoss(), LOCAL, 0.5)
    datas = [(X.to(kind), y) for X, y in data_of("cnn", [8, 8, 5])]
    X, y = datas[1]
    spoiled = [datas[0], (torch.full_like(X, float("nan")), y), datas[2]]
    before, after = answers(made, datas, workers=1), answers(made, spoiled, workers=1)
    assert all(np.isnan(value).all() for value in after[1].values())
    for client in (0, 2):
        assert difference(before[client], after[client]) == 0.0


def test_a_character_outside_the_embedding_fails_only_for_its_client():
    made, datas = trainer("lstm"), data_of("lstm", [5, 6, 4])
    for wrong in (6, -1):
        X, y = datas[1]
        engine = Batched(made, 3, workers=1)
        spoiled = [datas[0], (torch.full_like(X, wrong), y), datas[2]]
        found = dict(engine.answers(trained_weights(made.model), 1, range(3), lambda client: spoiled[client]))  # noqa: B023
        assert isinstance(found[1], IndexError)
        alone = answers(made, [datas[0], (X[:0], y[:0]), datas[2]], workers=1)
        for client in (0, 2):
            assert difference(found[client], alone[client]) == 0.0


@pytest.mark.parametrize(
    "loss",
    [nn.MSELoss(), nn.L1Loss(), nn.SmoothL1Loss(), nn.HuberLoss(), nn.BCEWithLogitsLoss()],
    ids=lambda loss: type(loss).__name__,
)
def test_losses_of_numbers_are_stacked_unless_they_would_mix_examples(loss):
    torch.manual_seed(4)
    made = ClientTrainer(nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 1)).double(), loss, LOCAL, 0.5)
    datas = [(X, y[:, None].double() / 2) for X, y in data_of("tied and frozen")]
    alone = answers(made, datas, Engine)
    for client, update in answers(made, datas).items():
        assert difference(update, alone[client]) < 1e-12
    parameters = {name: value[None] for name, value in made.start(trained_weights(made.model)).items()}
    X, y = datas[0]
    with pytest.raises(ValueError):  # Targets without a second axis would be compared with the outputs of all examples.
        stacked_gradients(made)(parameters, (X[None],), y[None, :, 0], torch.ones(1, len(X)))


# ------------------------------------------------------------------------------------------------------- unknown models


class Forward(nn.Module):
    """A module with a given forward pass."""

    def __init__(self, function, **layers):
        super().__init__()
        self.function = function
        for name, layer in {"full": nn.Linear(4, 3), **layers}.items():
            setattr(self, name, layer)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, inputs):
        return self.function(self, inputs)


class Subclass(nn.Linear):
    """A layer that mixes examples."""

    def forward(self, inputs):
        return super().forward(inputs - inputs.mean(0))


class WithDefault(nn.Module):
    """A module that tests an optional input."""

    def __init__(self):
        super().__init__()
        self.full = nn.Linear(4, 3)

    def forward(self, inputs, mask=None):
        return self.full(inputs) if mask is None else self.full(inputs).relu()


def hooked():
    model = nn.Sequential(nn.Linear(4, 3))
    model[0].register_forward_hook(lambda layer, args, outputs: outputs - outputs.mean(0))
    return model


def hooked_parameter():
    model = nn.Sequential(nn.Linear(4, 3))
    model[0].weight.register_hook(lambda slope: slope / slope.norm())
    return model


def replaced_forward():
    model = nn.Sequential(nn.Linear(4, 3))
    model[0].forward = lambda inputs: inputs[:, :3] - inputs[:, :3].mean(0)
    return model


def lstm(**options):
    return partial(Characters, **options)


UNKNOWN = {
    "mean over examples": lambda: Forward(lambda self, X: self.full(X - X.mean(0))),
    "softmax over examples": lambda: Forward(lambda self, X: self.full(torch.softmax(X, 0))),
    "flip of examples": lambda: Forward(lambda self, X: self.full(X.flip(0))),
    "transpose": lambda: Forward(lambda self, X: self.full(X.T)),
    "flatten of examples": lambda: Forward(lambda self, X: self.full(X.flatten())),
    "flatten layer of examples": lambda: nn.Sequential(nn.Flatten(0), nn.Linear(4, 3)),
    "some of the examples": lambda: Forward(lambda self, X: self.full(X[1:])),
    "one example": lambda: Forward(lambda self, X: self.full(X[0])),
    "some examples of all features": lambda: Forward(lambda self, X: self.full(X[:2, :])),
    "sum of two": lambda: Forward(lambda self, X: self.full(X) + self.full(X)),
    "branch on values": lambda: Forward(lambda self, X: self.full(X) if X.sum() > 0 else -self.full(X)),
    "branch on a shape": lambda: Forward(lambda self, X: self.full(X) if X.shape[0] > 2 else -self.full(X)),
    "buffer": lambda: Forward(lambda self, X: self.full(X) + self.seen),
    "random numbers": lambda: Forward(lambda self, X: self.full(X) if torch.rand(()) < 2 else X),
    "dropout": lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 3)),
    "optional input": WithDefault,
    "several outputs": lambda: Forward(lambda self, X: (self.full(X), X)),
    "subclass of a layer": lambda: nn.Sequential(Subclass(4, 3)),
    "hook": hooked,
    "hook of a parameter": hooked_parameter,
    "replaced forward": replaced_forward,
    "weight norm": lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))),
    "in place after a branch": lambda: Forward(
        lambda self, X: (self.act(X), self.full(X))[1], act=nn.ReLU(inplace=True)
    ),
    "in place function": lambda: Forward(lambda self, X: self.full(functional.relu(X, inplace=True))),
    "indices of a pool": lambda: nn.Sequential(nn.MaxPool1d(2, return_indices=True)),
    "circular padding": lambda: nn.Sequential(nn.Conv1d(1, 2, 3, padding=1, padding_mode="circular")),
    "padding index": lambda: nn.Sequential(nn.Embedding(6, 4, padding_idx=0)),
    "largest norm": lambda: nn.Sequential(nn.Embedding(6, 4, max_norm=1.0)),
    "scaled by frequency": lambda: nn.Sequential(nn.Embedding(6, 4, scale_grad_by_freq=True)),
    "lstm with time first": lstm(batch_first=False),
    "lstm in two directions": lstm(bidirectional=True),
    "lstm with projections": lstm(proj_size=2),
    "lstm with dropout": lstm(layers=2, dropout=0.5),
    "lstm over examples": lstm(use=lambda states: states[-1]),
    "final states of an lstm": lambda: Forward(
        lambda self, X: self.full(self.lstm(X)[1][0][-1]), lstm=nn.LSTM(4, 4, batch_first=True)
    ),
    "initial states of an lstm": lambda: Forward(
        lambda self, X: self.full(self.lstm(X, (X, X))[0]), lstm=nn.LSTM(4, 4, batch_first=True)
    ),
    "gru": lambda: nn.Sequential(nn.GRU(4, 4, batch_first=True)),
    "batch norm": lambda: nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3)),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_models_that_may_mix_examples_are_not_stacked(name):
    assert known_graph(UNKNOWN[name](), nn.CrossEntropyLoss()) is None


def test_recording_a_model_draws_no_random_numbers():
    model = UNKNOWN["random numbers"]()
    before = torch.get_rng_state()
    known_graph(model, nn.CrossEntropyLoss())
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    "loss",
    [
        lambda outputs, targets: (outputs.mean(1) - targets) ** 2,
        nn.MultiMarginLoss(),
        nn.BCEWithLogitsLoss(weight=torch.ones(3)),
        type("Own", (nn.CrossEntropyLoss,), {})(),
    ],
)
def test_other_losses_are_not_stacked(loss):
    assert known_graph(nn.Sequential(nn.Linear(4, 3)), loss) is None
    assert known_graph(nn.Sequential(nn.Linear(4, 3)), nn.CrossEntropyLoss()) is not None


def test_hooks_for_all_modules_prevent_stacking():
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert known_graph(nn.Sequential(nn.Linear(4, 3)), nn.CrossEntropyLoss()) is None
    finally:
        handle.remove()
    assert known_graph(nn.Sequential(nn.Linear(4, 3)), nn.CrossEntropyLoss()) is not None


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (nn.Sequential(nn.Conv1d(4, 2, 3), nn.Flatten(), nn.Linear(6, 3)), (5,)),  # four examples would be channels
        (nn.Sequential(nn.Linear(4, 4), nn.Tanh()), ()),
        (nn.Sequential(nn.LayerNorm((4, 5)), nn.Linear(5, 3)), (5,)),
    ],
)
def test_inputs_without_an_axis_of_examples_are_refused(model, shape):
    made = ClientTrainer(model.double(), nn.CrossEntropyLoss(), LOCAL, 0.5)
    parameters = {name: value.expand(2, *value.shape) for name, value in made.start(trained_weights(model)).items()}
    X, y = torch.randn(2, 4, *shape, dtype=torch.float64), torch.zeros(2, 4, dtype=torch.int64)
    with pytest.raises(ValueError, match="without an axis of examples"):
        stacked_gradients(made)(parameters, (X,), y, torch.ones(2, 4))


def test_the_same_part_of_each_example_is_known():
    model = Forward(lambda self, X: self.full(operator.getitem(X, (slice(None), 1, slice(0, 4)))))
    assert known_graph(model, nn.CrossEntropyLoss()) is not None
