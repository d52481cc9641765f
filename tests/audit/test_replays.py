"""Every solver, estimator, method and protocol is replayed on neighbouring tables, and no correct code is refuted.

``PRIVET_AUDIT=long`` replays all estimators on hundreds of hostile tables, and writes ``docs/results/replays.json``.
"""

import json
import os
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import privet
from privet.audit import replay
from privet.privacy import NoiseSource
from privet.replay import Units

sys.path.insert(0, str(Path(__file__).parent))

from scenarios import required, scenarios

IS_LONG = os.environ.get("PRIVET_AUDIT") == "long"
ELSEWHERE = {"ServerAggregator"}
"""What is replayed by real servers: see tests/multiparty/protocol/test_coalition.py. An honest server's noise hides its
share of a sum there, and owners draw the shares of both worlds such that the coalition receives the same."""
SCENARIOS = [each for each in scenarios() if not ELSEWHERE & {*each.about}]
RESULTS = Path(__file__).parents[2] / "docs" / "results" / "replays.json"

TABLES = ("random", "huge", "tiny", "subnormal", "negative zeros", "duplicates", "zeros", "sorted", "one far out")
ESTIMATORS = {
    privet.PrivateLogisticRegression: {"classes": (0, 1)},
    privet.PrivateLinearSVC: {"classes": (0, 1)},
    privet.PrivateRidge: {"target_bound": 1.0},
    privet.PrivateHuberRegressor: {"target_bound": 1.0},
    privet.PrivateAbsoluteRegressor: {"target_bound": 1.0},
    privet.PrivateSparseLogisticRegression: {"classes": (0, 1), "n_nonzero": 1},
    privet.PrivateSparseRegression: {"target_bound": 1.0, "n_nonzero": 1},
}


def units_of(pair, adjacency):
    """Match the units by their content. Clients of tiny servers, some of which are absent, cannot be matched."""
    try:
        units = Units.of(*pair)
        units.check_neighbours(adjacency)
    except ValueError:
        return Units.unknown()
    return units


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.name)
@pytest.mark.filterwarnings("ignore")
def test_every_mechanism_is_consistent_with_its_claim(scenario):
    run = getattr(scenario.mechanism, "single_run", scenario.mechanism)
    found = replay(
        lambda data: run(data, NoiseSource(1)),
        *scenario.pair,
        guarantee=scenario.guarantee,
        units=units_of(scenario.pair, scenario.guarantee.adjacency),
    )
    assert not found.is_violation, found
    assert found.releases > 0


def test_everything_that_must_be_audited_is_replayed():
    assert required() <= {scenario.about for scenario in SCENARIOS} | {(name,) for name in ELSEWHERE}


def hostile(kind, generator, n, d):
    """Return a table and a neighbour in which the last record was replaced, with values that are hard to bound."""
    X = generator.standard_normal((n + 1, d))
    scales = {"huge": 1e22, "tiny": 1e-22, "subnormal": 5e-324, "zeros": 0.0, "one far out": 1.0}
    X *= scales.get(kind, 1.0)
    y = np.arange(n + 1) % 2
    if kind == "negative zeros":
        X[generator.random(X.shape) < 0.5] = -0.0
    if kind == "duplicates":
        X[:], y[:] = X[0], y[0]
        X[n] *= -1
    if kind == "one far out":
        X[n] *= 1e22
    first, second = list(range(n)), [*range(n - 1), n]
    if kind == "sorted":
        first.sort(key=lambda row: X[row, 0])
        second.sort(key=lambda row: X[row, 0])
    return (X[first], y[first]), (X[second], y[second])


def cases():
    for kind, options in ESTIMATORS.items():
        for method in kind.offered_methods().values():
            for is_pure in (False, True) if method.is_pure else (False,):
                yield kind, method.name, is_pure, options


CASES = list(cases())


def attack(number, generator):
    """Replay one estimator on one hostile table."""
    estimator, method, is_pure, options = CASES[number % len(CASES)]
    kind = TABLES[(number // len(CASES) + number) % len(TABLES)]
    n, d = ((2, 1), (3, 2), (24, 3), (60, 2))[number % 4]
    if method in ("two_stage", "knowledge_transfer"):
        n = max(n, 24)
    settings = {"alpha": 2.0} | options | {"method": method, "delta": 0.0 if is_pure else 1e-5}
    public = {"X_public": np.ones((5, d))} if method == "knowledge_transfer" else {}

    def train(table):
        return estimator(3.0, **settings).fit(*table, **public)

    name = f"{estimator.__name__} {method} on a table of kind {kind!r}, n = {n}"
    return replay(train, *hostile(kind, generator, n, d), name=name)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", range(len(CASES)))
def test_no_estimator_is_refuted_on_a_hostile_table(number):
    found = attack(number, np.random.default_rng(number))
    assert not found.is_violation, found


def write(**facts):
    """Add facts to the file of results."""
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps(known | facts, indent=1, sort_keys=True) + "\n")


@pytest.mark.skipif(not IS_LONG, reason="replays all estimators on 500 tables: PRIVET_AUDIT=long")
@pytest.mark.filterwarnings("ignore")
def test_no_false_alarm_in_500_replays():
    found = [attack(number, np.random.default_rng([7, number])) for number in range(500)]
    alarms = [str(each) for each in found if each.is_violation]
    write(
        replays=len(found),
        false_alarms=len(alarms),
        releases=sum(each.releases for each in found),
        largest_move_in_units_of_the_bound=max(each.largest for each in found),
        estimators=dict(Counter(" ".join(each.name.split()[:2]) for each in found)),
    )
    assert not alarms


def seconds(work, times=5):
    """Return the median processor time of a work."""
    taken = []
    for _ in range(times):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return float(np.median(taken))


@pytest.mark.skipif(not IS_LONG, reason="measures times: PRIVET_AUDIT=long")
@pytest.mark.parametrize("method", ["gradient", "iteration", "output", "minimiser"])
def test_a_replay_costs_at_most_two_and_a_half_trainings(method):
    generator = np.random.default_rng(0)
    X = generator.standard_normal((20_000, 20))
    y = (X[:, 0] > 0).astype(int)
    neighbour = X.copy()
    neighbour[7] *= -1

    def train(data):
        return privet.PrivateLogisticRegression(1.0, 1e-5, method=method, classes=(0, 1), alpha=0.1).fit(*data)

    train((X, y))
    ratio = seconds(lambda: replay(train, (X, y), (neighbour, y))) / seconds(lambda: train((X, y)))
    write(**{f"cost_in_trainings_{method}_20000_rows_20_columns": round(ratio, 2)})
    assert ratio < 2.5
