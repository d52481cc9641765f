"""Privacy bugs in training by several parties, planted one at a time. The audit must flag each, but not correct code.

Two published bugs are included: Laplace noise per coordinate for an l2 sensitivity, and noise without log(1/delta).
"""

import importlib
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privet.audit import Distinguished, from_outputs, pairs, replay
from privet.objectives import GeneralisedLinear, Huber
from privet.plans.aggregation import AggregationPlan
from privet.privacy import Adjacency, Budget, Guarantee, NoiseSource
from privet.privacy.events import ApproximateRelease, Event, NearlyGaussian, PureRelease
from privet.replay import Replayed

sys.path.insert(0, str(Path(__file__).parent))

if any(find_spec(name) is None for name in ("mpyc", "gmpy2", "cryptography")):
    pytest.skip("several parties need MPyC: install the extra multiparty", allow_module_level=True)

from games import Bugs, Game, fixed_seed
from multiparty_scenarios import (
    Joint,
    Witness,
    all_rounded_at_once,
    averages,
    descent,
    everywhere,
    finished,
    multiparty_comparisons,
    spread,
)
from scenarios import CLIP, DELTA

from privet.multiparty import JointProblem, SimulatedAggregator
from privet.multiparty.protocol import gradient, output
from privet.privacy.noise.laplace import BinaryLaplace
from privet.privacy.noise.law import Draws
from privet.solvers import Problem

plans = importlib.import_module("privet.plans.aggregation")
BUDGET = Budget(6.0, DELTA)  # mu = 1.3
STEPS = 9

BUGS = Bugs()
planted = BUGS.planted


# ---------------------------------------------------------------------------------------------------------- scenarios


def game(joint: Joint, runs: int = 4000) -> Game:
    return Game(joint.guarantee, *joint.pair, outputs=joint.outputs, runs=runs)


def one_sum(knows_the_noise: bool = False) -> Game:
    """One gradient modulo the step of the coarse bits, which the fine bits must hide."""

    def seen(witness: Witness) -> Any:
        opened = witness.opened[0] - (witness.noise[0] if knows_the_noise else 0)
        return np.hstack([opened, opened % (1 << witness.plan.law.bits)])

    return game(replace(descent(spread(pairs.label_flip(2, 1)), BUDGET), seen=seen))


def one_among_many() -> Game:
    """One gradient of twenty records, so that a gradient beyond the clip still fits the lattice."""
    return game(descent(spread(pairs.label_flip(20, 1), counts=(10, 9, 1)), BUDGET))


def several_sums() -> Game:
    """Nine gradients of the same record."""
    joint = descent(spread(pairs.label_flip(2, 1)), BUDGET, steps=STEPS)
    return game(replace(joint, seen=lambda witness: np.sum(witness.opened, axis=0)), runs=200)


def changing_sums() -> Game:
    """Two gradients of a record whose second differs from its first, or of a record whose gradients are zero.

    Attackers also look at the difference of the two gradients.
    """
    (X, y), _ = pairs.label_flip(2, 1)
    joint = descent(spread(pairs.Pair((X, y), (0 * X, y), "absent")), BUDGET, steps=2, clip=1.0, step_size=1.0)

    def seen(witness: Witness) -> Any:
        first, second = witness.opened
        return np.hstack([first, second, np.abs(second - first)])

    return game(replace(joint, seen=seen), runs=400)


def rounded() -> Game:
    """A gradient as short as a lattice step in each of many coordinates."""
    return game(all_rounded_at_once())


def minimisers() -> Game:
    """The average of three parties' minimisers."""
    return game(averages(spread(pairs.target_flip(3, 1), Huber(0.25), alpha=2.0), BUDGET))


def all_coordinates() -> Game:
    """One gradient with pure epsilon that moves four coordinates equally, of which attackers count the signs."""
    return game(everywhere(jointly=True, d=4))


def one_pure_sum() -> Game:
    """One gradient with pure epsilon, drawn jointly."""
    return game(descent(spread(pairs.label_flip(3, 1)), Budget(1.5)))


def own_sources() -> Game:
    """One gradient per run, and a separate source per run."""
    joint = descent(spread(pairs.label_flip(2, 1)), BUDGET)

    def mechanism(parties: Any, source: NoiseSource) -> Any:
        return joint.outputs(parties, NoiseSource(source.below(10**15), purpose="one run"), 1)

    return Game(joint.guarantee, *joint.pair, mechanism, runs=200)


# ------------------------------------------------------------------------------------------------------ bugs: the noise


@planted(one_sum)
def noise_halved(monkeypatch):
    """Uniform numbers with one bit less, and coarse bits with half the weight."""
    draw = NoiseSource.lattice
    monkeypatch.setattr(
        NoiseSource, "lattice", lambda self, size, law: draw(self, size, replace(law, bits=law.bits - 1))
    )


@planted(one_sum)
def noise_dropped(monkeypatch):
    monkeypatch.setattr(NoiseSource, "lattice", lambda self, size, law: np.zeros(size, dtype=np.int64))


@planted(one_sum)
def coarse_bits_biased(monkeypatch):
    """Biased coins, as if one party could influence them. A biased coin has a smaller variance."""

    def biased(self, size, law):
        ones = (self._live().random((size, law.coarse)) < 0.97).sum(axis=1)
        fine = self._live().integers(0, 1 << law.bits, (size, law.fine)).sum(axis=1)
        return (ones << law.bits) + fine - law.reach

    monkeypatch.setattr(NoiseSource, "lattice", biased)


@planted(one_sum)
def uniforms_left_out(monkeypatch):
    """Noise on a coarser lattice than the signal, whose remainder modulo the step is visible."""
    draw = NoiseSource.lattice
    monkeypatch.setattr(NoiseSource, "lattice", lambda self, size, law: draw(self, size, law) >> law.bits << law.bits)


@planted(one_sum)
def noise_drawn_by_the_attacker(monkeypatch):
    """Noise that one party draws for all, and can therefore subtract."""
    return {"knows_the_noise": True}


@planted(all_coordinates)
def laplace_noise_for_the_l2_norm(monkeypatch):
    """Laplace noise of scale D/epsilon per coordinate, as in the dissertation."""
    draw = NoiseSource.lattice
    monkeypatch.setattr(NoiseSource, "lattice", lambda self, size, law: draw(self, size, law) // 2)  # sqrt(4)


@planted(one_pure_sum)
def highest_digits_never_drawn(monkeypatch):
    """Probabilities below 2^-3 rounded to 0."""
    draw = BinaryLaplace.draw

    def usual_digits(law: BinaryLaplace, size: int, draws: Draws) -> Any:
        kept = tuple(each for each in law.chances if each[0] / 2 ** each[1] >= 1 / 8)
        return draw(replace(law, chances=kept), size, draws)

    monkeypatch.setattr(BinaryLaplace, "draw", usual_digits)


@planted(own_sources)
def seed_fixed(monkeypatch):
    fixed_seed(monkeypatch)


@planted(changing_sums)
def noise_reused_in_every_step(monkeypatch):
    fresh = SimulatedAggregator.__init__

    def with_one_noise(self, plan, problems, source):
        fresh(self, plan, problems, source)
        if source is not None:
            self._source = Repeating(source)

    monkeypatch.setattr(SimulatedAggregator, "__init__", with_one_noise)


class Repeating:
    """A source that repeats the noise it drew first."""

    def __init__(self, source: NoiseSource) -> None:
        self._source = source
        self._drawn: Any = None

    def add_lattice(self, values: Any, law: Any, claim: Any) -> Any:
        if self._drawn is None:
            self._drawn = self._source.lattice(values.size, law)
        return values + self._drawn

    def assumption(self) -> Any:
        return self._source.assumption()


# ------------------------------------------------------------------------------------------------ bugs: the sensitivity


@planted(one_sum)
def gradient_bound_for_a_replaced_record(monkeypatch):
    """Sensitivity G, although a replaced record moves a sum by 2G."""
    summand = gradient._gradient_sum
    monkeypatch.setattr(gradient, "_gradient_sum", lambda weights, clip: summand(weights, 2 * clip))


@planted(one_among_many)
def clip_skipped(monkeypatch):
    monkeypatch.setattr(GeneralisedLinear, "bounded", lambda self, residuals, rows, clip_norm: residuals)


@planted(rounded)
def rounding_not_counted(monkeypatch):
    monkeypatch.setattr(plans, "rounded_shift", lambda sensitivity, scale, dimension, largest: sensitivity * scale)


@planted(several_sums)
def steps_not_composed(monkeypatch):
    """A claim that ignores the composition over steps."""

    def of_one(plan: AggregationPlan) -> Event:
        step, distance = plan.law.comparison(plan.tail)
        return NearlyGaussian(step * plan.shift, plan.steps * plan.dimension * distance)

    monkeypatch.setattr(AggregationPlan, "event", property(of_one))


@planted(minimisers)
def tolerance_of_minimisers_ignored(monkeypatch):
    """A solver that takes one step of three times the right size and does not certify the minimiser."""

    def sloppy(problem: Problem, *, tolerance: float) -> Any:
        total = problem.objective.gradient_sum(problem.start(), problem.rows, problem.targets, math.inf)
        return -3 * total / (problem.rows.n * problem.strong_convexity)

    monkeypatch.setattr(output, "minimise", sloppy)


@planted(minimisers)
def divided_by_local_numbers(monkeypatch):
    """Each party's minimiser has the weight of the only party."""
    weighted = output.weighted_minimiser

    def by_its_own(problem: JointProblem, party: Problem) -> Any:
        return weighted(problem, party) * (problem.n / party.rows.n)

    monkeypatch.setattr(output, "weighted_minimiser", by_its_own)


# ---------------------------------------------------------------------------------------------------------- the tests


@cache
def without_bug(scenario: Callable[..., Game]) -> Distinguished:
    return BUGS.play_without(scenario)


@pytest.mark.parametrize("name", BUGS)
def test_the_bug_is_flagged(name, monkeypatch):
    found = BUGS.play(name, monkeypatch)
    assert found.is_violation, str(found)


@pytest.mark.parametrize("name", BUGS)
def test_the_same_run_without_the_bug_is_not_flagged(name):
    found = without_bug(BUGS[name].scenario)
    assert not found.is_violation, str(found)


# Replays see these with one run on each table: sums move further than claimed, or more often.
IN_SUMS = {
    gradient_bound_for_a_replaced_record: "release 1 (lattice noise) moved by",
    clip_skipped: "release 1 (lattice noise) moved by",
    rounding_not_counted: "release 1 (lattice noise) moved by",
    steps_not_composed: "all releases together move by",
    tolerance_of_minimisers_ignored: "release 1 (lattice noise) moved by",
    divided_by_local_numbers: "release 1 (lattice noise) moved by",
}


@pytest.mark.parametrize("plant", IN_SUMS, ids=lambda plant: plant.__name__)
def test_a_replay_flags_bugs_in_the_sums(plant, monkeypatch):
    def replayed() -> Replayed:
        scene = BUGS[plant.__name__].scenario()
        assert scene.outputs is not None
        train = partial(scene.outputs, source=NoiseSource(1), runs=1)
        return replay(train, scene.first, scene.second, guarantee=scene.guarantee)

    assert not replayed().is_violation
    plant(monkeypatch)
    assert IN_SUMS[plant] in replayed().verdict.lower()


def test_a_record_far_beyond_the_clip_is_refused_by_the_lattice(monkeypatch):
    """A sum over two records has no room for a gradient of ten times the clip, so nothing is released."""
    joint = descent(spread(pairs.label_flip(2, 1)), BUDGET)
    clip_skipped(monkeypatch)
    with pytest.raises(ValueError, match="nothing is released"):
        joint.outputs(joint.pair[0], NoiseSource(0), 1)


# -------------------------------------------------------------------- published claims: docs/errata.md (b, c)

D, EPSILON = 122, 0.5


def claim(event: Event, delta: float) -> Guarantee:
    return Guarantee.of(event, Adjacency.REPLACE_ONE, delta, released="as published")


@cache
def along_the_diagonal() -> tuple[Joint, list[Any]]:
    """Return Out-P of three parties, in which one record moves all 122 coordinates equally; and averages."""
    X, y = np.zeros((3, D)), np.zeros(3)
    X[0], y[0] = 1 / math.sqrt(D), 1.0
    pair = spread(pairs.Pair((X, y), (X.copy(), -y), "diagonal"), Huber(0.25), alpha=2.0)
    joint = averages(pair, Budget(EPSILON, DELTA))
    exact = []
    for parties in pair:
        silent = SimulatedAggregator(joint.plan, parties, None)
        exact.append(finished(joint.method(JointProblem.of(parties), silent, delta=DELTA)).weights)
    return joint, exact


def test_laplace_noise_per_coordinate_at_the_scale_of_the_paper_fails():
    """Theorem 6.3.1 holds for other noise than section 6.7 draws, which is Laplace(sensitivity/epsilon) noise."""
    joint, (first, second) = along_the_diagonal()
    sensitivity = 2 * 0.25 / (3 * 2.0)  # 2G/(m n lambda)
    assert np.linalg.norm(second - first) == pytest.approx(sensitivity, rel=0.05)
    assert joint.plan.sensitivity == pytest.approx(sensitivity, rel=0.02)
    scale, rng = sensitivity / EPSILON, np.random.default_rng(0)

    def likelihoods(average: Any) -> Any:
        noisy = average + rng.laplace(scale=scale, size=(20_000, D))
        return (np.abs(noisy - first) - np.abs(noisy - second)).sum(axis=1)

    outputs = likelihoods(first), likelihoods(second)
    found = from_outputs(*outputs, guarantee=claim(PureRelease(EPSILON), 0.0), confidence=0.999)
    assert found.is_violation, str(found)
    assert found.lower_bound > 1.2 * EPSILON, str(
        found
    )  # The true value is sqrt(122) * EPSILON, but only in the far tails.


def test_the_lattice_noise_passes_on_the_same_tables():
    joint, (first, second) = along_the_diagonal()
    source = NoiseSource(1, purpose="lattice noise along the diagonal")
    outputs = [joint.outputs(parties, source, 40_000) @ (second - first) for parties in joint.pair]
    found = from_outputs(*outputs, guarantee=joint.guarantee, confidence=0.999)
    assert not found.is_violation, str(found)
    assert found.lower_bound > 0.6 * EPSILON, str(found)


def test_the_noise_of_table_6_1_for_gradients_fails(monkeypatch):
    """It lacks log(1/delta): sqrt(2T) G/(m n epsilon) per step gives mu = sqrt(2) epsilon for every delta."""
    joint = descent(spread(pairs.label_flip(2, 1)), Budget(EPSILON, 1e-3))

    def of_the_table(self: NoiseSource, size: int, law: Any) -> Any:
        std = math.sqrt(2 * joint.plan.steps) * CLIP / EPSILON
        return np.rint(self.add_gaussian(np.zeros(size), std * joint.plan.scale)).astype(np.int64)

    source = NoiseSource(2, purpose="noise of a table")
    with monkeypatch.context() as patched:
        patched.setattr(NoiseSource, "lattice", of_the_table)
        outputs = [joint.outputs(parties, source, 10_000) for parties in joint.pair]
    published = claim(ApproximateRelease(EPSILON, 1e-3), 1e-3)
    found = from_outputs(*outputs, guarantee=published, confidence=0.999)
    assert found.is_violation, str(found)
    right = [joint.outputs(parties, source, 10_000) for parties in joint.pair]
    assert not from_outputs(*right, guarantee=published, confidence=0.999).is_violation


def test_rajkumar_and_agarwal_fail_at_the_budget_of_a_step():
    """Each step spends the budget again. The release claims the total, but the paper only one step."""
    pair = spread(pairs.label_flip(2, 1))
    budget = Budget(3.0, DELTA)
    source = NoiseSource(3, purpose="the budget of a step")

    def run(parties: Any) -> Any:
        return multiparty_comparisons.rajkumar_agarwal(parties, budget, steps=STEPS, source=source, clip_norm=CLIP)

    outputs = [np.array([run(parties).weights for _ in range(600)]) for parties in pair]
    honest = run(pair[0]).guarantee
    of_a_step = replace(descent(pair, budget).guarantee, epsilon=budget.epsilon)
    assert honest.epsilon > 3 * budget.epsilon
    assert not from_outputs(*outputs, guarantee=honest, confidence=0.999).is_violation
    found = from_outputs(*outputs, guarantee=of_a_step, confidence=0.999)
    assert found.is_violation, str(found)
