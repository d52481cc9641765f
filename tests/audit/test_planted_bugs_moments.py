"""Privacy bugs are planted in least squares from moments. A replay must refute each, and nothing without a bug."""

import importlib

import numpy as np
import pytest

from privet import PrivateRidge
from privet.audit import replay
from privet.objectives import moments
from privet.plans import MomentStability, OutputPlan

# The package exports a function of the same name as this module.
solver = importlib.import_module("privet.solvers.sufficient_statistics")


def neighbours(n=30, columns=2, targets=1):
    """Return two tables whose last row turns by 60 degrees, and whose last targets change their sign.

    Together this moves the moments as far as the bound allows, so a bound that is too small by little is refuted.
    """
    generator = np.random.default_rng(0)
    X, y = generator.uniform(-0.5, 0.5, (n, columns)), generator.uniform(-1, 1, (n, targets))
    X[-1], y[-1] = 0, 1
    other, flipped = X.copy(), y.copy()
    X[-1, 0], flipped[-1] = 1, -1
    other[-1, :2] = 0.5, 0.75**0.5
    return (X, y.squeeze()), (other, flipped.squeeze())


def train(table):
    return PrivateRidge(2.0, 1e-5, method="sufficient_statistics", fit_intercept=False).fit(*table)


def train_with_intercept(table):
    return PrivateRidge(2.0, 1e-5, method="sufficient_statistics").fit(*table)


@pytest.mark.parametrize("run", [train, train_with_intercept])
@pytest.mark.parametrize("targets", [1, 3])
def test_nothing_is_refuted_without_a_bug(run, targets):
    found = replay(run, *neighbours(targets=targets))
    assert not found.is_violation, found
    assert found.releases == 1


def test_the_worst_neighbours_use_the_whole_bound():
    found = replay(train, *neighbours())
    assert 0.999 < found.largest <= 1


def off_diagonal_entries_count_once(patch):
    """The sensitivity leaves out a factor sqrt(2) of the off-diagonal entries that are released."""
    exact = solver._as_vector

    def doubled(matrix, products, has_constant):
        diagonal = np.diag(np.diag(matrix))
        return exact(diagonal + 2**0.5 * (matrix - diagonal), products, has_constant)

    patch.setattr(solver, "_as_vector", doubled)


def the_sensitivity_is_that_of_added_records(patch):
    patch.setattr(
        MomentStability, "sensitivity", property(lambda self: (1 + self.n_targets * self.target_scale**2) ** 0.5)
    )


def rows_are_not_bounded(patch):
    exact = moments.second_moments
    patch.setattr(solver, "second_moments", lambda rows, targets: tuple(2 * each for each in exact(rows, targets)))


def targets_are_not_clipped(patch):
    clip = np.clip
    patch.setattr(solver.np, "clip", lambda values, low, high: 3 * clip(values, low, high))


def the_matrix_has_no_noise(patch):
    noisy = OutputPlan.noisy

    def of_products_only(self, vector, source):
        return np.concatenate([vector[:3], noisy(self, vector[3:], source)])

    patch.setattr(OutputPlan, "noisy", of_products_only)


BUGS = [
    off_diagonal_entries_count_once,
    the_sensitivity_is_that_of_added_records,
    rows_are_not_bounded,
    targets_are_not_clipped,
    the_matrix_has_no_noise,
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_bug_is_refuted(bug, monkeypatch):
    bug(monkeypatch)
    assert replay(train, *neighbours()).is_violation


def test_eigenvalues_without_noise_are_refuted(monkeypatch):
    def train(table):
        return PrivateRidge(100.0, 1e-5, method="sufficient_statistics").fit(*table)

    assert not replay(train, *neighbours()).is_violation
    exact, seen = solver.second_moments, {}

    def kept(*given):
        seen["matrix"], products = exact(*given)
        return seen["matrix"], products

    eigh = np.linalg.eigh

    def without_noise(matrix):
        return eigh(seen["matrix"])[0], eigh(matrix)[1]

    monkeypatch.setattr(solver, "second_moments", kept)
    monkeypatch.setattr(solver.np.linalg, "eigh", without_noise)
    assert replay(train, *neighbours()).is_violation
