"""Replays of objective perturbation: the linear term that gives the same minimiser, and the change of volume."""

import numpy as np
import pytest

from privet.audit import replay
from privet.objectives import L2, BoundedRows, GeneralisedLinear, Logistic
from privet.privacy import Budget
from privet.solvers import Problem, Run
from privet.solvers.objective_perturbation import objective_perturbation, objective_plan


def pair():
    """Two tables of which the first record has opposite labels. All others are zero, so nothing hides it."""
    X = np.zeros((4, 2))
    X[0, 0] = 1.0
    labels = np.array([1.0, 0.0, 1.0, 0.0])
    flipped = labels.copy()
    flipped[0] = 0.0
    return (X, labels), (X, flipped)


def trained(budget):
    def train(data):
        X, y = data
        problem = Problem(Logistic(), L2(0.5), BoundedRows(X, 1.0), y)
        return objective_perturbation(problem, Run(objective_plan(problem, budget)))

    return train


@pytest.mark.parametrize("budget", [Budget(2.0), Budget(2.0, 1e-5)], ids=["pure", "Gaussian"])
def test_the_linear_term_moves_within_its_bound_and_the_minimiser_within_the_tolerance(budget):
    found = replay(trained(budget), *pair())
    assert not found.is_violation, found
    assert found.releases == 2
    assert found.moved >= 1  # the minimisers may agree to the last bit
    assert 0.4 < found.largest <= 1  # the gradients of the two labels differ by 1, and the claim is 2


@pytest.mark.parametrize("budget", [Budget(2.0), Budget(2.0, 1e-5)], ids=["pure", "Gaussian"])
def test_too_small_a_bound_on_gradients_is_refuted(budget, monkeypatch):
    monkeypatch.setattr(Problem, "lipschitz", 0.25)
    found = replay(trained(budget), *pair())
    assert "Release 1" in found.verdict
    assert "moved by 2" in found.verdict  # times the bound of 0.5


def test_too_small_a_bound_on_curvature_is_refuted(monkeypatch):
    (X, y), _ = pair()
    shorter = X.copy()
    shorter[0, 0] = 0.0  # has no curvature
    smoothness = GeneralisedLinear.smoothness
    monkeypatch.setattr(GeneralisedLinear, "smoothness", lambda self, norm: smoothness(self, norm) / 10)
    found = replay(trained(Budget(4.0)), (X, y), (shorter, y))
    assert "change of volume" in "\n".join(found.problems)
