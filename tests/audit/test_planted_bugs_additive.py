"""Privacy bugs are planted in additive models one at a time. A replay must refute each, and nothing without a bug."""

import importlib

import numpy as np
import pytest

from privet import PrivateAdditiveClassifier, PrivateAdditiveRegressor
from privet.audit import replay
from privet.objectives import binned
from privet.plans import additive as plans

# The package exports a function of the same name as this module.
solver = importlib.import_module("privet.solvers.additive_descent")


def neighbours(n=40):
    """Return two tables whose last record has other cells and another target."""
    generator = np.random.default_rng(0)
    X = generator.uniform(-1, 1, (n, 3))
    y = np.arange(n) % 2
    other, flipped = X.copy(), y.copy()
    X[-1], other[-1] = -1, 1
    flipped[-1] = 1 - y[-1]
    return (X, y), (other, flipped)


def classifier(**settings):
    def train(table):
        return PrivateAdditiveClassifier(2.0, 1e-5, classes=(0, 1), max_iter=3, **settings).fit(*table)

    return train


def regressor(loss):
    def train(table):
        X, y = table
        bounds = (0, 1) if loss == "poisson" else (-1, 1)
        return PrivateAdditiveRegressor(2.0, 1e-5, loss=loss, target_bounds=bounds, max_iter=3).fit(
            X, y if loss == "poisson" else 2.0 * y - 1
        )

    return train


def is_refuted(train):
    return replay(train, *neighbours()).is_violation


@pytest.mark.parametrize(
    "train",
    [classifier(), classifier(pairs=[(0, 1)]), regressor("squared"), regressor("huber"), regressor("poisson")],
    ids=["classes", "pairs", "squared", "huber", "poisson"],
)
def test_nothing_is_refuted_without_a_bug(train):
    assert not is_refuted(train)


def counts_move_half_as_far(patch):
    half = plans.half_move_of_counts
    for module in (plans, solver):
        patch.setattr(module, "half_move_of_counts", lambda columns: half(columns) / 2)


def records_are_counted_twice(patch):
    count = np.bincount
    patch.setattr(solver.np, "bincount", lambda *given, **options: 2 * count(*given, **options))


def rows_count_as_short(patch):
    limits = binned.BinnedRows.residual_limits
    patch.setattr(binned.BinnedRows, "residual_limits", lambda self, clip: 3 * limits(self, clip))


def nothing_is_clipped(patch):
    patch.setattr(binned.BinnedRows, "residual_limits", lambda self, clip: np.full(self.n, 1e9))


def sums_are_doubled(patch):
    combine = binned.BinnedRows.combine
    patch.setattr(binned.BinnedRows, "combine", lambda self, coefficients: 2 * combine(self, coefficients))


BUGS = [counts_move_half_as_far, records_are_counted_twice, rows_count_as_short, nothing_is_clipped, sums_are_doubled]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_bug_is_refuted(bug, monkeypatch):
    bug(monkeypatch)
    assert is_refuted(classifier())


def test_moments_of_targets_that_no_plan_covers_are_refuted(monkeypatch):
    monkeypatch.setattr(solver.AdditiveProblem, "n_counted", property(lambda self: 1))
    assert is_refuted(regressor("squared"))


def test_pairs_that_do_not_count_in_the_norms_are_refuted(monkeypatch):
    limits = binned.BinnedRows.residual_limits

    def of_columns(self, clip):
        return 2 * limits(self, clip)

    monkeypatch.setattr(binned.BinnedRows, "residual_limits", of_columns)
    assert is_refuted(classifier(pairs=[(0, 1), (0, 2)]))
