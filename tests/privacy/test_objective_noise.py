import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from privet.privacy import Budget, gdp_delta, gdp_epsilon
from privet.privacy.analyses.objective_noise import (
    OUTPUT_SHARE,
    _cross_term,
    least_strong_convexity,
    objective_delta,
    objective_epsilon,
    objective_mu,
    volume_loss,
)

ONE_SIDED = [(0, 0), (1, 0), (0, 1), (1, 1)]
TWO_SIDED = [(1, 1), (1, -1), (-1, 1), (-1, -1)]


def profile(e, mu):
    """Return the profile of equation (1), computed independently with forty digits."""
    with mpmath.workdps(40):
        e, mu = mpmath.mpf(e), mpmath.mpf(mu)
        return mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu)


def at_angle(correlation, mu, e, corners, reach=8.0, points=401):
    """Return E max(0, 1 - exp(e - loss)), where loss is the worst over all gradients of two records at that angle.

    <b, v> + ||v||^2/2 is convex in the two gradients, so the worst case is a corner of the square of both lengths.
    """
    z = np.linspace(-reach, reach, points)
    x, other = np.meshgrid(z, z, indexing="ij")
    y = correlation * x + math.sqrt(1 - correlation**2) * other
    m = mu / 2
    losses = [m * (p * x + q * y) + m**2 * (p * p + q * q + 2 * p * q * correlation) / 2 for p, q in corners]
    weights = norm.pdf(x) * norm.pdf(other) * (z[1] - z[0]) ** 2
    return float(np.sum(weights * np.maximum(0, -np.expm1(e - np.max(losses, axis=0)))))


# ------------------------------------------------------------------------------------------------------- volumes


@pytest.mark.parametrize("n", [1, 7, 10**6])
@pytest.mark.parametrize("smoothness", [0.0, 1e-9, 0.25, 30.0])
def test_the_volume_loss_is_the_logarithm_rounded_up(n, smoothness):
    with mpmath.workdps(40):
        exact = mpmath.log1p(mpmath.mpf(smoothness) / (n * mpmath.mpf(0.01)))
        found = volume_loss(smoothness, n, 0.01)
        assert exact * (1 - mpmath.mpf("3e-16")) <= found <= exact * (1 + mpmath.mpf("1e-14"))


def test_the_volume_loss_bounds_every_ratio_of_determinants_and_is_attained():
    rng = np.random.default_rng(0)
    n, m, beta = 3, 0.2, 1.5
    worst = 0.0
    for d in (1, 2, 3):
        for _ in range(300):
            common = n * m * np.eye(d)
            for _ in range(rng.integers(0, n)):
                x = rng.standard_normal(d)
                common = common + rng.random() * beta * np.outer(x, x) / (x @ x)
            both = []
            for _ in range(2):
                x = rng.standard_normal(d)
                both.append(common + rng.choice([0, rng.random(), 1]) * beta * np.outer(x, x) / (x @ x))
            worst = max(worst, np.linalg.slogdet(both[0])[1] - np.linalg.slogdet(both[1])[1])
    assert 0.999 * volume_loss(beta, n, m) < worst <= volume_loss(beta, n, m) * (1 + 1e-12)


@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 10.0, 1e4])
def test_the_least_strong_convexity_spends_all_of_epsilon_on_volume(epsilon):
    least = least_strong_convexity(0.25, 100, epsilon)
    if epsilon < 700:
        assert volume_loss(0.25, 100, least) == pytest.approx(epsilon, rel=1e-12)
    assert volume_loss(0.25, 100, least * 1.001) < epsilon


# --------------------------------------------------------------------------- the worst angle between two records


@pytest.mark.parametrize("mu", [0.1, 0.6, 2.0])
@pytest.mark.parametrize("relative", [0.0, 0.1, 0.24, 0.26, 0.5, 1.0, 2.0])
def test_no_angle_is_worse_than_records_on_one_line(mu, relative):
    """e = relative * mu^2 ranges from values at which all angles are nearly equal to values decided by the tails."""
    e = relative * mu**2
    angles = np.cos(np.linspace(0, np.pi, 9))
    one = [at_angle(c, mu, e, ONE_SIDED) for c in angles]
    two = [at_angle(c, mu, e, TWO_SIDED) for c in angles]
    claims = {side: objective_delta(e, mu, 0.0, volume=0.0, is_one_sided=side) for side in (True, False)}
    accuracy = 4e-3  # of the quadrature
    assert max(one) <= claims[True] * (1 + accuracy)
    assert max(two) <= claims[False] * (1 + accuracy)
    assert one[0] == pytest.approx(claims[True], rel=accuracy)  # attained
    if relative >= 0.5:
        assert two[0] == pytest.approx(claims[False], rel=accuracy)


@pytest.mark.parametrize("e", [-1.0, -0.1, 0.05, 0.4, 1.5])
def test_two_sided_losses_grow_as_records_turn_towards_one_line(e):
    values = [at_angle(c, 1.0, e, TWO_SIDED) for c in np.linspace(0, 1, 7)]
    assert (np.diff(values) >= -1e-5).all()


def test_it_is_tighter_than_the_length_of_the_noise_in_the_plane_of_two_records():
    """The bound <b, v> <= 2L |b in the plane|, a Rayleigh length, is valid for both kinds of losses, but looser."""
    for mu, e in ((0.3, 1.0), (0.3, 0.3), (1.0, 3.0)):
        start = max(0.0, e / mu - mu / 2)
        by_length = quad(lambda r: r * math.exp(-r * r / 2) * -math.expm1(e - mu * r - mu**2 / 2), start, start + 12)[0]  # noqa: B023
        claims = [objective_delta(e, mu, 0.0, volume=0.0, is_one_sided=side) for side in (True, False)]
        assert claims[0] == pytest.approx(claims[1] / 2)
        assert claims[1] < by_length


@pytest.mark.parametrize("is_one_sided", [True, False])
def test_no_adversary_that_sees_the_noise_wins_more(is_one_sided):
    """Monte Carlo in three dimensions, with the worst pair of gradients of two fixed records for each tilt b."""
    rng = np.random.default_rng(1)
    mu, e, draws = 0.8, 1.2, 200_000
    claim = objective_delta(e, mu, 0.0, volume=0.0, is_one_sided=is_one_sided)
    b = rng.standard_normal((draws, 3))
    won = []
    for other in ([1, 0, 0], [0.95, 0.3, 0], [0.5, 0.5, 0.5], [0, 1, 0], [-1, 0.1, 0], [-1, 0, 0]):
        u, w = np.array([1.0, 0, 0]), np.array(other) / np.linalg.norm(other)
        vs = [mu / 2 * (p * u + q * w) for p, q in (ONE_SIDED if is_one_sided else TWO_SIDED)]
        losses = np.max([b @ v + v @ v / 2 for v in vs], axis=0)
        won.append(float(np.mean(np.maximum(0, -np.expm1(e - losses)))))
    assert max(won) <= claim + 5 * math.sqrt(claim / draws)
    assert max(won) >= claim - 5 * math.sqrt(claim / draws)


# ----------------------------------------------------------------------------------------- noise on the minimiser


@pytest.mark.parametrize("is_one_sided", [True, False])
@pytest.mark.parametrize(
    ("e", "mu", "output_mu"), [(1.0, 0.3, 0.03), (0.2, 0.3, 0.1), (0.05, 0.3, 0.3), (0.0, 1.0, 2.0)]
)
def test_output_noise_adds_its_square(is_one_sided, e, mu, output_mu):
    """Average the exact bound for the tilt over the privacy loss of the output noise, which is Gaussian."""

    def of_tilt(room):
        if is_one_sided:
            return float(profile(room, mu)) if room >= 0 else 1 - math.exp(room) * (1 - float(profile(0, mu)))
        start = max(0.0, room / mu - mu / 2)
        return 2 * (norm.cdf(-start) - math.exp(room) * norm.cdf(-start - mu))

    def integrand(z):
        return norm.pdf(z) * of_tilt(e - output_mu * z - output_mu**2 / 2)

    exact = quad(integrand, -12, 12, points=[e / output_mu - output_mu / 2], limit=200)[0]
    claim = objective_delta(e, mu, output_mu, volume=0.0, is_one_sided=is_one_sided)
    assert exact <= claim * (1 + 1e-9)
    if e >= 1:  # where budgets are spent, nothing is lost
        assert exact >= claim * (1 - 1e-6)


# --------------------------------------------------------------------------------------------------- calibration

deltas = st.floats(1e-12, 0.3)


@settings(max_examples=300, deadline=None)
@given(deltas, st.floats(1e-3, 5), st.floats(0, 1), st.floats(0, 1), st.booleans())
@example(0.3, 5.0, 1.0, 0.0, True)
@example(1e-12, 1e-3, 1.0, 1.0, True)
def test_epsilon_and_delta_are_inverse_and_round_up(delta, mu, share, volume, is_one_sided):
    fields = {"mu": mu, "output_mu": share * mu, "volume": volume, "is_one_sided": is_one_sided}
    epsilon = objective_epsilon(delta, **fields)
    assert epsilon >= volume
    assert objective_delta(epsilon, **fields) <= delta * (1 + 1e-9)
    if share <= 0.1 and epsilon - volume > mu:  # and no larger than need be
        assert objective_delta(volume + (epsilon - volume) * (1 - 1e-5), **fields) > delta * (1 - 2e-6)


@settings(max_examples=200, deadline=None)
@given(st.floats(1e-3, 30), deltas, st.floats(0, 0.99), st.booleans())
@example(1e-3, 0.3, 0.0, True)
def test_the_calibrated_noise_meets_epsilon_and_never_exceeds_it(epsilon, delta, share, is_one_sided):
    fields = {"volume": share * epsilon, "is_one_sided": is_one_sided}
    mu, output_mu = objective_mu(Budget(epsilon, delta), **fields)
    reached = objective_epsilon(delta, mu, output_mu, **fields)
    assert reached <= epsilon
    if (1 - share) * epsilon > 1.5 * mu or not is_one_sided:  # a delta that allows more is not worth the trouble
        assert reached - share * epsilon >= (1 - share) * epsilon * (1 - 1e-4)
    assert output_mu**2 == pytest.approx(OUTPUT_SHARE * (mu**2 + output_mu**2))


@pytest.mark.parametrize(("epsilon", "delta", "volume"), [(1.0, 1e-5, 0.2), (0.3, 1e-8, 0.0), (8.0, 1e-6, 3.0)])
@pytest.mark.parametrize("is_one_sided", [True, False])
def test_mu_against_a_root_in_forty_digits(epsilon, delta, volume, is_one_sided):
    sides = 1 if is_one_sided else 2
    low, root = 0.01, 10.0
    for _ in range(50):
        middle = (low + root) / 2
        low, root = (middle, root) if sides * profile(epsilon - volume, middle) < delta else (low, middle)
    mu, output_mu = objective_mu(Budget(epsilon, delta), volume=volume, is_one_sided=is_one_sided)
    assert (1 - 1e-6) * root < math.hypot(mu, output_mu) < root


def test_one_sided_losses_need_a_few_percent_less_noise():
    one, two = (objective_mu(Budget(1.0, 1e-5), volume=0.1, is_one_sided=side)[0] for side in (True, False))
    assert 1.03 < one / two < 1.06


@pytest.mark.parametrize("volume", [1.0, 1.5])
def test_a_budget_below_the_volume_loss_is_refused(volume):
    with pytest.raises(ValueError, match="volume loss"):
        objective_mu(Budget(1.0, 1e-5), volume=volume, is_one_sided=True)
    if volume > 1:
        with pytest.raises(ValueError, match="volume loss"):
            objective_delta(1.0, 0.3, 0.03, volume=volume, is_one_sided=True)


@pytest.mark.parametrize(("room", "mu", "output_mu"), [(0.3, 1.0, 2.0), (1.0, 0.3, 0.4), (0.0, 2.0, 1.0)])
def test_the_cross_term_by_hand(room, mu, output_mu):
    by_hand = (2 * norm.cdf(mu / 2) - 1) * math.exp(room) * norm.cdf(-room / output_mu - output_mu / 2)
    assert _cross_term(room, mu, output_mu) == pytest.approx(by_hand, rel=1e-12)
    assert _cross_term(room, mu, 0.0) == 0.0


@pytest.mark.parametrize("mu", [1e-9, 0.1, 0.7, 2.0])
def test_volume_and_noise_add_up_without_rounding_down(mu):
    """The margin of the noise alone is far below the rounding of a sum with a large volume loss."""
    rng = np.random.default_rng(0)
    for volume in rng.uniform(0.1, 30.0, 20).tolist():
        parts = Fraction(volume) + Fraction(gdp_epsilon(mu, 1e-5 / 2))
        found = Fraction(objective_epsilon(1e-5, mu, 0.0, volume=volume, is_one_sided=False))
        assert parts <= found <= parts * (1 + Fraction(1, 10**15))


def test_a_delta_is_never_above_one():
    assert objective_delta(0.0, 5.0, 0.0, volume=0.0, is_one_sided=False) == 1.0
    assert objective_delta(0.0, 5.0, 0.0, volume=0.0, is_one_sided=True) == pytest.approx(gdp_delta(5.0, 0.0))
    assert objective_delta(0.0, 5.0, 5.0, volume=0.0, is_one_sided=True) <= 1.0


@pytest.mark.parametrize(("mu", "output_mu"), [(0.3, 0.2), (1.0, 1.0), (0.1, 1.0)])
def test_the_one_sided_delta_is_the_smaller_of_two_bounds(mu, output_mu):
    for epsilon in (0.0, 0.3, 2.0):
        total = gdp_delta(math.hypot(mu, output_mu), epsilon)
        both = 2 * total, total + _cross_term(epsilon, mu, output_mu)
        found = objective_delta(epsilon + 0.5, mu, output_mu, volume=0.5, is_one_sided=True)
        assert found == pytest.approx(min(1.0, *both), rel=1e-12)


@pytest.mark.parametrize("output_mu", [0.05, 0.5, 2.0])
def test_the_one_sided_epsilon_pays_for_the_cross_term_or_for_both_sides(output_mu):
    delta, mu = 1e-6, 0.3
    total = math.hypot(mu, output_mu)
    # Half of exp(-x^2/2) is a millionth of delta at this x, in deviations beyond the mean of the loss.
    least = output_mu * (math.sqrt(2 * math.log(1 / (2 * 1e-6 * delta))) + output_mu / 2)
    by_hand = min(gdp_epsilon(total, delta / 2), max(gdp_epsilon(total, delta * (1 - 1e-6)), least))
    found = objective_epsilon(delta, mu, output_mu, volume=0.0, is_one_sided=True)
    assert found == pytest.approx(by_hand, rel=1e-12)


def test_the_noise_on_the_result_takes_a_hundredth():
    mu, output_mu = objective_mu(Budget(1.0, 1e-5), volume=0.1, is_one_sided=True)
    assert output_mu**2 / (mu**2 + output_mu**2) == pytest.approx(0.01, rel=1e-12)


def test_enormous_budgets_have_the_noise_of_the_largest_epsilon():
    largest, larger = (objective_mu(Budget(e, 1e-5), volume=1.0, is_one_sided=True) for e in (1e6, 1e9))
    assert larger == largest


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("smoothness", lambda: volume_loss(-1e-9, 5, 0.1)),
        ("n", lambda: volume_loss(1.0, 0, 0.1)),
        ("strong_convexity", lambda: volume_loss(1.0, 5, 0.0)),
        ("delta", lambda: objective_epsilon(0.0, 1.0, 0.1, volume=0.1, is_one_sided=True)),
    ],
)
def test_impossible_arguments_are_named(name, call):
    with pytest.raises(ValueError, match=rf"^{name} must"):
        call()
