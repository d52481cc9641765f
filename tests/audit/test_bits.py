"""No release reveals anything by its exact bits. The same attack identifies datasets with certainty if noise is floats.

``PRIVET_AUDIT=long`` attacks a million released numbers on every path, and writes ``docs/results/bits.json``.
"""

import json
import math
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from privet import PrivateLogisticRegression
from privet.audit import pairs
from privet.objectives import L2, BoundedRows, Logistic
from privet.plans import AdaptivePlan, FullBatch, GradientPlan, OutputPlan
from privet.privacy import Budget, NoiseSource
from privet.privacy.noise.release import grid_step
from privet.solvers import Problem, Run, noisy_gradient_descent

sys.path.insert(0, str(Path(__file__).parent))

from bit_attacks import (
    Claims,
    Heard,
    attacked,
    could_have_come_from,
    force_exact_arithmetic,
    overheard,
    plant_float_noise,
    ziggurat_units,
)
from bit_paths import Path as ReleasePath
from bit_paths import as_classes, paths, wide
from scenarios import missing, required

IS_LONG = os.environ.get("PRIVET_AUDIT") == "long"
PATHS = paths(40)
RESULTS = Path(__file__).parents[2] / "docs" / "results" / "bits.json"
CHANCE = 1e-6  # with which a test of a correct law would fail for other seeds


def heard_on(path: ReleasePath, seed: int) -> list[Heard]:
    """Return the releases of one run, on the first dataset for even seeds and on the second for odd ones."""
    pair = path.pair if seed % 2 == 0 else path.pair[::-1]
    return overheard(path.run, pair, NoiseSource(seed, purpose=f"bits of {path.name}"))


def outside(runs: Mapping[str, list[Heard]]) -> set[str]:
    """Return the paths that released a number that exact noise cannot have led to from both datasets."""
    return {name for name, run in runs.items() if not all(each.is_in_support.all() for each in run)}


# ------------------------------------------------------------------------------------------------------- every path


def test_releases_lie_on_a_public_grid_whatever_the_data():
    runs = {path.name: heard_on(path, 0) + heard_on(path, 1) for path in PATHS}
    assert not outside(runs)
    # Attackers who expect float noise are wrong about as often as right. They would never be wrong about float noise.
    # Objective perturbation is left out, because the attack on it is told the random linear term.
    claims = attacked([run for name, run in runs.items() if "objective" not in name and "two_stage" not in name])
    right, wrong = sum(each.right for each in claims), sum(each.wrong for each in claims)
    assert right + wrong > 500
    assert 0.4 < right / (right + wrong) < 0.6


def test_exact_arithmetic_alone_stays_on_the_same_grid(monkeypatch):
    force_exact_arithmetic(monkeypatch)
    assert not outside({path.name: heard_on(path, 2) for path in paths(12)})


def test_float_noise_identifies_the_dataset_on_every_path(monkeypatch):
    plant_float_noise(monkeypatch)
    left = {path.name: path for path in PATHS}
    for seed in range(40):
        runs = {name: heard_on(path, seed) for name, path in left.items()}
        for (name, run), claims in zip(runs.items(), attacked(list(runs.values())), strict=True):
            assert (claims.wrong, claims.impossible) == (0, 0), name
            assert not run or name in outside({name: run})
            if claims.right or not run:
                del left[name]
    assert not left


@pytest.mark.skipif(not IS_LONG, reason="takes a quarter of an hour: PRIVET_AUDIT=long")
def test_a_million_numbers_of_every_path_do_not_identify_one_dataset():
    found = {path.name: _million(path) for path in paths(1000)}
    certain = sum(each["impossible_for_one"] for each in found.values())
    RESULTS.write_text(json.dumps({"certain": certain, "paths": found}, indent=1) + "\n", encoding="utf-8")
    assert certain == 0
    told = [each for name, each in found.items() if "objective" not in name and "two_stage" not in name]
    right, wrong = (sum(each[claim] for each in told) for claim in ("right", "wrong"))
    assert 0.49 < right / (right + wrong) < 0.51


def _million(path: ReleasePath) -> dict[str, int]:
    """Attack a million released numbers of a path, and return how many can have come from one dataset only.

    Also return what an attacker claims who expects float noise.
    """
    found, outliers = Claims(0, 0, 0, 0), 0
    for seed in count():
        run = heard_on(path, seed)
        outliers += sum(int((~each.is_in_support).sum()) for each in run)
        (claims,) = attacked([run])
        found = Claims(*(sum(each) for each in zip(found, claims, strict=True)))
        if found.numbers >= 1_000_000 or not run:  # a path that only makes choices releases no numbers
            break
    fields = {"numbers": found.numbers, "impossible_for_one": outliers, "right": found.right, "wrong": found.wrong}
    print(path.name, fields, flush=True)
    return fields


def test_every_solver_estimator_and_method_is_attacked():
    assert missing(required(), PATHS) == set()
    assert len({path.name for path in PATHS}) == len(PATHS)


def test_a_path_that_is_not_attacked_is_noticed():
    kept = [path for path in PATHS if path.about != ("random_round",)]
    assert missing(required(), kept) == {("random_round",)}


def test_a_path_around_the_source_is_noticed():
    def around(values: Any, source: NoiseSource) -> Any:
        return values + source._live().standard_normal(values.shape)

    with pytest.raises(AssertionError, match="no request"):
        overheard(around, (np.zeros(2), np.ones(2)), NoiseSource(0))


def test_noise_whose_scale_depends_on_the_data_is_noticed():
    def scaled(values: Any, source: NoiseSource) -> Any:
        return source.add_gaussian(values, 1.0 + abs(values[0]))

    with pytest.raises(AssertionError, match="the scale of the noise depends on the data"):
        overheard(scaled, (np.zeros(2), np.ones(2)), NoiseSource(0))


# ------------------------------------------------------------------------------------------------------ known attacks


@dataclass(frozen=True)
class Known:
    """An attack that was made on a release before noise was exact.

    ``seen`` selects what the attacker looks at. In ``shares`` of all runs, at least and at most, float noise identifies
    the first dataset of the pair with certainty.
    """

    run: Callable[[Any, NoiseSource], Any]
    pair: tuple[Any, Any]
    shares: tuple[float, float]
    runs: int = 6
    seen: Callable[[list[Heard]], list[Heard]] = list

    def heard(self) -> list[list[Heard]]:
        """Return what the attacker sees in each run."""
        return [
            self.seen(overheard(self.run, self.pair, NoiseSource(seed, purpose="known"))) for seed in range(self.runs)
        ]


def one_number(first: float, second: float, scale: float, is_pure: bool, shares: tuple[float, float]) -> Known:
    plan = OutputPlan(Moved(), scale, is_pure)
    return Known(plan.noisy, (np.array([first]), np.array([second])), shares, runs=120)


class Moved:
    """The stability of a result that moves by 1."""

    sensitivity = 1.0


def fits(method: str, epsilon: float, pair: pairs.Pair, shares: tuple[float, float], **options: Any) -> Known:
    def run(table: Any, source: NoiseSource) -> Any:
        seed = source.below(10**15)
        return PrivateLogisticRegression(epsilon, 1e-6, method=method, classes=(0, 1), random_state=seed).fit(*table)

    return Known(run, tuple(as_classes(pair)), shares, **options)


def first_iterate() -> Known:
    plan = GradientPlan.for_budget(Budget(0.1, 1e-6), sampler=FullBatch(), steps=50, clip_norm=0.7)
    problems = tuple(Problem(Logistic(), L2(0.0), BoundedRows(X, 1.0), y) for X, y in as_classes(wide(10, 100)))

    def run(problem: Problem, source: NoiseSource) -> Any:
        return noisy_gradient_descent(problem, Run(plan, source), step_size=0.5)

    return Known(run, problems, (0.4, 1.0), runs=12, seen=lambda heard: heard[:1])


def lone_levels(levels: int = 5) -> Known:
    """Return one-hot columns of which the last are 1 in the first row only, or in no row.

    The weights of columns without entries are 0 before noise, whatever the other rows are. The attacker looks at them
    only, and needs to know nothing else.
    """
    (X, y), _ = wide(20, 200)
    with_levels, without = (np.hstack([X, np.zeros((200, levels))]) for _ in range(2))
    with_levels[0, -levels:] = 1.0

    def last(heard: list[Heard]) -> list[Heard]:
        fields = ("value", "other", "released")
        return [replace(heard[-1], **{field: getattr(heard[-1], field)[20 : 20 + levels] for field in fields})]

    pair = pairs.Pair((with_levels, y), (without, y.copy()), "levels")
    return fits("output", 0.1, pair, (0.2, 0.9), runs=20, seen=last)


KNOWN = {
    "one number, 0 or 1, noise 100": lambda: one_number(0.0, 1.0, 100.0, False, (0.03, 0.2)),
    "one number, 1 or 0, noise 100": lambda: one_number(1.0, 0.0, 100.0, False, (0.03, 0.2)),
    "one number, 0 or 1, K-norm noise": lambda: one_number(0.0, 1.0, 1.0, True, (0.25, 0.6)),
    "output perturbation, 50 columns": lambda: fits("output", 0.1, wide(50, 2000), (1.0, 1.0)),
    "minimiser, 50 columns": lambda: fits("minimiser", 1.0, wide(50, 2000), (0.8, 1.0)),
    "first of 50 noisy iterates": first_iterate,
    "levels that only one person has": lone_levels,
}


@pytest.mark.parametrize("name", KNOWN)
def test_a_known_attack_succeeds_on_float_noise_and_not_on_exact_noise(name, monkeypatch):
    known = KNOWN[name]()
    assert not outside({str(seed): run for seed, run in enumerate(known.heard())})
    plant_float_noise(monkeypatch)
    claims = attacked(known.heard())
    assert all((each.wrong, each.impossible) == (0, 0) for each in claims)
    least, most = known.shares
    assert least <= np.mean([each.right > 0 for each in claims]) <= most


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("std", [1e-3, 1.0, 1.9, 100.0, 2.0**40])
def test_the_attack_never_excludes_the_truth(std, kind, monkeypatch):
    plant_float_noise(monkeypatch)
    generator = np.random.default_rng(0)
    for value in (0.0, 0.3, -1.0, 1e-9, 1e6, 5e-324, generator.standard_normal(2000)):
        values = np.broadcast_to(value, 2000).astype(kind)
        assert could_have_come_from(NoiseSource(0).add_gaussian(values, std), values, std, kind).all()


def test_the_constants_of_the_float_generator_are_those_of_a_ziggurat():
    edges = ziggurat_units() * 2.0**52
    assert (np.diff(edges[1:]) > 0).all()
    assert edges[255] == pytest.approx(3.6541528853610088)
    assert edges[0] == pytest.approx(edges[255] + stats.norm.sf(edges[255]) / stats.norm.pdf(edges[255]))


# ------------------------------------------------------------------------------------------------------------ low bits

# Values in steps of the grid: on it, halfway, a quarter, almost on it, and where floats can hardly hold fractions.
PLACES = (0.0, 0.5, -0.25, 0.75, 1.0, 1 / 3, 2.0**-1000, 2.0**31 + 0.5, 2.0**51 + 0.5, 2.0**52, -(2.0**52) + 1)


def low_bits(released: Any, grid: float, bits: int) -> Any:
    """Return how often the last bits of the place on the grid have each of their values."""
    return np.bincount(np.rint(released.astype(float) / grid).astype(np.int64) & (1 << bits) - 1, minlength=1 << bits)


def has_fair_low_bits(add: str, place: float, kind: Any = np.float64, size: int | None = None) -> bool:
    """Return whether the last bits of releases are uniformly distributed, if the value lies at a place of the grid.

    Numbers are few where exact arithmetic decides about all of them, as it does near 2^51 steps.
    """
    size = size or (500 if abs(place) > 2.0**40 else 2000 if add == "add_k_norm" else 20_000)
    scale, bits = 1.3, 4 if size >= 2000 else 2
    grid = grid_step(scale * (math.sqrt(size + 1) if add == "add_k_norm" else 1.0))
    released = getattr(NoiseSource(16, purpose=f"{add} {place}"), add)(np.full(size, place * grid, dtype=kind), scale)
    return bool(stats.chisquare(low_bits(released, grid, bits)).pvalue > CHANCE)


@pytest.mark.parametrize("add", ["add_gaussian", "add_k_norm"])
def test_low_bits_do_not_depend_on_the_value(add):
    assert all(has_fair_low_bits(add, place) for place in PLACES[: 8 if add == "add_k_norm" else None])
    assert all(has_fair_low_bits(add, place, np.float32) for place in PLACES[:7])


@pytest.mark.parametrize(("add", "size"), [("add_gaussian", 600), ("add_k_norm", 24)])
def test_low_bits_from_exact_arithmetic_do_not_depend_on_the_value(add, size, monkeypatch):
    force_exact_arithmetic(monkeypatch)
    assert all(has_fair_low_bits(add, place, size=size) for place in (*PLACES[:4], PLACES[-1]))


def test_noise_on_a_coarser_grid_than_the_values_is_noticed(monkeypatch):
    def coarse(self: NoiseSource, values: Any, std: float) -> Any:
        grid = grid_step(std)
        noise = np.random.default_rng(0).standard_normal(values.shape) * std
        return grid * (np.rint(values / grid) + 2 * np.rint(noise / (2 * grid)))

    monkeypatch.setattr(NoiseSource, "add_gaussian", coarse)
    assert not any(has_fair_low_bits("add_gaussian", place) for place in PLACES)


@pytest.mark.parametrize("is_slow", [False, True])
def test_values_whose_unit_is_as_large_as_the_noise_are_rounded_from_the_ideal_sum(is_slow, monkeypatch):
    if is_slow:
        force_exact_arithmetic(monkeypatch)
    size, value = 2000, 2.0**52 + 8
    moved = NoiseSource(3).add_gaussian(np.full(size, value), 1.0) - value
    cells = np.arange(-3, 4)
    seen = [np.sum(moved <= -3), *(np.sum(moved == cell) for cell in cells[1:-1]), np.sum(moved >= 3)]
    bounds = np.array([-np.inf, *(cells[:-1] + 0.5), np.inf])
    assert stats.chisquare(seen, size * np.diff(stats.norm.cdf(bounds))).pvalue > CHANCE
    assert (NoiseSource(3).add_gaussian(np.full(9, 2.0**80), 1.0) == 2.0**80).all()


@pytest.mark.parametrize("is_slow", [False, True])
def test_zero_has_one_sign(is_slow, monkeypatch):
    """The sign of a float zero would be that of a float sum, not that of the ideal sum."""
    if is_slow:
        force_exact_arithmetic(monkeypatch)
    for kind in (np.float32, np.float64):
        released = NoiseSource(0).add_gaussian(np.zeros(200, dtype=kind), 1.0, grid=4.0)
        assert (released == 0).sum() > 150
        assert not np.signbit(released[released == 0]).any()


# ------------------------------------------------------------------------------------------------------------- choices


def chosen(draws: int = 400) -> Any:
    """Return how often each of two equal sums is chosen, if both are shifted by a large public number."""
    purse, sums = AdaptivePlan(100.0).open(NoiseSource(5)), np.full(2, 2.0**60)
    return np.array(
        [
            np.bincount([purse.noisy_min(sums, 0.25, 1.0) for _ in range(draws)], minlength=2),
            np.bincount([purse.noisy_top(sums, 0.25, 0.5, 1)[0] for _ in range(draws)], minlength=2),
        ]
    )


def test_equal_sums_are_chosen_equally_often_however_large_they_are():
    assert stats.binomtest(int(chosen()[0, 0]), 400).pvalue > CHANCE
    assert stats.binomtest(int(chosen()[1, 0]), 400).pvalue > CHANCE


def test_float_noise_never_chooses_the_second_of_two_large_sums(monkeypatch):
    """Float noise is absorbed by the sums, which stay equal, so that only their order decides."""
    plant_float_noise(monkeypatch)
    assert (chosen()[:, 1] == 0).all()
