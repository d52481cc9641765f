"""Audits of training by several parties, in a simulation with the distribution of noise that the protocol draws.

Attackers see every opened sum. There are few parties and few records, so one record determines most of what is opened,
and it moves as far as the plan allows. The noise has the distribution of the plan, including its lattice. For a plan
with one sum, many runs are made at once.
"""

import inspect
import math
import pkgutil
import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from scenarios import BUDGET, CLIP, DELTA, LAX, Key, Scenario

from privet import multiparty
from privet.audit import pairs
from privet.multiparty import JointProblem, SimulatedAggregator, gradient_plan, output_plan
from privet.multiparty.protocol.aggregation import Summand
from privet.objectives import L2, BoundedRows, GeneralisedLinear, Huber, Logistic, SmoothedHinge, Squared
from privet.plans.aggregation import AggregationPlan
from privet.privacy import Budget, Guarantee, NoiseSource
from privet.privacy.events import GaussianRelease, NearlyGaussian
from privet.privacy.noise.lattice import LatticeLaw
from privet.solvers import Problem, Release

sys.path.append(str(Path(__file__).parents[2] / "experiments"))
import multiparty_comparisons

Parties = Sequence[Problem]
Outputs = Callable[[Parties, NoiseSource, int], NDArray[Any]]
Method = Callable[..., Coroutine[Any, Any, Release]]

# ``take_part``, ``serve`` and ``trained`` run one of the methods below between processes. A simulation opens the same
# sums. What a committee's coalition sees is attacked below, and the views of the holders of a relay in
# tests/multiparty/protocol/test_relay_views.py.
OVER_A_NETWORK = {"take_part", "run_relay", "serve", "trained"}

# ------------------------------------------------------------------------------------------------- what there must be


def modules() -> list[Any]:
    """Return all modules of the package, and the comparison methods of the experiments."""
    found = pkgutil.walk_packages(multiparty.__path__, "privet.multiparty.")
    return [multiparty_comparisons, *(import_module(each.name) for each in found)]


def methods_of(found: Iterable[Any]) -> set[Key]:
    """Return the public functions of these modules that return a Release."""
    return {
        (name,)
        for module in found
        for name, method in vars(module).items()
        if inspect.isfunction(method) and method.__module__ == module.__name__ and not name.startswith("_")
        if inspect.signature(method, eval_str=True).return_annotation is Release
    }


def required() -> set[Key]:
    """Return all multi-party methods, including the comparison methods."""
    return methods_of(modules()) - {(name,) for name in OVER_A_NETWORK}


# ------------------------------------------------------------------------------------------------- what is seen of it


class Witness(SimulatedAggregator):
    """A simulation that keeps what it opens: one array of shape (runs, dimension) per sum."""

    def __init__(self, plan: AggregationPlan, problems: Parties, source: NoiseSource, runs: int = 1) -> None:
        if runs > 1 and plan.steps > 1:
            raise ValueError("Runs of several steps differ after the first step. Make them one by one.")
        super().__init__(plan, problems, source)
        self.runs = runs
        self.opened: list[NDArray[Any]] = []
        self.noise: list[NDArray[Any]] = []

    async def _opened(self, summand: Summand) -> NDArray[Any]:
        total = await SimulatedAggregator(self.plan, self._problems, None)._opened(summand)
        assert self._source is not None
        repeated = np.tile(total, self.runs)
        opened = self._source.add_lattice(repeated, self.plan.law, self.plan.claim())
        self.noise.append((opened - repeated).reshape(self.runs, -1))
        self.opened.append(total + self.noise[-1])
        return np.asarray(self.opened[-1][0])


def finished(run: Coroutine[Any, Any, Release]) -> Release:
    """Return the result of a coroutine that never has to wait."""
    try:
        run.send(None)
    except StopIteration as stop:
        release: Release = stop.value
        return release
    raise AssertionError("a simulated run waited for something")


def as_gaussian(guarantee: Guarantee) -> Guarantee:
    """Return the claim in a form that few runs can test: that of the Gaussian release to which the release is close.

    The difference is too small to be seen in thousands of runs.
    """
    event = guarantee.event
    if guarantee.delta == 0:
        return guarantee
    assert isinstance(event, NearlyGaussian)
    assert event.distance < 1e-6
    return replace(guarantee, event=GaussianRelease(event.mu))


@dataclass(frozen=True)
class Joint:
    """A joint method on two neighbouring sets of parties, its plan, and what an attacker sees."""

    method: Method
    pair: tuple[Parties, Parties]
    plan: AggregationPlan
    options: dict[str, Any] = field(default_factory=dict)
    seen: Callable[[Witness], NDArray[Any]] = lambda witness: np.hstack(witness.opened)

    @property
    def guarantee(self) -> Guarantee:
        """The claimed guarantee."""
        return as_gaussian(self.witnessed(self.pair[0], NoiseSource(0))[1].guarantee)

    def witnessed(self, parties: Parties, source: NoiseSource, runs: int = 1) -> tuple[Witness, Release]:
        """Return what one run (or several runs of one sum) opened, and its release."""
        witness = Witness(self.plan, parties, source, runs)
        delta = DELTA if self.plan.tail else 0.0
        return witness, finished(self.method(JointProblem.of(parties), witness, delta=delta, **self.options))

    def outputs(self, parties: Parties, source: NoiseSource, runs: int) -> NDArray[Any]:
        """Return what the attacker sees, one row per run."""
        if self.plan.steps == 1:
            return self.seen(self.witnessed(parties, source, runs)[0])
        return np.vstack([self.seen(self.witnessed(parties, source)[0]) for _ in range(runs)])


def one_by_one(outputs: Outputs, at_once: int) -> Callable[[Parties, NoiseSource], NDArray[Any]]:
    """Return a mechanism that makes many single runs at a time."""
    kept: WeakKeyDictionary[NoiseSource, dict[int, list[NDArray[Any]]]] = WeakKeyDictionary()

    def mechanism(parties: Parties, source: NoiseSource) -> NDArray[Any]:
        waiting = kept.setdefault(source, {}).setdefault(id(parties), [])
        if not waiting:
            waiting.extend(outputs(parties, source, at_once))
        return waiting.pop()

    mechanism.single_run = lambda parties, source: outputs(parties, source, 1)  # type: ignore[attr-defined]
    return mechanism


# -------------------------------------------------------------------------------------------------------------- pairs


def spread(
    pair: pairs.Pair,
    objective: GeneralisedLinear | None = None,
    *,
    alpha: float = 0.0,
    row_norm: float = 1.0,
    counts: Sequence[int] | None = None,
) -> tuple[Parties, Parties]:
    """Return the rows of both tables divided among parties of the given sizes, by default one row per party."""
    loss = Logistic() if objective is None else objective
    n = len(pair.first[1])
    ends = np.cumsum([1] * n if counts is None else counts)
    assert ends[-1] == n

    def parties(X: NDArray[Any], y: NDArray[Any]) -> Parties:
        return tuple(
            Problem(loss, L2(alpha), BoundedRows(rows, row_norm), targets)
            for rows, targets in zip(np.split(X, ends[:-1]), np.split(y.astype(float), ends[:-1]), strict=True)
        )

    return parties(*pair.first), parties(*pair.second)


def beyond_bounds(pair: pairs.Pair) -> pairs.Pair:
    """Return the pair with the first record far beyond all bounds, which scaling and clipping must handle."""
    tables = [(X.copy(), np.asarray(y, dtype=float).copy()) for X, y in pair]
    for X, y in tables:
        X[0] *= 1e6
        y[0] *= 1e6
    return pairs.Pair(*tables, f"{pair.name}, beyond bounds")


def diagonal(d: int) -> pairs.Pair:
    """Return a pair that differs in the label of a row with d equal features."""
    (X, y), (_, y2) = pairs.label_flip(2, d)
    X = X.copy()
    X[0] = 1 / math.sqrt(d)
    return pairs.Pair((X, y), (X.copy(), y2), "diagonal")


# -------------------------------------------------------------------------------------------------------------- Grad-P


def descent(
    pair: tuple[Parties, Parties],
    budget: Budget = BUDGET,
    steps: int = 1,
    clip: float = CLIP,
    *,
    jointly: bool = True,
    **options: Any,
) -> Joint:
    """Return a scenario of Grad-P with the given number of steps."""
    plan = gradient_plan(JointProblem.of(pair[0]), budget, steps=steps, clip_norm=clip, jointly=jointly)
    return Joint(multiparty.joint_gradient_descent, pair, plan, options)


def all_rounded_at_once(d: int = 64) -> Joint:
    """Return Grad-P on a lattice so coarse that rounding moves every coordinate as far as the record does.

    A record's gradient is 0.5001 or -0.5001 steps in every coordinate, so replacing the record moves each coordinate by
    1.0002 steps and its rounded value by 2. Attackers know that all coordinates move equally, and add them up.
    """
    pair = spread(diagonal(d))
    fine = descent(pair).plan
    scale = 0.5001 * math.sqrt(d) / CLIP
    plan = AggregationPlan(d, 1, fine.sensitivity, fine.largest, scale, LatticeLaw(bits=2), tail=1e-10)
    return Joint(multiparty.joint_gradient_descent, pair, plan, seen=lambda witness: witness.opened[0].sum(1)[:, None])


def everywhere(jointly: bool, d: int = 2) -> Joint:
    """Return Grad-P with pure epsilon and a record that moves all coordinates equally. Attackers count signs.

    Laplace noise for the l2 sensitivity, without the factor sqrt(d), would give sqrt(d) times its epsilon here.
    """
    joint = descent(spread(diagonal(d)), Budget(1.5), jointly=jointly)
    return replace(joint, seen=lambda witness: np.sign(witness.opened[0]).sum(1)[:, None])


def _joint(joint: Joint, variant: str, share: float, why: str = "") -> Scenario:
    name = joint.method.__name__
    runs, at_once = (4000, 4000) if joint.plan.steps == 1 else (400, 1)
    mechanism = one_by_one(joint.outputs, at_once)
    return Scenario((name,), f"{name}, {variant}", mechanism, joint.pair, joint.guarantee, share, why, runs)


UNSEEN = "so few runs reveal almost nothing about so small an epsilon"


def _descents() -> list[Scenario]:
    flip = spread(pairs.label_flip(3, 1))
    among = spread(pairs.outlier(20), counts=(15, 4, 1))
    two = spread(beyond_bounds(pairs.target_flip(2, 1)), Squared(), counts=(1, 1, 0))
    huber = spread(pairs.target_flip(3, 2), Huber(0.25), counts=(2, 1))
    return [
        _joint(descent(flip, steps=3), "logistic, all sums", 0.75),
        _joint(descent(among), "logistic, one record among many", 0.75),
        _joint(descent(two), "ridge, two records beyond all bounds and a party without", 0.75),
        _joint(descent(huber, clip=1.0), "Huber", 0.75),
        _joint(all_rounded_at_once(), "all coordinates rounded at once", 0.75),
        _joint(descent(flip, Budget(12.0, DELTA)), "epsilon 12", 0.75),
        _joint(descent(flip, Budget(0.1, DELTA)), "epsilon 0.1", 0.0, UNSEEN),
        _joint(descent(flip, Budget(1.5)), "pure epsilon, drawn jointly", 0.75),
        _joint(descent(flip, Budget(1.5), jointly=False), "pure epsilon, drawn by one server", 0.75),
        _joint(everywhere(True), "pure epsilon, drawn jointly, all coordinates", 0.6),
        _joint(everywhere(False), "pure epsilon, drawn by one server, all coordinates", 0.6),
    ]


# --------------------------------------------------------------------------------------------------------------- Out-P


def averages(pair: tuple[Parties, Parties], budget: Budget = BUDGET) -> Joint:
    """Return a scenario of Out-P."""
    return Joint(multiparty.joint_output_perturbation, pair, output_plan(JointProblem.of(pair[0]), budget))


def _averages() -> list[Scenario]:
    huber = partial(spread, objective=Huber(0.25), alpha=2.0)
    three, extreme = pairs.target_flip(3, 1), beyond_bounds(pairs.target_flip(2, 1))
    half = "a logistic residual at typical scores is half of its bound"
    return [
        _joint(averages(huber(three)), "Huber", 0.75),
        _joint(averages(huber(three, counts=(2, 1))), "Huber, parties of two sizes", 0.75),
        _joint(averages(huber(extreme)), "Huber, two records beyond all bounds", 0.75),
        _joint(averages(spread(pairs.label_flip(3, 1), alpha=2.0)), "logistic", 0.25, half),
        _joint(averages(huber(three), Budget(12.0, DELTA)), "epsilon 12", 0.75),
        _joint(averages(huber(three), Budget(0.1, DELTA)), "epsilon 0.1", 0.0, UNSEEN),
    ]


# --------------------------------------------------------------------------------------------------------- comparisons


def _comparison(
    name: str, pair: tuple[Parties, Parties], share: float, why: str = "", budget: Budget = BUDGET, **options: Any
) -> Scenario:
    method = getattr(multiparty_comparisons, name)

    def run(parties: Parties, source: NoiseSource) -> Release:
        release: Release = method(parties, budget, source=source, **options)
        return release

    guarantee, runs = run(pair[0], NoiseSource(0)).guarantee, 400 if share else 100
    return Scenario((name,), name, lambda data, source: run(data, source).weights, pair, guarantee, share, why, runs)


def _comparisons() -> list[Scenario]:
    flip = spread(pairs.label_flip(2, 1))
    huber = spread(pairs.target_flip(2, 1), Huber(0.25), alpha=2.0)
    hinge = spread(pairs.label_flip(2, 1), SmoothedHinge(), alpha=2.0)
    hidden = "the attack looks at the average, in which another party's noise hides the record too"
    curved = f"{hidden}; part of the claim is for the curvature of a record, which the pair keeps"
    large = Budget(12.0, DELTA)
    return [
        _comparison("pathak", huber, 0.6, "", large),
        _comparison("local_output_perturbation", huber, 0.4, hidden),
        _comparison("local_objective_perturbation", hinge, 0.0, curved, Budget(1.5, LAX)),
        _comparison("local_gradient_descent", flip, 0.4, hidden, steps=2, clip_norm=CLIP),
        _comparison("rajkumar_agarwal", flip, 0.7, steps=2, clip_norm=CLIP),
    ]


def _committees() -> list[Scenario]:
    """What all but one server and one owner see, with their own noise subtracted."""
    import committee_scenarios as committees

    plan = committees.plan_of(BUDGET)

    def outputs(data: list[int], source: NoiseSource, runs: int) -> NDArray[Any]:
        return committees.outputs(plan, source, runs, differs=bool(data[0]))

    mechanism, name = one_by_one(outputs, 4000), "committee, all but one server and one owner"
    return [Scenario(("ServerAggregator",), name, mechanism, ([0], [1]), committees.claimed(plan), 0.75, "", 4000)]


def scenarios() -> list[Scenario]:
    """Return all audit scenarios of several parties."""
    return [*_descents(), *_averages(), *_comparisons(), *_committees()]
