import numpy as np
import pytest


@pytest.fixture(scope="session")
def binary():
    """Return 60 rows, some outside the unit ball, and labels 0 and 1."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    return X, (X[:, 0] + 0.3 * rng.standard_normal(60) > 0).astype(int)
