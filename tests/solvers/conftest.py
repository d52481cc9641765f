import math

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import chi2, kstest

from privet.objectives import L2, BoundedRows, GeneralisedLinear, Logistic, Multinomial
from privet.privacy import NoiseSource
from privet.solvers import Problem


class Silent(NoiseSource):
    """A source without noise, so that a test sees the values to which noise would be added."""

    def add_gaussian(self, values, std, *_):
        return values.copy()

    def add_k_norm(self, values, scale, *options):
        return values.copy()

    def real_gaussian(self, shape, std, *options):
        return np.zeros(shape), 0.0

    def real_k_norm(self, shape, scale, *options):
        return np.zeros(shape), 0.0


class Linear(GeneralisedLinear):
    """y s for |y| <= 1: convex, 1-Lipschitz, without curvature. It attains the bounds of docs/errata.md (f)."""

    residual_bound = 1.0
    curvature_bound = 0.9

    def loss(self, scores, targets):
        return targets * scores

    def residuals(self, scores, targets):
        return np.clip(targets, -1, 1) + 0 * scores

    def start(self, dimension):
        return np.zeros(dimension)


def make_problem(X, y, *, objective=None, alpha=0.0, row_norm=1.0, intercept=0.0):
    X = X if sparse.issparse(X) else np.asarray(X, dtype=getattr(X, "dtype", np.float64))
    return Problem(objective or Logistic(), L2(alpha), BoundedRows(X, row_norm, intercept), np.asarray(y))


def silence(n, d, *, n_classes=None, alpha=0.0, dtype=np.float64):
    """Return a problem whose gradients are zero at all weights, because its rows are zero without an intercept."""
    objective = Multinomial(n_classes) if n_classes else Logistic()
    return make_problem(np.zeros((n, d), dtype), np.zeros(n, int), objective=objective, alpha=alpha)


def has_std(sample, std, rarely=1e-6):
    """Return whether a normal sample of known mean zero can have this standard deviation."""
    energy = float(np.sum(np.square(np.asarray(sample, dtype=np.float64) / std)))
    return min(chi2.cdf(energy, np.size(sample)), chi2.sf(energy, np.size(sample))) > rarely


def has_only_std(sample, std):
    """Return whether a normal sample can have this standard deviation, but neither 2/3 nor 3/2 of it."""
    return [has_std(sample, wrong * std) for wrong in (1.0, 2 / 3, 3 / 2)] == [True, False, False]


def has_only_law(sample, law, scale):
    """Return whether a positive sample can have this law with this scale, but with neither 2/3 nor 3/2 of it."""
    pvalues = [kstest(sample, law(scale=wrong * scale).cdf).pvalue for wrong in (1.0, 2 / 3, 3 / 2)]
    return [pvalue > 1e-6 for pvalue in pvalues] == [True, False, False]


def neighbours(rng, n, d):
    """Yield pairs of small tables that differ in the first record: ties, zeros, flipped labels, extreme rows."""
    kinds = ("random", "opposite", "flipped", "zero", "extreme", "ties")
    for kind in kinds:
        X, y = rng.standard_normal((n, d)) * rng.choice([0.1, 1.0, 10.0]), rng.integers(0, 2, n)
        if kind == "ties":
            X[:], y[:] = X[0], 1
        other = {
            "random": rng.standard_normal(d),
            "zero": np.zeros(d),
            "extreme": rng.choice([-1e308, 1e308, 1e-310], d),
        }.get(kind, -X[0])
        if kind == "flipped":
            other = X[0]
        X2, y2 = X.copy(), y.copy()
        X2[0], y2[0] = other, 1 - y[0]
        yield (X, y), (X2, y2)


@pytest.fixture
def tools():
    """Provide the helpers above, because test folders are not importable packages."""
    names = (Silent, Linear, make_problem, silence, has_std, has_only_std, has_only_law, neighbours)
    return type("Tools", (), {tool.__name__: staticmethod(tool) for tool in names})


@pytest.fixture(scope="session")
def separable():
    """Return rows and labels that are easily separated."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3)) / math.sqrt(3) * 0.9
    y = (X @ np.array([2.0, -1.0, 0.5]) + 0.3 * rng.standard_normal(200) > 0).astype(int)
    return X, y
