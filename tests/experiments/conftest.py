"""Fixtures for tests of experiments: a function that imports an experiment, and synthetic images."""

import importlib
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("PRIVET_DATA", ROOT.parent / "shared" / "data"))


@pytest.fixture
def opened(monkeypatch, tmp_path):
    """Return a function that imports a module of experiments/ and redirects its results to a temporary folder."""
    pytest.importorskip("matplotlib", reason="experiments draw plots: install the extra experiments")
    monkeypatch.syspath_prepend(str(ROOT / "experiments"))
    monkeypatch.setenv("PRIVET_DATA", str(DATA))
    support = importlib.import_module("support")
    monkeypatch.setattr(support, "ROOT", tmp_path)
    monkeypatch.setattr(support, "RESULTS", tmp_path / "results")
    return importlib.import_module


@pytest.fixture
def images(opened, monkeypatch):
    """Replace SVHN and MNIST by bright and dark bands: ten classes that a small network can distinguish."""
    torch = pytest.importorskip("torch", reason="clients train networks: install the extra deep")
    data, digits = opened("fed_data"), opened("fed_digits")

    def made(n, side):
        generator = torch.Generator().manual_seed(0)
        y = torch.arange(n + 200) % 10
        X = 0.3 * torch.randn(n + 200, 3, side, side, generator=generator)
        for label in range(10):
            X[y == label, label % 3, label : label + 4] += 1.0
        return data.Examples(X[:n], y[:n], X[n : n + 100], y[n : n + 100], X[n + 100 :], y[n + 100 :])

    monkeypatch.setattr(digits, "svhn_images", made)
    monkeypatch.setattr(digits, "mnist_in_colour", lambda n, side: (made(n, side).X, made(n, side).y))
    yield made
    digits.digits.cache_clear()
    digits.start.cache_clear()
