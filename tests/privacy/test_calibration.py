import math

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from privet.privacy import Adjacency, Budget, NoiseMultiplier, calibrate, gdp_mu
from privet.privacy.analyses.accounting import epsilon
from privet.privacy.analyses.calibration import _Guess, _local_slope, _log, _next_x, _Point, _search
from privet.privacy.events import Composition, FixedSizeGaussian, GaussianRelease, PoissonGaussian, PureRelease

REPLACE, ADD = Adjacency.REPLACE_ONE, Adjacency.ADD_OR_REMOVE


def log_uniform(low, high):
    return st.floats(math.log(low), math.log(high)).map(math.exp)


def together(*events):
    return Composition(tuple(events))


budgets = st.builds(Budget, log_uniform(1e-2, 20), log_uniform(1e-10, 1e-2))
steps_counts = log_uniform(1, 3e5).map(int)
rates = st.one_of(log_uniform(1e-6, 1), log_uniform(1e-12, 1e-1).map(lambda gap: 1 - gap))
# Without shrinking: a failing calibration is slow, and its plan is printed as it is.
calibrations = settings(
    deadline=None, derandomize=True, phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow]
)


def calibrated(family, adjacency, budget):
    """Return the calibrated noise multiplier after checking that it meets the budget."""
    noise = calibrate(family, adjacency, budget)
    achieved = epsilon(family(noise), adjacency, budget.delta)
    assert 0.99 * budget.epsilon < achieved <= budget.epsilon, f"{family(noise)} at {budget}"
    return noise


@settings(calibrations, max_examples=30)
@given(budgets, rates, steps_counts)
def test_poisson_calibration_lands_just_below_the_target(budget, rate, steps):
    ever_sampled = -math.expm1(steps * math.log1p(-rate)) if rate < 1 else 1.0
    try:
        calibrated(lambda noise: PoissonGaussian(noise, rate, steps), ADD, budget)
    except ValueError as error:
        assert "(almost) no noise" in str(error)
        assert budget.delta >= 0.999 * ever_sampled


@settings(calibrations, max_examples=150)
@given(budgets, log_uniform(1, 1e7).map(int), log_uniform(1e-6, 1), steps_counts)
def test_fixed_size_calibration_lands_just_below_the_target(budget, n, share, steps):
    size = max(1, int(share * n))
    ever_sampled = -math.expm1(steps * math.log1p(-size / n)) if size < n else 1.0
    try:
        calibrated(lambda noise: FixedSizeGaussian(noise, n, size, steps), REPLACE, budget)
    except ValueError as error:
        assert "(almost) no noise" in str(error)
        assert budget.delta >= 0.999 * ever_sampled


@settings(calibrations, max_examples=60)
@given(budgets, steps_counts, st.sampled_from(Adjacency))
def test_full_batch_calibration_is_exact(budget, steps, adjacency):
    noise = calibrated(lambda z: GaussianRelease(adjacency.factor * math.sqrt(steps) / z), adjacency, budget)
    achieved = epsilon(GaussianRelease(adjacency.factor * math.sqrt(steps) / noise), adjacency, budget.delta)
    assert achieved > (1 - 1e-6) * budget.epsilon


@pytest.mark.parametrize(
    ("family", "adjacency", "budget"),
    [
        (lambda z: PoissonGaussian(z, 1.3e-6, 60_204), ADD, Budget(0.056, 1.5e-3)),
        (lambda z: PoissonGaussian(z, 1.1e-4, 50_813), ADD, Budget(0.32, 2.2e-5)),
        (lambda z: PoissonGaussian(z, 2.6e-4, 194_098), ADD, Budget(0.54, 1.6e-9)),
        (lambda z: PoissonGaussian(z, 0.03, 189_773), ADD, Budget(0.016, 5.5e-10)),
        (lambda z: PoissonGaussian(z, 7.3e-6, 5557), ADD, Budget(0.0166, 2.83e-4)),
        (lambda z: PoissonGaussian(z, 6.94e-6, 27_538), ADD, Budget(16.5, 1.236e-6)),
        (lambda z: PoissonGaussian(z, 0.01, 10_000), ADD, Budget(1.0, 1e-5)),
        (lambda z: FixedSizeGaussian(z, 125_870, 1, 28_970), REPLACE, Budget(0.073, 2.4e-8)),
        (lambda z: FixedSizeGaussian(z, 50_000, 128, 10_000), REPLACE, Budget(1.0, 1e-5)),
    ],
)
def test_the_slowest_calibrations_known_take_seconds(family, adjacency, budget, takes_less_than):
    # This takes less than two seconds on an idle machine. Fragmented memory, late in a long run, slows transforms down.
    assert takes_less_than(6.0, lambda: calibrate(family, adjacency, budget))


@pytest.mark.parametrize(
    ("n", "size", "steps", "budget"),
    [
        (4_206_580, 14, 1294, Budget(0.1217503751538444, 0.0002527945106280218)),
        (53_369, 1, 660, Budget(0.0294, 0.0037)),
        (4_411_779, 51, 121_837, Budget(0.0166, 0.0085)),
        (106, 1, 186_292, Budget(0.011476766234079274, 7.653376278796388e-05)),  # a long plateau, then a fall
    ],
)
def test_fixed_size_calibration_converges_where_epsilon_jumps_at_a_loose_delta(n, size, steps, budget):
    """The Renyi conversion of dp-accounting jumps to zero there, past the window that the search aims for."""
    noise = calibrate(lambda z: FixedSizeGaussian(z, n, size, steps), REPLACE, budget)
    assert epsilon(FixedSizeGaussian(noise, n, size, steps), REPLACE, budget.delta) <= budget.epsilon


@pytest.mark.parametrize(
    ("family", "adjacency"),
    [
        (lambda z: together(GaussianRelease(0.2), GaussianRelease(1 / z)), REPLACE),
        (lambda z: together(PureRelease(0.3), GaussianRelease(1 / z)), REPLACE),
        (lambda z: together(GaussianRelease(0.1), FixedSizeGaussian(z, 1000, 10, 100)), REPLACE),
        (lambda z: together(GaussianRelease(0.1), PoissonGaussian(z, 0.01, 100)), ADD),
    ],
    ids=["gaussian beside gaussian", "pure beside gaussian", "gaussian beside fixed size", "gaussian beside Poisson"],
)
def test_calibration_accounts_for_a_part_that_the_noise_does_not_affect(family, adjacency):
    noise = calibrate(family, adjacency, Budget(1.0, 1e-5))
    assert 0.99 < epsilon(family(noise), adjacency, 1e-5) <= 1.0


def test_a_part_that_already_exceeds_the_budget_is_refused():
    with pytest.raises(ValueError, match=r"^no noise multiplier [^\n]*$"):
        calibrate(lambda z: together(PureRelease(2.0), FixedSizeGaussian(z, 100, 10, 1)), REPLACE, Budget(1.0, 1e-5))


@pytest.mark.parametrize(
    ("family", "adjacency"),
    [(lambda z: PoissonGaussian(z, 1e-4, 10), ADD), (lambda z: FixedSizeGaussian(z, 10_000, 1, 10), REPLACE)],
)
def test_a_delta_that_permits_publishing_records_is_refused(family, adjacency):
    with pytest.raises(ValueError, match=r"\(almost\) no noise[^\n]*below 1/n\.$"):
        calibrate(family, adjacency, Budget(1.0, 1.1e-3))


@pytest.mark.parametrize(
    ("rate", "steps", "budget"),
    [
        (3.649e-4, 25, Budget(28.66, 5e-8)),
        (1.76e-4, 300, Budget(60.0, 1e-7)),
        (0.01, 200, Budget(14.0, 0.0125)),
        (0.01, 200, Budget(16.0, 0.0125)),
        (0.01, 200, Budget(20.0, 0.005)),
        (0.01, 200, Budget(400.0, 1e-9)),
    ],
)
def test_calibration_of_large_budgets_stays_on_the_safe_side(rate, steps, budget):
    noise = calibrate(lambda z: PoissonGaussian(z, rate, steps), ADD, budget)
    assert 0.8 * budget.epsilon < epsilon(PoissonGaussian(noise, rate, steps), ADD, budget.delta) <= budget.epsilon


def test_an_enormous_epsilon_is_not_blamed_on_delta():
    with pytest.raises(ValueError, match="epsilon"):
        calibrate(lambda z: FixedSizeGaussian(z, 10, 9, 1), REPLACE, Budget(1e8, 1e-6))


@pytest.mark.parametrize(
    ("family", "adjacency", "analysis"),
    [
        (lambda z: GaussianRelease(2 / z), REPLACE, "rdp"),
        (lambda z: GaussianRelease(2 / z), REPLACE, "unsampled"),
        (lambda z: FixedSizeGaussian(z, 1000, 10, 100), REPLACE, "rdp"),
        (lambda z: FixedSizeGaussian(z, 1000, 10, 100), REPLACE, "unsampled"),
        (lambda z: PoissonGaussian(z, 0.01, 100), ADD, "rdp"),
        (lambda z: PoissonGaussian(z, 0.01, 100), ADD, "pld"),
        (lambda z: PoissonGaussian(z, 0.01, 100), ADD, "unsampled"),
    ],
)
def test_calibration_under_one_analysis_is_certified_by_that_analysis(family, adjacency, analysis):
    noise = calibrate(family, adjacency, Budget(1.0, 1e-5), analysis=analysis)
    assert 0.99 < epsilon(family(noise), adjacency, 1e-5, analysis=analysis) <= 1.0


@pytest.mark.parametrize("used", [0.999, 0.9999])
def test_calibration_uses_as_much_of_the_budget_as_asked(used):
    budget = Budget(1.0, 1e-6)
    for family, adjacency in (
        (lambda z: PoissonGaussian(z, 0.05, 200), ADD),
        (lambda z: FixedSizeGaussian(z, 10_000, 500, 200), REPLACE),
    ):
        noise = calibrate(family, adjacency, budget, used=used)
        assert used < epsilon(family(noise), adjacency, budget.delta) <= 1.0


def test_calibration_refuses_a_pure_budget():
    with pytest.raises(ValueError, match=r"no pure epsilon guarantee: set delta > 0[^\n]*$"):
        calibrate(lambda z: PoissonGaussian(z, 0.1, 1), ADD, Budget(1.0))


@pytest.mark.parametrize("cliff", [0.02, 1.0, 37.0, 1e6])
def test_the_search_finds_the_edge_of_a_cliff(cliff):
    """There no slope leads to the target, and no value is within the window."""
    found = _search(lambda noise: 1e3 if noise < cliff else 1e-6, 1.0, _Guess(1.0, -1.0), (0.999, 1.0))
    assert cliff <= found.noise_multiplier <= cliff * (1 + 2e-7)


@pytest.mark.parametrize("smallest", [0.1, 0.5, 4.0])
def test_the_smallest_noise_of_an_event_changes_where_the_search_begins_and_not_its_result(smallest):
    budget = Budget(1.0, 1e-5)
    exact = calibrate(lambda z: GaussianRelease(1 / (smallest * z)), REPLACE, budget, smallest=smallest)
    assert exact == pytest.approx(1 / (smallest * gdp_mu(budget)), rel=1e-12)

    def family(z):
        return PoissonGaussian(smallest * z, 0.01, 10)

    noise = calibrate(family, ADD, budget, smallest=smallest)
    assert 0.99 < epsilon(family(noise), ADD, 1e-5) <= 1.0


def test_the_smallest_noise_of_an_event_stays_in_the_range_of_the_accountants():
    """At z = 1 the event would have too little noise to be analysed."""
    noise = calibrate(lambda z: PoissonGaussian(5e-4 * z, 0.01, 10), ADD, Budget(1.0, 1e-5), smallest=5e-4)
    assert 0.99 < epsilon(PoissonGaussian(5e-4 * noise, 0.01, 10), ADD, 1e-5) <= 1.0


def test_a_noise_multiplier_in_place_of_a_budget_is_returned_as_it_is():
    family = [GaussianRelease(1.0)].pop  # It is not called.
    assert calibrate(family, REPLACE, NoiseMultiplier(3.25, 1e-5)) == 3.25
    assert calibrate(family, REPLACE, NoiseMultiplier(3.25)) == 3.25


def test_a_release_that_needs_next_to_no_noise_gets_the_least_that_can_be_analysed():
    def family(z):
        return GaussianRelease(1e-6 / z)

    assert calibrate(family, REPLACE, Budget(1.0, 1e-5)) == 1e-3
    assert calibrate(family, REPLACE, Budget(100.0, 1e-5)) == 1e-3
    enormous = Budget(101.0, 1e-5)
    assert calibrate(family, REPLACE, enormous) == pytest.approx(1e-6 / gdp_mu(enormous), rel=1e-12)


def test_a_release_whose_noise_does_not_matter_is_refused():
    with pytest.raises(ValueError, match=r"\(almost\) no noise"):
        calibrate(lambda z: GaussianRelease(0.0), REPLACE, Budget(1.0, 1e-5))
    with pytest.raises(ValueError, match=r"^no noise multiplier up to 1e\+12 reaches epsilon = 1$"):
        calibrate(lambda z: GaussianRelease(1.0), REPLACE, Budget(1.0, 1e-5))


SHAPES = {
    "inverse": (lambda z: 5 / z, 2),
    "inverse square": (lambda z: 300 / z**2, 4),
    "flat": (lambda z: 0.2 / z**0.3, 4),
    "with a constant part": (lambda z: 0.5 + 3 / z, 5),
    "infinite at first": (lambda z: math.inf if z < 30 else 40 / z, 6),
    "a plateau": (lambda z: 1.5 if z < 50 else 75 / z, 10),
    "steep": (lambda z: 50 * math.exp(-3 * z), 7),
    "zero at first": (lambda z: 0.0 if z > 1e-2 else 1e-2 / z - 1, 12),
}


@pytest.mark.parametrize(("epsilon_of", "most"), SHAPES.values(), ids=SHAPES)
def test_the_search_needs_few_evaluations(epsilon_of, most):
    """Each of them may take a second."""
    tried = []

    def counted(z):
        tried.append(z)
        return epsilon_of(z)

    found = _search(counted, 1.0, _Guess(1.0, -1.0), (0.9905, 1.0))
    assert 0.9905 < epsilon_of(found.noise_multiplier) <= 1.0
    assert len(tried) <= most


@pytest.mark.parametrize(
    ("best", "slope", "low", "high", "expected"),
    [
        (_Point(1.0, 0.5), -2.0, -math.inf, math.inf, 1.25),  # where the line meets the aim
        (_Point(1.0, -0.5), -2.0, -math.inf, math.inf, 0.75),
        (_Point(1.0, 9.0), -2.0, -math.inf, math.inf, 3.0),  # at most two away
        (_Point(1.0, -9.0), -2.0, -math.inf, math.inf, -1.0),
        (_Point(1.0, 1e-6), -2.0, -math.inf, math.inf, 1.002),  # at least a little
        (_Point(1.0, -1e-6), -2.0, -math.inf, math.inf, 0.998),
        (_Point(1.0, math.inf), -2.0, -math.inf, math.inf, 3.0),
        (_Point(1.0, -math.inf), -2.0, -math.inf, math.inf, -1.0),
        (_Point(1.0, 0.5), -2.0, 1.0, 1.25, 1.125),  # outside the bracket
        (_Point(1.0, -0.5), -2.0, 0.75, 1.0, 0.875),
        (_Point(1.0, 0.5), -2.0, 1.5, math.inf, 2.5),
        (_Point(1.0, -0.5), -2.0, -math.inf, 0.5, -0.5),
    ],
)
def test_the_next_place_is_where_the_line_meets_the_aim_inside_the_bracket(best, slope, low, high, expected):
    assert _next_x(best, 0.0, slope, low, high) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([_Point(0.0, 1.0)], -1.5),
        ([_Point(0.0, 1.0), _Point(1.0, -1.0)], -2.0),
        ([_Point(0.0, 1.0), _Point(9.0, 7.0), _Point(2.0, -0.5)], -0.75),  # the two nearest to the aim
        ([_Point(0.0, 1.0), _Point(1.0, 0.99)], -0.1),  # never flatter
        ([_Point(0.0, 1.0), _Point(0.0, 0.5)], -1.5),
        ([_Point(0.0, 2.0), _Point(1.0, -1.0)], -1.5),  # too far apart
        ([_Point(0.0, 2.0), _Point(1.0, -0.99)], -2.99),
        ([_Point(0.0, 1.0), _Point(1.0, -math.inf)], -1.5),
    ],
)
def test_the_slope_is_that_between_the_two_nearest_points_if_they_are_near_each_other(points, expected):
    assert _local_slope(points, 0.0, -1.5) == pytest.approx(expected, rel=1e-12)


def test_logarithms_of_the_search_cover_zero_and_infinity():
    assert (_log(0.0), _log(1.0), _log(math.inf)) == (-math.inf, 0.0, math.inf)
