"""The prescriptions for several parties: simulated runs, the noise, and a counterexample to Theorem 6.5.3."""

import math

import numpy as np
import pytest
from mpmath import log, mpf, sqrt
from scipy.optimize import brentq

from privet.plans.prescriptions import joint_descent, joint_output_excess
from privet.privacy import Budget, gaussian_sigma, gdp_mu

CONSTANTS = {"lipschitz": 1.0, "smoothness": 0.5, "strong_convexity": 0.1}


def test_a_simulated_joint_descent_is_below_its_bound_and_of_its_order():
    d, rng = 6, np.random.default_rng(8)
    taken = joint_descent([500] * 4, d, (0.5, 1e-4), gap=1.0, **CONSTANTS)
    curvature = np.linspace(0.1, 0.5, d)
    start = np.ones(d) * math.sqrt(2.0 / curvature.sum())
    excesses = []
    for _ in range(200):
        weights = start
        for _ in range(taken.steps):
            weights = weights - taken.step_size * (curvature * weights + taken.noise * rng.normal(size=d))
        excesses.append(weights @ (curvature * weights) / 2)
    assert taken.excess / 10 <= np.mean(excesses) <= taken.excess
    assert taken.noise == pytest.approx(2 * math.sqrt(taken.steps) / (2000 * gdp_mu(Budget(0.5, 1e-4))))


def test_the_noise_is_below_the_papers_where_both_hold():
    taken = joint_descent([500] * 100, 122, (0.5, 1e-3), gap=1.0, **CONSTANTS)
    assert 1.5 < math.sqrt(8 * taken.steps * math.log(1e3)) / (50_000 * 0.5) / taken.noise < 1.7


def test_parties_with_different_data_refute_theorem_653():
    """The parties' minimisers do not come together as their numbers of records grow."""
    penalty = 0.01

    def minimiser(share):  # of logistic losses at x = 1, where this share of labels is positive
        return brentq(lambda w: 1 / (1 + math.exp(-w)) - share + penalty * w, -100, 100)

    def objective(w, share=0.8):
        return share * math.log1p(math.exp(-w)) + (1 - share) * math.log1p(math.exp(w)) + penalty / 2 * w * w

    local, joint = (minimiser(1.0) + minimiser(0.6)) / 2, minimiser(0.8)
    claimed = 1.0 * (2 - 1) / (10_000 * penalty)  # G (m - 1)/(n lambda) for n = 10,000
    assert abs(local - joint) > 30 * claimed
    bound = joint_output_excess(
        [10_000] * 2, 1, (1.0, 1e-6), lipschitz=1.0, smoothness=0.25 + penalty, strong_convexity=penalty
    )
    assert objective(local) - objective(joint) <= bound


def test_joint_output_excess_is_that_of_its_noise_if_parties_agree():
    pure, gaussian = (
        joint_output_excess(
            [500] * 100, 122, (0.5, delta), spread=0.0, lipschitz=1.0, smoothness=1.0, strong_convexity=0.01
        )
        for delta in (0.0, 1e-5)
    )
    assert math.sqrt(2 * pure / 122) == pytest.approx(0.0887, rel=1e-2)
    assert math.sqrt(2 * gaussian / 122) == pytest.approx(0.0281, rel=1e-2)


def test_impossible_arguments_are_refused():
    with pytest.raises(ValueError, match="at least one party"):
        joint_descent([], 3, Budget(1.0, 1e-5), gap=1.0, **CONSTANTS)


@pytest.mark.parametrize(
    ("sizes", "epsilon", "delta", "beta", "lam"), [([500, 400, 700], 0.5, 1e-4, 0.5, 0.1), ([90], 3.0, 1e-3, 2.0, 2.0)]
)
def test_joint_descent_is_that_of_theorems_634_and_636(sizes, epsilon, delta, beta, lam):
    """The second problem has a condition number of 1, so that nothing remains of the start."""
    d, G, gap, constant = 6, 1.3, 0.7, 1.4
    constants = {"lipschitz": G, "smoothness": beta, "strong_convexity": lam}
    found = joint_descent(sizes, d, (epsilon, delta), gap=gap, constant=constant, **constants)
    records, kappa = len(sizes) * min(sizes), mpf(beta) / mpf(lam)
    inside = records**2 * mpf(epsilon) ** 2 / (d * mpf(G) ** 2 * -log(delta))
    assert found.steps == math.ceil(constant * kappa * log(inside)) > 1
    assert found.step_size == pytest.approx(1 / beta)
    noise = 2 * G * sqrt(found.steps) / (records * mpf(gdp_mu(Budget(epsilon, delta))))
    assert found.noise == pytest.approx(float(noise))
    excess = (1 - 1 / kappa) ** found.steps * gap + d * noise**2 / (2 * mpf(lam))
    assert found.excess == pytest.approx(float(excess))
    one = joint_descent(sizes, d, (epsilon, delta), gap=gap, **constants)
    assert one == joint_descent(sizes, d, (epsilon, delta), gap=gap, constant=1.0, **constants)


@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("spread", [None, 0.0, 0.4])
def test_the_excess_of_joint_output_is_that_of_noise_and_spread(delta, spread):
    """E ||noise||^2 is d (d + 1) scale^2 for K-norm noise, whose radius is Gamma(d) distributed, and else d sigma^2."""
    sizes, d, G, beta, lam, budget = [500, 400, 700], 6, 1.3, 0.5, 0.1, Budget(0.7, delta)
    found = joint_output_excess(sizes, d, budget, lipschitz=G, smoothness=beta, strong_convexity=lam, spread=spread)
    moved = 2 * G / (3 * 400 * lam)
    noise = d * (d + 1) * (moved / 0.7) ** 2 if delta == 0 else d * gaussian_sigma(moved, budget) ** 2
    apart = 2 * G * 2 / (3 * lam) if spread is None else spread
    assert found == pytest.approx(beta / 2 * (apart**2 + noise))


def descent(**changed):
    fields = {"sizes": [500, 400], "dimension": 3, "budget": (1.0, 1e-5), "gap": 1.0, "constant": 1.0, **CONSTANTS}
    return joint_descent(**fields | changed)


def output(**changed):
    fields = {"sizes": [500, 400], "dimension": 3, "budget": (1.0, 1e-5), "spread": 1.0, **CONSTANTS}
    return joint_output_excess(**fields | changed)


@pytest.mark.parametrize(
    ("prescribe", "name", "value"),
    [
        *((descent, name, 0) for name in ("dimension", "lipschitz", "smoothness", "strong_convexity", "gap")),
        *((descent, *pair) for pair in (("constant", 0.0), ("sizes", [500, 0]))),
        *((output, name, 0) for name in ("dimension", "lipschitz", "smoothness", "strong_convexity")),
        *((output, *pair) for pair in (("spread", -1e-9), ("sizes", [0, 500]))),
    ],
)
def test_arguments_out_of_range_are_refused_by_name(prescribe, name, value):
    prescribe()
    with pytest.raises(ValueError, match=f"^{name} must "):
        prescribe(**{name: value})


@pytest.mark.parametrize("prescribe", [descent, output])
def test_the_default_delta_is_that_of_the_records_of_all_parties(prescribe):
    sizes = [20_000, 30_000]
    assert prescribe(sizes=sizes, budget=1.0) == prescribe(sizes=sizes, budget=(1.0, 2e-7))


def test_no_parties_and_impossible_constants_are_refused():
    with pytest.raises(ValueError, match=r"Theorem 6\.3\.4 is about Gaussian noise"):
        descent(budget=(1.0, 0.0))
    for prescribe in (descent, output):
        with pytest.raises(ValueError, match="at least one party"):
            prescribe(sizes=[])
        with pytest.raises(ValueError, match="exceeds smoothness"):
            prescribe(smoothness=0.09)
