"""Amplification by iteration: known figures, a general solver, and the truth on a grid."""

import itertools
import math
from dataclasses import replace

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit, ndtr

from privet.privacy import Adjacency, gdp_delta, gdp_epsilon
from privet.privacy.analyses.accounting import epsilon, merged
from privet.privacy.analyses.fixed_order import VisitSchedule, _restarts, place_mus
from privet.privacy.analyses.gaussian import averaged_epsilon
from privet.privacy.events import Composition, GaussianRelease, LastIterate, PureRelease, Secret, event_from_dict
from privet.privacy.iteration import last_iterate_mu, per_record_epsilon

REPLACE = Adjacency.REPLACE_ONE
ROUNDED_UP = 1 + 3e-10  # by how much a mu may exceed the truth
PROFILE = (0.0, 0.01, 0.1, 0.3, 1.0, 2.0, 4.0)  # epsilons at which profiles are compared


def rounded_up_from(exact):
    """Return a comparison with the exact value: not below it, and above it by a rounding error only."""
    return pytest.approx(float(exact) * (1 + 1.5e-10), rel=1.5e-10, abs=1e-300)


# ------------------------------------------------------------------------------------------------- known figures


@pytest.mark.parametrize(
    ("passes", "first", "last"), [(1, 0.045, 1.993), (10, 0.160, 2.003), (100, 0.561, 2.101), (1000, 1.993, 2.942)]
)
def test_known_values_of_the_errata(passes, first, last):
    """n = 1000, L = beta = eta = 1, sigma = 4, delta = 1e-5."""
    found = per_record_epsilon(1000, passes, noise_multiplier=4.0, delta=1e-5)
    assert found.shape == (1000,)
    assert found[0] == pytest.approx(first, abs=5.1e-4)
    assert found[-1] == pytest.approx(last, abs=5.1e-4)
    assert found.max() == epsilon(LastIterate(4.0, n=1000, passes=passes), REPLACE, 1e-5) == found[-1]


@pytest.mark.parametrize(("passes", "expected"), [(1, 0.937), (10, 0.943), (100, 1.007)])
def test_known_values_of_a_secret_order(passes, expected):
    event = LastIterate(4.0, n=1000, passes=passes, secret=Secret.ORDER)
    assert epsilon(event, REPLACE, 1e-5) == pytest.approx(expected, abs=5.1e-4)


def test_known_value_of_a_secret_stop():
    """docs/errata.md (d): n = 1000, sigma = 8L, delta = 1e-6. Without averaging, epsilon is 1.061."""
    event = LastIterate(8.0, n=1000, secret=Secret.STOP)
    assert epsilon(event, REPLACE, 1e-6) == pytest.approx(0.594, abs=5.1e-4)
    assert epsilon(replace(event, secret=Secret.NOTHING), REPLACE, 1e-6) == pytest.approx(1.061, abs=5.1e-4)
    assert epsilon(event, REPLACE, 1e-6, analysis="rdp") == pytest.approx(0.738, abs=2e-2)


@pytest.mark.parametrize("n", [1, 2, 3, 40, 1000])
@pytest.mark.parametrize(("bound", "sigma"), [(1.0, 4.0), (0.3, 7.7)])
def test_theorem_23_at_every_index(n, bound, sigma):
    """mu_t^2 = 4 L^2 / (sigma^2 (n - t + 1)), independent of the step size."""
    exact = 2 * bound / sigma / np.sqrt(n - np.arange(n))
    for step_size in (1.0, 0.013):
        mus = LastIterate(sigma / bound, n=n, step_size=step_size).place_mus()
        np.testing.assert_allclose(mus, exact, rtol=1e-9)
        assert np.all(mus >= exact)
    for t in {0, n // 2, n - 1}:
        shifts = np.zeros(n)
        shifts[t] = 2 * bound * 0.013
        assert last_iterate_mu(shifts, sigma * 0.013) == pytest.approx(exact[t], rel=1e-9)


@pytest.mark.parametrize(("n", "passes"), [(1, 7), (2, 2), (5, 3), (30, 30), (1000, 1), (1000, 17), (1000, 1000)])
def test_theorem_35_at_every_index(n, passes):
    """mu_i^2 = (4 L^2 / sigma^2) ((E - 1)/n + 1/(n - i + 1)), which is optimal; the theorem has E = n, i = n."""
    sigma = 4.0
    exact = 2 / sigma * np.sqrt((passes - 1) / n + 1 / (n - np.arange(n)))
    mus = LastIterate(sigma, n=n, passes=passes).place_mus()
    np.testing.assert_allclose(mus, exact, rtol=1e-9)
    assert np.all(mus >= exact)
    if n * passes <= 20_000:
        for i in {0, n // 2, n - 1}:
            shifts = np.zeros(n * passes)
            shifts[i::n] = 2.0
            assert last_iterate_mu(shifts, sigma) == pytest.approx(exact[i], rel=1e-9)


def noisy_gd(c, steps):
    """Return the mu of strongly convex noisy gradient descent whose gradients differ by twice the noise."""
    c = mp.mpf(c)
    return 2 * mp.sqrt((1 - c**steps) / (1 + c**steps) * (1 + c) / (1 - c))


def noisy_cgd(c, length, passes):
    """Return the mu of the last of at least two batches in cyclic noisy descent. For one batch use ``noisy_gd``."""
    c = mp.mpf(c)
    later = (1 - c ** (length * (passes - 1))) / (1 + c ** (length * (passes - 1)))
    return 2 * mp.sqrt(1 + c ** (2 * length - 2) * (1 - c**2) / (1 - c**length) ** 2 * later)


@pytest.mark.parametrize("c", [0.03, 0.5, 0.9, 0.999, 1 - 1e-6, 1 - 1e-9, 1 - 1e-12])
@pytest.mark.parametrize("steps", [1, 2, 3, 50, 3000, 10**6, 10**12])
def test_strongly_convex_noisy_descent_has_its_closed_form(c, steps):
    with mp.workdps(60):
        exact = noisy_gd(c, steps)
    assert LastIterate(1.0, n=1, passes=steps, contraction=c).place_mus()[0] == pytest.approx(float(exact), rel=1e-9)
    if steps <= 3000 or (steps == 10**6 and c in {0.5, 0.999}):  # weights of 0.5^(10^6) underflow
        assert last_iterate_mu(np.ones(steps), 0.5, c) == pytest.approx(float(exact), rel=1e-9)


@pytest.mark.parametrize("c", [0.03, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("length", [2, 7, 300])
@pytest.mark.parametrize("passes", [1, 2, 5, 10_000])
def test_strongly_convex_cyclic_descent_has_its_closed_form_at_the_last_batch(c, length, passes):
    with mp.workdps(60):
        exact = noisy_cgd(c, length, passes)
    for size in (1, 10):
        event = LastIterate(1.0, n=length * size, size=size, passes=passes, contraction=c)
        assert event.place_mus()[-1] == pytest.approx(float(exact), rel=1e-9)
    if length * passes <= 5000:
        shifts = np.zeros(length * passes)
        shifts[length - 1 :: length] = 1.0
        assert last_iterate_mu(shifts, 0.5, c) == pytest.approx(float(exact), rel=1e-9)


def test_known_values_of_the_errata_with_a_diameter():
    """T = 1e5, n = 1000, L = 2, eta = D = 1, sigma = 0.02; L/b = 0.5, l = 20, eta = 0.02, D = 1, sigma = 3."""
    shifts = np.full(10**5, 2 / 1000)
    assert last_iterate_mu(shifts, 0.02, diameter=1.0) == pytest.approx(4.472, abs=5e-4)
    assert last_iterate_mu(shifts, 0.02) == pytest.approx(31.62, abs=5e-3)
    event = LastIterate(0.02 * 1000, n=1, passes=10**5, diameter=1000 / 2)  # C = 1, differences 2C/n
    assert event.place_mus()[0] == pytest.approx(4.472, abs=2e-3)
    cyclic = LastIterate(3.0 / 0.25, n=20, passes=2000, step_size=0.02, diameter=1 / 0.5)
    assert cyclic.place_mus()[-1] == pytest.approx(0.760, abs=5e-4)
    shifts = np.zeros(20 * 400)
    shifts[19::20] = 0.5 * 0.02
    assert last_iterate_mu(shifts, 3 * 0.02, diameter=1.0) == pytest.approx(0.760, abs=5e-4)


# ----------------------------------------------------------------------------------------------- a general solver


def by_solver(shifts, noise, contraction, start):
    """Return the smallest mu, found by sequential quadratic programming over all allocations."""
    shifts, noise, contraction = (np.asarray(values, dtype=float) for values in (shifts, noise, contraction))
    steps, noisy = shifts.size, np.flatnonzero(noise > 0)

    def distances(paid):
        a, z, path = np.zeros(steps), start, []
        a[noisy] = paid * noise[noisy]
        for t in range(steps):
            z = contraction[t] * z + shifts[t] - a[t]
            path.append(z)
        return np.array(path)

    still = distances(np.zeros(noisy.size))
    if noisy.size == 0 or np.any(shifts[noisy[-1] + 1 :] > 0):
        return math.inf if still[-1] > 0 else 0.0
    slope = np.array([distances(one) - still for one in np.eye(noisy.size)]).T  # they are linear in the payments
    paid, z = [], start
    for t in range(steps):
        z = contraction[t] * z + shifts[t]
        if noise[t] > 0:
            paid.append(z / noise[t])
            z = 0.0
    found = minimize(
        lambda b: b @ b,
        np.array(paid) * 0.999,
        jac=lambda b: 2 * b,
        method="SLSQP",
        constraints=[
            {"type": "ineq", "fun": lambda b: (still + slope @ b)[:-1], "jac": lambda b: slope[:-1]},
            {"type": "eq", "fun": lambda b: (still + slope @ b)[-1:], "jac": lambda b: slope[-1:]},
            {"type": "ineq", "fun": lambda b: b, "jac": lambda b: np.eye(b.size)},
        ],
        options={"ftol": 1e-15, "maxiter": 500},
    )
    z = still + slope @ found.x
    assert z.min() > -1e-9
    assert abs(z[-1]) < 1e-9
    return float(np.sqrt(found.x @ found.x))


def random_schedule(rng, steps, quiet=True):
    """Return shifts and noises, some of them zero, and factors below, at and above 1."""
    shifts = rng.uniform(0.1, 2, steps) * (rng.random(steps) < 0.6)
    noise = rng.uniform(0.3, 3, steps)
    if quiet:
        noise *= rng.random(steps) < 0.75
        noise[-1] = max(noise[-1], 0.3)
    contraction = rng.choice([0.4, 0.9, 1.0, 1.0, 1.15, 1.6], steps)
    return shifts, noise, contraction, float(rng.choice([0.0, 0.5, 2.0]))


@pytest.mark.parametrize("seed", range(60))
def test_no_solver_finds_a_better_allocation_or_needs_a_worse_one(seed):
    rng = np.random.default_rng(seed)
    schedule = random_schedule(rng, int(rng.integers(1, 9)))
    assert last_iterate_mu(*schedule) == pytest.approx(by_solver(*schedule), rel=1e-8, abs=1e-8)


@pytest.mark.parametrize("seed", range(25))
def test_with_a_diameter_it_is_the_best_over_all_beginnings(seed):
    rng = np.random.default_rng(100 + seed)
    steps, diameter = int(rng.integers(2, 9)), float(rng.choice([0.05, 0.5, 1.0, 2.0]))
    shifts, noise, contraction, start = random_schedule(rng, steps)
    brute = by_solver(shifts, noise, contraction, start)
    for begin in range(steps):
        brute = min(brute, by_solver(shifts[begin:], noise[begin:], contraction[begin:], diameter))
    assert last_iterate_mu(shifts, noise, contraction, start, diameter) == pytest.approx(brute, rel=1e-8, abs=1e-8)


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 10**6), steps=st.integers(1, 40))
def test_any_other_allocation_costs_at_least_as_much(seed, steps):
    rng = np.random.default_rng(seed)
    shifts, noise, contraction, start = random_schedule(rng, steps, quiet=False)
    z, cost = start, 0.0
    for t in range(steps):
        z = contraction[t] * z + shifts[t]
        paid = z * (1.0 if t == steps - 1 else rng.choice([0.0, 1.0, rng.random()]))
        cost, z = cost + (paid / noise[t]) ** 2, z - paid
    assert last_iterate_mu(shifts, noise, contraction, start) <= math.sqrt(cost) * ROUNDED_UP


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**6), steps=st.integers(1, 30))
def test_worse_schedules_have_larger_mus(seed, steps):
    rng = np.random.default_rng(seed)
    shifts, noise, contraction, start = random_schedule(rng, steps, quiet=False)
    least = last_iterate_mu(shifts, noise, contraction, start)
    slack = 1 + 1e-12
    t = rng.integers(steps)
    further, quieter, wider = shifts.copy(), noise.copy(), contraction.copy()
    further[t], quieter[t], wider[t] = shifts[t] + 0.5, noise[t] / 3, contraction[t] * 1.3
    assert least <= last_iterate_mu(further, noise, contraction, start) * slack
    assert least <= last_iterate_mu(shifts, quieter, contraction, start) * slack
    assert least <= last_iterate_mu(shifts, noise, wider, start) * slack
    assert least <= last_iterate_mu(shifts, noise, contraction, start + 1) * slack
    inside = [last_iterate_mu(shifts, noise, contraction, start, width) for width in (0.01, 0.3, 10.0)]
    assert inside[0] <= inside[1] * slack <= inside[2] * slack**2 <= least * slack**3


@pytest.mark.parametrize("scale", [1e-90, 1e-9, 1e9, 1e90])
def test_mu_does_not_depend_on_the_unit_of_length(scale):
    shifts, noise, contraction, start = random_schedule(np.random.default_rng(1), 12)
    expected = last_iterate_mu(shifts, noise, contraction, start, 1.5)
    scaled = last_iterate_mu(shifts * scale, noise * scale, contraction, start * scale, 1.5 * scale)
    assert scaled == pytest.approx(expected, rel=1e-12)


def test_shifts_after_the_last_noise_are_not_hidden():
    assert last_iterate_mu([1.0, 0.0, 1e-9], [1.0, 1.0, 0.0]) == math.inf
    assert last_iterate_mu([0.0, 0.0, 0.0], [1.0, 0.0, 0.0]) == 0.0
    assert last_iterate_mu([1.0, 0.0], 0.0) == math.inf
    assert last_iterate_mu([0.0], 0.0) == 0.0
    assert last_iterate_mu([0.0], 0.0, 0.5, start=1.0) == math.inf
    assert last_iterate_mu([0.0], 0.0, 0.0, start=1.0) == 0.0  # the map forgets where it came from
    assert last_iterate_mu([2.0, 0.0], [1.0, 0.0]) == pytest.approx(2.0, rel=1e-9)
    assert last_iterate_mu([1.0] * 3, [0.0, 0.0, 2.0]) == pytest.approx(1.5, rel=1e-9)


def test_a_contraction_of_zero_hides_all_earlier_steps():
    assert last_iterate_mu([5.0, 1.0, 0.0], 1.0, [1.0, 0.0, 1.0]) == pytest.approx(1 / math.sqrt(2), rel=1e-9)
    assert last_iterate_mu([5.0, 0.0], 1.0, [1.0, 0.0]) == 0.0


@pytest.mark.parametrize("c", [1.5, 3.0])
@pytest.mark.parametrize("steps", [3, 50, 5000])
def test_expanding_maps_are_paid_for_in_every_step(c, steps):
    """Paying later costs more than paying now, so composition is the best bound, even where weights overflow."""
    assert last_iterate_mu(np.full(steps, 0.2), 0.7, c) == pytest.approx(0.2 / 0.7 * math.sqrt(steps), rel=1e-9)


def test_underflowing_products_drop_early_steps_only():
    rng = np.random.default_rng(0)
    shifts, noise = rng.uniform(0, 2, 4000), rng.uniform(0.5, 2, 4000)
    assert last_iterate_mu(shifts, noise, 0.7) == pytest.approx(last_iterate_mu(shifts[-300:], noise[-300:], 0.7))


def test_a_million_steps_take_less_than_a_second(takes_less_than):
    rng = np.random.default_rng(0)
    shifts, noise, contraction = rng.uniform(0, 1, 10**6), rng.uniform(0.5, 2, 10**6), rng.uniform(0.9999, 1, 10**6)
    for diameter in (None, 50.0):
        assert takes_less_than(1.0, lambda d=diameter: last_iterate_mu(shifts, noise, contraction, diameter=d))


def test_a_hundred_thousand_records_and_ten_passes_take_less_than_five_seconds(takes_less_than):
    assert takes_less_than(5.0, lambda: per_record_epsilon(100_000, 10, noise_multiplier=4.0, delta=1e-5))
    found = per_record_epsilon(100_000, 10, noise_multiplier=4.1, delta=1e-5)
    assert found[-1] == pytest.approx(gdp_epsilon(2 / 4.1 * math.sqrt(1 + 9e-5), 1e-5), rel=1e-8)


# ------------------------------------------------------------------------------------------------- the truth, on a grid


class Chain:
    """Laws of the last iterate of x -> phi_t(x) + N(0, noise^2) in one dimension, projected before each map.

    A projected law is a density on [-edge, edge] and two atoms; a Gauss-Legendre rule makes it a sum over nodes, and
    the next law a mixture of Gaussians around the images of the nodes.
    """

    def __init__(self, noise, radius=math.inf, reach=16.0):
        self.noise, self.edge = noise, min(radius, reach)
        points, weights = np.polynomial.legendre.leggauss(60 + round(5 * self.edge / noise))
        self.nodes = np.concatenate(([-self.edge], self.edge * points, [self.edge]))
        self._weights = self.edge * weights
        self._kernels = {}

    def law(self, maps, start=0.0):
        """Return the law after all maps from a known start: the means and masses of a mixture of Gaussians."""
        image, masses = maps[0](np.array([start])), np.ones(1)
        for done, phi in enumerate(maps[1:], start=1):
            key = (maps[done - 1], done == 1)
            if key not in self._kernels:
                self._kernels[key] = self._kernel(image)
            masses = self._kernels[key] @ masses
            image = phi(self.nodes)
        assert masses.sum() == pytest.approx(1.0, abs=1e-10)
        return image, masses

    def _kernel(self, image):
        """Return the masses of the nodes after a step whose map sends the current points to ``image``."""
        inside = self._normal(self.nodes[1:-1, None] - image) * self._weights[:, None]
        ends = ndtr((-self.edge - image) / self.noise), ndtr((image - self.edge) / self.noise)
        return np.vstack((ends[0], inside, ends[1]))

    def _normal(self, x):
        return np.exp(-((x / self.noise) ** 2) / 2) / (self.noise * math.sqrt(2 * math.pi))

    def profiles(self, p, q):
        """Return the larger of the two hockey-stick divergences as a function of epsilon.

        The densities show where one law exceeds a multiple of the other, and the distribution functions by how much.
        Errors in the densities therefore hardly matter.
        """
        reach = self.edge + 3 + 9 * self.noise
        x = np.arange(-reach, reach, self.noise / 20)
        densities = [self._normal(x[:, None] - image) @ masses for image, masses in (p, q)]

        def divergence(one, other, eps):
            gap = densities[one] - math.exp(eps) * densities[other]
            change = np.flatnonzero(gap[:-1] * gap[1:] < 0)
            roots = x[change] + gap[change] * (x[1] - x[0]) / (gap[change] - gap[change + 1])
            ends = np.concatenate(([-reach], roots, [reach]))
            below = [ndtr((ends[:, None] - image) / self.noise) @ masses for image, masses in (p, q)]
            return float(np.maximum(np.diff(below[one]) - math.exp(eps) * np.diff(below[other]), 0).sum())

        return lambda eps: max(divergence(0, 1, eps), divergence(1, 0, eps))

    def schedule(self, maps, others):
        """Return how far the maps lie apart, and their Lipschitz constants."""
        x = np.linspace(-self.edge, self.edge, 20_001)
        apart = [float(np.max(np.abs(f(x) - g(x)))) for f, g in zip(maps, others, strict=True)]
        steep = [float(np.max(np.abs(np.diff(f(x))) / (x[1] - x[0]))) for f in (*maps, *others)]
        return np.array(apart) * (1 + 1e-6), np.maximum(*np.split(np.array(steep), 2))


class Step:
    """A gradient step on a loss with derivative ``slope``."""

    def __init__(self, slope, step_size=0.5, ridge=0.0):
        self.slope, self.step_size, self.ridge = slope, step_size, ridge

    def __call__(self, x):
        return x - self.step_size * (self.slope(x) + self.ridge * x)


def up(x):
    return np.ones_like(x)


def down(x):
    return -np.ones_like(x)


def right(x):
    return np.tanh(2 * (x - 0.7))


def left(x):
    return np.tanh(2 * (x + 0.7))


def rising(x):
    return expit(x)


def falling(x):
    return expit(x) - 1


def names(slopes):
    return "-".join(slope.__name__ for slope in slopes)


@pytest.mark.parametrize("steps", [1, 2, 5, 40])
@pytest.mark.parametrize("ridge", [0.0, 0.4, 1.5, 1.9])
def test_descent_on_quadratics_attains_the_bound(steps, ridge):
    """Gradients are linear in the data, and the bound agrees with the truth to a millionth."""
    step_size, noise = 0.5, 0.8
    chain = Chain(noise, reach=16.0 if ridge else 8 + 1.2 * steps)
    slopes = (lambda x: up(x) * 0.3), (lambda x: down(x) * 0.3)
    profile = chain.profiles(*(chain.law([Step(slope, step_size, ridge)] * steps) for slope in slopes))
    c = abs(1 - step_size * ridge)
    mu = last_iterate_mu(np.full(steps, step_size * 0.6), noise, c)
    event = LastIterate(noise / (step_size * 0.3), n=1, passes=steps, contraction=c)
    assert event.place_mus()[0] == pytest.approx(mu, rel=1e-9)
    for eps in PROFILE:
        assert profile(eps) == pytest.approx(gdp_delta(mu, eps), abs=1e-6)


@pytest.mark.parametrize("slopes", [(right, left), (up, down), (rising, falling), (right, down)], ids=names)
@pytest.mark.parametrize("ridge", [0.0, 0.3])
@pytest.mark.parametrize("radius", [math.inf, 0.6])
@pytest.mark.parametrize("steps", [2, 6, 30])
def test_smooth_chains_and_projected_ones_stay_below_the_bound(slopes, ridge, radius, steps):
    """The smallest shifts and factors that hold on the grid are used, so the only slack is that of the theorem."""
    noise = 0.5
    chain = Chain(noise, radius, reach=8 + 1.0 * steps)
    one, other = (Step(slope, 0.5, ridge) for slope in slopes)
    profile = chain.profiles(chain.law([one] * steps), chain.law([other] * steps))
    apart, steep = chain.schedule([one] * steps, [other] * steps)
    plain = last_iterate_mu(apart, noise, steep)
    inside = plain if math.isinf(radius) else last_iterate_mu(apart, noise, steep, diameter=2 * radius)
    assert inside <= plain
    if steps == 30 and math.isfinite(radius):
        assert inside < 0.95 * plain
    for eps in PROFILE:
        assert profile(eps) <= gdp_delta(inside, eps) + 1e-7


@pytest.mark.parametrize("passes", [1, 2, 4])
@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("others", [(up, up, up), (right, left, rising)], ids=["linear", "curved"])
@pytest.mark.parametrize(("ridge", "radius"), [(0.0, math.inf), (0.3, math.inf), (0.0, 0.5)])
def test_fixed_orders_of_several_passes_stay_below_the_bound(passes, place, others, ridge, radius):
    step_size, noise_multiplier = 0.5, 1.2
    chain = Chain(step_size * noise_multiplier, radius, reach=22.0)
    steps = {slope: Step(slope, step_size, ridge) for slope in (*others, up, down)}
    data, laws = list(others), []
    for mine in (up, down):
        data[place] = mine
        laws.append(chain.law([steps[slope] for slope in data] * passes))
    profile = chain.profiles(*laws)
    event = LastIterate(
        noise_multiplier,
        n=3,
        passes=passes,
        step_size=step_size,
        contraction=1 - step_size * ridge,  # the losses' curvature, at most 2, keeps steps of 0.5 from overshooting
        diameter=None if math.isinf(radius) else radius,  # 2 radius over what a unit moves, 2
    )
    mu = event.place_mus()[place]
    for eps in PROFILE:
        assert profile(eps) <= gdp_delta(mu, eps) + 1e-7
    assert profile(event.record_epsilons(0.01)[place]) <= 0.01 + 1e-7
    if others[0] is up and math.isinf(radius) and (passes, place) == (1, 0):
        assert profile(0.0) == pytest.approx(gdp_delta(mu, 0.0), abs=1e-6)  # all noise comes after the visit


ORDERS = tuple(itertools.permutations(range(4)))


@pytest.mark.parametrize(
    ("secret", "passes", "public"),
    [("stop", 1, 0), ("skip", 1, 0), ("skip", 1, 3), ("order", 1, 0), ("order", 2, 0), ("order", 2, 1)],
)
@pytest.mark.parametrize("unit", [0, 2, 3])
@pytest.mark.parametrize("others", [(up, up, up, up), (right, left, rising, down)], ids=["linear", "curved"])
@pytest.mark.parametrize("ridge", [0.0, 0.4])
def test_runs_with_a_secret_stay_below_the_average_claimed(secret, passes, public, unit, others, ridge):
    """The exact mixture over all secrets is compared with the claim for every unit."""
    step_size, noise_multiplier = 0.5, 1.5
    chain = Chain(step_size * noise_multiplier, reach=16.0)
    steps = {slope: Step(slope, step_size, ridge) for slope in {*others, up, down, right}}

    def runs(data):
        tail = [right] * public
        if secret == "stop":
            return [data[:stop] for stop in (1, 2, 3, 4)]
        if secret == "skip":
            return [(data + tail)[skipped:] for skipped in range((4 + public) // 2 + 1)]
        return [([data[place] for place in order] + tail) * passes for order in ORDERS]

    mixed = []
    for mine in (up, down):
        data = list(others)
        data[unit] = mine
        laws = [chain.law([steps[slope] for slope in run]) for run in runs(data)]
        images, masses = zip(*laws, strict=True)
        mixed.append((np.concatenate(images), np.concatenate(masses) / len(laws)))
    profile = chain.profiles(*mixed)
    event = LastIterate(
        noise_multiplier, n=4, passes=passes, public=public, contraction=1 - step_size * ridge, secret=secret
    )
    for eps in PROFILE:
        claimed = sum(chance * gdp_delta(mu, eps) for mu, chance in zip(*event.mixture(), strict=True))
        assert profile(eps) <= claimed + 1e-7
    for delta in (0.3, 0.1, 1e-2, 1e-3):
        certified, own = epsilon(event, REPLACE, delta), event.record_epsilons(delta)[unit]
        assert own <= certified * (1 + 1e-6) + 1e-9
        assert profile(own) <= delta + 1e-7
        assert profile(certified) <= delta + 1e-7


def test_the_stop_itself_must_stay_secret():
    """If the stop were known, the first unit would have the mu of one step with probability 1/n, above the claim."""
    event = LastIterate(1.0, n=4, secret=Secret.STOP)
    mus, chances = event.mixture()
    assert chances == pytest.approx([0.25] * 4)
    np.testing.assert_allclose(np.sort(mus), 2 / np.sqrt([4, 3, 2, 1]), rtol=1e-9)


# ------------------------------------------------------------------------------- uniform steps, without a schedule


def explicit(event):
    """Return the mus of an event, computed from the explicit schedule of each place."""
    length, mus = event.steps // event.passes, []
    for place in range(event.places):
        shifts = np.zeros(event.steps)
        shifts[place::length] = 2 * event.step_size
        diameter = None if event.diameter is None else 2 * event.diameter
        noise = event.noise_multiplier * event.step_size
        mus.append(last_iterate_mu(shifts, noise, event.contraction, diameter=diameter))
    return np.array(mus)


@pytest.mark.parametrize("contraction", [0.0, 0.2, 0.8, 0.99, 1.0])
@pytest.mark.parametrize("diameter", [None, 0.01, 0.3, 1.0, 2.5, 40.0])
def test_uniform_steps_need_no_schedule(contraction, diameter):
    for n, passes, size, public in itertools.product((1, 2, 5, 7), (1, 2, 3, 5), (1, 2, 3), (0, 1, 4)):
        if size > n:
            continue
        event = LastIterate(
            1.7,
            n=n,
            passes=passes,
            size=size,
            public=public,
            contraction=contraction,
            step_size=0.4,
            diameter=diameter,
        )
        np.testing.assert_allclose(event.place_mus(), explicit(event), rtol=1e-9, atol=1e-14, err_msg=repr(event))


@pytest.mark.parametrize("contraction", [0.5, 1.0])
@pytest.mark.parametrize("diameter", [None, 0.7])
def test_a_tuple_of_one_size_is_that_size(contraction, diameter):
    event = LastIterate(1.7, n=5, passes=3, public=2, contraction=contraction, step_size=0.4, diameter=diameter)
    for fields in ({"step_size": (0.4,) * 21}, {"contraction": (contraction,) * 21}, {"step_size": [0.4] * 21}):
        np.testing.assert_allclose(replace(event, **fields).place_mus(), event.place_mus(), rtol=1e-9)


def test_steps_of_falling_size_are_those_of_the_schedule():
    sizes, factors = tuple(1 / k for k in range(1, 13)), tuple(np.linspace(0.5, 1, 12))
    event = LastIterate(3.0, n=4, passes=3, step_size=sizes, contraction=factors, diameter=0.8)
    for place, mu in enumerate(event.place_mus()):
        shifts = np.zeros(12)
        shifts[place::4] = 2 * np.array(sizes)[place::4]
        assert mu == pytest.approx(last_iterate_mu(shifts, 3 * np.array(sizes), factors, diameter=1.6), rel=1e-12)


def test_in_a_bounded_domain_very_many_passes_cost_no_more():
    events = [LastIterate(5.0, n=3, passes=passes, diameter=4.0) for passes in (50, 256, 257, 10**4, 10**9)]
    mus = [event.unsampled(REPLACE).mu for event in events]
    assert max(mus[1:]) <= mus[1] * 1.001
    assert mus[0] <= mus[1] * ROUNDED_UP


@pytest.mark.parametrize("secret", Secret)
def test_the_mu_falls_as_one_over_the_noise(secret):
    one = LastIterate(1.0, n=6, secret=secret, contraction=0.9, diameter=0.5)
    assert np.array_equal(one.place_mus() / 8, replace(one, noise_multiplier=8.0).place_mus())


@settings(max_examples=100, deadline=None)
@given(
    n=st.integers(1, 30),
    passes=st.integers(1, 20),
    size=st.integers(1, 5),
    public=st.integers(0, 10),
    contraction=st.floats(0.0, 1.0),
)
def test_mu_grows_with_the_place_and_falls_with_public_units_contraction_and_a_ball(
    n, passes, size, public, contraction
):
    event = LastIterate(2.0, n=n, passes=passes, size=min(size, n), public=public, contraction=contraction)
    mus, slack = event.place_mus(), 1 + 1e-9
    assert np.all(np.diff(mus) >= -1e-9 * mus[:-1])
    assert event.unsampled(REPLACE).mu == mus.max()
    assert np.all(replace(event, public=public + 5).place_mus() <= mus * slack)
    assert np.all(replace(event, contraction=contraction / 2).place_mus() <= mus * slack + 1e-150)
    assert np.all(replace(event, diameter=0.5).place_mus() <= mus * slack)
    assert np.all(replace(event, passes=passes + 1).place_mus() >= mus / slack)
    assert mus.max() <= math.sqrt(passes) * ROUNDED_UP


# ------------------------------------------------------------------------------------------------------ composition


@pytest.mark.parametrize("secret", [Secret.NOTHING, Secret.SKIP])
def test_runs_without_a_secret_compose_as_gaussians(secret):
    event = LastIterate(4.0, n=10, secret=secret, runs=9)
    assert epsilon(event, REPLACE, 1e-5) == pytest.approx(gdp_epsilon(2 / 4 * 3, 1e-5), rel=1e-8)
    assert merged(event, REPLACE) == (GaussianRelease(event.unsampled(REPLACE).mu),)
    whole = Composition((event, GaussianRelease(2.0), replace(event, runs=7)))
    mu = math.hypot(0.5 * 4, 2.0)
    assert epsilon(whole, REPLACE, 1e-5) == pytest.approx(gdp_epsilon(mu, 1e-5), rel=1e-8)


def test_equal_runs_are_merged_and_others_kept_apart():
    one = LastIterate(4.0, n=10, secret=Secret.STOP)
    other = replace(one, noise_multiplier=5.0)
    parts = merged(Composition((one, other, replace(one, runs=4), GaussianRelease(1.0))), REPLACE)
    assert set(parts) == {GaussianRelease(1.0), replace(one, runs=5), other}
    assert epsilon(Composition((one,) * 5), REPLACE, 1e-5) == epsilon(replace(one, runs=5), REPLACE, 1e-5)


@pytest.mark.parametrize("secret", [Secret.STOP, Secret.ORDER])
@pytest.mark.parametrize("noise", [2.0, 8.0])
@pytest.mark.parametrize("delta", [1e-6, 1e-3])
def test_loss_distributions_lie_just_above_the_exact_profile_and_renyi_above_them(secret, noise, delta):
    event = LastIterate(noise, n=1000, secret=secret)
    exact, by_losses, by_moments = (
        epsilon(event, REPLACE, delta, analysis=analysis) for analysis in ("tightest", "pld", "rdp")
    )
    assert exact <= by_losses * (1 + 1e-9) <= exact + 1e-3 + 3e-3 * exact
    assert by_losses <= by_moments
    assert exact <= epsilon(event, REPLACE, delta, analysis="unsampled")


@pytest.mark.parametrize("secret", [Secret.STOP, Secret.ORDER])
def test_more_runs_cost_more_but_less_than_their_sum(secret):
    event = LastIterate(8.0, n=200, secret=secret)
    by_runs = [epsilon(replace(event, runs=runs), REPLACE, 1e-5) for runs in (1, 2, 5, 20, 100)]
    assert all(one < more for one, more in itertools.pairwise(by_runs))
    assert by_runs[-1] < 100 * by_runs[0]
    for runs, found in zip((2, 5, 20), by_runs[1:], strict=False):
        assert found <= epsilon(replace(event, runs=runs), REPLACE, 1e-5, analysis="rdp")
        assert found <= epsilon(replace(event, runs=runs), REPLACE, 1e-5, analysis="unsampled")


def test_two_runs_with_a_secret_stop_by_convolution():
    """Compare with the exact law of the sum of two losses, each of a Gaussian whose mu is random and revealed."""
    event = LastIterate(4.0, n=5, secret=Secret.STOP, runs=2)
    mus, chances = event.mixture()
    for delta in (1e-5, 1e-2):
        found = epsilon(event, REPLACE, delta)
        pairs = itertools.product(zip(mus, chances, strict=True), repeat=2)
        exact = sum(p * r * gdp_delta(math.hypot(m, k), found) for (m, p), (k, r) in pairs)
        assert exact <= delta * (1 + 1e-9)
        pairs = itertools.product(zip(mus, chances, strict=True), repeat=2)
        below = max(found - 2e-3 - 2e-3 * found, 0)
        assert sum(p * r * gdp_delta(math.hypot(m, k), below) for (m, p), (k, r) in pairs) > delta


def test_runs_with_a_secret_compose_with_other_releases():
    stop, gaussian = LastIterate(6.0, n=100, secret=Secret.STOP, runs=3), GaussianRelease(0.5)
    whole = epsilon(Composition((stop, gaussian)), REPLACE, 1e-5)
    parts = [epsilon(part, REPLACE, 1e-5) for part in (stop, gaussian)]
    assert max(parts) < whole < sum(parts)
    assert whole <= epsilon(Composition((stop, gaussian)), REPLACE, 1e-5, analysis="rdp")
    with_pure = epsilon(Composition((stop, gaussian, PureRelease(0.1))), REPLACE, 1e-5)
    assert whole < with_pure < whole + 0.101
    assert epsilon(Composition((stop, gaussian)), REPLACE, 1e-14) < math.inf  # by Renyi: too small for a transform


def test_a_secret_never_increases_epsilon_and_usually_reduces_it():
    for n, passes in ((10, 1), (1000, 1)):
        plain = epsilon(LastIterate(4.0, n=n, passes=passes), REPLACE, 1e-5)
        for secret in (Secret.STOP, Secret.ORDER):
            assert epsilon(LastIterate(4.0, n=n, passes=passes, secret=secret), REPLACE, 1e-5) < plain
    assert epsilon(LastIterate(4.0, n=50, secret=Secret.SKIP), REPLACE, 1e-5) == pytest.approx(
        epsilon(LastIterate(4.0, n=50), REPLACE, 1e-5), rel=1e-12
    )


@settings(max_examples=150, deadline=None)
@given(
    n=st.sampled_from([1, 2, 9]),
    log_noise=st.floats(-3, 12),
    log_delta=st.floats(-200, -0.1),
    secret=st.sampled_from([Secret.STOP, Secret.ORDER]),
)
def test_the_epsilon_of_a_secret_is_the_root_of_the_average(n, log_noise, log_delta, secret):
    delta = math.exp(log_delta)
    event = LastIterate(math.exp(log_noise), n=n, secret=secret)
    found = epsilon(event, REPLACE, delta)
    mus, chances = event.mixture()

    def average(eps):
        return sum(chance * gdp_delta(mu, eps) for mu, chance in zip(mus, chances, strict=True))

    assert average(found) <= delta * (1 + 1e-9)
    if found > 1e-6:
        assert average(found * (1 - 1e-5)) > delta


def test_units_of_a_last_smaller_batch_are_less_likely_to_be_last():
    event = LastIterate(4.0, n=7, size=3, secret=Secret.ORDER)
    assert event.mixture()[1] == pytest.approx([3 / 7, 3 / 7, 1 / 7])


def test_skipped_units_have_a_smaller_epsilon_by_their_probability():
    event, delta = LastIterate(2.0, n=6, secret=Secret.SKIP), 0.01
    found = event.record_epsilons(delta)
    for place, mu in enumerate(2 / 2 / np.sqrt(6 - np.arange(6))):
        share = min((place + 1) / 4, 1.0)
        assert share * gdp_delta(mu, found[place]) <= delta * (1 + 1e-9)
        assert found[place] == pytest.approx(gdp_epsilon(mu, min(delta / share, 0.99)), rel=1e-8)


def test_a_last_iterate_has_no_pure_guarantee():
    for secret in Secret:
        event = LastIterate(4.0, n=5, secret=secret)
        assert epsilon(event, REPLACE, 0.0) == math.inf
        assert np.all(np.isinf(event.record_epsilons(0.0)))
    assert averaged_epsilon(np.zeros(2), np.ones(2) / 2, 0.0) == 0.0


# -------------------------------------------------------------------------------------------------------- refusals

BAD = [-1.0, math.nan, math.inf, -math.inf]


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("name", ["shifts", "noise", "contraction"])
@pytest.mark.parametrize("form", [lambda v: v, lambda v: [v, 1.0], lambda v: [1.0, v]])
def test_impossible_schedules_are_refused(value, name, form):
    arguments = {"shifts": [1.0, 1.0], "noise": [1.0, 1.0], "contraction": [1.0, 1.0]} | {name: form(value)}
    with pytest.raises(ValueError, match=f"{name} must be finite numbers of at least 0|as long as"):
        last_iterate_mu(**arguments)


@pytest.mark.parametrize("value", [*BAD, "1", True])
@pytest.mark.parametrize("name", ["start", "diameter"])
def test_impossible_distances_are_refused(value, name):
    with pytest.raises(ValueError, match=f"^{name} must"):
        last_iterate_mu([1.0, 1.0], 1.0, **{name: value})


def test_a_diameter_of_zero_and_schedules_of_other_shapes_are_refused():
    with pytest.raises(ValueError, match=r"^diameter must be positive"):
        last_iterate_mu([1.0], 1.0, diameter=0.0)
    with pytest.raises(ValueError, match="at least one step"):
        last_iterate_mu([], 1.0)
    with pytest.raises(ValueError, match="one-dimensional"):
        last_iterate_mu([[1.0]], 1.0)
    for name in ("noise", "contraction"):
        for wrong in ([1.0], [1.0] * 3, [[1.0, 1.0]]):
            with pytest.raises(ValueError, match=f"^{name} must be a number or as long as shifts"):
                last_iterate_mu(**({"shifts": [1.0, 1.0], "noise": 1.0} | {name: wrong}))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n": 0}, "^n must be at least 1"),
        ({"n": 2.0}, "^n must be a whole number"),
        ({"passes": 0}, "^passes"),
        ({"size": 0}, "^size"),
        ({"size": 6}, "batch of size 6 cannot be taken from n = 5"),
        ({"public": -1}, "^public"),
        ({"runs": 0}, "^runs"),
        ({"contraction": 1.0000001}, "^contraction must be at most 1, got"),
        ({"contraction": (1.0, 1.0, 1.0, 1.0, 1.01)}, "at most 1"),
        ({"contraction": -0.1}, "^contraction must not be negative"),
        ({"contraction": math.nan}, "^contraction must be finite"),
        ({"contraction": (1.0, 1.0, 1.0, 1.0, math.nan)}, "^contraction must be finite"),
        ({"contraction": (1.0,) * 4}, "contraction needs one number for each of 5 steps, got 4"),
        ({"step_size": (1.0,) * 6}, "step_size needs one number for each of 5 steps, got 6"),
        ({"step_size": ()}, "step_size needs one number for each of 5 steps, got 0"),
        ({"step_size": 0.0}, "^step_size must be positive"),
        ({"step_size": math.inf}, "^step_size must be finite"),
        ({"step_size": (1.0, 1.0, 0.0, 1.0, 1.0)}, "^step_size must be positive"),
        ({"diameter": 0.0}, "^diameter must be positive"),
        ({"diameter": math.nan}, "^diameter must be finite"),
        ({"noise_multiplier": math.nan}, "^noise_multiplier"),
        ({"noise_multiplier": 0.0}, "^noise_multiplier"),
        ({"noise_multiplier": 1e-4}, "^noise_multiplier must lie in"),
        ({"secret": "when"}, "when"),
        ({"secret": Secret.STOP, "passes": 2}, "analysed for one pass"),
        ({"secret": Secret.SKIP, "passes": 2}, "analysed for one pass"),
        ({"secret": Secret.STOP, "public": 1}, "secret stop"),
        ({"secret": Secret.SKIP, "step_size": (1.0,) * 5}, "steps of one size only"),
        ({"secret": Secret.STOP, "contraction": (1.0,) * 5}, "steps of one size only"),
    ],
    ids=str,
)
def test_impossible_events_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        LastIterate(**({"noise_multiplier": 1.0, "n": 5} | fields))


def test_other_neighbours_are_refused():
    with pytest.raises(ValueError, match="replace-one adjacency, not add-or-remove"):
        epsilon(LastIterate(4.0, n=5), Adjacency.ADD_OR_REMOVE, 1e-5)


@pytest.mark.parametrize("delta", [-0.1, 1.0, math.nan, "x"])
@pytest.mark.parametrize("secret", Secret)
def test_a_bad_delta_is_refused(delta, secret):
    with pytest.raises(ValueError, match="delta must"):
        epsilon(LastIterate(4.0, n=5, secret=secret), REPLACE, delta)
    with pytest.raises(ValueError, match="delta must"):
        per_record_epsilon(5, noise_multiplier=4.0, delta=delta)


def test_schedules_of_too_much_work_are_refused_with_a_remedy():
    event = LastIterate(4.0, n=10_001, step_size=(1.0,) * 10_001)
    with pytest.raises(ValueError, match="use one size"):
        event.place_mus()


def test_events_survive_a_round_trip():
    event = LastIterate(
        4.0,
        n=5,
        passes=2,
        size=2,
        public=3,
        contraction=(0.5,) * 10,
        step_size=tuple(1 / k for k in range(1, 11)),
        diameter=2.0,
        runs=3,
    )
    for one in (event, LastIterate(2.0, n=5, secret=Secret.STOP), LastIterate(2.0, n=5, passes=3, secret="order")):
        assert event_from_dict(one.to_dict()) == one
        assert isinstance(one.secret, Secret)
    assert event.steps == 2 * (3 + 2)
    assert event.places == 3


# -------------------------------------------------------------------------------------------------- long schedules


@pytest.mark.parametrize("seed", range(4))
def test_in_a_long_schedule_with_a_diameter_the_best_of_all_beginnings_is_found(seed):
    """Only some beginnings are tried, in the order of a bound on their cost."""
    rng = np.random.default_rng(seed)
    steps, diameter = 150, float(rng.uniform(0.5, 4.0))
    shifts = rng.exponential(size=steps) * (rng.random(steps) < 0.5)
    noise, contraction = rng.uniform(0.5, 2.0, steps), rng.uniform(0.9, 1.0, steps)
    every = [last_iterate_mu(shifts, noise, contraction)]
    for first in range(steps):
        every.append(last_iterate_mu(shifts[first:], noise[first:], contraction[first:], start=diameter))
    assert last_iterate_mu(shifts, noise, contraction, diameter=diameter) == pytest.approx(min(every), rel=1e-9)
    assert min(every) < every[0]


def test_the_numbers_of_visits_after_a_restart_are_all_or_spread_over_the_passes():
    assert _restarts(1) == [0]
    assert _restarts(5) == [0, 1, 2, 3, 4]
    assert _restarts(256) == list(range(256))
    some = _restarts(10**6)
    assert (some[0], some[-1]) == (0, 10**6 - 1)
    assert 100 < len(some) <= 256
    assert some == sorted(set(some))


def test_the_mus_of_places_are_read_only_since_they_are_shared():
    mus = place_mus(VisitSchedule(3, 4, 2, 0.9, 1.0, None))
    assert not mus.flags.writeable
    assert place_mus(VisitSchedule(3, 4, 2, 0.9, 1.0, None)) is mus


@pytest.mark.parametrize("sizes", [(0.5, 0.4, 0.1), (0.1, 0.2, 0.5), (0.2, 0.1, 0.4)], ids=str)
def test_a_local_step_is_charged_for_rounding_in_proportion_to_its_noise(sizes):
    event = LastIterate(4.0, n=3, step_size=sizes, rounding=0.01, runs=4)
    charge = event.rounding_mu() * sizes[-1] / min(sizes)
    assert event.local().mu == pytest.approx(2 * (2 / 4.0 + charge), rel=1e-12)
    uniform = LastIterate(4.0, n=3, passes=9, rounding=0.01)
    assert uniform.local().mu == pytest.approx(3 * (2 / 4.0 + uniform.rounding_mu()), rel=1e-12)


def test_per_record_epsilons_have_the_defaults_of_one_pass_over_private_records():
    found = per_record_epsilon(7, noise_multiplier=4.0, delta=1e-5)
    explicit = {"passes": 1, "size": 1, "public": 0, "contraction": 1.0}
    assert np.array_equal(found, per_record_epsilon(7, noise_multiplier=4.0, delta=1e-5, **explicit))
    for name, other in {"passes": 2, "size": 2, "public": 3, "contraction": 0.5}.items():
        changed = per_record_epsilon(7, noise_multiplier=4.0, delta=1e-5, **{name: other})
        event = LastIterate(4.0, n=7, **{name: other})
        assert np.array_equal(changed, event.record_epsilons(1e-5))
        assert not np.array_equal(changed, found)
