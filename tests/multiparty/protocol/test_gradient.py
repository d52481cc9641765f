"""Joint gradient descent: its sums, their sensitivity, and its result."""

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.multiparty.protocol.aggregation import JointProblem, SimulatedAggregator
from privet.multiparty.protocol.gradient import gradient_plan, joint_gradient_descent, record_clip
from privet.objectives import Huber, Logistic, Squared
from privet.plans.gradient import PlanError
from privet.privacy import Budget, NoiseSource

sys.path.insert(0, str(Path(__file__).parents[1]))

from summands import extreme_records, moved, neighbours, party, run

BUDGET = Budget(1.0, 1e-5)
CASES = {
    "logistic": (Logistic(), (0.0, 1.0), None),
    "clipped logistic": (Logistic(), (0.0, 1.0), 0.3),
    "clipped squared": (Squared(), (-1.0, 1.0, 0.0), 0.7),
    "huber": (Huber(0.4), (-1.0, 1.0, 0.0), None),
}


def parties_of(objective, targets, counts=(2, 1, 2)):
    """Return parties with one or two rows, including equal rows and zeros."""
    rows = [[[1.0, 0.0], [1.0, 0.0]], [[0.0, 0.0]], [[-5.0, 5.0], [0.3, 0.1]]]
    return [
        party(objective, some[:n], [targets[place % len(targets)] for place in range(n)])
        for some, n in zip(rows, counts, strict=True)
    ]


# ---------------------------------------------------------------------------------------------------------- sensitivity


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("counts", [(1, 1, 1), (2, 1, 2)])
def test_no_replaced_record_moves_a_sum_by_more_than_the_shift(case, counts):
    objective, targets, clip = CASES[case]
    parties = parties_of(objective, targets, counts)
    problem = JointProblem.of(parties)
    plan = gradient_plan(problem, BUDGET, steps=4, clip_norm=clip)
    # Large steps lead to large weights, where the losses are steep.
    _, summands = run(joint_gradient_descent, problem, plan, parties, step_size=500.0)
    # From an extreme row to another one, and from an ordinary row.
    tables = [parties, *(other for _, other in neighbours(parties, [([1e9, 1e9], targets[0])]))]
    farthest = max(
        moved(plan, summand, one, other)
        for summand in summands
        for table in tables
        for one, other in neighbours(table, extreme_records(targets))
    )
    assert farthest <= plan.shift
    assert farthest > 0.7 * plan.shift  # Half the sensitivity would not be enough.


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(CASES)),
    st.lists(st.tuples(*[st.floats(-3, 3)] * 2, st.integers(0, 2)), min_size=4, max_size=6),
    st.floats(0.1, 1000.0),
)
def test_no_random_replacement_moves_a_sum_by_more_than_the_shift(case, records, step_size):
    objective, targets, clip = CASES[case]
    *rest, new = [(np.array(row[:2]), targets[row[2] % len(targets)]) for row in records]
    shares = [rest[:1], rest[1:2], rest[2:]]  # The last party has one to three rows.
    parties = [party(objective, [row for row, _ in some], [target for _, target in some]) for some in shares]
    problem = JointProblem.of(parties)
    plan = gradient_plan(problem, BUDGET, steps=3, clip_norm=clip)
    _, summands = run(joint_gradient_descent, problem, plan, parties, step_size=step_size)
    for summand in summands:
        for one, other in neighbours(parties, [new]):
            assert moved(plan, summand, one, other) <= plan.shift


def test_sums_of_large_parties_stay_within_the_bound_of_the_plan():
    """A thousand records with the same gradient give the largest possible sum."""
    X, targets = np.tile([[1.0, 0.0]], (1000, 1)), np.zeros(1000)
    parties = [party(Logistic(), X, targets) for _ in range(3)]
    problem = JointProblem.of(parties)
    plan = gradient_plan(problem, BUDGET, steps=3)
    _, summands = run(joint_gradient_descent, problem, plan, parties, step_size=1e4)
    sums = np.array([[summand(each) for each in parties] for summand in summands])
    assert np.abs(sums.sum(axis=1)).max() <= plan.largest
    steep = np.linalg.norm(party(Logistic(), X, targets).rows.combine(np.ones(1000)))
    assert steep <= plan.largest / 3


# ----------------------------------------------------------------------------------------------------- where it arrives


def pooled_descent(parties, derivative, clip, steps, size, alpha=0.1):
    """Return the result of gradient descent on the pooled rows, without noise and rounding."""
    X = np.vstack([each.rows._X / np.maximum(1, np.linalg.norm(each.rows._X, axis=1))[:, None] for each in parties])
    X = np.column_stack([X, np.full(len(X), 0.5)])
    targets = np.concatenate([each.targets for each in parties])
    weights, iterates = np.zeros(X.shape[1]), []
    for _ in range(steps):
        gradients = derivative(X @ weights, targets)[:, None] * X
        norms = np.linalg.norm(gradients, axis=1)
        gradients *= np.minimum(1, clip / np.maximum(norms, 1e-300))[:, None]
        weights = weights - size * (gradients.mean(axis=0) + alpha * weights)
        iterates.append(weights)
    return np.array(iterates)


DERIVATIVES = {
    "logistic": lambda scores, targets: 1 / (1 + np.exp(-scores)) - targets,
    "clipped squared": lambda scores, targets: scores - targets,
    "huber": lambda scores, targets: np.clip(scores - targets, -0.4, 0.4),
}


@pytest.mark.parametrize("case", DERIVATIVES)
@pytest.mark.parametrize("averaged", [0.0, 0.01, 0.26, 0.3, 1.0])
def test_without_noise_it_is_gradient_descent_on_the_pooled_rows(case, averaged):
    objective, targets, clip = CASES[case]
    rng = np.random.default_rng(3)
    tables = [rng.normal(size=(n, 3)) for n in (100, 250, 30)]
    parties = [party(objective, X, np.where(X[:, 0] > 0, targets[1], targets[0])) for X in tables]
    problem = JointProblem.of(parties)
    plan = gradient_plan(problem, Budget(5.0, 1e-3), steps=40, clip_norm=clip)
    release, _ = run(joint_gradient_descent, problem, plan, parties, averaged=averaged)
    size = release.trace["step_size"]
    iterates = pooled_descent(parties, DERIVATIVES[case], record_clip(problem, clip), 40, size)
    expected = iterates[-{0.0: 1, 0.01: 1, 0.26: 11, 0.3: 12, 1.0: 40}[averaged] :].mean(axis=0)
    # A step does not increase a difference. Rounding adds half a lattice step per party and coordinate.
    rounding = 3 * 0.5 * np.sqrt(4) / (plan.scale * problem.n)
    assert np.linalg.norm(release.weights - expected) <= 40 * size * rounding
    assert np.linalg.norm(expected) > 10 * 40 * size * rounding  # So the bound is not vacuous.


def test_the_drawn_noise_has_the_planned_size():
    rows = np.zeros((50, 40))
    parties = [party(Huber(0.5), rows, np.zeros(50)) for _ in range(3)]
    problem = JointProblem.of(parties)
    plan = gradient_plan(problem, BUDGET, steps=1)
    weights = [
        asyncio.run(
            joint_gradient_descent(
                problem, SimulatedAggregator(plan, parties, NoiseSource(seed)), delta=1e-5, step_size=1.0
            )
        ).weights
        for seed in range(50)
    ]
    assert np.std(weights) == pytest.approx(plan.noise_std / 150, rel=0.1)


def test_progress_is_reported_after_every_step():
    parties = parties_of(Logistic(), (0.0, 1.0))
    problem = JointProblem.of(parties)
    reported = []
    run(
        joint_gradient_descent,
        problem,
        gradient_plan(problem, BUDGET, steps=3),
        parties,
        progress=lambda *steps: reported.append(steps),
    )
    assert reported == [(1, 3), (2, 3), (3, 3)]


def test_the_guarantee_equals_that_of_the_plan():
    parties = parties_of(Logistic(), (0.0, 1.0))
    problem = JointProblem.of(parties)
    plan = gradient_plan(problem, BUDGET, steps=3)
    release, _ = run(joint_gradient_descent, problem, plan, parties)
    assert release.guarantee.event == plan.event
    assert release.guarantee.epsilon <= 1.0
    assert "all iterates" in release.guarantee.released
    assert plan.sensitivity == 2 * problem.lipschitz
    assert plan.largest == 5 * problem.lipschitz


# ------------------------------------------------------------------------------------------------------ what is refused


def test_unbounded_losses_need_a_clip():
    problem = JointProblem.of(parties_of(Squared(), (-1.0, 1.0)))
    with pytest.raises(ValueError, match=r"Squared loss have no bound\. Set clip_norm, or use Huber"):
        gradient_plan(problem, BUDGET, steps=3)
    assert record_clip(problem, 0.5) == 0.5


def test_a_clip_norm_beyond_the_bound_does_not_add_noise():
    problem = JointProblem.of(parties_of(Logistic(), (0.0, 1.0)))
    assert record_clip(problem, 100.0) == record_clip(problem, None) == problem.lipschitz


@pytest.mark.parametrize("clip_norm", [0.0, -1.0, float("nan"), float("inf")])
def test_invalid_clip_norms_are_refused(clip_norm):
    with pytest.raises(ValueError, match="clip_norm"):
        gradient_plan(JointProblem.of(parties_of(Logistic(), (0.0, 1.0))), BUDGET, steps=3, clip_norm=clip_norm)


def test_plans_of_other_problems_are_refused():
    parties = parties_of(Logistic(), (0.0, 1.0))
    problem = JointProblem.of(parties)
    plan = gradient_plan(problem, BUDGET, steps=3)
    for other in (
        gradient_plan(replace(problem, n_features=3), BUDGET, steps=3),
        gradient_plan(replace(problem, counts=(1, 1)), BUDGET, steps=3),
    ):
        with pytest.raises(ValueError, match=r"other parties or columns\. Make it from this problem"):
            run(joint_gradient_descent, problem, other, parties)
    run(joint_gradient_descent, problem, plan, parties)


@pytest.mark.parametrize("options", [{"averaged": 1.5}, {"averaged": -0.1}, {"step_size": 0.0}, {"step_size": np.nan}])
def test_invalid_options_are_refused(options):
    parties = parties_of(Logistic(), (0.0, 1.0))
    problem = JointProblem.of(parties)
    with pytest.raises(ValueError, match=next(iter(options))):
        run(joint_gradient_descent, problem, gradient_plan(problem, BUDGET, steps=3), parties, **options)


def test_an_aggregator_can_be_used_for_one_descent_only():
    parties = parties_of(Logistic(), (0.0, 1.0))
    problem = JointProblem.of(parties)
    aggregator = SimulatedAggregator(gradient_plan(problem, BUDGET, steps=3), parties, None)
    asyncio.run(joint_gradient_descent(problem, aggregator, delta=1e-5))
    with pytest.raises(PlanError):
        asyncio.run(joint_gradient_descent(problem, aggregator, delta=1e-5))


def test_a_plan_without_delta_is_refused_before_a_sum_is_opened():
    parties = parties_of(Logistic(), (0.0, 1.0))
    problem = JointProblem.of(parties)
    plan = replace(gradient_plan(problem, BUDGET, steps=3), delta=None)
    aggregator = SimulatedAggregator(plan, parties, None)
    with pytest.raises(ValueError, match="has no delta"):
        asyncio.run(joint_gradient_descent(problem, aggregator))
    asyncio.run(joint_gradient_descent(problem, aggregator, delta=1e-5))  # all three sums are left


def test_the_trace_states_step_size_clip_and_noise():
    parties = parties_of(Logistic(), (0.0, 1.0))
    problem = JointProblem.of(parties)
    plan = gradient_plan(problem, BUDGET, steps=3, clip_norm=0.3)
    release, _ = run(joint_gradient_descent, problem, plan, parties)
    assert release.trace == {
        "steps": 3,
        "step_size": 1 / problem.smoothness,
        "clip_norm": 0.3,
        "noise_std": plan.noise_std / 5,
    }
    assert run(joint_gradient_descent, problem, plan, parties, step_size=0.5)[0].trace["step_size"] == 0.5
    assert "l2 norm at most 0.3, by bounded rows" in release.guarantee.statement()
    assert "the noise was left out" in release.guarantee.statement()


@pytest.mark.parametrize(("step_size", "diverges"), [(1e90, False), (1e103, True)])
def test_a_descent_that_diverges_is_stopped(step_size, diverges):
    """Every entry of the first weights is about the step size or less."""
    parties = [party(Huber(0.4), [[0.0, 0.0]], [1.0], alpha=1e-200) for _ in range(3)]
    problem = JointProblem.of(parties)
    plan = gradient_plan(problem, BUDGET, steps=1)
    if diverges:
        with pytest.raises(ValueError, match=r"The descent diverges. Choose a step_size below 1e\+103"):
            run(joint_gradient_descent, problem, plan, parties, step_size=step_size)
    else:
        release, _ = run(joint_gradient_descent, problem, plan, parties, step_size=step_size)
        assert np.abs(release.weights).max() > 1e88
