"""Audits of sparse models: of the features they choose, the numbers measured for them, and the weights they keep.

A choice reveals most if one record decides it: the other records favour two features equally, and the one record raises
the score of one and lowers that of the other as far as its bound allows. Attackers see which features were chosen, and
the numbers that were released with them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scenarios import BUDGET, CLIP, LAX, PURE, STEP, Key, Scenario

import privet
from privet import solvers
from privet.audit import pairs
from privet.linear.methods import METHODS
from privet.objectives import L2, BoundedRows, Huber, Logistic, SmoothedHinge, Squared
from privet.plans import AdaptivePlan, FullBatch, GradientPlan, OutputPlan
from privet.plans.adaptive import Purse
from privet.privacy import Budget, Guarantee, NoiseSource
from privet.solvers import Problem, PublicFeatures, Release, Run

Problems = tuple[Problem, Problem]
See = Callable[[Release], ArrayLike]

# -------------------------------------------------------------------------------------------------------------- pairs


def tilted(n: int = 3, half: int = 1) -> pairs.Pair:
    """Return rows that raise one half of the features and lower the other, and one row that affects all equally.

    The target of that one row, 1 or -1, is what differs. It decides which half has the larger sums: each sum moves by
    twice the bound, and so does its absolute value. Every entry is 1 or -1. The targets of the other rows alternate
    between 1 and -1, so that they do not affect an intercept.
    """
    X, y = np.ones((n, 2 * half)), np.ones(n)
    X[1:, half:] = -1.0
    X[2::2] *= -1.0
    y[2::2] = -1.0
    second = y.copy()
    second[0] = -1.0
    return pairs.Pair((X, y), (X.copy(), second), "tilted")


def as_classes(pair: pairs.Pair) -> pairs.Pair:
    """Return the pair with the signs of its targets as labels."""
    (X, y), (X2, y2) = pair
    return pairs.Pair((X, (y > 0).astype(int)), (X2, (y2 > 0).astype(int)), pair.name)


def padded(pair: pairs.Pair, zeros: int) -> pairs.Pair:
    """Return the pair with an even number of additional rows of zeros, whose targets alternate between 1 and -1."""
    y_more = np.resize([1.0, -1.0], zeros)
    tables = [(np.vstack([X, np.zeros((zeros, X.shape[1]))]), np.append(y, y_more)) for X, y in pair]
    return pairs.Pair(*tables, f"padded {pair.name}")


def extreme(pair: pairs.Pair) -> pairs.Pair:
    """Return the pair with the row and target of the first record far beyond all bounds, so that they are clipped."""
    tables = [(X.copy(), y.copy()) for X, y in pair]
    for X, y in tables:
        X[0] *= 1e6
        y[0] *= 1e6
    return pairs.Pair(*tables, f"extreme {pair.name}")


def turned(n: int = 3, less: float = 0.9) -> pairs.Pair:
    """Return records whose votes for two features are a tie, and one that votes for the first or for the second.

    In one table that record also raises the weight of a feature, and in the other it lowers it almost as much.
    """
    X = np.zeros((n, 2))
    X[0] = 1.0, -less
    X[1::2, 0], X[2::2, 1] = 1.0, 1.0
    second = X.copy()
    second[0] = -less, 1.0
    return pairs.Pair((X, np.ones(n)), (second, np.ones(n)), "turned")


def problems(
    pair: pairs.Pair, objective: Any = None, *, row_norm: float = 1.0, alpha: float = 0.0, intercept: float = 0.0
) -> Problems:
    """Return the two problems of a pair."""
    first, second = (
        Problem(objective or Squared(), L2(alpha), BoundedRows(X, row_norm, intercept), np.asarray(y, dtype=float))
        for X, y in pair
    )
    return first, second


# -------------------------------------------------------------------------------------------------- what attackers see


class RecordingPurse(Purse):
    """A purse that records everything it releases."""

    def __init__(self, plan: AdaptivePlan, source: NoiseSource, record: list[Any]) -> None:
        super().__init__(plan, source)
        self._record = record

    def noisy(self, total: NDArray[Any], bound: float, mu: float) -> NDArray[Any]:
        released = super().noisy(total, bound, mu)
        self._record.append(released.copy())
        return released

    def noisy_top(self, scores: NDArray[Any], bound: float, mu: float, number: int) -> NDArray[np.int64]:
        released = super().noisy_top(scores, bound, mu, number)
        self._record.append(released.copy())
        return released


@dataclass(frozen=True)
class RecordingPlan(AdaptivePlan):
    """A plan that keeps in ``record`` everything that its last purse released, which its guarantee covers."""

    record: list[Any] = field(default_factory=list, compare=False)

    def open(self, source: NoiseSource) -> Purse:
        self.record.clear()
        return RecordingPurse(self, source, self.record)


def rounds_of(plan: RecordingPlan, half: int) -> NDArray[np.float64]:
    """Return three numbers for each round of peeling on a tilted pair.

    They are the number of features chosen from the first half minus those from the second, the sum of the measured
    values, and the noisy square from which the step was computed, divided by the squared length of the values.
    """
    seen = []
    for chosen, values, squares in zip(*(plan.record[place::3] for place in range(3)), strict=True):
        seen += [np.sum(chosen < half) - np.sum(chosen >= half), values.sum(), squares[0] / (values @ values)]
    return np.array(seen, dtype=float)


def one_of_two(weights: NDArray[Any]) -> NDArray[np.float64]:
    """Return which of the first two features has a weight, that weight, and all further weights."""
    first, second = (weights[:2] != 0).astype(float)
    return np.array([second - first, weights[:2].sum(), *weights[2:]])


def corners_of(release: Release) -> NDArray[np.float64]:
    """Return the signs of the corner towards which each step went."""
    iterates = [np.zeros_like(release.weights), *release.trace["iterates"]]
    shares = [2 / (step + 2) for step in range(1, len(iterates))]
    moves = [
        after - (1 - share) * before for share, before, after in zip(shares, iterates[:-1], iterates[1:], strict=True)
    ]
    return np.array([np.sign(np.round(move, 12)) for move in moves])


def moves_of(release: Release) -> NDArray[np.float64]:
    """Return the differences between consecutive iterates."""
    iterates = np.array(release.trace["iterates"])
    return np.diff(iterates, axis=0, prepend=0 * iterates[:1])


def labels_of(release: Release) -> NDArray[np.float64]:
    """Return the noisy labels and the weights of a student."""
    return np.append(release.trace["labels"], release.weights)


# ---------------------------------------------------------------------------------------------------------- scenarios


def _scenario(
    solver: str,
    variant: str,
    pair: tuple[Any, Any],
    run: Callable[[Any, NoiseSource], Release],
    *,
    share: float,
    why: str = "",
    seen: See = lambda release: release.weights,
    runs: int = 800,
) -> Scenario:
    guarantee = run(pair[0], NoiseSource(0)).guarantee
    name = f"{solver}, {variant}"
    return Scenario((solver,), name, lambda data, source: seen(run(data, source)), pair, guarantee, share, why, runs)


FLIPPED = "a row that moves from one feature to another changes the sum by sqrt(2) times its bound, not by twice"
SHOWN = "in a tie only the coordinate with the larger noise is kept and seen"


def _hard_thresholds() -> list[Scenario]:
    name = "hard_threshold"
    plan = GradientPlan.for_budget(BUDGET, sampler=FullBatch(), steps=2, clip_norm=CLIP)

    def run(problem: Problem, source: NoiseSource, **options: Any) -> Release:
        fields = {"n_nonzero": 1, "step_size": STEP, "keep_iterates": True} | options
        return solvers.hard_threshold(problem, Run(plan, source), **fields)

    scenario = partial(_scenario, run=run, seen=moves_of)
    return [
        scenario(name, "one feature", problems(pairs.label_flip(2, 1), Logistic()), share=0.75),
        scenario(name, "a feature that is always kept", problems(pairs.outlier(40), Logistic()), share=0.7),
        scenario(
            name, "support flip, three records", problems(pairs.support_flip(3)), share=0.4, why=f"{FLIPPED}; {SHOWN}"
        ),
        scenario(
            name,
            "support flip",
            problems(pairs.support_flip()),
            share=0.2,
            why=f"{FLIPPED}; {SHOWN}",
            runs=400,
        ),
    ]


def peeled(
    pair: Problems,
    *,
    half: int = 1,
    n_nonzero: int | None = None,
    rounds: int = 1,
    budget: Budget = BUDGET,
    clip: float = CLIP,
) -> tuple[Problems, Callable[[Any, NoiseSource], Release], See]:
    """Return a pair, a run of peeling, and a function that returns everything that the purse released in the run."""
    plan = RecordingPlan.for_budget(budget)
    clips = [clip] * rounds
    options = {"n_nonzero": n_nonzero or half, "entry_bound": 1.0, "residual_clips": clips}

    def run(problem: Problem, source: NoiseSource) -> Release:
        return solvers.peeled_threshold(problem, Run(plan, source), **options)

    def seen(release: Release) -> ArrayLike:
        return np.append(rounds_of(plan, half), one_of_two(release.weights) if pair[0].rows.n_features == 2 else [])

    return pair, run, seen


def _peeled() -> list[Scenario]:
    name = "peeled_threshold"
    far = problems(tilted(2), row_norm=math.sqrt(2))
    labels = problems(as_classes(tilted(3)), Logistic(), row_norm=math.sqrt(2), intercept=1.0)
    four = problems(tilted(3, 2), row_norm=2.0)
    lone = problems(pairs.target_flip(2, 1))
    flip, long_flip = problems(pairs.support_flip(3)), problems(pairs.support_flip())
    later = "later choices depend on earlier measurements, and a linear test detects little of that"

    def scenario(variant: str, parts: Any, **fields: Any) -> Scenario:
        pair, run, seen = parts
        return _scenario(name, variant, pair, run, seen=seen, **fields)

    return [
        scenario("one of two, two records", peeled(far), share=0.7),
        scenario("one of two, with an intercept", peeled(labels), share=0.6),
        scenario("two of four", peeled(four, half=2), share=0.6),
        scenario("two rounds", peeled(far, rounds=2), share=0.5, why=later),
        scenario("nothing to choose", peeled(lone), share=0.45, why="the choice of the only feature reveals nothing"),
        scenario("support flip, three records", peeled(flip), share=0.1, why=FLIPPED),
        scenario("support flip", peeled(long_flip), share=0.1, why=FLIPPED, runs=400),
    ]


def _frank_wolfe() -> list[Scenario]:
    name, plan = "frank_wolfe", AdaptivePlan.for_budget(BUDGET)

    def run(problem: Problem, source: NoiseSource, steps: int) -> Release:
        fields = {"l1_radius": CLIP, "entry_bound": 1.0, "residual_clip": CLIP, "keep_iterates": True}
        return solvers.frank_wolfe(problem, Run(plan, source), steps=steps, **fields)

    def scenario(variant: str, pair: Problems, steps: int, **fields: Any) -> Scenario:
        return _scenario(name, variant, pair, partial(run, steps=steps), seen=corners_of, **fields)

    wide = problems(as_classes(tilted(2)), Logistic(), row_norm=math.sqrt(2), intercept=1.0)
    return [
        scenario("one corner", problems(pairs.target_flip(2, 1)), 1, share=0.65),
        scenario("three corners", problems(pairs.label_flip(3, 1), Logistic()), 3, share=0.65),
        scenario("two features and an intercept", wide, 2, share=0.6, why=""),
        scenario("support flip, three records", problems(pairs.support_flip(3)), 1, share=0.2, why=FLIPPED),
        scenario("support flip", problems(pairs.support_flip()), 1, share=0.0, why=FLIPPED, runs=400),
    ]


VOTED = Budget(6.0, LAX)
TWO = "the claim composes two releases, and it is compared with Clopper-Pearson limits at one delta only"


def voted(*, budget: Budget = VOTED, blocks: int = 3, **options: Any) -> Callable[[Any, NoiseSource], Release]:
    """Return a run of two stages that chooses one feature. By default there is one block per record of three."""
    fields: dict[str, Any] = {"n_nonzero": 1, "entry_bound": 1.0}

    def run(problem: Problem, source: NoiseSource) -> Release:
        plan = solvers.two_stage_plan(problem, budget, **fields, **options)
        return solvers.two_stage(problem, Run(plan, source), blocks=blocks, **fields)

    return planning_once(run)


def planning_once(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return a run of two stages that makes its plan once per dataset, because planning takes longer than running."""
    module, made = import_module("privet.solvers.two_stage"), {}

    def again(data: Any, *args: Any) -> Any:
        make = module._plans

        def plans(*fields: Any) -> Any:
            if id(data) not in made:
                made[id(data)] = make(*fields)
            return made[id(data)]

        with patch.object(module, "_plans", plans):
            return run(data, *args)

    return again


def _two_stages() -> list[Scenario]:
    name = "two_stage"
    pair = problems(turned(), SmoothedHinge(), row_norm=math.sqrt(2), alpha=4.0)
    flip = problems(pairs.support_flip(3), SmoothedHinge(), alpha=4.0)
    long_flip = problems(pairs.support_flip(), Huber(0.25), alpha=0.1)

    def seen(release: Release) -> ArrayLike:
        return one_of_two(release.weights)

    return [
        _scenario(name, "one of two", pair, voted(), share=0.3, why=TWO, seen=seen, runs=500),
        _scenario(name, "support flip, three records", flip, voted(), share=0.2, why=TWO, seen=seen, runs=400),
        _scenario(
            name,
            "support flip",
            long_flip,
            voted(blocks=31),
            share=0.0,
            why="only one of many blocks changes its vote, and rarely",
            seen=seen,
            runs=100,
        ),
    ]


def _transfers() -> list[Scenario]:
    huber = problems(pairs.target_flip(3, 1), Huber(0.25), alpha=2.0)
    flip = problems(pairs.support_flip(3), Huber(0.25), alpha=2.0)
    long_flip = problems(pairs.support_flip(), Huber(0.25), alpha=2.0)
    one, two = PublicFeatures(np.array([[1.0], [-2.0]])), PublicFeatures(np.eye(2))
    single = PublicFeatures(np.array([[2.0]]))

    def scenario(variant: str, pair: Problems, features: PublicFeatures, budget: Budget, **fields: Any) -> Scenario:
        plan = OutputPlan.for_budget(budget, stability=solvers.transfer_stability(pair[0], features))

        def run(problem: Problem, source: NoiseSource) -> Release:
            options = {"features": features, "n_nonzero": 1, "steps": 2}
            return solvers.knowledge_transfer(problem, Run(plan, source), **options)

        return _scenario("knowledge_transfer", variant, pair, run, seen=labels_of, **fields)

    teaching = GradientPlan.for_budget(BUDGET, sampler=FullBatch(), steps=1, clip_norm=CLIP)

    def student(problem: Problem, source: NoiseSource) -> Release:
        teacher = solvers.hard_threshold(problem, Run(teaching, source), n_nonzero=1, step_size=STEP)
        return solvers.student_of(teacher, two if problem.rows.n_features == 2 else one, n_nonzero=1, steps=2)

    teachers = partial(_scenario, "student_of", run=student, seen=labels_of)
    return [
        scenario("Gaussian", huber, one, BUDGET, share=0.75, runs=400),
        scenario("pure", huber, single, PURE, share=0.75),
        scenario("support flip, three records", flip, two, BUDGET, share=0.45, why=FLIPPED, runs=400),
        scenario("support flip", long_flip, two, BUDGET, share=0.25, why=FLIPPED, runs=200),
        teachers("one feature", problems(pairs.label_flip(2, 1), Logistic()), share=0.75),
        teachers("support flip, three records", problems(pairs.support_flip(3)), share=0.4, why=f"{FLIPPED}; {SHOWN}"),
    ]


def _disjoint_teachers() -> list[Scenario]:
    name = "disjoint_teachers"
    one, two = PublicFeatures(np.array([[1.0], [-2.0]])), PublicFeatures(np.eye(2))
    single = PublicFeatures(np.array([[2.0]]))

    def scenario(variant: str, pair: Problems, features: PublicFeatures, budget: Budget, **fields: Any) -> Scenario:
        stability = solvers.disjoint_stability(features, teachers=3, radius=0.5)
        plan = OutputPlan.for_budget(budget, stability=stability)

        def run(problem: Problem, source: NoiseSource) -> Release:
            options = {"features": features, "n_nonzero": 1, "steps": 2}
            return solvers.disjoint_teachers(problem, Run(plan, source), **options)

        return _scenario(name, variant, pair, run, seen=labels_of, **fields)

    lone, flip = problems(pairs.target_flip(3, 1)), problems(pairs.support_flip(3))
    return [
        scenario("Gaussian", lone, one, BUDGET, share=0.75, runs=400),
        scenario("pure", lone, single, PURE, share=0.7, runs=400),
        scenario("support flip, three records", flip, two, BUDGET, share=0.45, why=FLIPPED, runs=400),
    ]


def _selected_teacher() -> list[Scenario]:
    name, plan = "selected_teacher", AdaptivePlan.for_budget(BUDGET)

    def scenario(variant: str, pair: Problems, **fields: Any) -> Scenario:
        features = PublicFeatures(np.eye(pair[0].rows.n_features))

        def run(problem: Problem, source: NoiseSource) -> Release:
            options = {"features": features, "n_nonzero": 1, "entry_bound": 1.0, "steps": 2}
            return solvers.selected_teacher(problem, Run(plan, source), **options)

        def seen(release: Release) -> ArrayLike:
            return np.concatenate([release.trace["chosen"], release.trace["labels"], release.weights])

        return _scenario(name, variant, pair, run, seen=seen, **fields)

    huber: dict[str, Any] = {"objective": Huber(0.25), "alpha": 2.0}
    alone = "the choice of the only feature reveals nothing"
    return [
        scenario("nothing to choose", problems(pairs.target_flip(3, 1), **huber), share=0.35, why=alone, runs=400),
        scenario("one of two", problems(tilted(3), row_norm=math.sqrt(2), **huber), share=0.5, runs=400),
        scenario("support flip", problems(pairs.support_flip(3), **huber), share=0.1, why=FLIPPED, runs=200),
    ]


# --------------------------------------------------------------------------------------------------------- estimators

KINDS = (privet.PrivateSparseLogisticRegression, privet.PrivateSparseRegression)


def _estimator(
    about: Key, variant: str, pair: pairs.Pair, budget: Budget, *, share: float, why: str = "", **settings: Any
) -> Scenario:
    name, method = about
    kind = getattr(privet, name)
    is_classifier = kind is privet.PrivateSparseLogisticRegression
    pair = as_classes(pair) if is_classifier else pair
    d = pair.first[0].shape[1]
    fields = {"n_nonzero": max(1, d // 2), "feature_norm": math.sqrt(d), "entry_bound": 1.0, "fit_intercept": False}
    fields |= ({"classes": (0, 1)} if is_classifier else {}) | settings
    public = {"X_public": np.eye(d)} if METHODS[method].uses_public else {}

    def fitted(table: Any, seed: int) -> Any:
        model = kind(budget.epsilon, budget.delta, method=method, random_state=seed, **fields)
        return model.fit(*table, **public)

    def mechanism(table: Any, source: NoiseSource) -> ArrayLike:
        model = fitted(table, source.below(10**15))
        weights = np.append(np.ravel(model.coef_), np.ravel(model.intercept_) if model.fit_intercept else [])
        return one_of_two(weights) if d == 2 else weights

    if method == "two_stage":
        fitted = planning_once(fitted)
    guarantee: Guarantee = fitted(pair.first, 0).guarantee_
    return Scenario(about, f"{' '.join(about)}, {variant}", mechanism, tuple(pair), guarantee, share, why, runs=600)


def _estimators() -> list[Scenario]:
    found = []
    lone, tilt = extreme(pairs.target_flip(3, 1)), extreme(tilted(3))
    beside = padded(tilted(3), 200)  # so that the noisy mean of the targets, at which scores start, is near zero
    wide = "weights reveal the choice, and the measured values only up to a noisy step length"
    for name in (kind.__name__ for kind in KINDS):

        def add(method: str, *args: Any, name: str = name, **fields: Any) -> None:
            found.append(_estimator((name, method), *args, **fields))

        add("peeling", "one of two", tilt, BUDGET, share=0.65, max_iter=1)
        add("peeling", "with an intercept", beside, BUDGET, share=0.35, why=wide, max_iter=1, fit_intercept=True)
        add("hard_threshold", "one feature", lone, BUDGET, share=0.7, max_iter=1)
        add("hard_threshold", "one of two", tilt, BUDGET, share=0.5, why=SHOWN, max_iter=1)
        add("frank_wolfe", "one corner", lone, BUDGET, share=0.65, max_iter=1)
        add("two_stage", "one of two", turned(), VOTED, share=0.2, why=TWO, alpha=2.0)
        add("knowledge_transfer", "one feature", lone, BUDGET, share=0.6, alpha=2.0, teacher="convex")
    return found


def scenarios() -> list[Scenario]:
    """Return all audits of sparse models."""
    teachers = (_transfers, _disjoint_teachers, _selected_teacher)
    parts = (_hard_thresholds, _peeled, _frank_wolfe, _two_stages, *teachers, _estimators)
    return [scenario for part in parts for scenario in part()]
