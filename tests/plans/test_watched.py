"""What plans ask of the noise source, and what they claim about the values: what every audit by replay relies on."""

import math

import numpy as np
import pytest

from privet.plans import (
    AdaptivePlan,
    Descent,
    DescentStability,
    FixedOrder,
    FixedSize,
    FullBatch,
    GradientPlan,
    MinimiserStability,
    ObjectivePlan,
    OutputPlan,
    Poisson,
    RecursivePlan,
)
from privet.plans.adaptive import selection_epsilon
from privet.plans.aggregation import AggregationPlan
from privet.privacy import Adjacency, NoiseSource
from privet.privacy.noise.lattice import LatticeLaw
from privet.privacy.noise.watch import watching

STABILITY = MinimiserStability(n=50, lipschitz=1.5, strong_convexity=0.3, tolerance=0.01)


class Requests:
    """A watcher that keeps all requests for noise."""

    def __init__(self):
        self.seen = []

    def sample(self, source, kind, n, draw):
        return draw()

    def release(self, request, draw):
        self.seen.append(request)
        return draw()

    tilt = release

    def __enter__(self):
        self.watching = watching(self)
        self.watching.__enter__()
        return self

    def __exit__(self, *error):
        self.watching.__exit__(*error)


def asked(release):
    """Return the only request that a release makes."""
    with Requests() as requests:
        release(NoiseSource(0))
    (request,) = requests.seen
    return request


@pytest.mark.parametrize(("adjacency", "factor"), [(Adjacency.REPLACE_ONE, 2), (Adjacency.ADD_OR_REMOVE, 1)])
def test_every_sum_of_a_gradient_plan_gets_the_noise_of_the_plan_and_moves_by_the_bound(adjacency, factor):
    plan = GradientPlan(FullBatch(), 3, 0.7, 2.5, adjacency)
    assert plan.sensitivity == pytest.approx(factor * 0.7)
    with Requests() as requests:
        for step in plan.run(9, NoiseSource(0)):
            assert step.clip_norm == 0.7
            step.noisy(np.zeros(2))
    assert len(requests.seen) == 3
    for request in requests.seen:
        assert (request.kind, request.scale) == ("Gaussian noise", pytest.approx(1.75))
        assert request.claim.bound == pytest.approx(factor * 0.7)
        assert (request.claim.batch, request.claim.n, request.claim.scale) == (slice(None), 9, None)


def test_the_claim_of_a_sum_names_its_batch():
    plan = GradientPlan(FixedSize(3, 9), 2, 0.7, 2.5)
    with Requests() as requests:
        batches = []
        for step in plan.run(9, NoiseSource(0)):
            batches.append(step.batch)
            step.noisy(np.zeros(2))
    assert [list(request.claim.batch) for request in requests.seen] == [list(batch) for batch in batches]


@pytest.mark.parametrize("scale", [1.0, 0.25, 3.0])
@pytest.mark.parametrize("grid", [None, 0.125])
def test_a_scaled_sum_gets_scaled_noise_and_moves_by_the_scaled_bound(scale, grid):
    step = next(GradientPlan(FullBatch(), 1, 0.7, 2.5).run(9, NoiseSource(0)))
    with Requests() as requests:
        noisy = step.noisy(np.zeros(50), scale=scale, grid=grid)
    (request,) = requests.seen
    assert request.scale == pytest.approx(1.75 * scale)
    assert request.claim.bound == pytest.approx(1.4 * scale)
    assert request.claim.n == 9
    if grid is not None:
        assert (noisy % grid == 0).all()
        assert (noisy % (2 * grid) != 0).any()
    else:
        assert (noisy % 0.125 != 0).any()


def test_without_noise_a_sum_is_still_claimed_to_move_by_the_bound():
    step = next(GradientPlan(FullBatch(), 1, 0.7, 0.0).run(9, NoiseSource(0)))
    with Requests() as requests:
        step.noisy(np.ones(2), scale=2.0)
    (request,) = requests.seen
    assert (request.kind, request.scale, request.claim.bound) == ("no noise", 0.0, pytest.approx(2.8))


def test_a_hidden_step_moves_by_the_bound_and_the_rounding_errors_that_the_event_covers():
    plan = GradientPlan(FixedOrder(4), None, 0.7, 2.5, release="last", descent=Descent(0.5, 1.0))
    extra = plan.event.rounding_mu() * plan.noise_std
    assert 0 < extra < 1e-3
    assert plan.sensitivity - 1.4 == pytest.approx(extra, rel=0.01, abs=0)
    step = next(plan.run(4, NoiseSource(0), release="last"))
    assert asked(lambda source: step.noisy(np.zeros(2))).claim.bound == plan.sensitivity


def test_the_sums_of_a_recursive_plan_move_by_their_own_bounds():
    plan = RecursivePlan(Poisson(0.5), 3, 2.0, 0.5, 0.25, 3.0, first_noise_multiplier=5.0, first=FullBatch())
    with Requests() as requests:
        for step in plan.run(9, NoiseSource(0)):
            step.noisy(np.zeros(2))
    assert plan.adjacency is Adjacency.ADD_OR_REMOVE
    assert [request.scale for request in requests.seen] == pytest.approx([10.0, 3 * 0.875, 3 * 0.875])
    assert [request.claim.bound for request in requests.seen] == pytest.approx([2.0, 0.875, 0.875])


@pytest.mark.parametrize(("is_pure", "kind"), [(True, "K-norm noise"), (False, "Gaussian noise")])
def test_a_result_moves_by_the_sensitivity_of_its_stability(is_pure, kind):
    plan = OutputPlan(STABILITY, 0.4, is_pure)
    request = asked(lambda source: plan.noisy(np.zeros(3), source))
    assert (request.kind, request.scale) == (kind, 0.4)
    assert request.claim.bound == pytest.approx(2 * (1.5 / 50 + 0.01) / 0.3)
    assert (request.claim.batch, request.claim.n) == (None, None)


@pytest.mark.parametrize(("is_pure", "kind"), [(True, "K-norm noise"), (False, "Gaussian noise")])
def test_an_objective_is_tilted_by_the_noise_of_the_plan_and_its_minimiser_moves_by_the_tolerance(is_pure, kind):
    plan = ObjectivePlan(50, 1.5, 0.25, 0.2, 7.0, 0.01, 0.4, is_pure, added_alpha=0.1)
    request = asked(lambda source: plan.linear_term((2, 3), source, "the objective"))
    assert (request.kind, request.scale, request.objective) == (kind, 7.0, "the objective")
    assert request.claim.bound == pytest.approx(3.0)
    assert request.claim.volume == pytest.approx(math.log(1 + 0.25 / (50 * 0.3)))
    request = asked(lambda source: plan.noisy(np.zeros(3), source))
    assert (request.kind, request.scale) == (kind, 0.4)
    assert request.claim.bound == pytest.approx(2 * 0.01 / 0.3)


def test_releases_of_a_purse_move_by_twice_their_bounds():
    plan = AdaptivePlan(10.0)
    request = asked(lambda source: plan.open(source).noisy(np.zeros(3), 0.7, 0.5))
    assert (request.kind, request.scale, request.claim.bound) == ("Gaussian noise", pytest.approx(2.8), 1.4)
    request = asked(lambda source: plan.open(source).noisy_min(np.array([3.0, 1.0]), 0.7, 0.5))
    assert (request.kind, request.scale, request.claim.bound) == ("choice", pytest.approx(5.6), pytest.approx(2.8))
    assert list(request.values) == [-3.0, -1.0]
    request = asked(lambda source: plan.open(source).noisy_top(np.array([3.0, 1.0, 2.0]), 0.7, 0.5, 2))
    scale = 4 * 0.7 / selection_epsilon(0.5 / math.sqrt(2))
    assert (request.kind, request.scale, request.claim.bound) == ("choice", pytest.approx(scale), pytest.approx(2.8))
    assert list(request.values) == [3.0, 1.0, 2.0]


def test_a_sum_on_the_lattice_moves_by_the_shift_and_has_the_noise_of_the_comparison():
    plan = AggregationPlan(4, 2, 1.5, 10.0, 100.0, LatticeLaw(bits=8), 1e-9)
    claim = plan.claim()
    assert claim.bound == plan.shift == pytest.approx(1.5 * 100 + 2, rel=1e-6)
    assert claim.scale == pytest.approx(1 / plan.law.comparison(1e-9)[0])
    assert claim.scale == pytest.approx(plan.law.std, rel=0.1)


# ------------------------------------------------------------------------------------------ noise drawn in advance


class Counted(NoiseSource):
    """A source that counts the draws made in advance."""

    in_advance = 0

    def normals(self, size, std):
        self.in_advance += 1
        self.asked = size, std
        return super().normals(size, std)


def step_of(source, noise_multiplier=2.5):
    return next(GradientPlan(FullBatch(), 1, 0.7, noise_multiplier).run(9, source))


def test_much_noise_is_drawn_in_advance_once_and_used():
    source, total = Counted(0), np.zeros(1 << 15)
    step = step_of(source)
    step.prepare(total.size)
    step.prepare(total.size)
    noisy = step.noisy(total)
    assert source.in_advance == 1
    assert source.asked == (total.size, pytest.approx(1.75))
    assert noisy.std() == pytest.approx(1.75, rel=0.02)


@pytest.mark.parametrize(("size", "noise_multiplier"), [(1 << 14, 2.5), (1 << 15, 0.0)])
def test_little_noise_and_no_noise_are_not_drawn_in_advance(size, noise_multiplier):
    source = Counted(0)
    step = step_of(source, noise_multiplier)
    step.prepare(size)
    step.noisy(np.zeros(size))
    assert source.in_advance == 0


def test_a_step_that_is_over_draws_nothing_in_advance():
    source = Counted(0)
    step = step_of(source)
    step.close()
    step.prepare(1 << 15)
    assert source.in_advance == 0


def test_descents_that_clip_at_the_start_are_as_stable_as_their_constants_say():
    stability = DescentStability(9, 1.5, 1.0, 0.2, 0.5, 3, first_lipschitz=0.6, rounding=1e-3)
    distance = 0.0
    for bound in (0.6, 1.5, 1.5):
        distance = 0.9 * distance + 2 * 0.5 * bound / 9 + 2 * 1e-3
    assert stability.sensitivity == pytest.approx(distance, rel=1e-12)
