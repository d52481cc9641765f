"""The public part of a joint problem, and its bounds on the rows of every party."""

import sys
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import numpy as np
import pytest

from privet.multiparty.protocol.aggregation import JointProblem
from privet.objectives import L2, Huber, Logistic

sys.path.insert(0, str(Path(__file__).parents[1]))

from summands import party

PROBLEM = JointProblem(Logistic(), L2(0.1), (3, 0, 5), 1.0, 0.5, 4)


def test_the_public_part_is_taken_from_the_problems_of_the_parties():
    rng = np.random.default_rng(0)
    parties = [party(Huber(0.4), rng.normal(size=(n, 4)), np.zeros(n)) for n in (3, 1, 5)]
    joint = JointProblem.of(parties)
    assert (joint.counts, joint.n, joint.n_features, joint.dimension) == ((3, 1, 5), 9, 4, 5)
    assert joint.n_weights == joint.start().size == 5
    assert joint.smoothness == parties[0].smoothness
    for each in parties:
        assert each.lipschitz <= joint.lipschitz
        assert each.rows.norm_bound <= joint.norm_bound


def test_bounds_are_those_of_every_party():
    """The allowance for rounding errors does not depend on the number of rows, so that parties share one bound."""
    assert PROBLEM.norm_bound == PROBLEM.of_zeros(5).rows.norm_bound == PROBLEM.of_zeros(3).rows.norm_bound
    assert PROBLEM.largest_norm == np.hypot(1.0, 0.5)
    assert PROBLEM.lipschitz == PROBLEM.of_zeros(5).lipschitz
    assert PROBLEM.smoothness == PROBLEM.of_zeros(5).smoothness


def test_constants_do_not_depend_on_the_values_of_rows():
    one, other = (PROBLEM.local(X, np.array([0.0, 1.0])) for X in (np.full((2, 4), 1e6), np.zeros((2, 4))))
    assert (one.lipschitz, one.smoothness) == (other.lipschitz, other.smoothness)
    zeros = PROBLEM.of_zeros(2)
    assert (zeros.lipschitz, zeros.smoothness, zeros.start().size) == (one.lipschitz, one.smoothness, 5)


def test_rows_are_scaled_to_the_public_bound():
    local = PROBLEM.local(np.array([[30.0, 40.0, 0.0, 0.0], [0.1, 0.0, 0.0, 0.0]]), np.array([0.0, 1.0]))
    np.testing.assert_allclose(local.rows.combine(np.array([1.0, 0.0])), [0.6, 0.8, 0, 0, 0.5], rtol=1e-12)
    np.testing.assert_allclose(local.rows.combine(np.array([0.0, 1.0])), [0.1, 0, 0, 0, 0.5], rtol=1e-12)


def test_there_is_no_constant_column_without_an_intercept():
    assert replace(PROBLEM, intercept=0.0).dimension == 4


@pytest.mark.parametrize("counts", [(0, 0, 0), ()])
def test_at_least_one_party_must_bring_rows(counts):
    with pytest.raises(ValueError, match="No party brings any rows"):
        replace(PROBLEM, counts=counts)


@pytest.mark.parametrize("counts", [(3, -1, 5), (3, 1.5, 5), (True, 2, 3)])
def test_invalid_counts_are_refused(counts):
    with pytest.raises(ValueError, match="number of rows of a party"):
        replace(PROBLEM, counts=counts)


@pytest.mark.parametrize(
    "other",
    [
        party(Logistic(), np.zeros((2, 3)), [0.0, 1.0]),
        party(Logistic(), np.zeros((2, 2)), [0.0, 1.0], row_norm=2.0),
        party(Logistic(), np.zeros((2, 2)), [0.0, 1.0], intercept=0.1),
        party(Logistic(), np.zeros((2, 2)), [0.0, 1.0], alpha=0.2),
        party(Huber(0.4), np.zeros((2, 2)), [0.0, 1.0]),
    ],
    ids=["columns", "bound", "intercept", "penalty", "loss"],
)
def test_parties_with_different_constants_are_refused(other):
    with pytest.raises(ValueError, match="of the parties differ in"):
        JointProblem.of([party(Logistic(), np.zeros((2, 2)), [0.0, 1.0]), other])


def test_parties_with_different_thresholds_of_one_loss_are_refused():
    one, other = (party(Huber(threshold), np.zeros((2, 2)), [0.0, 1.0]) for threshold in (0.4, 0.5))
    with pytest.raises(ValueError, match="of the parties differ in"):
        JointProblem.of([one, one, other])
    assert JointProblem.of([one, one]).counts == (2, 2)
    assert JointProblem.of([one]).counts == (2,)


def test_the_bound_of_a_row_allows_for_rounding():
    assert PROBLEM.largest_norm < PROBLEM.norm_bound < PROBLEM.largest_norm * (1 + 1e-3)
    assert PROBLEM.lipschitz == Logistic().lipschitz(PROBLEM.norm_bound)
    assert PROBLEM.n == 8


def test_a_joint_problem_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        PROBLEM.row_norm = 2.0
