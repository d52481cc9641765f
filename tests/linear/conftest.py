import numpy as np
import pytest

from privet.privacy import NoiseSource


@pytest.fixture
def no_noise(monkeypatch):
    """Make every draw of noise and every new noise source raise an error other than ValueError."""

    def refuse(*args, **kwargs):
        raise AssertionError("noise was drawn")

    for draw in ("gaussian", "k_norm", "gumbel", "poisson_batch", "fixed_batch", "permutation"):
        monkeypatch.setattr(NoiseSource, draw, refuse)


@pytest.fixture(scope="session")
def binary():
    """Return 60 rows, some outside the unit ball, and labels 0 and 1."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    return X, (X[:, 0] + 0.3 * rng.standard_normal(60) > 0).astype(int)
