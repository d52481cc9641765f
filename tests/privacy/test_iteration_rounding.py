"""The charge for rounding errors in steps whose iterates stay hidden: docs/proofs.md, section 16."""

import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtr

from privet.plans import Descent, FixedOrder, FullBatch, GradientPlan, RandomSkip, RandomStop, SecretOrder
from privet.plans.contraction import ROUNDING
from privet.privacy import Adjacency, Budget, gdp_delta
from privet.privacy.analyses.accounting import epsilon
from privet.privacy.events import LastIterate, Secret, event_from_dict
from privet.privacy.iteration import last_iterate_mu

REPLACE, DELTA = Adjacency.REPLACE_ONE, 1e-5
EVENTS = [
    LastIterate(4.0, n=9, passes=3, size=2),
    LastIterate(4.0, n=9, public=4, contraction=0.9, diameter=3.0),
    LastIterate(4.0, n=1, passes=7, contraction=0.8),
    LastIterate(4.0, n=3, passes=2, step_size=(3.0, 2.0, 1.0, 0.5, 0.2, 0.1), contraction=(0.9,) * 6),
    LastIterate(4.0, n=9, secret=Secret.STOP),
    LastIterate(4.0, n=9, secret=Secret.SKIP),
    LastIterate(4.0, n=9, passes=2, secret=Secret.ORDER),
]


# ---------------------------------------------------------------------------------------------- the charge is there


@pytest.mark.parametrize("event", EVENTS, ids=repr)
def test_every_place_is_charged_a_share_of_the_worst_mu(event):
    charged, ideal = replace(event, rounding=0.01), event.place_mus()
    charge = 0.01 * (ideal.max() + 2.0**-13 * 2 / 4.0)
    assert charged.place_mus() == pytest.approx(ideal + charge, rel=1e-12)
    assert charged.rounding_mu() == pytest.approx(charge, rel=1e-12)
    assert charged.unsampled(REPLACE).mu == pytest.approx(event.unsampled(REPLACE).mu + charge, rel=1e-12)
    assert event.rounding_mu() == 0


@pytest.mark.parametrize("event", [*EVENTS, replace(EVENTS[0], runs=3), replace(EVENTS[6], runs=3)], ids=repr)
def test_epsilon_grows_with_the_charge_for_every_record(event):
    family = [replace(event, rounding=share) for share in (0.0, ROUNDING, 0.01)]
    assert all(low < high for low, high in pairwise(epsilon(each, REPLACE, DELTA) for each in family))
    records = [each.record_epsilons(DELTA) for each in family]
    if records[0] is not None:
        assert all((low < high).all() for low, high in pairwise(records))


@pytest.mark.parametrize(
    "sampler", [FullBatch(), FixedOrder(9, 2), RandomStop(9), RandomSkip(9), SecretOrder(9, 2)], ids=repr
)
def test_every_plan_for_the_last_iterate_pays_the_charge_with_a_little_more_noise(sampler):
    steps = None if sampler.implied_steps else 6
    fields = {"sampler": sampler, "steps": steps, "clip_norm": 1.0, "release": "last", "descent": Descent(0.5, 1.0)}
    plan = GradientPlan.for_budget(Budget(1.0, DELTA), **fields)
    assert plan.event.rounding == ROUNDING == 2.0**-11
    assert plan.guarantee().epsilon <= 1.0 < epsilon(plan.event_at(plan.noise_multiplier / 1.01), REPLACE, DELTA)
    more = epsilon(plan.event, REPLACE, DELTA) / epsilon(replace(plan.event, rounding=0.0), REPLACE, DELTA)
    assert 1 + 1e-5 < more < 1 + 2 * ROUNDING
    assert "0.05% of mu is charged" in plan.guarantee().statement(verbose=True)


def test_steps_that_hide_everything_before_them_are_charged_for_their_own_rounding():
    forgotten = LastIterate(0.5, n=1, public=10_000, contraction=0.5, rounding=ROUNDING)
    assert forgotten.unsampled(REPLACE).mu == pytest.approx(2.0**-24 * 2 / 0.5)
    assert forgotten.rounding_mu() * 2 == replace(forgotten, noise_multiplier=0.25).rounding_mu()


def test_events_of_older_files_have_no_charge_and_keep_their_epsilon():
    saved = json.loads((Path(__file__).parents[1] / "saved" / "multinomial_iteration.json").read_text())
    stored = saved["learned"]["guarantee_"]["__guarantee__"]
    event = event_from_dict(stored["event"])
    assert epsilon(event, REPLACE, stored["delta"]) == pytest.approx(stored["epsilon"], rel=1e-9)
    assert [leaf.rounding for leaf in event.leaves() if isinstance(leaf, LastIterate)] == [0.0]
    charged = replace(EVENTS[0], rounding=ROUNDING)
    assert event_from_dict(json.loads(json.dumps(charged.to_dict()))) == charged


@pytest.mark.parametrize("rounding", [-1e-9, math.nan, math.inf, "0.1"])
def test_impossible_charges_are_refused(rounding):
    with pytest.raises((ValueError, TypeError), match="rounding"):
        LastIterate(4.0, n=9, rounding=rounding)


@pytest.mark.parametrize("seed", range(30))
def test_a_charge_for_additional_shifts_can_be_added(seed):
    """The mu of the sum of two schedules of shifts is at most the sum of their mus, also in a bounded domain."""
    rng = np.random.default_rng(seed)
    steps = int(rng.integers(1, 30))
    shifts, extra = rng.exponential(size=(2, steps)) * (rng.random((2, steps)) < 0.4)
    noise, contraction = rng.uniform(0.1, 2.0, steps), rng.uniform(0.3, 1.0, steps)
    diameter = float(rng.uniform(0.2, 3.0)) if seed % 2 else None
    whole = last_iterate_mu(shifts + extra, noise, contraction, diameter=diameter)
    base, charge = (
        last_iterate_mu(shifts, noise, contraction, diameter=diameter),
        last_iterate_mu(extra, noise, contraction),
    )
    assert whole <= (base + charge) * (1 + 1e-9)
    assert last_iterate_mu(extra * rng.random(steps), noise, contraction) <= charge * (1 + 1e-9)


# ------------------------------------------------------------------------------ chains that are rounded, by brute force


def largest_mu(one, other):
    """Return the least mu whose Gaussian profile covers both directions of two laws on finitely many points."""
    low, high = 0.0, 50.0
    grid = np.linspace(0.0, 3.0, 13)
    deltas = [
        max(np.maximum(a - math.exp(eps) * b, 0).sum() for a, b in ((one, other), (other, one))) - 1e-9 for eps in grid
    ]
    for _ in range(40):
        middle = (low + high) / 2
        if all(gdp_delta(middle, eps) >= delta for eps, delta in zip(grid, deltas, strict=True)):
            high = middle
        else:
            low = middle
    return high


def laws(points, maps, noise):
    """Return the law of the last of W_t = nearest point to f_t(W_(t-1)) + noise, from W_0 = 0."""
    edges = np.concatenate(([-np.inf], (points[1:] + points[:-1]) / 2, [np.inf]))
    law = (points == 0).astype(float)
    kernels = {f: np.diff(ndtr((edges[None, :] - f(points)[:, None]) / noise), axis=1) for f in set(maps)}
    for f in maps:
        law = law @ kernels[f]
    return law


def test_a_coarse_grid_breaks_the_claim_without_the_charge_and_not_with_it():
    """On a grid of four standard deviations, noise is often rounded away, and hides less than the theorem says."""
    noise, grid, steps = 1.0, 4.0, 20
    points = grid * np.arange(-30, 31)
    same = [lambda w: w] * (steps - 1)
    one, other = laws(points, [lambda w: w + grid, *same], noise), laws(points, [lambda w: w, *same], noise)
    shifts = np.zeros(steps)
    shifts[0] = grid
    claim = last_iterate_mu(shifts, noise)
    found = largest_mu(one, other)
    assert found > 1.1 * claim
    rounded = np.full(steps, grid)
    rounded[0] = 0  # both runs start from the same point
    assert found <= claim + last_iterate_mu(rounded, noise)


@pytest.mark.parametrize("contraction", [1.0, 0.9])
@pytest.mark.parametrize("error", [0.05, 0.15])
def test_errors_that_drive_points_apart_break_the_claim_without_the_charge_and_not_with_it(contraction, error):
    """Each step moves points away from 0 by an error, as rounding may do. One record shifts the first step."""
    noise, shift, steps = 1.0, 0.5, 16
    points = np.arange(-250, 251) * 0.08
    step = [lambda w: contraction * w + error * np.sign(w)] * (steps - 1)
    one, other = (laws(points, [lambda w, s=sign: w + s * shift / 2, *step], noise) for sign in (1, -1))
    shifts, errors = np.zeros(steps), np.full(steps, 2 * error)
    shifts[0], errors[0] = shift, 0
    factors = np.full(steps, contraction)
    factors[0] = 1.0
    claim, charge = last_iterate_mu(shifts, noise, factors), last_iterate_mu(errors, noise, factors)
    found = largest_mu(one, other)
    assert found > 1.05 * claim
    assert found <= claim + charge
