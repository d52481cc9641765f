"""Roles are split chronologically, and networks and images have the sizes of the paper."""

import importlib
import os
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("PRIVET_DATA", ROOT.parent / "shared" / "data"))

torch = pytest.importorskip("torch", reason="the data is of tensors: install the extra deep")


def needs(name):
    return pytest.mark.skipif(not (DATA / name).exists(), reason=f"{name} is not in {DATA}: set PRIVET_DATA")


@pytest.fixture
def data(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "experiments"))
    monkeypatch.setenv("PRIVET_DATA", str(DATA))
    yield importlib.import_module("fed_data")
    importlib.import_module("deep_runs").images.cache_clear()


def sizes(model):
    return sum(parameter.numel() for parameter in model.parameters())


def test_networks_have_the_size_of_the_paper(data):
    assert sizes(data.paper_cnn()) == 3_431_754  # "about 3.4M parameters"
    assert sizes(data.small_cnn()) == 22_682
    assert data.paper_cnn()(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    assert data.small_cnn()(torch.zeros(2, 3, 16, 16)).shape == (2, 10)
    assert data.CharacterLSTM(76)(torch.zeros(2, 80, dtype=torch.long)).shape == (2, 76)


def test_windows_are_all_or_evenly_spread(data):
    text = np.arange(20)
    np.testing.assert_array_equal(data.windows(text, 3, 99)[:, 0], np.arange(17))
    few = data.windows(text, 3, 4)
    np.testing.assert_array_equal(few[:, 3] - few[:, 0], 3)
    assert few.shape == (4, 4)
    assert set(np.diff(few[:, 0])) <= {4, 5}
    assert data.windows(text[:3], 3, 4).shape == (0, 4)


def test_a_role_trains_on_the_beginning_of_its_text_and_is_tested_on_the_end(data):
    texts = {"a": "x" * 70 + "y" * 10 + "z" * 20, "short": "x" * 8, "b": "z" * 70 + "y" * 10 + "x" * 20}
    roles = data.roles_of(texts, length=4, least=10, most=1000)
    assert len(roles) == 2  # one is too short
    assert roles.n_characters == 3
    X, y = roles.training[0]
    assert set(X.flatten().tolist()) == set(y.tolist()) == {0}
    assert len(y) == 66
    assert sorted(set(roles.validation[1].tolist())) == [1]
    assert roles.test[1].tolist() == [2] * 16 + [0] * 16
    assert len(data.roles_of(texts, 4, 10, 5, n_clients=1).training[0][1]) == 5


@needs("shakespeare_plays.jsonl.gz")
def test_plays_have_about_as_many_roles_as_the_paper(data):
    texts = data.role_texts()
    assert 900 < sum(len(text) - 80 >= 100 for text in texts.values()) < 1357


@needs("mnist.npz")
def test_validation_images_are_not_trained_on(data):
    examples = data.mnist_pixels(1000, 500)
    assert examples.X.shape == (1000, 784)
    assert examples.X_validation.shape == (500, 784)
    assert len(examples.y_test) == 10_000
    assert float(examples.X.min()) == 0
    assert float(examples.X.max()) == 1
    clients = examples.clients(20, 1)
    assert len(clients) == 20
    assert len(clients[0][1]) == 50
    data.mnist_pixels.cache_clear()


@needs("svhn_20k_5k.npz")
def test_svhn_in_two_sizes(data):
    small, large = data.svhn_images(100, 16), data.svhn_images(100, 32)
    assert small.X.shape == (100, 3, 16, 16)
    torch.testing.assert_close(small.X[0, 0, 0, 0], large.X[0, 0, :2, :2].mean())
    assert len(small.y_validation) == len(small.y_test) == 2500
    X, y = data.mnist_in_colour(10, 16)
    assert X.shape == (10, 3, 16, 16)
    assert len(y) == 10
    data.svhn_images.cache_clear()
