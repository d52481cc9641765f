"""The comparison methods draw the noise that their guarantees assume, and state what they really guarantee."""

import math
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtr

pytest.importorskip("cryptography", reason="several parties need cryptography: install the extra multiparty")

sys.path.append(str(Path(__file__).resolve().parents[2] / "experiments"))

from multiparty_comparisons import (
    afforded_alpha,
    local_gradient_descent,
    local_objective_perturbation,
    local_output_perturbation,
    pathak,
    rajkumar_agarwal,
)

from privet.objectives import L2, BoundedRows, Huber, Logistic, Squared
from privet.privacy import Adjacency, Budget, NoiseSource, gdp_epsilon
from privet.privacy.analyses.objective_noise import volume_loss
from privet.solvers import Problem
from privet.solvers.base.minimise import minimise

BUDGET = Budget(0.5, 1e-3)
PARTIES, ROWS, COLUMNS, ALPHA, STEPS, STEP_SIZE = 5, 8, 3000, 0.05, 20, 0.5
SURE = 0.06  # relative tolerance; the standard deviation of 3000 draws has a relative error of 0.013


def of_zeros(alpha=ALPHA, counts=(ROWS,) * PARTIES, objective=None):
    """Return parties whose rows are zeros, so that only noise is released, in many coordinates."""
    return [
        Problem(objective or Logistic(), L2(alpha), BoundedRows(np.zeros((n, COLUMNS)), 1.0), np.zeros(n))
        for n in counts
    ]


def of_data(counts=(30, 30, 30), alpha=0.1, objective=None):
    rng = np.random.default_rng(0)
    problems = []
    for n in counts:
        X = rng.normal(size=(n, 4)) / 4
        y = (X @ [1, -1, 1, 0] + rng.normal(size=n) / 4 > 0).astype(int)
        problems.append(Problem(objective or Logistic(), L2(alpha), BoundedRows(X, 1.0), y))
    return problems


def moves(problem):
    """Return the sensitivity of a minimiser by the formula of the papers, plus 1 % for its tolerance."""
    return 1.01 * 2 / (problem.rows.n * problem.regulariser.alpha)


# Each function returns the epsilon of one release, computed from the observed noise and the sensitivity.


def seen_in_pathak(source):
    release = pathak(of_zeros(), BUDGET, source=source)
    return gdp_epsilon(moves(of_zeros()[0]) / PARTIES / release.weights.std(), BUDGET.delta / 1e3), release


def seen_in_local_output(source):
    release = local_output_perturbation(of_zeros(), BUDGET, source=source)
    alone = release.weights.std() * math.sqrt(PARTIES)
    return gdp_epsilon(moves(of_zeros()[0]) / alone, BUDGET.delta), release


def seen_in_local_objective(source):
    problem = of_zeros()[0]
    release = local_objective_perturbation(of_zeros(), BUDGET, source=source)
    modulus = ALPHA + afforded_alpha(problem, BUDGET)
    scale = release.weights.std() * math.sqrt(PARTIES) * ROWS * modulus  # the minimiser is -tilt/(n modulus)
    return volume_loss(0.25, ROWS, modulus) + gdp_epsilon(2 / scale, BUDGET.delta), release


def seen_in_local_gradient(source):
    release = local_gradient_descent(of_zeros(1e-9), BUDGET, steps=STEPS, step_size=STEP_SIZE, source=source)
    alone = release.weights.std() * math.sqrt(PARTIES) * ROWS / (STEP_SIZE * math.sqrt(STEPS))
    return gdp_epsilon(2 * math.sqrt(STEPS) / alone, BUDGET.delta), release


def seen_in_rajkumar_agarwal(source):
    release = rajkumar_agarwal(of_zeros(1e-9), BUDGET, steps=STEPS, step_size=STEP_SIZE, source=source)
    joint = release.weights.std() * PARTIES * ROWS / (STEP_SIZE * math.sqrt(STEPS))
    return gdp_epsilon(2 * math.sqrt(STEPS) / joint, BUDGET.delta), release


SEEN = [
    seen_in_pathak,
    seen_in_local_output,
    seen_in_local_objective,
    seen_in_local_gradient,
    seen_in_rajkumar_agarwal,
]


def check(seen, source):
    """Check that the observed noise gives the epsilon that the guarantee claims."""
    epsilon, release = seen(source)
    # Pathak's epsilon is 0 at the budget's delta, so a smaller delta is used for the comparison.
    delta = BUDGET.delta / 1e3 if seen is seen_in_pathak else BUDGET.delta
    assert epsilon == pytest.approx(release.guarantee.epsilon_at(delta), rel=SURE)


@pytest.mark.parametrize("seen", SEEN)
def test_the_noise_matches_the_guarantee(seen):
    check(seen, NoiseSource(3))


@pytest.mark.parametrize("seen", SEEN)
def test_half_the_noise_is_noticed(seen, monkeypatch):
    for name in ("add_gaussian", "real_gaussian"):
        whole = getattr(NoiseSource, name)
        monkeypatch.setattr(
            NoiseSource, name, lambda self, what, std, *options, whole=whole: whole(self, what, std / 2, *options)
        )
    with pytest.raises(AssertionError):
        check(seen, NoiseSource(3))


@pytest.mark.parametrize(
    "method",
    [local_output_perturbation, local_objective_perturbation, partial(local_gradient_descent, steps=STEPS)],
)
@pytest.mark.parametrize("parties", [1, 7])
def test_local_methods_spend_the_budget_of_one_party(method, parties):
    guarantee = method(of_data((30,) * parties), BUDGET, source=NoiseSource(0)).guarantee
    assert 0.99 * BUDGET.epsilon < guarantee.epsilon <= BUDGET.epsilon
    assert guarantee.adjacency is Adjacency.REPLACE_ONE
    assert "every party" in guarantee.released
    assert any("one party" in assumption.text for assumption in guarantee.assumptions)


def test_pathak_uses_the_noise_of_the_smallest_party_and_is_far_within_the_budget():
    counts = (5, 50, 500)
    release = pathak(of_data(counts), BUDGET, source=NoiseSource(0))
    alone = local_output_perturbation(of_data(counts)[:1], BUDGET, source=NoiseSource(0))
    assert release.trace["noise_scale"] == alone.trace["noise_scale"]
    assert release.guarantee.event.mu == pytest.approx(alone.guarantee.event.mu / len(counts))
    assert release.guarantee.epsilon < BUDGET.epsilon / 3


def test_pathaks_epsilon_is_zero_once_no_outcome_changes_its_probability_by_delta():
    budget = Budget(0.5, 1e-3)  # of the dissertation
    few, many = (pathak(of_data((5,) * parties), budget, source=NoiseSource(0)).guarantee for parties in (50, 100))
    changes = [2 * ndtr(each.event.mu / 2) - 1 for each in (few, many)]
    assert changes[0] > budget.delta > changes[1]
    assert few.epsilon > many.epsilon == 0
    assert many.epsilon_at(1e-6) > 0


def test_rajkumar_agarwal_spends_the_budget_in_every_step():
    once, often = (
        rajkumar_agarwal(of_data(), BUDGET, steps=steps, source=NoiseSource(0)).guarantee for steps in (1, 100)
    )
    assert once.epsilon == pytest.approx(BUDGET.epsilon)
    assert often.event.mu == pytest.approx(10 * once.event.mu)
    assert often.epsilon > 10 * BUDGET.epsilon
    assert "NOT private at epsilon = 0.5" in often.released


@pytest.mark.parametrize("method", [local_gradient_descent, rajkumar_agarwal])
def test_descents_with_little_noise_end_at_the_minimiser_averaged_over_parties(method):
    counts = (40, 10)
    problems = of_data(counts)
    lax = Budget(1e5, 1e-3)
    release = method(problems, lax, steps=400, source=NoiseSource(0))
    slopes = [
        problem.objective.gradient_sum(release.weights, problem.rows, problem.targets, 1.0) / problem.rows.n
        for problem in problems
    ]
    mean = (
        np.mean(slopes, axis=0) + 0.1 * release.weights
    )  # Parties have equal weights, whatever their numbers of rows.
    assert np.linalg.norm(mean) < 0.01
    assert np.linalg.norm(0.8 * slopes[0] + 0.2 * slopes[1] + 0.1 * release.weights) > 0.015


@pytest.mark.parametrize("method", [pathak, local_output_perturbation, local_objective_perturbation])
def test_models_are_averaged_over_parties(method):
    problems = of_data((40, 10), alpha=1.0)
    release = method(problems, Budget(1e5, 1e-3), source=NoiseSource(0))
    found = np.mean([minimise(problem, tolerance=1e-9) for problem in problems], axis=0)
    np.testing.assert_allclose(release.weights, found, atol=5e-3)
    assert np.linalg.norm(found) > 0.05


@pytest.mark.parametrize("method", [pathak, local_output_perturbation])
def test_without_a_delta_the_noise_is_k_norm(method):
    release = method(of_zeros(counts=(ROWS,)), Budget(0.5), source=NoiseSource(1))
    assert release.guarantee.delta == 0
    assert release.guarantee.epsilon == pytest.approx(0.5)
    assert np.linalg.norm(release.weights) == pytest.approx(COLUMNS * moves(of_zeros()[0]) / 0.5, rel=4 * SURE)


def test_objective_perturbation_adds_a_penalty_for_few_rows():
    few, many = of_data((3, 30_000), alpha=0.001)
    assert afforded_alpha(many, BUDGET) == 0
    added = afforded_alpha(few, BUDGET, 0.5)
    assert volume_loss(0.25, 3, 0.001 + added) == pytest.approx(0.25, rel=1e-3)
    assert afforded_alpha(few, BUDGET, 0.9) < added
    assert local_objective_perturbation([few], BUDGET, source=NoiseSource(0)).guarantee.epsilon <= 0.5


def test_a_seeded_source_is_named_in_every_guarantee():
    for seen in SEEN:
        _, release = seen(NoiseSource(1))
        assert any("seed" in assumption.text for assumption in release.guarantee.assumptions)


@pytest.mark.parametrize(
    ("problems", "message"),
    [
        ([], "no parties"),
        (of_zeros(counts=(3, 0)), "brings no rows"),
        ([*of_zeros(0.1, (3,)), *of_zeros(0.2, (3,))], "of the parties differ"),
    ],
)
@pytest.mark.parametrize("method", [pathak, local_output_perturbation, partial(rajkumar_agarwal, steps=2)])
def test_impossible_parties_are_refused(method, problems, message):
    with pytest.raises(ValueError, match=message):
        method(problems, BUDGET, source=NoiseSource(0))


def test_a_loss_without_a_bound_needs_a_clip():
    problems = of_data(objective=Squared())
    with pytest.raises(ValueError, match="clip_norm"):
        local_gradient_descent(problems, BUDGET, steps=2, source=NoiseSource(0))
    with pytest.raises(ValueError, match="not bounded"):
        local_output_perturbation(problems, BUDGET, source=NoiseSource(0))
    release = local_gradient_descent(problems, BUDGET, steps=2, clip_norm=0.5, source=NoiseSource(0))
    assert release.guarantee.epsilon <= BUDGET.epsilon
    huber = local_gradient_descent(of_data(objective=Huber(0.5)), BUDGET, steps=2, source=NoiseSource(0))
    assert huber.trace["noise_scale"] == pytest.approx(release.trace["noise_scale"], rel=1e-3)
