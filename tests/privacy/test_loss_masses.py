"""Batches of fixed size: the dominating pair, its grid, and the truth by brute force on tiny data."""

import functools
import itertools
import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.special import logsumexp
from scipy.stats import norm

from privet.privacy import Adjacency, gdp_delta
from privet.privacy.analyses.accounting import epsilon
from privet.privacy.analyses.loss_masses import coarser, connect_the_dots, fixed_size_losses, loss_grid, mixture_losses
from privet.privacy.events import Composition, FixedSizeGaussian, GaussianRelease

REPLACE = Adjacency.REPLACE_ONE
SIGMAS = [0.3, 1.0, 5.0, 60.0]
RATES = [1e-4, 0.01, 0.3, 0.999]


def gaussian_divergence(sigma, a):
    """Return H_a(N(1, sigma^2), N(0, sigma^2)) for a >= 1."""
    x = 0.5 + sigma**2 * math.log(a)
    return norm.sf((x - 1) / sigma) - a * norm.sf(x / sigma)


def amplified_divergence(sigma, rate, a):
    """Return H_a(M, Q) = rate H_a'(P, Q), a = 1 + rate (a'-1), by Theorem 2 of Balle, Barthe and Gaboardi."""
    return rate * gaussian_divergence(sigma, 1 + (a - 1) / rate)


def grid_of(sigma, rate, cells=4000):
    largest = math.log1p(rate * math.expm1((1 + 20 * sigma) / (2 * sigma**2)))
    return largest / cells


def profile(losses, interval, epsilon):
    values = interval * (losses.lowest + np.arange(losses.probabilities.size))
    above = values > epsilon
    return losses.infinite + float(losses.probabilities[above] @ -np.expm1(epsilon - values[above]))


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("rate", RATES)
def test_the_grid_lies_just_above_the_exact_profile_in_both_directions(sigma, rate):
    interval = grid_of(sigma, rate)
    losses = fixed_size_losses(sigma, rate, interval)
    for share in (0.0, 0.003, 0.02, 0.1, 0.3):
        loss = share * interval * 4000
        exact = amplified_divergence(sigma, rate, math.exp(loss))
        mirrored = math.exp(-loss) * exact - math.expm1(-loss)  # H_a(A, B) = a H_{1/a}(B, A) + 1 - a
        assert exact * (1 - 1e-12) - 1e-16 <= profile(losses, interval, loss) <= exact * 1.02 + 1e-20
        assert mirrored * (1 - 1e-12) - 1e-16 <= profile(losses, interval, -loss)
        assert profile(losses, interval, -loss) <= mirrored * (1 + 1e-6) + 0.02 * exact


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("rate", RATES)
def test_the_masses_are_a_law_and_its_mirror_image(sigma, rate):
    losses = fixed_size_losses(sigma, rate, grid_of(sigma, rate))
    masses = losses.probabilities
    assert np.all(masses >= 0)
    assert masses.sum() + losses.infinite == pytest.approx(1.0, abs=1e-13)
    assert losses.lowest == -(masses.size // 2)
    values = grid_of(sigma, rate) * np.arange(1, masses.size // 2)
    right, left = masses[masses.size // 2 + 1 : -1], masses[masses.size // 2 - 1 : 0 : -1]
    np.testing.assert_allclose(left, right * np.exp(-values), rtol=1e-12)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 5.0])
@pytest.mark.parametrize("rate", [0.01, 0.3, 0.999])
def test_a_coarse_grid_has_the_exact_profile_at_its_points(sigma, rate):
    """This is what connecting the dots means. Between its points, the profile is interpolated from above."""
    interval = grid_of(sigma, rate, 25)
    losses = fixed_size_losses(sigma, rate, interval)
    for cell in range(20):
        exact = amplified_divergence(sigma, rate, math.exp(cell * interval))
        assert profile(losses, interval, cell * interval) == pytest.approx(exact, rel=1e-9, abs=1e-15)
        assert profile(losses, interval, (cell + 0.5) * interval) > amplified_divergence(
            sigma, rate, math.exp((cell + 0.5) * interval)
        )


def test_masses_by_hand():
    """The mass of each cell is split over its ends so that its mass under both laws is kept."""
    losses = np.array([0.0, 0.5, 1.0])
    lower, upper = np.array([0.2, 0.1]), np.array([0.15, 0.05])  # at the two ends of each of two cells
    in_q = lower * np.exp(-losses[:-1]) + upper * np.exp(-losses[1:])
    above_p, above_q = np.array([0.6, 0.25, 0.1]), np.array([in_q.sum(), in_q[1], 0.0]) + 0.02
    zero, one, two = 0.2, 0.15 + 0.1, 0.05
    by_hand = [two * math.exp(-1) + 0.02, one * math.exp(-0.5), 2 * zero + 1 - 0.6 - above_q[0], one, two]
    found = connect_the_dots(losses, above_p, above_q)
    np.testing.assert_allclose(found.probabilities, by_hand, rtol=1e-12)
    assert (found.lowest, found.infinite) == (-2, 0.1)
    assert found.probabilities.sum() + found.infinite == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize(("largest", "interval"), [(0.0, 0.1), (1.0, 0.3), (0.9, 0.3), (5.0, 7.0)])
def test_a_grid_of_losses_begins_at_zero_and_ends_just_above_the_largest(largest, interval):
    grid = loss_grid(largest, interval)
    assert grid[0] == 0
    np.testing.assert_allclose(np.diff(grid), interval, rtol=1e-12)
    assert largest + interval * (1 - 1e-9) <= grid[-1] <= largest + 2.01 * interval


# --- the truth ------------------------------------------------------------------------------------------------------


def density(contributions, size, noise, x):
    """Return the density of the noisy sum over a uniformly random batch."""
    means = [sum(batch) for batch in itertools.combinations(contributions, size)]
    logs = logsumexp([-((x - mean) ** 2) / (2 * noise**2) for mean in means], axis=0)
    return np.exp(logs) / (len(means) * noise * math.sqrt(2 * math.pi))


def neighbours(n, size, noise, x):
    """Return all pairs of output laws of tiny neighbouring datasets whose contributions are -C, 0 or C."""
    for others in itertools.combinations_with_replacement((-1.0, 0.0, 1.0), n - 1):
        for before, after in itertools.permutations((-1.0, 0.0, 1.0), 2):
            yield density([before, *others], size, noise, x), density([after, *others], size, noise, x)


@pytest.mark.parametrize(("n", "size"), [(2, 1), (3, 1), (3, 2)])
@pytest.mark.parametrize("noise", [1.2, 4.0])
@pytest.mark.parametrize("delta", [1e-4, 0.03])
def test_two_steps_on_any_two_pairs_of_tiny_datasets_keep_within_the_claim(n, size, noise, delta):
    """In the second step an adaptive adversary may use another pair of laws, or the same pair in reverse."""
    certified = epsilon(FixedSizeGaussian(noise, n, size, 2), REPLACE, delta)
    x = np.linspace(-n - 9 * noise, n + 9 * noise, 500)
    width = x[1] - x[0]
    worst = 0.0
    for (p1, q1), (p2, q2) in itertools.combinations_with_replacement(neighbours(n, size, noise, x), 2):
        gap = np.multiply.outer(p1, p2) - math.exp(certified) * np.multiply.outer(q1, q2)
        worst = max(worst, float(np.maximum(gap, 0, out=gap).sum()) * width**2)
    assert worst <= delta * (1 + 2e-3)  # the sum's own error at the kink
    assert worst > 0.2 * delta  # the claim is not much larger than necessary


@functools.cache
def losses_of_one_step(noise, rate):
    """Return the losses of one step of (M, Q), bounded from below by dp-accounting."""
    return pld.from_gaussian_mechanism(
        noise / 2,
        sampling_prob=rate,
        value_discretization_interval=3e-5,
        pessimistic_estimate=False,
        use_connect_dots=False,
    )


@pytest.mark.parametrize("steps", [1, 3, 40, 401])
@pytest.mark.parametrize(("noise", "rate"), [(1.5, 0.02), (6.0, 0.02), (4.0, 0.3), (40.0, 0.3), (8.0, 0.95)])
def test_lies_between_a_real_dataset_and_a_little_above(noise, rate, steps):
    """All records but one are at -C, and one is at C or -C."""
    n = 1000
    event = FixedSizeGaussian(noise, n, int(rate * n), steps)
    attained = losses_of_one_step(noise, rate).self_compose(steps).get_epsilon_for_delta(1e-5)
    claimed = epsilon(event, REPLACE, 1e-5)
    assert attained * (1 - 1e-9) <= claimed
    assert claimed <= 1.17 * attained + 0.02


def test_two_steps_of_the_pair_dominate_two_of_its_parts_turned_either_way():
    noise, rate, order = 2.0, 0.5, math.exp(0.05)
    x = np.linspace(-16.0, 18.0, 1500)
    width = x[1] - x[0]
    q, p = norm.pdf(x, 0, noise), norm.pdf(x, 2, noise)
    m = (1 - rate) * q + rate * p

    def two_steps(pairs):
        (p1, q1), (p2, q2) = pairs
        gap = np.multiply.outer(p1, p2) - order * np.multiply.outer(q1, q2)
        return float(np.maximum(gap, 0).sum()) * width**2

    turned = [two_steps(pairs) for pairs in itertools.product([(m, q), (q, m)], repeat=2)]
    losses = fixed_size_losses(noise / 2, rate, 1e-3)
    twice = np.convolve(losses.probabilities, losses.probabilities)
    values = 1e-3 * (2 * losses.lowest + np.arange(twice.size))
    dominated = float(twice[values > 0.05] @ -np.expm1(0.05 - values[values > 0.05]))
    assert max(turned) <= dominated < 1.5 * max(turned)


@pytest.mark.parametrize(("n", "size", "noise"), [(10**6, 1, 1.0), (10**5, 100, 2.0), (1000, 500, 300.0)])
def test_the_rounding_of_the_transform_is_within_its_allowance(n, size, noise):
    """The result is compared with the same convolution in extended precision."""
    steps, sigma, rate = 4096, noise / 2, size / n
    interval = grid_of(sigma, rate, 3000)
    losses = fixed_size_losses(sigma, rate, interval)
    padded = np.zeros(1 << 18)
    padded[: losses.probabilities.size] = losses.probabilities
    padded = np.roll(padded, losses.lowest)
    double = np.fft.irfft(np.fft.rfft(padded) ** steps)
    spectrum = np.fft.rfft(padded.astype(np.longdouble))
    assert spectrum.dtype == np.clongdouble
    for _ in range(12):
        spectrum = spectrum * spectrum
    extended = np.fft.irfft(spectrum)
    values = interval * np.arange(padded.size // 2)
    weights = -np.expm1(-values)
    for cut in (0.0, 5 * interval, values[1000]):
        weights = np.where(values > cut, -np.expm1(np.minimum(cut - values, 0.0)), 0.0)
        off = abs(float(weights @ (double[: values.size] - extended[: values.size])))
        assert off <= 1e-14 + 4e-16 * steps


@pytest.mark.parametrize("rate", [1e-3, 0.1])
def test_composes_with_gaussians_and_other_batches(rate):
    fixed, other = FixedSizeGaussian(6.0, 1000, int(1000 * rate), 50), FixedSizeGaussian(9.0, 1000, 200, 10)
    gaussian = GaussianRelease(0.5)
    whole = epsilon(Composition((fixed, other, gaussian)), REPLACE, 1e-5)
    parts = [epsilon(part, REPLACE, 1e-5) for part in (fixed, other, gaussian)]
    assert max(parts) < whole < sum(parts)
    assert whole <= epsilon(Composition((fixed, other, gaussian)), REPLACE, 1e-5, analysis="rdp")


def test_needs_half_the_noise_of_the_renyi_bound():
    """The plan of DP-SRM on a9a has 186 batches of 700 of 32,561 records."""
    event = FixedSizeGaussian(10.5, 32_561, 700, 186)
    assert epsilon(event, REPLACE, 1e-5) < 0.2
    assert epsilon(event, REPLACE, 1e-5, analysis="rdp") > 0.4


# --- mixtures of Gaussians ------------------------------------------------------------------------------------------

MIXTURES = [
    ([1.0], [1.0]),
    ([0.01, 3.0], [0.999, 0.001]),
    ([0.5, 0.5, 0.5], [0.2, 0.3, 0.5]),
    (2 / 4 / np.sqrt(np.arange(1, 41)), np.full(40, 1 / 40)),
    (2 / 2 / np.sqrt(np.arange(1, 3001)), np.full(3000, 1 / 3000)),
    (np.geomspace(1e-6, 2.0, 700), np.full(700, 1 / 700)),
]


def average(mus, chances, epsilon):
    return sum(chance * gdp_delta(mu, epsilon) for mu, chance in zip(mus, chances, strict=True))


@pytest.mark.parametrize(("mus", "chances"), MIXTURES, ids=range(len(MIXTURES)))
def test_the_grid_of_a_mixture_lies_just_above_the_average_in_both_directions(mus, chances):
    """This holds although thousands of components are rounded up to a few hundred."""
    mus, chances = np.array(mus), np.array(chances)
    interval = mus.max() * (mus.max() / 2 + 10) / 8000
    losses = mixture_losses(mus, chances, interval)
    for share in (0.0, 0.003, 0.02, 0.1, 0.3):
        loss = share * interval * 8000
        exact = average(mus, chances, loss)
        mirrored = math.exp(-loss) * exact - math.expm1(-loss)
        assert exact * (1 - 1e-12) - 1e-16 <= profile(losses, interval, loss) <= exact * 1.02 + 1e-20
        assert mirrored * (1 - 1e-12) - 1e-16 <= profile(losses, interval, -loss)
        assert profile(losses, interval, -loss) <= mirrored * (1 + 1e-6) + 0.02 * exact


@pytest.mark.parametrize(("mus", "chances"), MIXTURES, ids=range(len(MIXTURES)))
def test_the_masses_of_a_mixture_are_a_law_and_do_not_depend_on_the_order(mus, chances):
    mus, chances = np.array(mus), np.array(chances)
    interval = mus.max() * (mus.max() / 2 + 10) / 3000
    losses = mixture_losses(mus, chances, interval)
    assert np.all(losses.probabilities >= 0)
    assert losses.probabilities.sum() + losses.infinite == pytest.approx(1.0, abs=1e-12)
    assert losses.infinite < 1e-20
    shuffled = np.random.default_rng(0).permutation(mus.size)
    again = mixture_losses(mus[shuffled], chances[shuffled], interval)
    np.testing.assert_allclose(again.probabilities, losses.probabilities, rtol=1e-9, atol=1e-16)


def test_the_grid_of_a_mixture_reaches_as_far_as_its_largest_losses():
    losses = mixture_losses(np.array([0.01, 20.0]), np.array([0.5, 0.5]), 0.2)
    assert losses.infinite < 1e-20


def test_a_mixture_without_any_loss_has_all_its_mass_at_zero():
    losses = mixture_losses(np.zeros(2), np.array([0.4, 0.6]), 0.1)
    places = losses.lowest + np.flatnonzero(losses.probabilities)
    assert (places.tolist(), losses.probabilities.sum(), losses.infinite) == ([0], 1.0, 0.0)


@pytest.mark.parametrize("interval", [0.02, 0.3])
def test_a_coarse_grid_of_a_mixture_has_the_exact_profile_at_its_points(interval):
    mus, chances = np.array([0.2, 1.0, 0.6]), np.array([0.5, 0.2, 0.3])
    losses = mixture_losses(mus, chances, interval)
    for cell in range(15):
        exact = average(mus, chances, cell * interval)
        assert profile(losses, interval, cell * interval) == pytest.approx(exact, rel=1e-9, abs=1e-16)
        assert profile(losses, interval, (cell + 0.5) * interval) > average(mus, chances, (cell + 0.5) * interval)


def test_a_mixture_of_few_components_keeps_those_that_reveal_anything():
    mus, chances = coarser(np.array([0.5, 0.0, 2.0, 1.0]), np.array([0.1, 0.2, 0.3, 0.4]))
    assert (mus.tolist(), chances.tolist()) == ([2.0, 1.0, 0.5], [0.3, 0.4, 0.1])
    many = np.linspace(1.0, 2.0, 256)
    assert np.array_equal(coarser(many, np.full(256, 1 / 256))[0], many[::-1])


@pytest.mark.parametrize("least", [0.3, 1e-3, 1e-12])
@pytest.mark.parametrize("number", [257, 1000])
def test_many_components_are_rounded_up_a_little(number, least):
    mus, chances = np.geomspace(least, 3.0, number), np.arange(1.0, number + 1)
    chances /= chances.sum()
    kept, masses = coarser(mus, chances)
    assert kept.size == masses.size == 256
    assert np.array_equal(kept[:64], mus[::-1][:64])
    assert masses.sum() == pytest.approx(1.0, rel=1e-12)
    order = np.argsort(kept)
    above = masses.sum() - np.concatenate(([0.0], np.cumsum(masses[order])))  # mass of the components from each one on
    for mu in mus[:: max(1, number // 100)]:
        exact = chances[mus >= mu].sum()
        assert above[np.searchsorted(kept[order], mu * (1 - 1e-12))] >= exact * (1 - 1e-9)
        assert above[np.searchsorted(kept[order], mu * 1.08 + 4e-6)] <= exact * (1 + 1e-9)
