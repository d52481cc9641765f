"""Every way to release something, on two neighbouring tables that are as wide as asked for, for the attack on bits.

The tables have few rows and many columns, so that one run releases many numbers. The row that differs is dense, and
moves every coordinate of a sum.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
import scenarios as audits
from scenarios import BUDGET, CLIP, DELTA, HAS_PARTIES, HAS_TORCH, PURE, STEP, Key

import privet
from privet import drafts, preprocessing, solvers
from privet.audit import pairs
from privet.linear.base import PrivateLinearModel
from privet.objectives import Huber, Logistic, SmoothedHinge, Squared
from privet.plans import (
    AdaptivePlan,
    CentredOutputPlan,
    CentredPlan,
    FixedOrder,
    FixedSize,
    FullBatch,
    GradientPlan,
    OutputPlan,
    Poisson,
    RandomSkip,
    RandomStop,
    RecursivePlan,
    SecretOrder,
)
from privet.plans.additive import AdditivePlan
from privet.privacy import Budget, NoiseSource
from privet.solvers import AdditiveProblem, Problem, PublicFeatures, Release, Run, descent_of
from privet.solvers.minimiser_perturbation import minimiser_stability
from privet.solvers.objective_perturbation import objective_plan
from privet.solvers.output_perturbation import centred_stability, descent_stability
from privet.solvers.sufficient_statistics import moment_stability

ROWS = 6
NOISE = 1.9  # a noise multiplier whose products with normal numbers skip many floats
LOOSE = Budget(3.0, 0.01)

Pair = tuple[Any, Any]


@dataclass(frozen=True)
class Path:
    """One way to release something: a run that maps a dataset and a source to releases, and two neighbours."""

    about: Key
    variant: str
    run: Callable[[Any, NoiseSource], Any]
    pair: Pair

    @property
    def name(self) -> str:
        return f"{' '.join(self.about)}, {self.variant}" if self.variant else " ".join(self.about)


def wide(d: int, rows: int = ROWS) -> pairs.Pair:
    """Return two tables with rows of norm at most 1 and targets 1 or -1, which differ in the first record."""
    draws = np.random.default_rng(d)
    X = draws.standard_normal((rows + 1, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True) * (1 + 1e-9)
    y = np.where(np.arange(rows + 1) % 3 == 0, 1.0, -1.0)
    other, y_other = X[:rows].copy(), y[:rows].copy()
    other[0], y_other[0] = X[rows], -y[0]
    return pairs.Pair((X[:rows], y[:rows]), (other, y_other), "wide")


def as_classes(pair: pairs.Pair) -> pairs.Pair:
    """Return the pair with labels 0 and 1."""
    return pairs.Pair(*((X, (y > 0).astype(int)) for X, y in pair), pair.name)


def _problems(pair: pairs.Pair, *args: Any, **options: Any) -> tuple[Problem, Problem]:
    return audits._problems(pair, *args, **options)


def _one_more(pair: pairs.Pair) -> tuple[Problem, Problem]:
    """Return the problems of a table with and without its last record."""
    (X, y), _ = pair
    return _problems(pairs.Pair((X, y), (X[:-1], y[:-1]), "one more"))


def _solver(name: str, variant: str, pair: Pair, plan: Any, **options: Any) -> Path:
    solve = getattr(solvers, name)

    def run(problem: Problem, source: NoiseSource) -> Release:
        release: Release = solve(problem, Run(replace(plan, delta=plan.delta or DELTA), source), **options)
        return release

    return Path((name,), variant, run, pair)


# -------------------------------------------------------------------------------------------------- noise in every step


def _descents(d: int) -> list[Path]:
    pair = _problems(as_classes(wide(d)))
    curved = _problems(as_classes(wide(d)), alpha=1.0)
    centred = _problems(as_classes(wide(d)), intercept=1.0)
    noisy = partial(_solver, "noisy_gradient_descent", step_size=STEP)
    hidden = partial(_solver, "projected_sgd", pair=curved)
    recursive = partial(_solver, "recursive_momentum", step_size=STEP)
    added = {"adjacency": "add-or-remove", "public_n": ROWS}
    fields = {"clip_norm": CLIP, "difference_norm": CLIP / 2, "refresh": 0.8, "noise_multiplier": NOISE}

    def last(sampler: Any, steps: int | None = None) -> GradientPlan:
        descent = descent_of(curved[0], STEP)
        return GradientPlan(sampler, steps, CLIP, NOISE, release="last", descent=descent, public_n=ROWS)

    return [
        noisy("full batch", pair, GradientPlan(FullBatch(), 2, CLIP, NOISE)),
        noisy("Poisson batches", _one_more(as_classes(wide(d))), GradientPlan(Poisson(0.9), 2, CLIP, NOISE, **added)),
        noisy("fixed-size batches", pair, GradientPlan(FixedSize(5, ROWS), 2, CLIP, NOISE)),
        noisy("fixed order", pair, GradientPlan(FixedOrder(ROWS), None, CLIP, NOISE)),
        _solver("random_round", "", pair, GradientPlan(FullBatch(), 2, CLIP, NOISE), step_size=STEP),
        hidden("full batch", plan=last(FullBatch(), 2)),
        hidden("fixed order", plan=last(FixedOrder(ROWS))),
        hidden("random stop", plan=last(RandomStop(ROWS))),
        hidden("random skip", plan=last(RandomSkip(ROWS))),
        hidden("secret order", plan=last(SecretOrder(ROWS))),
        recursive("full batch", pair, RecursivePlan(FullBatch(), 3, **fields)),
        recursive(
            "Poisson batches", _one_more(as_classes(wide(d))), RecursivePlan(Poisson(0.9), 2, public_n=ROWS, **fields)
        ),
        recursive("fixed-size batches", pair, RecursivePlan(FixedSize(5, ROWS), 2, **fields)),
        _solver(
            "centred_gradient_descent",
            "",
            centred,
            CentredPlan.for_budget(BUDGET, steps=2, clip_norm=CLIP, row_norm=centred[0].rows.weight_in_total),
            step_size=STEP,
        ),
        _solver(
            "adaptive_gradient_descent",
            "",
            pair,
            AdaptivePlan.for_budget(BUDGET),
            expected_steps=2,
            candidates=3,
            clip_norm=CLIP,
        ),
    ]


# ------------------------------------------------------------------------------------------------------ noise only once


def _once(d: int) -> list[Path]:
    pair = _problems(as_classes(wide(d)))
    hinge = _problems(as_classes(wide(d)), SmoothedHinge(), alpha=2.0)
    huber = _problems(wide(d), Huber(0.25), alpha=2.0)
    centred = _problems(as_classes(wide(d)), intercept=1.0)
    on_centred = CentredOutputPlan.for_budget(
        BUDGET,
        stability=centred_stability(centred[0], 0.7, STEP, 3, CLIP),
        row_norm=centred[0].rows.weight_in_total,
        centred_norm=0.7,
    )
    least_squares = _problems(wide(d), Squared())
    moments = OutputPlan.for_budget(BUDGET, stability=moment_stability(least_squares[0], 1.0))
    found = [
        _solver("centred_output_perturbation", "", centred, on_centred),
        _solver("sufficient_statistics", "", least_squares, moments),
    ]
    for budget, kind in ((BUDGET, "Gaussian"), (PURE, "pure")):
        output = OutputPlan.for_budget(budget, stability=descent_stability(pair[0], STEP, 3, CLIP))
        minimiser = OutputPlan.for_budget(budget, stability=minimiser_stability(huber[0]))
        found += [
            _solver("output_perturbation", kind, pair, output),
            _solver("minimiser_perturbation", kind, huber, minimiser),
            _solver("objective_perturbation", kind, hinge, objective_plan(hinge[0], budget)),
        ]
    return found


# ------------------------------------------------------------------------------------------------------ additive models


def _curves(d: int) -> list[Path]:
    columns, levels = max(1, d // 4), 4
    cells = np.random.default_rng(d).integers(0, levels, (ROWS + 1, columns))
    labels = np.arange(ROWS + 1) % 2.0
    other = np.concatenate([cells[ROWS:], cells[1:ROWS]])
    tables = ((cells[:ROWS], labels[:ROWS]), (other, np.concatenate([1 - labels[:1], labels[1:ROWS]])))
    pair = tuple(AdditiveProblem(each, (levels,) * columns, Logistic(), targets) for each, targets in tables)
    plan = AdditivePlan.for_columns(LOOSE, n_columns=columns, steps=2, clip_norm=CLIP, share=0.5)
    return [_solver("additive_descent", "", pair, plan)]


# ------------------------------------------------------------------------------------------------------- sparse models


def _sparse(d: int) -> list[Path]:
    pair, entry = _problems(wide(d), Squared()), 1.0
    huber = _problems(wide(d), Huber(0.25), alpha=2.0)
    hinge = _problems(as_classes(wide(d)), SmoothedHinge(), alpha=2.0)
    features = PublicFeatures(np.random.default_rng(1).standard_normal((d, d)) / math.sqrt(d))
    kept = {"n_nonzero": max(1, d // 2)}
    full = GradientPlan(FullBatch(), 2, CLIP, NOISE)
    transfer = OutputPlan.for_budget(BUDGET, stability=solvers.transfer_stability(huber[0], features))
    disjoint = OutputPlan.for_budget(BUDGET, stability=solvers.disjoint_stability(features, teachers=3, radius=0.5))
    student_steps: dict[str, Any] = {"features": features, **kept, "steps": 2}

    def two_stage(problem: Problem, source: NoiseSource) -> Release:
        plan = solvers.two_stage_plan(problem, LOOSE, **kept, entry_bound=entry)
        return solvers.two_stage(problem, Run(plan, source), blocks=3, **kept, entry_bound=entry)

    def student(problem: Problem, source: NoiseSource) -> Release:
        teacher = solvers.hard_threshold(problem, Run(replace(full, delta=DELTA), source), **kept, step_size=STEP)
        return solvers.student_of(teacher, features, **kept, steps=2)

    return [
        _solver("hard_threshold", "", pair, full, **kept, step_size=STEP),
        _solver(
            "peeled_threshold",
            "",
            pair,
            AdaptivePlan.for_budget(BUDGET),
            **kept,
            entry_bound=entry,
            residual_clips=[1.0, 1.0],
        ),
        _solver(
            "frank_wolfe",
            "",
            pair,
            AdaptivePlan.for_budget(BUDGET),
            steps=3,
            l1_radius=1.0,
            entry_bound=entry,
            residual_clip=1.0,
        ),
        Path(("two_stage",), "", two_stage, hinge),
        _solver("knowledge_transfer", "", huber, transfer, **student_steps),
        _solver("disjoint_teachers", "", pair, disjoint, **student_steps),
        _solver("selected_teacher", "", huber, AdaptivePlan.for_budget(BUDGET), **student_steps, entry_bound=entry),
        Path(("student_of",), "", student, pair),
    ]


# ----------------------------------------------------------------------------------------------- estimators and scalers


def _estimators(d: int) -> list[Path]:
    names = {name for name in privet.__all__ if _is_linear_model(getattr(privet, name))}
    return [_estimator(about, d) for about in sorted(audits.required()) if about[0] in names]


def _is_linear_model(entry: Any) -> bool:
    return isinstance(entry, type) and issubclass(entry, PrivateLinearModel)


def _estimator(about: Key, d: int) -> Path:
    name, method, *pure = about
    kind = getattr(privet, name)
    is_classifier, is_sparse = hasattr(kind, "predict_proba") or "SVC" in name, "Sparse" in name
    budget = PURE if pure else LOOSE
    settings: dict[str, Any] = {"fit_intercept": False, "feature_norm": 1.0}
    if method in ("minimiser", "objective", "two_stage", "knowledge_transfer"):
        settings["alpha"] = 2.0
    elif method in ("gradient", "output", "iteration"):
        settings |= {"clip_norm": CLIP, "max_iter": 2} | ({"alpha": 1.0} if method == "iteration" else {})
    elif method != "sufficient_statistics":
        settings["max_iter"] = 2
    if is_classifier:
        settings["classes"] = (0, 1)
    if is_sparse:
        settings |= {"n_nonzero": max(1, d // 2), "entry_bound": 1.0}
    public = {"X_public": np.eye(d)} if method == "knowledge_transfer" else {}

    def run(table: Any, source: NoiseSource) -> Any:
        seed = source.below(10**15)
        return kind(budget.epsilon, budget.delta, method=method, random_state=seed, **settings).fit(*table, **public)

    return Path(about, "", run, tuple(as_classes(wide(d)) if is_classifier else wide(d)))


def _scalers(d: int) -> list[Path]:
    name = preprocessing.PrivateScaler.__name__
    pair = tuple(X for X, _ in wide(d))
    found = []
    for method in audits.SCALERS:
        for budget, kind in ((LOOSE, "Gaussian"), (PURE, "pure")):

            def run(table: Any, source: NoiseSource, method: str = method, budget: Budget = budget) -> Any:
                fields = {"lower": -1.0, "upper": 1.0, "method": method, "random_state": source.below(10**15)}
                return preprocessing.PrivateScaler(budget.epsilon, budget.delta, **fields).fit(table)

            found.append(Path((name, method), kind, run, pair))
    return found


def _drafts(d: int) -> list[Path]:
    """Return the draft of a table with numbers and texts, of which the cells of one row become missing."""
    rows = np.arange(400)
    first = pd.DataFrame({f"x{k}": rows % 20 if k % 2 else np.where(rows % 2, "a", "b") for k in range(max(8, d // 8))})
    second = first.copy()
    second.iloc[0] = [np.nan if k % 2 else "" for k in range(first.shape[1])]

    def run(frame: Any, source: NoiseSource) -> Any:
        return drafts.from_rows(frame, 60.0, 0.1, random_state=source.below(10**15))

    return [Path((drafts.from_rows.__name__,), "", run, (first, second))]


# ---------------------------------------------------------------------------------------------------- networks, parties


def _networks(d: int) -> list[Path]:
    import torch
    from torch import nn
    from torch.utils.data import TensorDataset

    deep = import_module("deep_scenarios")
    plan = GradientPlan(Poisson(1.0), 2, CLIP, NOISE, public_n=ROWS)
    recursive = RecursivePlan(Poisson(1.0), 2, CLIP, CLIP / 2, 0.8, NOISE, public_n=ROWS)
    found = []
    for kind, name in ((torch.float64, "float64"), (torch.float32, "float32")):
        X, y = (torch.tensor(each, dtype=kind) for each in wide(d).first)
        pair = TensorDataset(X, y), TensorDataset(X[:-1], y[:-1])
        for each, estimator in ((plan, "Fresh"), (recursive, "Recursive")):
            training = deep.Training(partial(nn.Linear, d, 1, bias=False, dtype=kind), 0.0, plan=each)
            found.append(Path(("make_private", estimator), name, training.mechanism(pair), pair))
    return found


def _rounds(d: int) -> list[Path]:
    import torch
    from torch import nn

    federated = import_module("federated_scenarios")
    (X, y), (X_other, y_other) = wide(d)
    plan = GradientPlan(FullBatch(), 2, CLIP, NOISE)
    pair = tuple([{"layer": row} for row in rows] for rows in (X, X_other))
    server = federated.Rounds(plan, pair)

    def simulate(clients: Any, source: NoiseSource) -> Any:
        model = nn.Linear(d, 1, bias=False, dtype=torch.float64)
        nn.init.zeros_(model.weight)
        return federated.simulate(
            model,
            clients,
            loss=federated.weighted,
            local=federated.ONE_STEP,
            plan=plan,
            delta=DELTA,
            random_state=source.below(10**15),
            verbose=False,
        )

    clients = tuple(
        [(torch.tensor(row[None]), torch.tensor(target[None])) for row, target in zip(rows, targets, strict=True)]
        for rows, targets in ((X, y), (X_other, y_other))
    )
    return [
        Path(("Server",), "", lambda data, source: server.outputs(data, source, 1), pair),
        Path(("simulate",), "", simulate, clients),
    ]


def _parties(d: int) -> list[Path]:
    parties = import_module("multiparty_scenarios")
    labelled, huber = parties.spread(as_classes(wide(d))), parties.spread(wide(d), Huber(0.25), alpha=2.0)
    hinge = parties.spread(as_classes(wide(d)), SmoothedHinge(), alpha=2.0)
    joints = [parties.descent(labelled, steps=2), parties.averages(huber)]
    found = [
        Path((joint.method.__name__,), "", lambda data, source, joint=joint: joint.outputs(data, source, 1), joint.pair)
        for joint in joints
    ]
    descent = {"steps": 2, "clip_norm": CLIP}
    for name, pair, options in (
        ("pathak", huber, {}),
        ("local_output_perturbation", huber, {}),
        ("local_objective_perturbation", hinge, {}),
        ("local_gradient_descent", labelled, descent),
        ("rajkumar_agarwal", labelled, descent),
    ):
        method = getattr(parties.multiparty_comparisons, name)

        def run(data: Any, source: NoiseSource, method: Any = method, options: Any = options) -> Any:
            return method(data, LOOSE, source=source, **options)

        found.append(Path((name,), "", run, pair))
    return found


def paths(d: int) -> list[Path]:
    """Return all paths, on tables of ``d`` columns."""
    parts = [_descents, _once, _curves, _sparse, _estimators, _scalers, _drafts]
    parts += ([_networks, _rounds] if HAS_TORCH else []) + ([_parties] if HAS_PARTIES else [])
    return [path for part in parts for path in part(d)]
