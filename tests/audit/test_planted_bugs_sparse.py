"""Privacy bugs of sparse models, planted one at a time. The audit must flag each, and not the same run without it.

One bug is a published claim: the noise of knowledge transfer from a sparse teacher, tested on tables that refute it.
"""

import importlib
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privet.audit import Distinguished, distinguish, pairs
from privet.objectives import GeneralisedLinear, Huber, Logistic, SmoothedHinge
from privet.plans import AdaptivePlan, FullBatch, GradientPlan, OutputPlan, adaptive
from privet.plans.adaptive import Purse
from privet.plans.gradient import Step
from privet.plans.stabilities.transfer import TransferStability
from privet.privacy import Budget, NoiseSource
from privet.solvers import (
    Problem,
    PublicFeatures,
    Run,
    frank_wolfe,
    hard_threshold,
    knowledge_transfer,
    transfer_stability,
)
from privet.solvers.base.sparsity import clipped_total, thresholded
from privet.solvers.ight import ight

sys.path.insert(0, str(Path(__file__).parent))

from games import Bugs, Game
from scenarios import CLIP, DELTA, LAX
from sparse_scenarios import corners_of, labels_of, moves_of, one_of_two, peeled, problems, tilted, turned, voted

# The package has functions of the same names.
thresholds, corners, transfers, stages = (
    importlib.import_module(f"privet.solvers.{name}")
    for name in ("hard_threshold", "frank_wolfe", "knowledge_transfer", "two_stage")
)
BUDGET = Budget(6.0, DELTA)  # mu = 1.3
STEPS, CHOSEN, BLOCKS = 9, 9, 7

BUGS = Bugs()
planted = BUGS.planted


# ---------------------------------------------------------------------------------------------------------- scenarios


def descent(first: Problem, second: Problem, steps: int = 2) -> Game:
    """DP-IGHT that keeps the weight of one feature after each step."""
    plan = GradientPlan.for_budget(BUDGET, sampler=FullBatch(), steps=steps, clip_norm=CLIP)
    fields: dict[str, Any] = {"n_nonzero": 1, "step_size": 1e-3, "keep_iterates": True}

    def mechanism(data: Problem, source: NoiseSource) -> Any:
        return moves_of(hard_threshold(data, Run(plan, source), **fields))

    return Game(plan.guarantee(DELTA), first, second, mechanism)


def always_kept() -> Game:
    """All gradients concern the same feature. The gradient of one record has the same or the opposite direction."""
    return descent(*problems(pairs.outlier(40), Logistic()))


def tie() -> Game:
    """Two features that are equally good except for one record."""
    return descent(*problems(pairs.support_flip(3)))


def peeling(half: int = 1, rounds: int = 1, runs: int = 800, **options: Any) -> Game:
    """One record decides from which half of the features some are chosen and measured."""
    pair, run, seen = peeled(
        problems(tilted(2, half), row_norm=math.sqrt(2 * half)), half=half, rounds=rounds, budget=BUDGET, **options
    )
    guarantee = AdaptivePlan.for_budget(BUDGET).guarantee(DELTA)
    return Game(guarantee, *pair, lambda data, source: seen(run(data, source)), runs=runs)


def peeling_several() -> Game:
    """Nine of forty features are chosen, so that enough features of both halves remain for each choice."""
    return peeling(half=20, n_nonzero=CHOSEN)


def peeling_in_rounds() -> Game:
    """One of two features is chosen, nine times."""
    return peeling(rounds=STEPS, runs=400)


def peeling_lengths() -> Game:
    """One record has a row of ones or of zeros and a residual of zero: only the step lengths reveal which."""
    X, y = np.ones((20, 1)), np.ones(20)
    y[0] = 0.0
    other = X.copy()
    other[0] = 0.0
    pair, run, seen = peeled(problems(pairs.Pair((X, y), (other, y), "length")), half=1, budget=BUDGET)
    guarantee = AdaptivePlan.for_budget(BUDGET).guarantee(DELTA)
    return Game(guarantee, *pair, lambda data, source: seen(run(data, source)), runs=400)


def walk() -> Game:
    """Frank-Wolfe on an interval with nine steps, each towards one of its two ends."""
    plan = AdaptivePlan.for_budget(BUDGET)
    fields = {"l1_radius": CLIP, "entry_bound": 1.0, "residual_clip": CLIP, "keep_iterates": True}

    def mechanism(data: Problem, source: NoiseSource) -> Any:
        return corners_of(frank_wolfe(data, Run(plan, source), steps=STEPS, **fields)).sum()

    return Game(plan.guarantee(DELTA), *problems(pairs.target_flip(2, 1)), mechanism, runs=600)


def votes() -> Game:
    """Seven records in one block each. Six of the votes are a tie, and the seventh decides."""
    pair = problems(turned(BLOCKS), SmoothedHinge(), row_norm=math.sqrt(2), alpha=4.0)
    run = voted(budget=Budget(2.0, LAX), blocks=BLOCKS, selection_share=0.8)
    guarantee = run(pair[0], NoiseSource(0)).guarantee
    return Game(guarantee, *pair, lambda data, source: one_of_two(run(data, source).weights), runs=300)


def scores() -> Game:
    """Nine equal public rows are scored by a teacher that one record moves as far as possible."""
    features = PublicFeatures(np.ones((9, 1)))
    return transfer(*problems(pairs.target_flip(3, 1), Huber(0.25), alpha=2.0), features)


def scores_of_a_tie() -> Game:
    """Two features that are equally good except for one of 101 records."""
    features = PublicFeatures(np.eye(2))
    return transfer(*problems(pairs.support_flip(101), Huber(0.25), alpha=0.1), features, runs=300)


def transfer(first: Problem, second: Problem, features: PublicFeatures, runs: int = 300) -> Game:
    plan = OutputPlan.for_budget(BUDGET, stability=transfer_stability(first, features))
    fields: dict[str, Any] = {"features": features, "n_nonzero": 1, "steps": 2}

    def mechanism(data: Problem, source: NoiseSource) -> Any:
        return labels_of(knowledge_transfer(data, Run(plan, source), **fields))

    return Game(plan.guarantee(DELTA), first, second, mechanism, runs=runs)


# --------------------------------------------------------------------------------------------------- bugs: thresholds


@planted(always_kept)
def noise_of_the_dissertation(monkeypatch):
    """Use the noise of Theorem 2.5.2, which lacks a factor of sqrt(2)."""
    std = GradientPlan.noise_std.fget
    monkeypatch.setattr(GradientPlan, "noise_std", property(lambda plan: std(plan) / math.sqrt(2)))


@planted(always_kept)
def gradients_not_clipped(monkeypatch):
    """Do not clip, as if a bound on gradients were assumed that does not hold."""
    monkeypatch.setattr(GeneralisedLinear, "bounded", lambda self, residuals, rows, clip_norm: residuals)


@planted(tie)
def threshold_before_the_noise(monkeypatch):
    noisy = Step.noisy

    def on_the_largest(self, total):
        largest = thresholded(total, 1, total.size)
        return np.where(largest != 0, noisy(self, largest), 0.0)

    monkeypatch.setattr(Step, "noisy", on_the_largest)


# ------------------------------------------------------------------------------------------------------ bugs: peeling


@planted(peeling)
def noise_of_choices_halved(monkeypatch):
    top = NoiseSource.top
    monkeypatch.setattr(NoiseSource, "top", lambda self, scores, scale, *rest: top(self, scores, scale / 2, *rest))


@planted(peeling)
def choice_without_noise(monkeypatch):
    def largest(self, scores, scale, number, *claim):
        return np.sort(np.argsort(-scores)[:number])

    monkeypatch.setattr(NoiseSource, "top", largest)


@planted(peeling)
def entry_bound_understated(monkeypatch):
    """Use the bound of a typical entry and do not check it."""
    monkeypatch.setattr(thresholds, "checked_entry_bound", lambda problem, bound: bound / 2)


@planted(peeling)
def residual_clip_dropped(monkeypatch):
    monkeypatch.setattr(
        thresholds, "clipped_total", lambda problem, weights, clip: clipped_total(problem, weights, math.inf)
    )


@planted(peeling_several)
def several_choices_priced_as_one(monkeypatch):
    epsilon = adaptive.selection_epsilon
    monkeypatch.setattr(adaptive, "selection_epsilon", lambda mu: epsilon(mu * math.sqrt(CHOSEN)))


@planted(peeling_several)
def norm_of_one_entry_for_several(monkeypatch):
    """Calibrate the noise on nine features to the bound on one of them."""
    noisy = Purse.noisy

    def of_one(self, total, bound, mu):
        return noisy(self, total, bound / math.sqrt(total.size), mu)

    monkeypatch.setattr(Purse, "noisy", of_one)


@planted(peeling_in_rounds)
def noise_of_one_round_for_all(monkeypatch):
    noisy = Purse.noisy
    monkeypatch.setattr(Purse, "noisy", lambda self, total, bound, mu: noisy(self, total, bound / math.sqrt(STEPS), mu))


@planted(peeling_lengths)
def squares_without_noise(monkeypatch):
    noisy = Purse.noisy

    def only_gradients(self, total, bound, mu):
        released = noisy(self, total, bound, mu)
        self.releases = getattr(self, "releases", 0) + 1
        return released if self.releases % 2 else total

    monkeypatch.setattr(Purse, "noisy", only_gradients)


# ----------------------------------------------------------------------------------- bugs: corners, votes and teachers


@planted(walk)
def corners_not_composed(monkeypatch):
    epsilon = corners.selection_epsilon
    monkeypatch.setattr(corners, "selection_epsilon", lambda mu: epsilon(mu * math.sqrt(STEPS)))
    monkeypatch.setattr(Purse, "_pay", lambda self, mu: None)


@planted(walk)
def range_of_a_corner_halved(monkeypatch):
    """Calibrate as if replacing a record moved each sum by its bound instead of twice that."""
    choose = Purse.noisy_min
    monkeypatch.setattr(Purse, "noisy_min", lambda self, sums, bound, epsilon: choose(self, sums, bound / 2, epsilon))


@planted(votes)
def bound_of_a_mean_for_a_count(monkeypatch):
    """Use the sensitivity 1/blocks of the share of votes, although the noise is added to counts."""
    choose = Purse.noisy_top
    monkeypatch.setattr(
        Purse, "noisy_top", lambda self, scores, bound, mu, number: choose(self, scores, bound / BLOCKS, mu, number)
    )


@planted(votes)
def blocks_overlap(monkeypatch):
    """Put each record into all blocks, so that one record can change all votes."""
    count_votes = stages._votes

    def all_in_all(problem, order, blocks, n_nonzero, steps):
        return blocks * count_votes(problem, order, 1, n_nonzero, steps)

    monkeypatch.setattr(stages, "_votes", all_in_all)


@planted(scores)
def operator_norm_forgotten(monkeypatch):
    """Add to the scores of many rows only the noise that the weights of the teacher need."""
    monkeypatch.setattr(TransferStability, "sensitivity", property(lambda self: self.minimiser.sensitivity))


@planted(scores_of_a_tie)
def sparse_teacher_with_the_noise_of_a_convex_one(monkeypatch):
    monkeypatch.setattr(transfers, "minimise", lambda problem, tolerance: ight(problem, n_nonzero=1))


# ---------------------------------------------------------------------------------------------------------- the tests


@cache
def without_bug(scenario: Callable[..., Game]) -> Distinguished:
    return BUGS.play_without(scenario)


@pytest.mark.parametrize("name", BUGS)
def test_bug_is_flagged(name, monkeypatch):
    found = BUGS.play(name, monkeypatch)
    assert found.is_violation, str(found)


@pytest.mark.parametrize("name", BUGS)
def test_the_same_run_without_the_bug_is_not_flagged(name):
    found = without_bug(BUGS[name].scenario)
    assert not found.is_violation, str(found)


# ------------------------------------------------------------------------ published claims: docs/errata.md (j)

ALPHA = 0.1


@pytest.fixture(scope="module")
def flip() -> tuple[pairs.Pair, PublicFeatures]:
    """Return 1,001 records, one of which decides between two features, and as many public rows."""
    rows = np.random.default_rng(0).uniform(-1, 1, (1001, 2))
    return pairs.support_flip(), PublicFeatures(rows)


def played(pair: Any, plan: OutputPlan, features: PublicFeatures, solve: Any) -> tuple[Distinguished, Any]:
    """Return the audit of knowledge transfer and the claimed guarantee. The attacker averages the labels."""
    options: dict[str, Any] = {"features": features, "n_nonzero": 1, "steps": 5}

    def run(problem: Problem, source: NoiseSource) -> Any:
        return solve(problem, Run(replace(plan, delta=DELTA), source), **options)

    def mechanism(problem: Problem, source: NoiseSource) -> Any:
        release = run(problem, source)
        return np.append(features.rows.combine(release.trace["labels"]), release.weights)

    guarantee = run(pair[0], NoiseSource(0)).guarantee
    source = NoiseSource(7, purpose="support flip")
    return distinguish(mechanism, *pair, guarantee=guarantee, runs=200, confidence=0.999, source=source), guarantee


def test_the_papers_knowledge_transfer_fails_on_the_support_flip(flip):
    sys.path.insert(0, str(Path(__file__).parents[2] / "experiments"))
    paper = importlib.import_module("paper_knowledge_transfer")
    pair, features = flip
    first, second = problems(pair, alpha=ALPHA)
    norm = float(np.linalg.norm(np.cov(features.X.T), 2))
    stability = paper.PaperTransferStability(first.rows.n, features.rows.n, 1, 1.0, ALPHA, norm)
    plan = OutputPlan(stability, stability.scale(Budget(1.0, DELTA)), is_pure=False)
    found, guarantee = played((first, second), plan, features, paper.paper_knowledge_transfer)
    assert guarantee.epsilon <= 1.0
    assert "provided that" in guarantee.statement(verbose=True)
    assert "Theorem 3.3.3" in guarantee.statement(verbose=True)
    assert found.is_violation, str(found)
    assert found.lower_bound > 5.0, str(found)


def test_the_rigorous_knowledge_transfer_passes_on_the_same_tables(flip):
    pair, features = flip
    first, second = problems(pair, Huber(0.25), alpha=ALPHA)
    plan = OutputPlan.for_budget(Budget(1.0, DELTA), stability=transfer_stability(first, features))
    found, guarantee = played((first, second), plan, features, knowledge_transfer)
    assert guarantee.epsilon == pytest.approx(1.0)
    assert not found.is_violation, str(found)
