import inspect
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.linear.methods.gradient import longest_step
from privet.objectives import L2, BoundedRows, Huber, Logistic, SmoothedHinge, Squared
from privet.plans import FullBatch, GradientPlan
from privet.privacy import NoiseSource
from privet.solvers import (
    AlignedStep,
    ConstantStep,
    DecayingStep,
    Problem,
    Run,
    ShortestStep,
    StepSize,
    noisy_gradient_descent,
)
from privet.solvers.base.interface import as_step_size

DELTA = 1e-5


def sizes(rule, gradients, noise_std=0.0):
    choose = rule.start(noise_std)
    return [choose(np.atleast_1d(np.asarray(gradient, dtype=float))) for gradient in gradients]


def solve(problem, plan, source=None, **options):
    run = Run(replace(plan, delta=DELTA), source or NoiseSource(0))
    return noisy_gradient_descent(problem, run, **{"step_size": 0.5} | options)


# ------------------------------------------------------------------------------------------------------ plain rules


def test_constant_and_decaying_steps():
    gradients = np.random.default_rng(0).standard_normal((5, 3))
    assert sizes(ConstantStep(0.3), gradients) == [0.3] * 5
    assert sizes(DecayingStep(0.6), gradients) == pytest.approx([0.6, 0.3, 0.2, 0.15, 0.12])


def test_the_shortest_of_several_rules_is_taken_in_each_step():
    gradients = np.array([[1.0], [1.0], [1.0], [-1.0], [-1.0]])
    growing, decaying = AlignedStep(0.2), DecayingStep(0.6)
    expected = np.minimum(sizes(growing, gradients), sizes(decaying, gradients))
    assert sizes(ShortestStep((decaying, growing)), gradients) == pytest.approx(expected)
    assert set(expected) != {*sizes(decaying, gradients)}
    with pytest.raises(ValueError, match="at least one rule"):
        ShortestStep(())


def test_a_rule_starts_again_with_every_descent():
    gradients = np.ones((4, 2))
    for rule in (DecayingStep(1.0), AlignedStep(1.0), ShortestStep((DecayingStep(1.0), AlignedStep(1.0)))):
        assert sizes(rule, gradients) == sizes(rule, gradients)
        one, other = rule.start(0.0), rule.start(0.0)
        assert [one(gradients[0]), one(gradients[0]), other(gradients[0])] == [*sizes(rule, gradients)[:2], 1.0]


def test_a_number_becomes_a_constant_step_and_a_rule_is_returned_unchanged():
    rule = AlignedStep(1.0)
    assert as_step_size(rule) is rule
    assert as_step_size(0.2) == ConstantStep(0.2)


@pytest.mark.parametrize("kind", [ConstantStep, DecayingStep, AlignedStep])
@pytest.mark.parametrize("size", [0.0, -1.0, math.nan, math.inf, "a", None, True])
def test_an_impossible_size_is_refused(kind, size):
    with pytest.raises(ValueError, match="must be"):
        kind(size)


@pytest.mark.parametrize(
    "fields",
    [{"growth": 0.9}, {"growth": math.nan}, {"cut": 0.0}, {"cut": 1.5}, {"longest": 0.0}, {"longest": math.nan}],
    ids=str,
)
def test_impossible_settings_of_an_aligned_step_are_refused(fields):
    with pytest.raises(ValueError, match=r"growth must be at least 1, cut in \(0, 1\], longest above 0"):
        AlignedStep(1.0, **fields)


# ---------------------------------------------------------------------------------------------------- aligned steps


def test_an_aligned_step_grows_while_gradients_agree_and_is_cut_when_they_oppose():
    assert sizes(AlignedStep(1.0), [[1, 0], [1, 0], [1, 0.1], [0.9, 0]]) == pytest.approx([1, 1.5, 2.25, 3.375])
    assert sizes(AlignedStep(1.0), [[1, 0], [-1, 0], [1, 0]]) == pytest.approx([1, 0.5, 0.25])
    assert sizes(AlignedStep(1.0), [[1, 0], [0.1, 1]]) == [1, 1]  # neither: turned aside, less than a share of it left
    assert sizes(AlignedStep(1.0, growth=2, cut=0.1), [[1], [1], [-1]]) == pytest.approx([1, 2, 0.2])


def test_no_step_moves_more_than_twice_as_far_as_the_last():
    grown = [[1e-3, 0]] * 10
    found = sizes(AlignedStep(1.0), [*grown, [1, 0]])
    assert found[-2] == pytest.approx(1.5**9)
    assert found[-1] == 1.0  # a thousand times longer a gradient: back to the first size, and no further
    assert sizes(AlignedStep(1.0), [*grown, [1e-2, 0]])[-1] == pytest.approx(2 * 1.5**9 / 10)


def test_gradients_agree_if_their_product_exceeds_three_tenths_of_the_square():
    assert sizes(AlignedStep(1.0), [[1, 0], [0.29, 1]]) == [1, 1]
    assert sizes(AlignedStep(1.0), [[1, 0], [0.31, 1]]) == [1, 1.5]
    assert sizes(AlignedStep(1.0, agreement=0.5), [[2, 0], [0.99, 1]]) == [1, 1]
    assert sizes(AlignedStep(1.0, agreement=0.5), [[2, 0], [1.01, 1]]) == [1, 1.5]


@pytest.mark.parametrize(("noise_std", "size"), [(1.19, 0.5), (1.21, 1.0)])
def test_gradients_oppose_beyond_two_standard_deviations_of_their_product(noise_std, size):
    """The product -12 of 3 and -4 has the standard deviation 5 noise_std. Where it is hidden, the step stays."""
    assert sizes(AlignedStep(1.0), [[3.0], [-4.0]], noise_std) == [1, size]


@pytest.mark.parametrize(("dimension", "hidden", "grown"), [(1, 0.96, 0.97), (9, 0.72, 0.73)])
def test_the_noise_of_the_previous_gradient_does_not_count_as_signal(dimension, hidden, grown):
    """10 b must exceed 0.3 (100 - dimension) - 2 sqrt(100 + b^2) for gradients 10 and b with noise 1."""
    rest = [0.0] * (dimension - 1)
    assert sizes(AlignedStep(1.0), [[10.0, *rest], [hidden, *rest]], 1.0) == [1, 1]
    assert sizes(AlignedStep(1.0), [[10.0, *rest], [grown, *rest]], 1.0) == [1, 1.5]


@pytest.mark.parametrize(("dimension", "noise_std", "expected"), [(1, 0.1, 0.1), (1, 5.0, 0.8), (4, 4.0, 1.28)])
def test_a_move_is_limited_by_the_previous_one_or_by_what_noise_alone_could_move(dimension, noise_std, expected):
    """Steps 0.1 and then 0.4, but 0.2 without much noise. A gradient of 10 may move twice as far as before."""
    rest = [0.0] * (dimension - 1)
    second = 0.2 if noise_std < 1 else 0.4
    found = sizes(AlignedStep(0.1, growth=4.0), [[1.0, *rest], [1.0, *rest], [10.0, *rest]], noise_std)
    assert found == pytest.approx([0.1, second, expected])


def test_extreme_settings_of_an_aligned_step_are_allowed():
    assert sizes(AlignedStep(1.0, 0.5, growth=1.0, cut=1.0), [[1], [1], [-1]]) == [0.5, 0.5, 0.5]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40),
    st.floats(1e-6, 1e6),
    st.floats(1e-6, 1e6),
    st.floats(0, 10),
)
def test_an_aligned_step_never_exceeds_its_longest(gradients, first, longest, noise_std):
    assert all(0 < size <= longest for size in sizes(AlignedStep(first, longest), gradients, noise_std))


def test_products_within_the_noise_do_not_cut_the_step():
    """A product within two standard deviations of zero does not cut the step. If noise hides all, the step grows."""
    assert sizes(AlignedStep(1.0), [[1.0], [-0.5]], noise_std=1.0)[1] > 0.5
    assert sizes(AlignedStep(1.0), [[10.0], [-10.0]], noise_std=0.1)[1] == 0.5
    rng = np.random.default_rng(1)
    grown = sizes(AlignedStep(1.0, longest=20.0), rng.standard_normal((100, 50)), noise_std=1.0)
    assert grown[-1] > 10.0


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e-100, 1e100, 1e160, 1e300])
def test_gradients_and_noise_of_every_size_give_a_size(scale):
    """Squares may overflow or underflow, and models with large targets or small budgets must still be trained."""
    gradients = scale * np.array([[1.0, 0.5], [0.9, 0.4], [-1.0, -0.3], [0.2, 0.1]])
    found = sizes(AlignedStep(1.0, 8.0), gradients, noise_std=0.01 * scale)
    assert all(0 < size <= 8.0 for size in found)


def test_it_finds_the_step_of_a_quadratic():
    """On 0.5 * curvature * w^2 the best step is 1/curvature, and steps beyond twice that diverge."""
    for curvature in (1e-3, 1.0, 50.0):
        weight, choose = 1.0, AlignedStep(0.01).start(0.0)
        for _ in range(60):
            gradient = np.array([curvature * weight])
            weight -= choose(gradient) * gradient[0]
        assert abs(weight) < 0.02


def test_rules_see_noisy_gradients_and_public_numbers_only(tools, monkeypatch):
    """A rule sees the released sums, divided, plus the gradient of the penalty, and never a sum without noise."""
    X = np.random.default_rng(2).standard_normal((8, 3))
    problem = tools.make_problem(X, [0, 1] * 4, alpha=0.1)
    plan, source = GradientPlan(FullBatch(), 5, 0.3, 4.0), NoiseSource(4)
    shown, calls = [], []

    class Watching(StepSize):
        def start(self, noise_std):
            calls.append(noise_std)
            return lambda gradient: shown.append(gradient.copy()) or 0.5

    sums = []
    total = type(problem.objective).gradient_sum
    monkeypatch.setattr(
        type(problem.objective), "gradient_sum", lambda *args: sums.append(total(*args)) or sums[-1].copy()
    )
    release = solve(problem, plan, source, step_size=Watching(), keep_iterates=True)
    assert calls == [plan.noise_std / 8]
    again, weights = NoiseSource(4), np.zeros(3)
    for gradient, exact, after in zip(shown, sums, release.trace["iterates"], strict=True):
        noisy = again.add_gaussian(exact, plan.noise_std)
        assert gradient == pytest.approx(noisy / 8 + 0.1 * weights)
        assert np.linalg.norm(noisy - exact) > 0.1
        weights = after
    assert list(inspect.signature(StepSize.start).parameters) == ["self", "noise_std"]


@pytest.mark.parametrize("rule", [AlignedStep(0.5, 20.0), DecayingStep(1.0), ConstantStep(0.5)], ids=repr)
def test_the_same_releases_lead_to_the_same_steps_on_every_table(tools, rule, monkeypatch):
    """Steps are post-processing: given the releases, they do not depend on the data in any other way."""
    rng = np.random.default_rng(3)
    outputs = [rng.standard_normal(3) for _ in range(12)]
    runs = []
    for X in (rng.standard_normal((4, 3)), 1e308 * np.ones((4, 3)), np.zeros((4, 3))):
        left = list(outputs)
        monkeypatch.setattr("privet.plans.gradient.Step.noisy", lambda self, total, left=left: left.pop(0).copy())
        problem = tools.make_problem(X, [0, 1, 1, 0], alpha=0.01)
        release = solve(problem, GradientPlan(FullBatch(), 12, 0.3, 1.0), step_size=rule, momentum=0.5, averaged=0.5)
        runs.append((release.weights.tolist(), release.trace["step_size"]))
    assert runs[0] == runs[1] == runs[2]


# ------------------------------------------------------------------------------------------- momentum and averaging


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("averaged", [0.0, 0.01, 0.3, 0.5, 1.0])
def test_momentum_is_the_heavy_ball_and_the_average_is_that_of_the_last_iterates(tools, momentum, averaged):
    X = np.random.default_rng(4).standard_normal((10, 4))
    problem = tools.make_problem(X, [0, 1] * 5, alpha=0.1)
    plan, source = GradientPlan(FullBatch(), 11, 9.0, 0.5), NoiseSource(5)
    weights, before, iterates = np.zeros(4), np.zeros(4), []
    for _ in range(11):  # Polyak: w+ = w - size * gradient + momentum * (w - w-)
        total = problem.objective.gradient_sum(weights, problem.rows, problem.targets, 9.0)
        gradient = source.add_gaussian(total, plan.noise_std) / 10 + 0.1 * weights
        weights, before = weights - 0.5 * gradient + momentum * (weights - before), weights
        iterates.append(weights)
    release = solve(problem, plan, NoiseSource(5), momentum=momentum, averaged=averaged, keep_iterates=True)
    assert np.array(release.trace["iterates"]) == pytest.approx(np.array(iterates), abs=1e-10)
    last = max(1, math.ceil(averaged * 11))
    assert release.weights == pytest.approx(np.mean(iterates[-last:], axis=0), abs=1e-10)


@pytest.mark.parametrize("fields", [{"momentum": 1.0}, {"momentum": -0.1}, {"momentum": math.nan}, {"averaged": -0.1},
                                    {"averaged": 1.1}, {"averaged": math.nan}], ids=str)  # fmt: skip
def test_impossible_momentum_and_averages_are_refused(tools, fields, no_noise):
    with pytest.raises(ValueError, match=r"momentum must lie in \[0, 1\) and averaged in \[0, 1\]"):
        solve(tools.silence(4, 2), GradientPlan(FullBatch(), 3, 1.0, 1.0), **fields)


# ---------------------------------------------------------------------------------------------------------- safety


def hostile_tables():
    rng = np.random.default_rng(6)
    yield "all rows equal, labels half and half", np.tile([0.6, 0.8], (50, 1)), np.arange(50) % 2
    yield "all rows equal, one label off", np.tile([0.6, 0.8], (50, 1)), np.arange(50) > 0
    steep = 0.01 * rng.standard_normal((200, 10))
    steep[:, 0] = rng.choice([-0.99, 0.99], 200)
    yield "one steep direction, labels along it", steep, steep[:, 0] > 0
    yield "one steep direction, labels across it", steep, steep[:, 1] > 0
    yield "one steep direction, labels at random", steep, rng.integers(0, 2, 200)
    separable = rng.standard_normal((100, 3)) / 2
    yield "separable", separable, separable[:, 0] > 0
    yield "two records, opposite", np.array([[1.0, 0.0], [-1.0, 0.0]]), np.array([0, 1])
    yield "two records, the same row", np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([0, 1])
    yield "three records, one of them an outlier", np.array([[1.0, 0], [1, 0], [-1, 0]]), np.array([0, 1, 1])
    yield "a rare class", rng.standard_normal((300, 4)), np.arange(300) < 2
    yield "rows of zeros", np.zeros((10, 2)), np.arange(10) % 2


class FixedNoiseRule(StepSize):
    """A rule that is given a fixed noise level instead of that of the plan."""

    def __init__(self, rule, noise_std):
        self.rule, self.noise_std = rule, noise_std

    def start(self, noise_std):
        return self.rule.start(self.noise_std)


TABLES = {name: (X, np.asarray(y, dtype=float)) for name, X, y in hostile_tables()}
LOSSES = {"logistic": Logistic(), "hinge": SmoothedHinge(0.5), "square": Squared(), "huber": Huber(0.25)}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("noise_std", [1e-4, 1e-6, 1e-9])
def test_a_descent_with_hardly_any_noise_ends_no_higher_than_it_began(tools, loss, table, noise_std):
    """Growing steps must not throw the weights far away, however flat, steep or separable the data is.

    As in the estimators, the rule is given the noise level and limited by it, but the runs have no noise.
    """
    X, y = TABLES[table]
    for intercept in (0.0, 0.2):
        for steps in (10, 40, 200):
            rows = BoundedRows(X, 1.0, intercept)
            first = 1.8 / Problem(LOSSES[loss], L2(1e-4), rows, y).smoothness
            rule = AlignedStep(first, longest_step(noise_std, steps, 1.0, 1.0))
            rows = rows.centred(rows.total() / rows.n) if intercept else rows
            problem = Problem(LOSSES[loss], L2(1e-4), rows, y)
            plan = GradientPlan(FullBatch(), steps, 100.0, 1.0)  # a clip that is idle
            weights = solve(
                problem, plan, tools.Silent(), step_size=FixedNoiseRule(rule, noise_std), averaged=0.3
            ).weights
            assert problem.value(weights) <= problem.value(problem.start()) + 1e-3
