"""Joint output perturbation: certified minimisers, their average, and its sensitivity."""

import asyncio
import sys
import tracemalloc
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from privet.multiparty.protocol.aggregation import JointProblem, SimulatedAggregator
from privet.multiparty.protocol.output import joint_output_perturbation, output_plan, tolerance_of
from privet.objectives import L2, Huber, Logistic, Squared
from privet.plans.gradient import PlanError
from privet.plans.stabilities.minimiser import default_tolerance
from privet.privacy import Budget, NoiseSource
from privet.solvers.base.minimise import least_tolerance

sys.path.insert(0, str(Path(__file__).parents[1]))

from summands import extreme_records, moved, neighbours, party, run

BUDGET = Budget(1.0, 1e-5)
CASES = {"logistic": (Logistic(), (0.0, 1.0)), "huber": (Huber(0.4), (-1.0, 1.0, 0.0))}


def parties_of(case, counts=(2, 1, 2), alpha=0.1):
    objective, targets = CASES[case]
    rows = [[[1.0, 0.0], [1.0, 0.0]], [[0.0, 0.0]], [[-5.0, 5.0], [0.3, 0.1]]]
    return [
        party(objective, some[:n], [targets[place % len(targets)] for place in range(n)], alpha=alpha)
        for some, n in zip(rows, counts, strict=True)
    ]


# ---------------------------------------------------------------------------------------------------------- sensitivity


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("counts", "alpha"), [((1, 1, 1), 0.02), ((2, 1, 2), 0.02), ((2, 1, 2), 10.0)])
def test_no_replaced_record_moves_the_average_by_more_than_the_shift(case, counts, alpha):
    parties = parties_of(case, counts, alpha)
    problem = JointProblem.of(parties)
    plan = output_plan(problem, BUDGET)
    _, (summand,) = run(joint_output_perturbation, problem, plan, parties)
    for one, other in neighbours(parties, extreme_records(CASES[case][1])):
        assert moved(plan, summand, one, other) <= plan.shift


def test_the_bound_on_the_sensitivity_is_attained():
    """A strong penalty keeps weights small, where a steep loss is nearly linear and its minimiser moves farthest."""
    parties = [party(Huber(0.1), [[1.0, 0.0]], [1.0], alpha=10.0) for _ in range(3)]
    problem = JointProblem.of(parties)
    plan = output_plan(problem, BUDGET)
    _, (summand,) = run(joint_output_perturbation, problem, plan, parties)
    farthest = max(moved(plan, summand, *pair) for pair in neighbours(parties, extreme_records((-1.0, 1.0))))
    assert 0.95 * plan.shift < farthest <= plan.shift


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(sorted(CASES)),
    st.lists(st.tuples(*[st.floats(-3, 3)] * 2, st.integers(0, 2)), min_size=4, max_size=6),
    st.floats(0.01, 3.0),
)
def test_no_random_replacement_moves_the_average_by_more_than_the_shift(case, records, alpha):
    objective, targets = CASES[case]
    *rest, new = [(np.array(row[:2]), targets[row[2] % len(targets)]) for row in records]
    shares = [rest[:1], rest[1:2], rest[2:]]
    parties = [
        party(objective, [row for row, _ in some], [target for _, target in some], alpha=alpha) for some in shares
    ]
    problem = JointProblem.of(parties)
    plan = output_plan(problem, BUDGET)
    _, (summand,) = run(joint_output_perturbation, problem, plan, parties)
    for one, other in neighbours(parties, [new]):
        assert moved(plan, summand, one, other) <= plan.shift


@pytest.mark.parametrize("alpha", [1e-3, 0.1, 10.0])
def test_the_norm_of_minimisers_is_within_the_bound_of_the_plan(alpha):
    X = np.tile([[1.0, 0.0]], (30, 1))
    parties = [party(Huber(0.3), X, np.ones(30), alpha=alpha) for _ in range(3)]
    problem = JointProblem.of(parties)
    plan = output_plan(problem, BUDGET)
    _, (summand,) = run(joint_output_perturbation, problem, plan, parties)
    assert sum(np.abs(summand(each)) for each in parties).max() <= plan.largest


# ----------------------------------------------------------------------------------------------------------- what it is


@pytest.mark.parametrize("case", CASES)
def test_without_noise_the_result_is_the_average_of_the_minimisers_weighted_by_records(case):
    objective, targets = CASES[case]
    rng = np.random.default_rng(5)
    parties = [party(objective, rng.normal(size=(n, 3)), rng.choice(np.array(targets), n)) for n in (20, 60, 10)]
    problem = JointProblem.of(parties)
    plan = output_plan(problem, BUDGET)
    release, _ = run(joint_output_perturbation, problem, plan, parties)
    found = [minimize(each.value, np.zeros(4), method="BFGS", options={"gtol": 1e-8}).x for each in parties]
    expected = np.average(found, axis=0, weights=(20, 60, 10))
    tolerance = max(tolerance_of(problem, each.rows.n) for each in parties) / 0.1 + 3 * 0.5 * np.sqrt(4) / plan.scale
    assert np.linalg.norm(release.weights - expected) <= tolerance + 1e-5
    assert np.linalg.norm(expected) > 3 * tolerance


def test_the_drawn_noise_has_the_planned_size():
    parties = [party(Huber(0.5), np.zeros((50, 40)), np.zeros(50)) for _ in range(3)]
    problem = JointProblem.of(parties)
    plan = output_plan(problem, BUDGET)
    weights = [
        asyncio.run(
            joint_output_perturbation(problem, SimulatedAggregator(plan, parties, NoiseSource(seed)), delta=1e-5)
        ).weights
        for seed in range(50)
    ]
    assert np.std(weights) == pytest.approx(plan.noise_std, rel=0.1)


def test_the_sensitivity_matches_the_formula():
    """It is 2L/(n alpha) for exact minimisers, however the rows are divided, and 1 % more for inexact ones."""
    counts = (100, 1, 1000)
    problem = JointProblem(Logistic(), L2(0.01), counts, 1.0, 0.5, 3)
    exact = 2 * np.hypot(1, 0.5) / (sum(counts) * 0.01)
    assert exact < output_plan(problem, BUDGET).sensitivity <= 1.0102 * exact


@pytest.mark.parametrize("n", [1, 2, 5000])
def test_the_tolerance_of_a_number_of_rows_is_that_of_every_table_with_so_many(n):
    problem = JointProblem(Logistic(), L2(1e-14), (n,), 1.0, 0.5, 2)  # So weak a penalty makes rounding matter.
    table = party(Logistic(), np.tile([[0.0, -3.0]], (n, 1)), np.ones(n), alpha=1e-14)
    assert tolerance_of(problem, n) == least_tolerance(table) > default_tolerance(n, problem.lipschitz)


def test_a_claimed_number_of_rows_takes_no_memory():
    """The numbers are announced by other parties, who could otherwise exhaust the memory of this one."""
    problem = JointProblem(Logistic(), L2(0.01), (30, 2**30), 1.0, 0.5, 3)
    output_plan(replace(problem, counts=(30, 31)), BUDGET)  # fills the caches
    tracemalloc.start()
    plan = output_plan(problem, BUDGET)
    assert tracemalloc.get_traced_memory()[1] < 5e6
    tracemalloc.stop()
    assert plan.sensitivity > 0
    with pytest.raises(ValueError, match="at most 2\\^30"):
        replace(problem, counts=(30, 2**30 + 1))


def test_the_sensitivity_includes_the_rounding_of_the_product_with_the_weight():
    """With many rows this rounding exceeds every other allowance, so a sum that ignored it would be too small."""
    n, penalty = 2**29, 1.0
    problem = JointProblem(Huber(0.4), L2(penalty), (n, n), 1.0, 0.0, 3)
    tolerance, lipschitz = tolerance_of(problem, n), problem.lipschitz
    exact = Fraction(lipschitz + n * tolerance) * 2 / Fraction(penalty) / (2 * n)
    rounding = Fraction(lipschitz) / Fraction(penalty) / 2**52
    plan = output_plan(problem, BUDGET)
    assert exact + rounding <= Fraction(plan.sensitivity) <= (exact + rounding) * (1 + Fraction(1, 10**6))


@pytest.mark.parametrize("counts", [(1, 2**29), (2**29, 1), (7, 7), (3, 500, 20)])
@pytest.mark.parametrize("penalty", [0.01, 3.0])
def test_the_bounds_cover_the_worst_party_and_little_more(counts, penalty):
    """Among parties of different sizes, that with the loosest tolerance moves farthest."""
    problem = JointProblem(Logistic(), L2(penalty), counts, 1.0, 0.5, 3)
    lipschitz, n = Fraction(problem.lipschitz), sum(counts)
    tolerances = [Fraction(tolerance_of(problem, count)) for count in counts]
    moves = [
        count * (2 * lipschitz / count + 2 * tolerance) / Fraction(penalty) / n
        for count, tolerance in zip(counts, tolerances, strict=True)
    ]
    longest = max((lipschitz + tolerance) / Fraction(penalty) for tolerance in tolerances)
    plan = output_plan(problem, BUDGET)
    least = max(moves) + longest / 2**52
    assert least <= Fraction(plan.sensitivity) <= least * (1 + Fraction(1, 10**11))
    assert longest <= Fraction(plan.largest) <= longest * (1 + Fraction(3, 10**9))
    assert plan.largest > float(longest) * (1 + 1e-10)
    assert (plan.steps, plan.dimension) == (1, 4)


def test_the_trace_and_the_guarantee_of_an_average():
    parties = parties_of("logistic")
    problem = JointProblem.of(parties)
    plan = output_plan(problem, BUDGET)
    release, _ = run(joint_output_perturbation, problem, plan, parties)
    assert release.trace == {"steps": 1, "noise_std": plan.noise_std}
    assert release.weights.shape == problem.start().shape
    statement = release.guarantee.statement()
    assert f"moves the average by at most {plan.sensitivity:.6g}" in " ".join(statement.split())
    assert "the noisy average of the parties' minimisers" in release.guarantee.released
    assert "the noise was left out" in statement


def test_a_party_without_data_does_not_change_the_plan():
    parties = parties_of("logistic")
    problem = JointProblem.of(parties)
    with_guest = replace(problem, counts=(*problem.counts, 0))
    assert output_plan(with_guest, BUDGET) == output_plan(problem, BUDGET)


# ------------------------------------------------------------------------------------------------------ what is refused


def test_losses_without_a_bound_are_refused():
    problem = JointProblem.of([party(Squared(), [[1.0, 0.0]], [1.0])] * 3)
    with pytest.raises(ValueError, match=r"not bounded.*Huber"):
        output_plan(problem, BUDGET)


def test_a_problem_without_penalty_is_refused():
    problem = JointProblem(Logistic(), L2(0.0), (1, 2, 3), 1.0, 0.5, 2)
    with pytest.raises(ValueError, match="set alpha > 0"):
        output_plan(problem, BUDGET)


@pytest.mark.parametrize(
    "changed",
    [{"counts": (2, 1, 3)}, {"row_norm": 2.0}, {"regulariser": L2(0.2)}, {"intercept": 1.0}, {"n_features": 3}],
    ids=lambda changed: next(iter(changed)),
)
def test_plans_of_other_problems_are_refused(changed):
    parties = parties_of("logistic")
    problem = JointProblem.of(parties)
    with pytest.raises(ValueError, match=r"made for other parties or constants|length 4, got"):
        run(joint_output_perturbation, problem, output_plan(replace(problem, **changed), BUDGET), parties)


def test_only_one_sum_is_opened():
    parties = parties_of("huber")
    problem = JointProblem.of(parties)
    aggregator = SimulatedAggregator(output_plan(problem, BUDGET), parties, None)
    asyncio.run(joint_output_perturbation(problem, aggregator, delta=1e-5))
    with pytest.raises(PlanError, match="accounts for 1 noisy sum, and"):
        asyncio.run(joint_output_perturbation(problem, aggregator, delta=1e-5))


def test_a_plan_without_delta_is_refused_before_the_sum_is_opened():
    parties = parties_of("huber")
    problem = JointProblem.of(parties)
    aggregator = SimulatedAggregator(replace(output_plan(problem, BUDGET), delta=None), parties, None)
    with pytest.raises(ValueError, match="has no delta"):
        asyncio.run(joint_output_perturbation(problem, aggregator))
    asyncio.run(joint_output_perturbation(problem, aggregator, delta=1e-5))  # the sum is left
