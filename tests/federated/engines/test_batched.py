"""Batched training gives the same updates as training one client after another."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from privet.federated import ClientTrainer, LocalTraining
from privet.federated.clients import Fetching
from privet.federated.engines.base import Engine
from privet.federated.engines.batched import Batched, _stacked
from privet.federated.engines.softmax_regression import softmax_gradients, softmax_layer
from privet.networks import trained_weights

SIZES = [30, 7, 1, 12, 0, 8, 70]  # the last has more examples than an image has pixels


def images(sizes=SIZES):
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(n, 1, 8, 8, generator=generator), torch.randint(3, (n,), generator=generator)) for n in sizes]


MODELS = {
    "softmax": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 3)),
    "softmax without bias": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 3, bias=False)),
    "perceptron": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.Tanh(), nn.Linear(5, 3)),
    "convolution": lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)),
}
LOCALS = {
    "epochs": LocalTraining(0.3, batch_size=5, epochs=2),
    "steps": LocalTraining(0.3, batch_size=5, steps=4, decay=0.9),
    "decay": LocalTraining(0.3, batch_size=5, epochs=2, weight_decay=0.2),
    "momentum": LocalTraining(0.1, batch_size=5, epochs=2, momentum=0.9, weight_decay=0.2),
}


def trainer(model="softmax", local="epochs", clip_norm=0.4):
    torch.manual_seed(2)
    return ClientTrainer(MODELS[model](), nn.CrossEntropyLoss(), LOCALS[local], clip_norm)


def answers(engine, datas, rounds_done=1):
    weights = trained_weights(engine.trainer.model)
    return dict(engine.answers(weights, rounds_done, range(len(datas)), lambda client: datas[client]))


def assert_alike(one, other, atol=2e-6):
    assert one.keys() == other.keys()
    for client, update in one.items():
        assert update.keys() == other[client].keys()
        assert all(np.allclose(update[name], other[client][name], atol=atol) for name in update)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("local", LOCALS)
@pytest.mark.parametrize("clip_norm", [0.05, float("inf")])
def test_batched_updates_equal_sequential_updates_for_clients_of_all_sizes(model, local, clip_norm):
    made = trainer(model, local, clip_norm)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no client falls back to training alone
        together = answers(Batched(made, random_state=3), images())
    assert_alike(together, answers(Engine(made, random_state=3), images()))
    assert max(np.abs(value).max() for value in together[0].values()) > 1e-3


@pytest.mark.parametrize("local", LOCALS)
@pytest.mark.parametrize("clip_norm", [0.05, float("inf")])
def test_training_in_the_span_of_the_examples_equals_ordinary_training(local, clip_norm, monkeypatch):
    made = trainer("softmax", local, clip_norm)
    in_span = answers(Batched(made, random_state=3), images())
    monkeypatch.setattr(Batched, "_has_few", lambda self, data: False)
    plainly = answers(Batched(made, random_state=3), images())
    assert_alike(in_span, plainly)
    assert any(
        not np.array_equal(in_span[0][name], value) for name, value in plainly[0].items()
    )  # the methods really differ
    assert all(np.array_equal(in_span[6][name], value) for name, value in plainly[6].items())


@given(
    sizes=st.lists(st.integers(0, 20), min_size=1, max_size=6),
    length=st.one_of(
        st.fixed_dictionaries({"epochs": st.integers(1, 3)}), st.fixed_dictionaries({"steps": st.integers(1, 9)})
    ),
    batch_size=st.integers(1, 12),
    weight_decay=st.sampled_from([0.0, 0.3]),
    momentum=st.sampled_from([0.0, 0.7]),
    clip_norm=st.sampled_from([1e-30, 1e-3, 0.2, 1e30, float("inf")]),
    has_bias=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_softmax_regressions_of_any_shape_are_trained_correctly(
    sizes, length, batch_size, weight_decay, momentum, clip_norm, has_bias
):
    local = LocalTraining(0.1, batch_size, weight_decay=weight_decay, momentum=momentum, **length)
    model = MODELS["softmax" if has_bias else "softmax without bias"]()
    made = ClientTrainer(model, nn.CrossEntropyLoss(), local, clip_norm)
    together = answers(Batched(made, random_state=3), images(sizes))
    assert_alike(together, answers(Engine(made, random_state=3), images(sizes)))
    for update in together.values():
        length = np.linalg.norm(np.concatenate([value.astype(float).ravel() for value in update.values()]))
        assert length <= 1.001 * clip_norm


def test_examples_with_an_ignored_class_are_not_trained_on():
    loss, local = nn.CrossEntropyLoss(ignore_index=0), LocalTraining(0.1, 5, epochs=2)
    made = ClientTrainer(MODELS["softmax"](), loss, local, 0.5)
    assert_alike(answers(Batched(made, random_state=3), images()), answers(Engine(made, random_state=3), images()))


@pytest.mark.parametrize("fault", ["no class", "in a graph"])
def test_a_client_that_cannot_be_stacked_changes_no_bit_of_another(fault):
    datas = images([30, 30, 12])
    X, y = datas[1]
    odd = (X, torch.where(torch.arange(30) == 4, -100, y)) if fault == "no class" else (X.clone().requires_grad_(), y)
    engine = Batched(trainer(), random_state=3)
    weights = trained_weights(engine.trainer.model)
    one, other = (
        dict(engine.answers(weights, 1, range(3), Fetching(each, torch.float32)))
        for each in (datas, [datas[0], odd, datas[2]])
    )
    for client in (0, 2):
        assert all(np.array_equal(one[client][name], value) for name, value in other[client].items())
    assert all(np.isfinite(value).all() for value in other[1].values())


@pytest.mark.parametrize("local", LOCALS)
@pytest.mark.parametrize("factor", [0.0, 1e4, float("nan")])
def test_the_examples_of_one_client_change_no_bit_of_another(local, factor):
    """Even if only one of them is projected onto the ball. Training could amplify a difference in the last bits."""
    datas = images([30, 30, 12])
    others = [datas[0], (factor * datas[1][0], datas[1][1]), datas[2]]
    one, other = (answers(Batched(trainer("softmax", local), random_state=3), each) for each in (datas, others))
    for client in (0, 2):
        assert all(np.array_equal(one[client][name], value) for name, value in other[client].items())
    assert not np.array_equal(one[1]["1.weight"], other[1]["1.weight"])


@pytest.mark.parametrize("sizes", [SIZES, [9], [30] * 7])
def test_the_number_of_threads_changes_no_result_and_is_restored(sizes):
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(answers(Batched(trainer(), random_state=3), images(sizes)))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert_alike(found[0], found[1], atol=1e-7)
    assert_alike(found[0], found[2], atol=1e-7)


def test_clients_that_are_adjacent_in_memory_are_stacked_without_a_copy():
    whole = torch.arange(24.0).view(6, 4)
    first, second, third = ((part, part[:, 0]) for part in whole.split(2))
    stacked, _ = _stacked([first, second, third])
    assert stacked.data_ptr() == whole.data_ptr()
    assert torch.equal(stacked, whole.view(3, 2, 4))
    for datas in ([second, first], [first, third], [first, (second[0].clone(), second[1])]):
        inputs, targets = _stacked(datas)
        assert torch.equal(inputs, torch.stack([data[0] for data in datas]))
        assert torch.equal(targets, torch.stack([data[1] for data in datas]))


def test_more_clients_than_fit_into_one_batch_are_trained():
    made = trainer("perceptron")
    engine = Batched(made, random_state=3)
    engine._at_once = 4
    assert_alike(answers(engine, images()), answers(Engine(made, random_state=3), images()))


def test_softmax_regression_is_recognised_by_its_layer_and_loss():
    assert softmax_layer(trainer("softmax"))
    assert not softmax_layer(trainer("perceptron"))
    local = LOCALS["epochs"]
    for model, loss, is_softmax in [
        (nn.Linear(4, 2), nn.CrossEntropyLoss(), True),
        (nn.Sequential(nn.Linear(4, 2)), nn.CrossEntropyLoss(), True),
        (nn.Linear(4, 2), nn.CrossEntropyLoss(label_smoothing=0.1), False),
        (nn.Linear(4, 2), nn.CrossEntropyLoss(weight=torch.ones(2)), False),
        (nn.Linear(4, 2), nn.MultiMarginLoss(), False),
        (nn.Sequential(nn.Flatten(2), nn.Linear(4, 2)), nn.CrossEntropyLoss(), False),
        (nn.Sequential(nn.Tanh(), nn.Linear(4, 2)), nn.CrossEntropyLoss(), False),
        (nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)), nn.CrossEntropyLoss(), False),
    ]:
        assert bool(softmax_layer(ClientTrainer(model, loss, local, 1.0))) is is_softmax
    frozen = nn.Linear(4, 2)
    frozen.bias.requires_grad_(False)
    assert not softmax_layer(ClientTrainer(frozen, nn.CrossEntropyLoss(), local, 1.0))


def test_softmax_gradients_equal_those_of_autograd():
    made = trainer("softmax")
    weights = {name: torch.randn(2, *value.shape) for name, value in made.start(trained_weights(made.model)).items()}
    X, y = torch.randn(2, 6, 1, 8, 8), torch.randint(3, (2, 6))
    shares = torch.rand(2, 6)
    found = softmax_gradients(softmax_layer(made))(weights, (X,), y, shares)
    for client in range(2):
        one = {name: value[client].requires_grad_() for name, value in weights.items()}
        mean = (made.objective(one, (X[client],), y[client]) * shares[client]).sum()
        for name, slope in zip(one, torch.autograd.grad(mean, list(one.values())), strict=True):
            assert torch.allclose(found[name][client], slope, atol=1e-5)


@pytest.mark.parametrize("model", ["softmax", "perceptron"])
def test_a_client_with_invalid_data_does_not_change_the_others(model):
    made = trainer(model)
    datas = images([10, 10, 10])
    for bad in [(torch.randn(10, 1, 9, 9), datas[2][1]), (datas[2][0], torch.full((10,), 77))]:
        found = answers(Batched(made, random_state=3), [*datas[:2], bad])
        assert isinstance(found.pop(2), Exception)
        without = answers(Batched(made, random_state=3), datas[:2])
        for client in without:  # to the last bit, because training may amplify differences
            assert all(np.array_equal(found[client][name], value) for name, value in without[client].items())


def test_a_model_without_vmap_support_is_trained_one_client_at_a_time():
    class Branching(nn.Linear):
        def forward(self, inputs):
            return super().forward(inputs.flatten(1) if bool(inputs.sum() > 0) else -inputs.flatten(1))

    made = ClientTrainer(Branching(64, 3), nn.CrossEntropyLoss(), LOCALS["epochs"], 1.0)
    with pytest.warns(UserWarning, match="one by one"):
        found = answers(Batched(made, random_state=3), images([10, 10]))
    assert_alike(found, answers(Engine(made, random_state=3), images([10, 10])))


@pytest.mark.parametrize("model", ["softmax", "perceptron"])
def test_a_nan_affects_only_its_client(model):
    made = trainer(model, clip_norm=0.05)
    datas = images([10, 10])
    datas[0][0][3] = float("nan")
    found = answers(Batched(made, random_state=3), datas)
    assert np.isnan(found[0]["1.weight"]).any()
    assert all(np.isfinite(value).all() for value in found[1].values())
