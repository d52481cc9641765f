"""Local privacy of noisy passes: what holds against whoever sees the state right after a person's step."""

import math
from dataclasses import replace

import numpy as np
import pytest

from privet import PrivateLogisticRegression
from privet.objectives import L2, BoundedRows, Logistic
from privet.plans import CentredPlan, Descent, FixedOrder, FullBatch, GradientPlan, RandomSkip, RandomStop, SecretOrder
from privet.privacy import Budget, Guarantee, NoiseSource, compose, gaussian_epsilon
from privet.privacy.events import LastIterate
from privet.solvers import Problem, Run, descent_of, projected_sgd

DELTA = 1e-5


def plan(sampler, descent=None, noise=3.0, **fields):
    descent = descent or Descent(0.5, 1.0)
    return GradientPlan(sampler, None, 1.0, noise, release="last", descent=descent, delta=DELTA, **fields)


@pytest.mark.parametrize(
    ("sampler", "visits"),
    [
        (FixedOrder(20), 1),
        (FixedOrder(20, 7), 7),
        (FixedOrder(20, 7, public=5, shuffled=True), 7),
        (RandomStop(20), 1),
        (RandomSkip(20, public=3), 1),
        (SecretOrder(20, 4), 4),
    ],
    ids=repr,
)
def test_the_local_epsilon_is_that_of_one_gaussian_release_per_visit(sampler, visits):
    guarantee = plan(sampler).guarantee()
    expected = gaussian_epsilon(2 * math.sqrt(visits), 3.0, DELTA)
    assert expected <= guarantee.local.epsilon <= expected * 1.002
    assert guarantee.local.epsilon >= guarantee.epsilon * (1 - 1e-8)
    assert guarantee.local.delta == guarantee.delta
    several = plan(sampler, tasks=3).guarantee().local.epsilon
    assert several == pytest.approx(gaussian_epsilon(2 * math.sqrt(3 * visits), 3.0, DELTA), rel=2e-3)


def test_it_applies_to_batches_of_one_person_only():
    for sampler in (FixedOrder(20, 2, 2), RandomStop(20, size=4), SecretOrder(20, 2, 5)):
        assert plan(sampler).guarantee().local is None
    full = GradientPlan(FullBatch(), 5, 1.0, 3.0, release="last", descent=Descent(0.5, 1.0), delta=DELTA)
    assert full.guarantee().local is None
    assert replace(full, release="all", descent=None).guarantee().local is None


def test_a_noisy_mean_that_nobody_computes_alone_has_no_local_guarantee():
    fields = {"sampler": FixedOrder(20), "release": "last", "descent": Descent(0.5, 1.0)}
    centred = CentredPlan.for_budget(Budget(1.0, DELTA), clip_norm=1.0, row_norm=1.0, **fields)
    assert centred.guarantee().local is None


def test_two_noisy_passes_compose_locally():
    one, other = plan(FixedOrder(20)).guarantee(), plan(RandomStop(20), noise=4.0).guarantee()
    both = compose([one, other], delta=DELTA).local.epsilon
    assert both == pytest.approx(gaussian_epsilon(math.hypot(2 / 3, 2 / 4), 1.0, DELTA), rel=2e-3)


def test_the_statement_has_one_line_about_it_and_files_keep_it():
    guarantee = plan(RandomStop(200)).guarantee()
    (line,) = [line for line in guarantee.statement().splitlines() if line.startswith("  Local:")]
    local = guarantee.local.epsilon
    assert float(line.split("(")[1].split(",")[0]) == pytest.approx(local, rel=1e-3)
    assert float(line.split("(")[1].split(",")[0]) >= local
    assert len(guarantee.statement().splitlines()) <= 12
    assert "Local:" not in plan(FixedOrder(20, 1, 2)).guarantee().statement()
    assert Guarantee.from_json(guarantee.to_json()).local == guarantee.local
    assert "each person makes their own step" in guarantee.local.statement()


def test_an_estimator_with_batches_of_one_states_both_guarantees():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((50, 2)), np.arange(50) % 2
    settings = {"method": "iteration", "secret": "stop", "classes": [0, 1]}
    alone = PrivateLogisticRegression(2.0, max_iter=50, fit_intercept=False, **settings).fit(X, y)
    assert alone.guarantee_.local.epsilon > alone.guarantee_.epsilon
    assert PrivateLogisticRegression(2.0, max_iter=50, **settings).fit(X, y).guarantee_.local is None
    assert (
        PrivateLogisticRegression(2.0, max_iter=25, fit_intercept=False, **settings).fit(X, y).guarantee_.local is None
    )


@pytest.mark.parametrize("sizes", [0.5, (0.5, 0.4, 0.1), (0.01, 0.2, 0.5)], ids=str)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_no_state_after_a_persons_step_moves_further_than_claimed(monkeypatch, sizes, place):
    """Runs on two tables that differ in one record, with the same noise up to that person's step.

    The next state, before its noise, moves by at most the local mu times the noise, and comes near it.
    """
    X, labels = np.array([[1.0], [-1.0], [1.0]]), np.array([0.0, 1.0, 1.0])
    seen = []

    def recorded(source, total, std, *args, **kwargs):
        seen.append((np.array(total), std))
        return total + 0.3 * std

    monkeypatch.setattr(NoiseSource, "add_gaussian", recorded)
    runs = []
    for flip in (False, True):
        y = labels.copy()
        y[place] = 1 - y[place] if flip else y[place]
        problem = Problem(Logistic(), L2(0.1), BoundedRows(X, 1.0), y)
        used = GradientPlan(
            FixedOrder(3), None, 0.1, 2.0, release="last", descent=descent_of(problem, sizes), delta=DELTA
        )
        seen.clear()
        projected_sgd(problem, Run(used, NoiseSource(0)))
        runs.append(list(seen))
    event = used.event
    assert isinstance(event, LastIterate)
    moved = [float(np.linalg.norm(one[0] - other[0])) / one[1] for one, other in zip(*runs, strict=True)]
    assert moved[:place] == [0.0] * place
    assert 0.97 * event.local().mu < moved[place] <= event.local().mu
