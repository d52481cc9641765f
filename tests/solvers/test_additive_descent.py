"""The descent of additive models: noise, sensitivity, what it learns, and its own estimate of the noise."""

import math

import numpy as np
import pytest

from privet.objectives import Logistic, Multinomial, Squared
from privet.objectives.curves import CELLS, Curve, Pair
from privet.plans.additive import AdditivePlan
from privet.privacy import Budget, NoiseMultiplier, NoiseSource
from privet.solvers import AdditiveProblem, Run, additive_descent
from privet.solvers.additive_descent import _without_margins
from privet.solvers.base.heavy_ball import noise_of_average

DELTA = 1e-6


def table(n=4000, seed=0):
    """Return cells of a number and of a category, and labels that depend on both, on the number not linearly."""
    generator = np.random.default_rng(seed)
    cells = np.column_stack([generator.integers(0, CELLS, n), generator.integers(0, 3, n)])
    truth = 2 * np.cos(cells[:, 0] / CELLS * 2 * np.pi) + np.array([1.0, 0.0, -1.0])[cells[:, 1]]
    return cells, truth, (generator.random(n) < 1 / (1 + np.exp(-truth))).astype(float)


def problem(**fields):
    cells, _, y = table()
    return AdditiveProblem(cells, (None, 3), Logistic(), y, **fields)


def plan_of(problem, budget=None, steps=120, clip=0.3):
    budget = budget or Budget(2.0, DELTA)
    return AdditivePlan.for_columns(budget, n_columns=problem.n_counted, steps=steps, clip_norm=clip, share=0.05)


def solve(given, seed=0, **fields):
    return additive_descent(given, Run(plan_of(given, **fields), NoiseSource(seed)))


def scores_of(release, cells):
    curves = release.trace["curves"]
    starts = np.concatenate([[0], np.cumsum([curve.n_bins for curve in curves])])
    return release.weights[-1] + sum(
        release.weights[starts[j] + curve.bin_of_cell[cells[:, j]]] for j, curve in enumerate(curves)
    )


def test_curves_that_are_not_straight_are_learned():
    cells, truth, _ = table()
    assert np.corrcoef(scores_of(solve(problem()), cells), truth)[0, 1] > 0.95


def test_values_are_centred_by_noisy_counts():
    release = solve(problem())
    start = 0
    for curve in release.trace["curves"]:
        assert abs(curve.shares @ release.weights[start : start + curve.n_bins]) < 1e-9
        start += curve.n_bins


def test_the_guarantee_is_that_of_the_plan_and_says_what_is_enforced():
    release, plan = solve(problem()), plan_of(problem())
    assert release.guarantee.epsilon == plan.guarantee().epsilon <= 2.0
    text = release.guarantee.statement(True)
    assert "one cell of each of 2 columns" in text and "clip" in text


class Seen(NoiseSource):
    """A source that keeps the sums before their noise, and their noise."""

    def __init__(self, seed):
        super().__init__(seed)
        self.sums, self.stds, self.noises = [], [], []

    def add_gaussian(self, values, std, *options):
        noisy = super().add_gaussian(values, std, *options)
        self.sums.append(values.copy())
        self.stds.append(std)
        self.noises.append(noisy - values)
        return noisy


def test_counts_and_gradients_get_the_noise_of_the_plan(tools):
    given = problem()
    plan, source = plan_of(given, steps=5), Seen(1)
    additive_descent(given, Run(plan, source))
    assert source.stds == [plan.mean.noise_std, *[plan.gradients.noise_std] * 5]
    assert source.sums[0].sum() == 2 * given.n
    assert tools.has_only_std(source.noises[0], math.sqrt(2 * 2) / math.sqrt(0.05) / plan_mu(plan))
    for noise in source.noises[1:]:
        assert tools.has_std(noise, plan.gradients.noise_std)


def plan_mu(plan):
    return math.hypot(2 / plan.mean.noise_multiplier, 2 * math.sqrt(5) / plan.gradients.noise_multiplier)


@pytest.mark.parametrize("is_number", [False, True])
def test_no_neighbour_moves_a_sum_further_than_the_plan_claims(is_number):
    """Counts and moments of two neighbours, for many replaced records. Replays compare gradients (tests/audit)."""
    generator, farthest = np.random.default_rng(0), 0.0
    for trial in range(30):
        cells = np.column_stack([generator.integers(0, CELLS, 3), generator.integers(0, 2, 3)])
        y = generator.choice([-1.0, 1.0], 3) if is_number else generator.integers(0, 2, 3) * 1.0
        other, flipped = cells.copy(), y.copy()
        other[0], flipped[0] = ((CELLS - 1 - cells[0, 0]), 1 - cells[0, 1]), -y[0] if is_number else 1 - y[0]
        sums = []
        for each, targets in ((cells, y), (other, flipped)):
            objective = Squared() if is_number else Logistic()
            given = AdditiveProblem(each, (None, 2), objective, targets, standardises=is_number)
            plan, source = plan_of(given, steps=1), Seen(trial)
            additive_descent(given, Run(plan, source))
            sums.append(source.sums)
        move = float(np.linalg.norm(sums[0][0] - sums[1][0]))
        assert move <= plan.mean.sensitivity
        farthest = max(farthest, move / plan.mean.sensitivity)
    assert farthest > 0.9


def test_a_plan_for_fewer_columns_is_refused():
    given = problem()
    plan = AdditivePlan.for_columns(Budget(1.0, DELTA), n_columns=1, steps=2, clip_norm=0.3, share=0.05)
    with pytest.raises(ValueError, match="does not cover the counts of 2 columns"):
        additive_descent(given, Run(plan, NoiseSource(0)))


def test_impossible_problems_are_refused():
    cells, _, y = table(10)
    with pytest.raises(ValueError, match="cell outside 0 to 2"):
        AdditiveProblem(cells + np.array([0, 3]), (None, 3), Logistic(), y)
    with pytest.raises(ValueError, match="one column per size"):
        AdditiveProblem(cells, (None,), Logistic(), y)
    with pytest.raises(ValueError, match=r"\[-1, 1\]"):
        AdditiveProblem(cells, (None, 3), Squared(), 5 * y + 2, standardises=True)


def test_without_noise_the_result_does_not_depend_on_the_seed():
    given = problem()
    results = [solve(given, seed, budget=NoiseMultiplier(0.0, DELTA)).weights for seed in (0, 1)]
    assert np.array_equal(*results)


@pytest.mark.parametrize("curvature", [0.0, 0.01, 0.3])
def test_the_noise_of_an_average_is_that_of_simulated_descents(curvature):
    generator = np.random.default_rng(0)
    step, momentum, steps, tail, runs = 0.7, 0.9, 40, 12, 20_000
    point, direction, total = np.zeros(runs), np.zeros(runs), np.zeros(runs)
    for t in range(steps):
        direction = momentum * direction + curvature * point + generator.standard_normal(runs)
        point = point - step * direction
        if t >= steps - tail:
            total += point / tail
    (found,) = noise_of_average(np.array([curvature]), step, momentum, steps, tail)
    assert math.isclose(found, float(np.var(total)), rel_tol=0.05)


def test_bands_cover_what_noise_does():
    """Refits of the same records differ by noise alone. Two standard deviations must cover most of the differences."""
    given = problem(alpha=2e-5)
    curves = []
    for seed in range(8):
        release = solve(given, seed)
        curve = release.trace["curves"][0]
        bins = curve.bin_of_cell[::64]
        curves.append((release.weights[: curve.n_bins][bins], release.trace["bin_noise"][: curve.n_bins][bins]))
    values, noise = np.array([one for one, _ in curves]), np.array([std for _, std in curves])
    centre = values.mean(axis=0)
    assert np.mean(np.abs(values - centre) <= 2 * noise) >= 0.9


@pytest.mark.parametrize("n_classes", [2, 3])
def test_bands_cover_the_levels_of_pairs_and_of_several_classes(n_classes):
    """What noise moves without an effect, among the curves of a pair or of several classes, is taken out."""
    cells, truth, y = table(6000)
    cells = np.column_stack([cells[:, 1], cells[:, 0] % 2])
    y = np.digitize(truth + cells[:, 1], [0, 2]) if n_classes == 3 else y
    objective = Multinomial(3) if n_classes == 3 else Logistic()
    given = AdditiveProblem(cells, (3, 2), objective, y, alpha=2e-5, pairs=((0, 1),))
    found = [solve(given, seed, budget=Budget(4.0, DELTA)) for seed in range(10)]
    values = np.array([release.weights[:-1].reshape(11, -1) for release in found])
    noise = np.array([release.trace["bin_noise"] for release in found])[:, :, None]
    covered = np.abs(values - values.mean(axis=0)) <= 2 * noise
    for term in (slice(0, 3), slice(3, 5), slice(5, 11)):
        assert covered[:, term].mean() >= 0.9
    if n_classes == 3:
        assert np.abs(values.sum(axis=2)).max() < 1e-9


def test_the_means_of_a_pair_belong_to_the_curves_of_its_columns():
    generator = np.random.default_rng(0)
    one = Curve(np.arange(3), np.array([0.5, 0.3, 0.2]), np.zeros(3, dtype=bool), False)
    other = Curve(np.arange(2), np.array([0.6, 0.4]), np.zeros(2, dtype=bool), False)
    pair = Pair.of((0, 1), one, other)
    before = generator.standard_normal(11)
    values, noise, moved = _without_margins(before, np.ones(11), [one, other], [pair])
    joint = values[5:].reshape(3, 2)
    assert np.allclose(joint @ other.shares, 0) and np.allclose(one.shares @ joint, 0)
    sums = [each[:3, None] + each[None, 3:5] + each[5:].reshape(3, 2) for each in (before, values)]
    assert np.allclose(sums[0], sums[1] + moved)
    assert np.all(noise[:5] > 1)


def test_targets_are_measured_in_their_noisy_deviation():
    cells, truth, _ = table()
    numbers = 0.1 + truth / 40
    given = AdditiveProblem(cells, (None, 3), Squared(), numbers, worth=1.0, standardises=True)
    found = scores_of(solve(given), cells)
    assert 1 - np.mean((found - numbers) ** 2) / np.var(numbers) > 0.8
