"""One audit for every solver, estimator and method: what to run, on which two tables, and which guarantee is claimed.

The tables are tiny and the clip is small, so that in every step the differing record's gradient is as long as the clip
allows and points in opposite directions on the two tables. This is the worst case of the accountant. Mechanisms return
everything that is released, in the form that is most useful to an attacker: noisy gradients rather than iterates.
"""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

import privet
from privet import drafts, preprocessing, solvers
from privet.audit import pairs
from privet.drafts.answers import ask
from privet.drafts.plan import DraftPlan
from privet.drafts.recognition import Cells
from privet.linear.base import PrivateLinearModel
from privet.linear.methods.iteration import SECRETS
from privet.objectives import L2, BoundedRows, Huber, Logistic, Multinomial, SmoothedHinge, Squared
from privet.plans import (
    AdaptivePlan,
    CentredOutputPlan,
    CentredPlan,
    FixedOrder,
    FixedSize,
    FullBatch,
    GradientPlan,
    OneUniform,
    OutputPlan,
    Poisson,
    RandomSkip,
    RandomStop,
    RecursivePlan,
    SecretOrder,
)
from privet.preprocessing.private import METHODS as SCALERS
from privet.privacy import Budget, Guarantee, NoiseSource
from privet.solvers import Problem, Release, Run, descent_of
from privet.solvers.minimiser_perturbation import minimiser_stability
from privet.solvers.objective_perturbation import objective_plan
from privet.solvers.output_perturbation import centred_stability, descent_stability
from privet.solvers.sufficient_statistics import moment_stability

DELTA = 1e-5
BUDGET = Budget(3.0, DELTA)  # mu = 0.7, which few runs measure well
LAX = 0.05  # a delta large enough for error rates of few runs, for claims that are neither Gaussian nor pure
PURE = Budget(1.5)
CLIP = 0.05
STEP = 0.5
HAS_TORCH = find_spec("torch") is not None
HAS_PARTIES = all(find_spec(name) is not None for name in ("mpyc", "gmpy2", "cryptography"))

Key = tuple[str, ...]
"""What a scenario audits: the name of a solver, or the names of an estimator and its method."""


@dataclass(frozen=True)
class Scenario:
    """One audit.

    Attributes
    ----------
    about : Key
    name : str
    mechanism : callable
        One run: maps a dataset and a noise source to everything that is released.
    pair : tuple
        The two neighbouring datasets, in the form that the mechanism expects.
    guarantee : Guarantee
    share : float
        The share of the claim that the bound should reach, at 95 % and with ten times ``runs`` runs.
    why : str
        If the share is small: what the claim accounts for that does not happen here.
    runs : int
        Number of runs on each dataset in the short suite.
    """

    about: Key
    name: str
    mechanism: Callable[[Any, NoiseSource], ArrayLike]
    pair: tuple[Any, Any]
    guarantee: Guarantee
    share: float
    why: str = ""
    runs: int = 800


# ------------------------------------------------------------------------------------------------- required scenarios


def solvers_of(module: Any) -> set[Key]:
    """Return the public solvers of a module: the functions that return a Release."""
    functions = {name: getattr(module, name) for name in module.__all__ if inspect.isfunction(getattr(module, name))}
    return {
        (name,)
        for name, solve in functions.items()
        if inspect.signature(solve, eval_str=True).return_annotation is Release
    }


def methods_of(kinds: Iterable[type[PrivateLinearModel]]) -> set[Key]:
    """Return all pairs of estimator and method, and those with pure guarantees once more with the mark "pure"."""
    offered = [(kind.__name__, method) for kind in kinds for method in kind.offered_methods().values()]
    found: set[Key] = {(name, method.name) for name, method in offered}
    return found | {(name, method.name, "pure") for name, method in offered if method.is_pure}


def required() -> set[Key]:
    """Return everything that must have a scenario, found by inspecting the package."""
    offered = [getattr(privet, name) for name in privet.__all__]
    kinds = [kind for kind in offered if inspect.isclass(kind) and issubclass(kind, PrivateLinearModel)]
    scalers = {(preprocessing.PrivateScaler.__name__, method) for method in SCALERS}
    networks = import_module("deep_scenarios").required() if HAS_TORCH else set()
    parties = import_module("multiparty_scenarios").required() if HAS_PARTIES else set()
    rounds = import_module("federated_scenarios").required() if HAS_TORCH else set()
    private_drafts = {(drafts.from_rows.__name__,)}
    return solvers_of(solvers) | methods_of(kinds) | scalers | private_drafts | networks | parties | rounds


def missing(wanted: Iterable[Key], scenarios: Iterable[Scenario]) -> set[Key]:
    """Return the wanted keys that have no scenario."""
    return set(wanted) - {scenario.about for scenario in scenarios}


# ------------------------------------------------------------------------------------------------------------ problems


def _problems(pair: pairs.Pair, objective: Any = None, alpha: float = 0.0, intercept: float = 0.0) -> tuple[Any, Any]:
    """Return the two problems of a pair of tables."""
    loss = objective or Logistic()
    kind = int if isinstance(loss, Multinomial) else float
    first, second = (
        Problem(loss, L2(alpha), BoundedRows(X, 1.0, intercept), np.asarray(y).astype(kind)) for X, y in pair
    )
    return first, second


def _one_more() -> tuple[Problem, Problem]:
    """Return a table without and with one record of the largest possible gradient: add-or-remove neighbours."""
    X, y = np.array([[0.0], [0.0], [1.0]]), np.array([0.0, 1.0, 0.0])
    without, with_it = (Problem(Logistic(), L2(0.0), BoundedRows(X[:n], 1.0), y[:n]) for n in (2, 3))
    return without, with_it


def _against() -> tuple[Problem, Problem]:
    """Return two records whose gradients have the same direction, or opposite ones: the worst case of batches of one.

    A batch without the differing record contains the other one, and looks like a run on the first table.
    """
    X = np.array([[1.0], [1.0]])
    same, opposite = (Problem(Logistic(), L2(0.0), BoundedRows(X, 1.0), np.array(y)) for y in ([0.0, 0.0], [1.0, 0.0]))
    return same, opposite


def _crowd() -> tuple[Problem, Problem]:
    """Return records that all pull one way, without and with one that pulls the other way.

    If the noisy sum were divided by the size of its batch, realised or expected from the true number of records, the
    mean would be the same in every run on the first table, apart from the noise (arXiv 2605.15648).
    """
    X, y = np.ones((13, 1)), np.append(np.ones(12), 0.0)
    without, with_it = (Problem(Logistic(), L2(0.0), BoundedRows(X[:n], 1.0), y[:n]) for n in (12, 13))
    return without, with_it


def _moves(release: Release) -> ArrayLike:
    """Return the differences between consecutive iterates, each of which is one noisy gradient."""
    iterates = np.array([np.ravel(weights) for weights in release.trace["iterates"]])
    return np.diff(iterates, axis=0, prepend=0 * iterates[:1])


def _scenario(
    solver: str,
    variant: str,
    pair: tuple[Problem, Problem],
    plan: Any,
    *,
    share: float,
    why: str = "",
    seen: Callable[[Release], ArrayLike] = lambda release: release.weights,
    delta: float = DELTA,
    **options: Any,
) -> Scenario:
    solve = getattr(solvers, solver)

    def run(problem: Problem, source: NoiseSource) -> Release:
        return solve(problem, Run(replace(plan, delta=delta), source), **options)

    guarantee = run(pair[0], NoiseSource(0)).guarantee
    return Scenario(
        (solver,), f"{solver}, {variant}", lambda data, source: seen(run(data, source)), pair, guarantee, share, why
    )


# ------------------------------------------------------------------------------------------------ noise in every step

SAMPLED = "the claim is a curve for sampled Gaussians, which is compared with Clopper-Pearson limits at one delta only"


def _noisy_gradients() -> list[Scenario]:
    flip, name = _problems(pairs.label_flip(2, 1)), "noisy_gradient_descent"
    full = GradientPlan.for_budget(BUDGET, sampler=FullBatch(), steps=3, clip_norm=CLIP)
    targets = _problems(pairs.target_flip(3, 2), Squared())
    classes = _problems(pairs.label_flip(3, 1), Multinomial(3))
    every = {"seen": _moves, "keep_iterates": True, "step_size": STEP}
    one_more, added = _one_more(), {"adjacency": "add-or-remove", "public_n": 2}
    return [
        _scenario(name, "full batch, all iterates", flip, full, share=0.75, **every),
        _scenario(
            name, "full batch, momentum and average", flip, full, share=0.7, step_size=STEP, momentum=0.3, averaged=0.5
        ),
        _scenario(name, "squared loss", targets, full, share=0.7, **every),
        _scenario(
            name, "several classes", classes, full, share=0.5, why="residuals of two labels are not opposite", **every
        ),
        _scenario(
            name,
            "fixed order, two passes",
            _problems(pairs.last_record(3, 1)),
            GradientPlan.for_budget(BUDGET, sampler=FixedOrder(3, 2), clip_norm=CLIP),
            share=0.7,
            **every,
        ),
        _scenario(
            name,
            "full batch, add or remove",
            one_more,
            GradientPlan.for_budget(BUDGET, sampler=FullBatch(), steps=3, clip_norm=CLIP, **added),
            share=0.7,
            **every,
        ),
        _scenario(
            name,
            "Poisson batches",
            one_more,
            GradientPlan(Poisson(0.5), 1, CLIP, 0.6, **added),
            share=0.6,
            why=SAMPLED,
            delta=LAX,
            **every,
        ),
        _scenario(
            name,
            "Poisson batches, divided by a public number",
            _crowd(),
            GradientPlan(Poisson(0.5), 1, CLIP, 0.6, adjacency="add-or-remove", public_n=12),
            share=0.0,
            why="the random number of other records in the batch hides the record that pulls the other way",
            delta=LAX,
            **every,
        ),
        _scenario(
            name,
            "fixed-size batches",
            _against(),
            GradientPlan(FixedSize(1, 2), 1, CLIP, 1.2),
            share=0.6,
            why=SAMPLED,
            delta=LAX,
            **every,
        ),
    ]


def _centred() -> list[Scenario]:
    name = "centred_gradient_descent"
    pair = _problems(pairs.label_flip(3, 1), intercept=1.0)
    why = "with so few rows the noisy centre is practically random, so its share of the budget is wasted"
    full = CentredPlan.for_budget(BUDGET, steps=2, clip_norm=CLIP, row_norm=pair[0].rows.weight_in_total)
    ordered = _problems(pairs.last_record(3, 1), alpha=1.0, intercept=1.0)
    hidden = CentredPlan.for_budget(
        BUDGET,
        clip_norm=CLIP,
        row_norm=ordered[0].rows.weight_in_total,
        sampler=FixedOrder(3),
        release="last",
        descent=descent_of(ordered[0], STEP),
    )
    return [
        _scenario(
            name, "all iterates", pair, full, share=0.4, why=why, seen=_moves, keep_iterates=True, step_size=STEP
        ),
        _scenario(name, "last iterate", ordered, hidden, share=0.4, why=why),
    ]


def _centred_output() -> list[Scenario]:
    pair = _problems(pairs.label_flip(3, 1), intercept=1.0)
    plan = CentredOutputPlan.for_budget(
        BUDGET,
        stability=centred_stability(pair[0], 0.7, STEP, 3, CLIP),
        row_norm=pair[0].rows.weight_in_total,
        centred_norm=0.7,
    )
    why = "the tables have the same rows, so the noisy centre reveals nothing, and it turns the weights at random"
    return [_scenario("centred_output_perturbation", "Gaussian", pair, plan, share=0.55, why=why)]


def _recursive() -> list[Scenario]:
    flip, name, refresh = _problems(pairs.label_flip(2, 1)), "recursive_momentum", 0.8

    def seen(release: Release) -> ArrayLike:
        """Return every noisy sum, without the share of the estimate before it."""
        moves = np.asarray(_moves(release))
        return moves[1:] - (1 - refresh) * moves[:-1] if len(moves) > 1 else moves

    def all_seen(release: Release) -> ArrayLike:
        return np.vstack([np.asarray(_moves(release))[:1], seen(release)])

    fields = {"clip_norm": CLIP, "difference_norm": CLIP / 10, "refresh": refresh}
    full = RecursivePlan.for_budget(BUDGET, sampler=FullBatch(), steps=3, **fields)
    options = {"seen": all_seen, "keep_iterates": True, "step_size": STEP, "max_move": np.inf}
    poisson = RecursivePlan(Poisson(0.5), 2, noise_multiplier=0.6, public_n=2, **fields)
    fixed = RecursivePlan(FixedSize(1, 2), 2, noise_multiplier=1.2, **fields)
    return [
        _scenario(name, "full batch", flip, full, share=0.65, **options),
        _scenario(name, "Poisson batches", _one_more(), poisson, share=0.4, why=SAMPLED, delta=LAX, **options),
        _scenario(
            name,
            "fixed-size batches",
            _against(),
            fixed,
            share=0.4,
            why=SAMPLED,
            delta=LAX,
            **options,
        ),
    ]


_LINE_SEARCH = "half of the budget pays for choosing steps, which reveals little here, and directions reveal less too"


def _adaptive() -> list[Scenario]:
    flip = _problems(pairs.label_flip(2, 1))

    def seen(release: Release) -> ArrayLike:
        return np.append(release.weights, sum(release.trace["step_sizes"]))

    options = {"seen": seen, "expected_steps": 1, "candidates": 3, "clip_norm": CLIP}
    plan = AdaptivePlan.for_budget(BUDGET)
    return [_scenario("adaptive_gradient_descent", "one step", flip, plan, share=0.35, why=_LINE_SEARCH, **options)]


def _random_round() -> list[Scenario]:
    name = "random_round"
    full = GradientPlan.for_budget(BUDGET, sampler=FullBatch(), steps=3, clip_norm=CLIP)
    one = GradientPlan(OneUniform(2), 3, CLIP, 1.2)
    why = "the run ends after two of three steps on average, and the claim covers all three"
    flip, step = _problems(pairs.label_flip(2, 1)), {"step_size": STEP}

    def seen(release: Release) -> ArrayLike:
        return np.append(release.weights, release.trace["rounds"])

    return [
        _scenario(name, "full batch", flip, full, share=0.55, why=why, seen=seen, **step),
        _scenario(
            name,
            "one uniform record",
            _against(),
            one,
            share=0.1,
            why=f"{why}; {SAMPLED}",
            seen=seen,
            delta=LAX,
            **step,
        ),
    ]


def _moments() -> list[Scenario]:
    """A row turns by 60 degrees and its target flips, which moves all moments together as far as possible."""
    X, y = np.zeros((3, 2)), np.array([1.0, 0.0, 0.0])
    X[0, 0] = 1.0
    turned = X.copy()
    turned[0] = 0.5, 0.75**0.5
    pair = _problems(pairs.Pair((X, y), (turned, -y), "turned"), Squared())
    found = []
    for variant, n_targets in (("one target", 1), ("two targets", 2)):
        plan = OutputPlan.for_budget(BUDGET, stability=moment_stability(pair[0], 1.0, n_targets))

        def run(problem: Problem, source: NoiseSource, plan: Any = plan, n_targets: int = n_targets) -> Release:
            others = [problem.targets] * (n_targets - 1)
            return solvers.sufficient_statistics(problem, Run(replace(plan, delta=DELTA), source), others=others)

        def mechanism(problem: Problem, source: NoiseSource, run: Any = run) -> ArrayLike:
            moments: ArrayLike = run(problem, source).trace["moments"]
            return moments

        name = f"sufficient_statistics, {variant}"
        claim = run(pair[0], NoiseSource(0)).guarantee
        found.append(Scenario(("sufficient_statistics",), name, mechanism, pair, claim, 0.7))
    return found


# --------------------------------------------------------------------------------------------------- hidden iterates


def _projected() -> list[Scenario]:
    name, alpha = "projected_sgd", 1.0
    (first, last), flip = (
        _problems(pairs.last_record(3, 1), alpha=alpha),
        _problems(pairs.label_flip(3, 1), alpha=alpha),
    )
    early = _problems(pairs.label_flip(3, 1))

    def plan(sampler: Any, problem: Problem = first, steps: int | None = None, diameter: float | None = None) -> Any:
        fields = {"release": "last", "descent": descent_of(problem, STEP, diameter), "public_n": 3}
        return GradientPlan.for_budget(BUDGET, sampler=sampler, steps=steps, clip_norm=CLIP, **fields)

    def kept_secret(sampler: Any, problem: Problem) -> Any:
        return GradientPlan(sampler, None, CLIP, 0.8, release="last", descent=descent_of(problem, STEP))

    secret = "the claim averages over the secret, and it is compared with Clopper-Pearson limits at one delta only"
    return [
        _scenario(name, "fixed order, last record", (first, last), plan(FixedOrder(3)), share=0.75),
        _scenario(
            name,
            "fixed order, first record",
            early,
            plan(FixedOrder(3), early[0]),
            share=0.35,
            why="the claim is that of the last record, and the noise on the first one is larger by sqrt(3)",
        ),
        _scenario(name, "fixed order, two passes", (first, last), plan(FixedOrder(3, 2)), share=0.6),
        _scenario(name, "full batch, strongly convex", flip, plan(FullBatch(), steps=4), share=0.75),
        _scenario(name, "full batch, in a ball", flip, plan(FullBatch(), steps=4, diameter=2.0), share=0.7),
        _scenario(name, "random stop", early, kept_secret(RandomStop(3), early[0]), share=0.1, why=secret, delta=LAX),
        _scenario(name, "random skip, last record", (first, last), plan(RandomSkip(3)), share=0.7),
        _scenario(name, "secret order", flip, kept_secret(SecretOrder(3), flip[0]), share=0.1, why=secret, delta=LAX),
    ]


# ---------------------------------------------------------------------------------------------------- noise only once

_ONE_SIDED = "a logistic residual at usual scores is half of its bound"
_CURVED = "part of the claim covers changes of curvature, and both tables have the same curvature"


def _once() -> list[Scenario]:
    flip = _problems(pairs.label_flip(3, 1))
    hinge = _problems(pairs.label_flip(3, 1), SmoothedHinge(), alpha=2.0)
    huber = _problems(pairs.target_flip(3, 1), Huber(0.25), alpha=2.0)
    found = []
    for budget, kind in ((BUDGET, "Gaussian"), (PURE, "pure")):
        output = OutputPlan.for_budget(budget, stability=descent_stability(flip[0], STEP, 3, CLIP))
        minimiser = OutputPlan.for_budget(budget, stability=minimiser_stability(huber[0]))
        at = {"delta": budget.delta}
        found += [
            _scenario("output_perturbation", kind, flip, output, share=0.8, **at),
            _scenario("minimiser_perturbation", f"Huber, {kind}", huber, minimiser, share=0.8, **at),
        ]
    for budget, kind in ((Budget(1.5, LAX), "Gaussian"), (PURE, "pure")):
        tilted, at = objective_plan(hinge[0], budget), {"delta": budget.delta}
        name = f"hinge, {kind}"
        found.append(_scenario("objective_perturbation", name, hinge, tilted, share=0.6, why=_CURVED, **at))
    return found


# --------------------------------------------------------------------------------------------------------- estimators


def _estimator(
    kind: type[PrivateLinearModel], method: str, pair: pairs.Pair, variant: str = "", **settings: Any
) -> tuple[Callable[[Any, NoiseSource], ArrayLike], tuple[Any, Any], Guarantee]:
    """Return the mechanism, the pair and the guarantee of an estimator."""

    def fitted(table: Any, seed: int) -> Any:
        return kind(method=method, random_state=seed, **settings).fit(*table)

    def mechanism(table: Any, source: NoiseSource) -> ArrayLike:
        model = fitted(table, source.below(10**15))
        return np.append(np.ravel(model.coef_), np.ravel(model.intercept_) if model.fit_intercept else [])

    return mechanism, tuple(pair), fitted(pair.first, 0).guarantee_


# Settings of each method with which the differing record moves the result as far as the claim allows.
_SETTINGS: dict[str, dict[str, Any]] = {
    "adaptive": {"max_iter": 1, "clip_norm": CLIP},
    "gradient": {"max_iter": 1, "clip_norm": CLIP},
    "iteration": {"max_iter": 1, "clip_norm": CLIP, "alpha": 20.0},
    "output": {"max_iter": 3, "clip_norm": CLIP},
    "minibatch": {"max_iter": 1, "clip_norm": CLIP},
    "random_round": {"max_iter": 1, "clip_norm": CLIP},
    "recursive_momentum": {"max_iter": 2, "clip_norm": CLIP},
    "minimiser": {"alpha": 2.0},
    "objective": {"alpha": 2.0},
    "sufficient_statistics": {"alpha": 100.0},  # so that the noisy matrix hides little of the products with targets
}


def _estimators() -> list[Scenario]:
    found = []
    for about in sorted(methods_of(_KINDS)):
        name, method = about[:2]
        if method not in _SETTINGS:
            continue  # a test reports it as missing
        kind, is_pure = getattr(privet, name), about[-1] == "pure"
        is_classifier = kind in (privet.PrivateLogisticRegression, privet.PrivateLinearSVC)
        pair = pairs.label_flip(3, 1) if is_classifier else pairs.target_flip(3, 1)
        settings = _SETTINGS[method] | ({"classes": (0, 1)} if is_classifier else {})
        budget = PURE if is_pure else Budget(1.5, LAX) if method == "objective" else BUDGET
        is_loose = name == "PrivateLogisticRegression"
        share, why = {
            "iteration": (0.29, "the place of the record is random, and the claim is that of the worst place"),
            "adaptive": (0.15, f"{_LINE_SEARCH}; only the weights are seen"),
            "minibatch": (0.6, ""),
            "recursive_momentum": (0.29, "two noisy sums are released, and only their effect on the weights is seen"),
            "minimiser": (0.25, _ONE_SIDED) if is_loose else (0.75, ""),
            "objective": (0.0, f"{_CURVED}; {_ONE_SIDED}") if is_loose else (0.5 if is_pure else 0.2, _CURVED),
        }.get(method, (0.75, ""))
        parts = _estimator(
            kind, method, pair, epsilon=budget.epsilon, delta=budget.delta, fit_intercept=False, **settings
        )
        few = {"adaptive": 100, "minibatch": 200, "recursive_momentum": 200}
        runs = {"iteration": 800, **few}.get(method, 400)
        found.append(Scenario(about, " ".join(about), *parts, share, why, runs))
    return found


_KINDS = (
    privet.PrivateLogisticRegression,
    privet.PrivateLinearSVC,
    privet.PrivateRidge,
    privet.PrivateHuberRegressor,
    privet.PrivateAbsoluteRegressor,
)


def _with_intercepts() -> list[Scenario]:
    """Return audits of estimators with their default intercept, on centred rows, and of one with several classes."""
    kind = privet.PrivateLogisticRegression
    name = kind.__name__
    common = {"epsilon": BUDGET.epsilon, "delta": DELTA, "clip_norm": CLIP, "max_iter": 1}
    why = "with so few rows the noisy centre is practically random"
    flip = pairs.label_flip(3, 1)
    centred = _estimator(kind, "gradient", flip, classes=(0, 1), intercept_scaling=1.0, **common)
    hidden = _estimator(kind, "iteration", flip, classes=(0, 1), alpha=20.0, intercept_scaling=1.0, **common)
    # With so small a clip, rows would not be centred. The default clip is below the gradients of these tables, too.
    once = _estimator(kind, "output", flip, classes=(0, 1), intercept_scaling=1.0, **common | {"clip_norm": None})
    assert "noisy mean" in once[2].released
    several = _estimator(kind, "gradient", flip, classes=(0, 1, 2), fit_intercept=False, **common)
    labels = "residuals of two labels are not opposite"
    return [
        Scenario((name, "gradient"), f"{name} gradient, centred", *centred, 0.3, why, runs=400),
        Scenario(
            (name, "iteration"), f"{name} iteration, centred", *hidden, 0.25, f"{why}, and so is the order", runs=400
        ),
        Scenario((name, "output"), f"{name} output, centred", *once, 0.4, why, runs=400),
        Scenario((name, "gradient"), f"{name} gradient, three classes", *several, 0.4, labels, runs=400),
    ]


def _class_weights() -> list[Scenario]:
    """Return audits of estimators whose losses are multiplied by public weights of classes.

    With equal weights and an equally stronger penalty, the differing record moves the result as far as without weights.
    """
    kind, flip, found = privet.PrivateLinearSVC, pairs.label_flip(3, 1), []
    weights = {"class_weight": {0: 3.0, 1: 3.0}, "classes": (0, 1), "fit_intercept": False}
    budget = {"epsilon": BUDGET.epsilon, "delta": DELTA}
    for method, settings in (("minimiser", {"alpha": 6.0}), ("gradient", {"max_iter": 1, "clip_norm": CLIP})):
        parts = _estimator(kind, method, flip, **weights, **budget, **settings)
        about = (kind.__name__, method)
        found.append(Scenario(about, f"{' '.join(about)}, class weights", *parts, 0.6, runs=400))
    # Gradients exceed the clip whatever the weights are, so that the record moves their sum as far as without weights.
    settings = {"max_iter": 1, "clip_norm": CLIP / 10, "alpha": 1e-6, "class_weight": "balanced"}
    parts = _estimator(kind, "gradient", flip, **weights | budget | settings)
    found.append(Scenario((kind.__name__, "gradient"), f"{kind.__name__} gradient, balanced", *parts, 0.6, runs=400))
    return found


def _several_tasks() -> list[Scenario]:
    """Return audits of two models of the same rows, in which the differing record moves both as far as it can."""
    (X, y), (_, other) = pairs.target_flip(3, 1)
    pair = pairs.Pair((X, np.column_stack([y, y])), (X, np.column_stack([other, other])), "both targets flipped")
    found = []
    for kind, method, budget, share in (
        (privet.PrivateRidge, "gradient", BUDGET, 0.75),
        (privet.PrivateHuberRegressor, "output", PURE, 0.5),
    ):
        about = (kind.__name__, method, "pure")[: 3 if budget.is_pure else 2]
        settings = {"epsilon": budget.epsilon, "delta": budget.delta, "fit_intercept": False, **_SETTINGS[method]}
        parts = _estimator(kind, method, pair, **settings)
        why = "the sum of two K-norm noises is less telling than the worst case" if budget.is_pure else ""
        found.append(Scenario(about, f"{' '.join(about)}, two tasks", *parts, share, why, runs=400))
    return found


def _secrets() -> list[Scenario]:
    """Return audits of what ``method="iteration"`` may keep secret besides its iterates."""
    kind, flip = privet.PrivateLogisticRegression, pairs.label_flip(3, 1)
    name = kind.__name__
    common = {"epsilon": 1.5, "delta": LAX, "classes": (0, 1), "fit_intercept": False, "clip_norm": CLIP}
    why = "the claim averages over the secret, and it is compared with Clopper-Pearson limits at one delta only"
    found = []
    for secret in SECRETS:
        parts = _estimator(kind, "iteration", flip, secret=secret, max_iter=3, alpha=1.0, **common)
        found.append(Scenario((name, "iteration"), f"{name} iteration, secret {secret}", *parts, 0.1, why, runs=100))
    return found


def _scalers() -> list[Scenario]:
    name = preprocessing.PrivateScaler.__name__
    high, low = np.zeros((20, 1)), np.zeros((20, 1))
    high[0], low[0] = 1.0, -1.0
    # All records but one are in the middle. Moving the one changes the ranks on both sides by 1, as far as possible.
    top, bottom = np.array([[0.0], [0.0], [1.0]]), np.array([[0.0], [0.0], [-1.0]])
    sorted_out = (
        "the odds of two grid points change by epsilon, but the probability of each by half of that, and the three "
        "quantiles are released as a centre and a distance"
    )
    found = []
    for method, pair, share, why in (
        ("moments", (high, low), 0.75, ""),
        ("quantiles", (top, bottom), 0.1, sorted_out),
    ):
        for budget, kind in ((BUDGET, "Gaussian"), (PURE, "pure")):
            settings = {
                "method": method,
                "epsilon": budget.epsilon,
                "delta": budget.delta,
                "resolution": 2,
                "quantiles": (0.49, 0.51),
            }

            def fitted(table: Any, seed: int, settings: Any = settings) -> Any:
                return preprocessing.PrivateScaler(lower=-1.0, upper=1.0, random_state=seed, **settings).fit(table)

            def mechanism(table: Any, source: NoiseSource, fitted: Any = fitted) -> ArrayLike:
                scaler = fitted(table, source.below(10**15))
                return np.append(scaler.center_, scaler.scale_)

            reach = share if kind == "Gaussian" else max(share - 0.1, 0.0)
            guarantee = fitted(pair[0], 0).guarantee_
            found.append(Scenario((name, method), f"{name} {method}, {kind}", mechanism, pair, guarantee, reach, why))
    return found


def _drafts() -> list[Scenario]:
    """One record moves from one level to another. Released are the noisy counts of the levels and of the kinds."""
    plan = DraftPlan.for_budget(Budget(3.0, LAX), 1)
    pair = tuple({"x": Cells.of(pd.Series(["a"] * (50 - moved) + ["b"] * (50 + moved)))} for moved in (0, 1))

    def mechanism(columns: Any, source: NoiseSource) -> ArrayLike:
        (answer,) = ask(columns, None, plan, source)
        return [*answer.counts.values(), *((answer.levels or {}).get(level, 0.0) for level in "ab")]

    why = "a quarter of mu^2 pays for the kinds of cells, which do not change, and a tenth of delta for the threshold"
    return [Scenario((drafts.from_rows.__name__,), "draft of a schema", mechanism, pair, plan.guarantee(), 0.4, why)]


def _sparse() -> list[Scenario]:
    return import_module("sparse_scenarios").scenarios()


def _networks() -> list[Scenario]:
    return import_module("deep_scenarios").scenarios() if HAS_TORCH else []


def _parties() -> list[Scenario]:
    return import_module("multiparty_scenarios").scenarios() if HAS_PARTIES else []


def _federations() -> list[Scenario]:
    return import_module("federated_scenarios").scenarios() if HAS_TORCH else []


def _additive() -> list[Scenario]:
    found: list[Scenario] = import_module("additive_scenarios").additive(BUDGET, CLIP, Scenario)
    return found


@cache
def scenarios() -> tuple[Scenario, ...]:
    """Return the scenarios of all audits."""
    parts = (
        _noisy_gradients,
        _centred,
        _centred_output,
        _recursive,
        _adaptive,
        _random_round,
        _moments,
        _projected,
        _once,
        _estimators,
        _with_intercepts,
        _class_weights,
        _several_tasks,
        _secrets,
        _scalers,
        _drafts,
        _sparse,
        _additive,
        _networks,
        _parties,
        _federations,
    )
    return tuple(scenario for part in parts for scenario in part())
