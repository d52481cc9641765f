"""The prescriptions of DP-Fed-LS: errors against simulated rounds, rounds against the accountant, and the risk."""

import math
from dataclasses import replace

import numpy as np
import pytest
from mpmath import cos, exp, fsum, log, mpf, pi, sqrt

from privet.denoise import laplacian_smoothing
from privet.plans import FixedSize
from privet.plans.prescriptions import (
    FederatedProblem,
    federated_nonconvex_steps,
    federated_steps,
    largest_useful_rounds,
    rounds_within,
    smoothing_risk,
)
from privet.privacy import Adjacency
from privet.privacy.analyses.accounting import epsilon

DIMENSION, CURVATURE = 12, 0.4


def problem(smoothing=0.0):
    # Clients minimise CURVATURE/2 ||w - centre_j||^2. Their centres differ from the mean by 0.5.
    return FederatedProblem(
        n_clients=40,
        clients_per_round=10,
        local_steps=3,
        dimension=DIMENSION,
        lipschitz=1.5,
        smoothness=CURVATURE,
        smoothing=smoothing,
        dissimilarity=0.5 * CURVATURE,
    )


def simulate(rounds, noise_multiplier, steps, smoothing, rng):
    """Run Algorithm 1 without gradient noise, and return iterates minus the minimiser, which is at distance 1."""
    setting = problem(smoothing)
    centres = rng.normal(size=(setting.n_clients, DIMENSION))
    centres -= centres.mean(axis=0)
    centres *= 0.5 / np.linalg.norm(centres, axis=1, keepdims=True)
    best = np.ones(DIMENSION) / math.sqrt(DIMENSION)
    centres += best - centres.mean(axis=0)
    weights, iterates = np.zeros(DIMENSION), []
    for _ in range(rounds):
        iterates.append(weights)
        active = rng.choice(setting.n_clients, setting.clients_per_round, replace=False)
        local = np.tile(weights, (active.size, 1))
        for _ in range(setting.local_steps):
            local -= steps.local_step * CURVATURE * (local - centres[active])
        total = np.sum(local - weights, axis=0) + noise_multiplier * steps.clip_norm * rng.normal(size=DIMENSION)
        weights = weights + steps.global_step / active.size * laplacian_smoothing(total, smoothing)
    return np.array(iterates) - best


@pytest.mark.parametrize("smoothing", [0.0, 0.5])
def test_errors_of_simulated_rounds_are_below_the_bounds(smoothing):
    rounds, noise, rng = 1000, 2.0, np.random.default_rng(6)
    setting = problem(smoothing)
    convex = federated_steps(setting, rounds, noise, distance=1.0)
    moved = simulate(rounds, noise, convex, smoothing, rng)
    excess = CURVATURE / 2 * np.sum(moved.mean(axis=0) ** 2)
    assert convex.error / 1000 <= excess <= convex.error
    assert convex.clip_norm == pytest.approx(convex.local_step * 3 * 1.5)
    rough = federated_nonconvex_steps(setting, rounds, noise, gap=CURVATURE / 2)
    gradients = CURVATURE * simulate(rounds, noise, rough, smoothing, rng)
    squared = np.mean([g @ laplacian_smoothing(g, smoothing) for g in gradients])
    assert rough.error / 1000 <= squared <= rough.error


def test_a_strongly_convex_loss_is_bounded_by_the_weighted_average():
    rounds, noise, mu = 2000, 0.5, CURVATURE
    strong = federated_steps(problem(), rounds, noise, distance=1.0, strong_convexity=mu)
    moved = simulate(rounds, noise, strong, 0.0, np.random.default_rng(7))
    shrink = 1 - mu * strong.local_step * strong.global_step * 3 / 2
    weights = shrink ** np.arange(rounds)[::-1]
    excess = CURVATURE / 2 * np.sum((weights @ moved / weights.sum()) ** 2)
    assert excess <= strong.error <= federated_steps(problem(), rounds, noise, distance=1.0).error
    with pytest.raises(ValueError, match="Theorem 4 needs at least"):
        federated_steps(problem(), 1, noise, distance=1.0, strong_convexity=mu)


def test_the_largest_useful_number_of_rounds_balances_noise_and_the_other_errors():
    # At this T the noise of Theorem 1 contributes L^2 nu^2 d/S^2 <= d/S, as the other terms of H do.
    n, s, budget = 1000, 50, (2.0, 1e-5)
    rounds = largest_useful_rounds(n, s, budget, lipschitz=1.0)
    split = 2 - math.sqrt(2)
    nu2 = (s / n / 2.0) ** 2 * 14 * rounds / split * (math.log(1e5) / (1 - split) + 2.0)
    assert 0.5 / s < nu2 / s**2 <= 1.01 / s
    assert all(largest_useful_rounds(n, s, budget, lipschitz=1.0, split=x) <= rounds for x in (0.3, 0.5, 0.7))
    with pytest.raises(ValueError, match="epsilon <= log"):
        largest_useful_rounds(n, s, (12.0, 1e-5), lipschitz=1.0)


def test_rounds_within_a_budget_are_certified_by_the_accountant_too():
    noise, budget = 6.0, (4.0, 1e-4)
    rounds = rounds_within(0.01, noise, budget)
    assert rounds > 100
    event = FixedSize(10, 1000).event(noise, rounds, Adjacency.REPLACE_ONE)
    assert epsilon(event, Adjacency.REPLACE_ONE, 1e-4, analysis="rdp") <= 4.0
    assert rounds_within(0.01, 1.6, budget) == 0  # below the noise floor, nu^2 >= 8/3


def test_the_risk_is_that_of_smoothing_a_noisy_signal():
    signal = np.sin(np.linspace(0, 30, 500))
    bias, variance = smoothing_risk(signal, 0.3, 4.0)
    assert bias == pytest.approx(np.sum((laplacian_smoothing(signal, 4.0) - signal) ** 2))
    kernel = laplacian_smoothing(np.eye(500)[0], 4.0)
    assert variance == pytest.approx(0.09 * 500 * np.sum(kernel**2))
    assert smoothing_risk(signal, 0.3, 0.0) == (0.0, pytest.approx(45.0))


def test_constants_out_of_range_are_refused():
    with pytest.raises(ValueError, match="dissimilarity_factor >= 1"):
        FederatedProblem(10, 5, 1, 3, 1.0, 1.0, dissimilarity_factor=0.5)
    with pytest.raises(ValueError, match="clients_per_round must be at most 10"):
        FederatedProblem(10, 11, 1, 3, 1.0, 1.0)
    with pytest.raises(ValueError, match="vector of finite numbers"):
        smoothing_risk([[1.0]], 1.0, 1.0)


def test_clients_who_all_take_part_add_no_variance_by_their_differences():
    everyone = replace(problem(), clients_per_round=40)
    assert everyone.variance(0.0) == 0.0
    assert problem().variance(0.0) == pytest.approx(4 / 10 * (1 - 10 / 40) * (0.5 * CURVATURE) ** 2)


RICH = FederatedProblem(
    n_clients=40,
    clients_per_round=7,
    local_steps=3,
    dimension=9,
    lipschitz=1.5,
    smoothness=0.4,
    smoothing=0.7,
    dissimilarity=0.3,
    dissimilarity_factor=1.2,
    gradient_std=0.6,
    global_step=1.9,
)
PLAIN = FederatedProblem(40, 7, 3, 9, 1.5, 0.4)


def of_theorems(setting, noise):
    """Return K, H, Q/24 and the largest step as they are printed, with 30 digits."""
    N, S, K, L, beta = (mpf(x) for x in (40, 7, 3, mpf("1.5"), mpf("0.4")))
    sigma, G, B, std = (
        mpf(str(x))
        for x in (setting.smoothing, setting.dissimilarity, setting.dissimilarity_factor, setting.gradient_std)
    )
    step = sqrt(S) if setting.global_step is None else mpf(str(setting.global_step))
    trace = fsum(1 / (1 + 2 * sigma * (1 - cos(2 * pi * i / 9))) for i in range(9))
    H = (1 / (step**2 * K) + 1 / (S * K)) * std**2 + 4 / S * (1 - S / N) * G**2 + L**2 * noise**2 * trace / S**2
    return K, H, (1 + 4 * sigma) ** 2 * beta * G**2, (1 + 4 * sigma) ** -2 / (8 * K * beta * (1 + B**2))


@pytest.mark.parametrize("setting", [RICH, PLAIN, replace(PLAIN, dissimilarity=0.3), replace(RICH, gradient_std=0.0)])
def test_the_constants_of_a_problem_are_those_of_the_theorems(setting):
    _, variance, drift, most = of_theorems(setting, mpf("1.1"))
    assert setting.variance(1.1) == pytest.approx(float(variance))
    assert setting.drift == pytest.approx(float(drift))
    assert setting.largest_step == pytest.approx(float(most))
    with pytest.raises(ValueError, match="noise_multiplier must not be negative"):
        setting.variance(-1e-9)


def test_by_default_clients_are_alike_and_the_server_takes_steps_of_the_root_of_their_number():
    explicit = {"smoothing": 0.0, "dissimilarity": 0.0, "dissimilarity_factor": 1.0, "gradient_std": 0.0}
    assert replace(PLAIN, **explicit, global_step=None) == PLAIN
    assert PLAIN.server_step == pytest.approx(math.sqrt(7))
    assert RICH.server_step == 1.9
    assert PLAIN.effective_dimension == pytest.approx(9)


@pytest.mark.parametrize("noise", [0.0, 0.01, 20.0])
@pytest.mark.parametrize("setting", [RICH, PLAIN])
@pytest.mark.parametrize("rounds", [50, 10**6])
def test_steps_for_convex_losses_are_those_of_theorem_5(setting, rounds, noise):
    K, H, drift, most = of_theorems(setting, mpf(str(noise)))
    D, Q = mpf("1.3") ** 2, 24 * drift
    sizes = [most]
    sizes += [sqrt(D / (H * rounds * K**2))] if H else []
    sizes += [(D / (Q * rounds * K**3)) ** (mpf(1) / 3)] if Q else []
    eta = min(sizes)
    error = 2 * D / (eta * rounds * K) + 2 * eta * K * H + Q * eta**2 * K**2
    check_steps(federated_steps(setting, rounds, noise, distance=1.3), setting, eta, error)


@pytest.mark.parametrize("noise", [0.0, 0.01, 20.0])
@pytest.mark.parametrize("setting", [RICH, PLAIN])
@pytest.mark.parametrize("rounds", [50, 10**6])
def test_steps_without_convexity_are_those_of_theorem_6(setting, rounds, noise):
    K, H, drift, most = of_theorems(setting, mpf(str(noise)))
    gap, beta = mpf("1.3"), mpf("0.4")
    Q = 32 * beta * drift
    sizes = [most]
    sizes += [sqrt(gap / (H * rounds * beta * K**2))] if H else []
    sizes += [(gap / (Q * rounds * K**3)) ** (mpf(1) / 3)] if Q else []
    eta = min(sizes)
    error = 8 * gap / (eta * rounds * K) + 4 * eta * beta * K * H + Q * eta**2 * K**2
    check_steps(federated_nonconvex_steps(setting, rounds, noise, gap=1.3), setting, eta, error)


@pytest.mark.parametrize(
    ("setting", "rounds", "noise"),
    [(RICH, 10_000, 0.01), (RICH, 10**6, 20.0), (PLAIN, 10_000, 0.0), (PLAIN, 10**5, 0.5), (PLAIN, 10**4, 400.0)],
)
def test_steps_for_strongly_convex_losses_are_those_of_theorem_4(setting, rounds, noise):
    """In the last case the logarithm is that of e, because the variance exceeds mu^2 T D/e."""
    K, H, drift, most = of_theorems(setting, mpf(str(noise)))
    D, mu = mpf("1.3") ** 2, mpf("0.2")
    eta = min(2 * log(max(exp(1), mu**2 * rounds * D / H)) / (mu * K * rounds), most) if H else most
    error = 3 * mu * exp(-mu * eta * K * rounds / 2) * D + 2 * eta * K * H + 24 * drift * eta**2 * K**2
    found = federated_steps(setting, rounds, noise, distance=1.3, strong_convexity=0.2)
    check_steps(found, setting, eta, error)


def check_steps(found, setting, eta, error):
    assert found.local_step == pytest.approx(float(eta) / setting.server_step)
    assert found.global_step == setting.server_step
    assert found.clip_norm == pytest.approx(float(eta) / setting.server_step * 3 * 1.5)
    assert found.error == pytest.approx(float(error))


def test_the_steps_of_the_theorems_are_decided_by_the_start_the_variance_and_the_drift_in_turn():
    """The cases above cover all of them: at many rounds each of the two errors decides for one of the problems."""
    most = RICH.largest_step / RICH.server_step
    for steps, fields in ((federated_steps, {"distance": 1.3}), (federated_nonconvex_steps, {"gap": 1.3})):
        quiet = replace(RICH, gradient_std=0.0, clients_per_round=40)
        assert steps(RICH, 50, 0.01, **fields).local_step == pytest.approx(most)
        assert steps(RICH, 10**6, 20.0, **fields).local_step < most
        by_drift = steps(quiet, 10**6, 0.0, **fields)
        assert by_drift.local_step < most
        assert steps(quiet, 8 * 10**6, 0.0, **fields).local_step == pytest.approx(by_drift.local_step / 2)


def test_theorem_4_holds_from_its_least_number_of_rounds_on():
    """Without variance the step is 1/(16 K beta), so that T >= 1/(mu eta K) = 16 beta/mu."""
    exact = FederatedProblem(4, 4, 1, 3, 1.0, 1.0)
    assert federated_steps(exact, 16, 0.0, distance=1.0, strong_convexity=1.0).error > 0
    with pytest.raises(ValueError, match=r"Theorem 4 needs at least 1/\(strong_convexity eta K\) = 16 rounds, got 15"):
        federated_steps(exact, 15, 0.0, distance=1.0, strong_convexity=1.0)


@pytest.mark.parametrize("split", [0.3, 0.5, None])
def test_the_largest_useful_number_of_rounds_is_that_of_theorem_3(split):
    n, s, epsilon, delta, L = 3000, 50, mpf("1.7"), 1e-5, mpf("1.3")
    share = mpf(split) if split else 2 - sqrt(2)
    constant = 14 / share * (1 + 1 / (1 - share))
    assert split or constant == pytest.approx(14 * (1 + math.sqrt(2)) ** 2)
    rounds = epsilon**2 * n**2 / (constant * L**2 * s * -log(delta))
    found = largest_useful_rounds(n, s, (1.7, delta), lipschitz=1.3, split=split)
    assert found == math.ceil(rounds) > 50


def test_the_ranges_of_theorem_3_end_where_it_says():
    delta = 1e-3
    limit = -math.log(delta)
    assert largest_useful_rounds(100, 10, (limit, delta), lipschitz=1.0) > 1
    assert largest_useful_rounds(100, 100, (1.0, delta), lipschitz=1.0, split=0.999) == 1
    for target, split in ((math.nextafter(limit, 99), 0.5), (1.0, 1.0)):
        with pytest.raises(ValueError, match="Theorem 3 needs split < 1"):
            largest_useful_rounds(100, 10, (target, delta), lipschitz=1.0, split=split)


@pytest.mark.parametrize(
    ("rate", "noise", "epsilon", "delta"),
    [(0.01, 6.0, 4.0, 1e-4), (0.002, 2.5, 8.0, 1e-3), (0.001, 1.7, 12.0, 0.01), (1e-4, 30.0, 0.7, 1e-5)],
)
def test_rounds_within_a_budget_are_those_of_the_best_order(rate, noise, epsilon, delta):
    """Every integer order alpha leaves eps - log(1/delta)/(alpha - 1) for rounds of 14 tau^2 alpha/nu^2 each.

    The conditions are nu^2 >= 8/3 and alpha - 1 <= nu^2/6 log(1/(tau alpha (1 + nu^2/4))).
    """
    best = 0
    for alpha in range(2, 3000):
        left = epsilon - math.log(1 / delta) / (alpha - 1)
        is_covered = alpha - 1 <= noise**2 / 6 * math.log(1 / (rate * alpha * (1 + noise**2 / 4)))
        if left > 0 and is_covered:
            best = max(best, int(left * noise**2 / (14 * rate**2 * alpha)))
    assert rounds_within(rate, noise, (epsilon, delta)) == best > 10


def test_the_noise_floor_of_corollary_1_is_that_of_its_condition():
    floor = math.sqrt(8 / 3)
    assert rounds_within(1e-4, floor * (1 + 1e-9), (9.0, 0.01)) > 0
    assert rounds_within(1e-4, floor * (1 - 1e-9), (9.0, 0.01)) == 0


@pytest.mark.parametrize("d", [1, 2, 3, 8])
def test_the_risk_is_that_of_the_inverse_of_one_plus_the_laplacian_of_a_cycle(d):
    signal = np.random.default_rng(d).normal(size=d)
    step = np.roll(np.eye(d), 1, axis=0)
    inverse = np.linalg.inv(np.eye(d) + 0.7 * (2 * np.eye(d) - step - step.T))
    bias, variance = smoothing_risk(signal, 0.3, 0.7)
    assert bias == pytest.approx(np.sum((inverse @ signal - signal) ** 2), abs=1e-15)
    assert variance == pytest.approx(0.09 * np.sum(inverse**2))
    assert smoothing_risk(signal, 0.0, 0.0) == (0.0, 0.0)
    single = signal.astype(np.float32)
    assert smoothing_risk(single, 0.3, 0.7) == smoothing_risk(single.astype(np.float64), 0.3, 0.7)


@pytest.mark.parametrize("signal", [[[1.0], [2.0]], [], [1.0, math.nan], [math.inf]])
def test_signals_that_are_not_vectors_of_finite_numbers_are_refused(signal):
    with pytest.raises(ValueError, match="vector of finite numbers"):
        smoothing_risk(signal, 1.0, 1.0)


def useful(**changed):
    fields = {"n_clients": 1000, "clients_per_round": 50, "budget": (2.0, 1e-5), "lipschitz": 1.0, "split": 0.5}
    return largest_useful_rounds(**fields | changed)


def within(**changed):
    return rounds_within(**{"rate": 0.01, "noise_multiplier": 6.0, "budget": (4.0, 1e-4)} | changed)


def risk(**changed):
    return smoothing_risk(**{"signal": [1.0, 2.0], "noise": 0.0, "smoothing": 0.0} | changed)


def convex(**changed):
    fields = {"problem": RICH, "rounds": 10**5, "noise_multiplier": 0.0, "distance": 1.0, "strong_convexity": 0.0}
    return federated_steps(**fields | changed)


def rough(**changed):
    return federated_nonconvex_steps(**{"problem": RICH, "rounds": 5, "noise_multiplier": 0.0, "gap": 1.0} | changed)


def rich(**changed):
    return replace(RICH, **changed)


NEGATIVE = -1e-9


@pytest.mark.parametrize(
    ("prescribe", "name", "value"),
    [
        *((rich, name, 0) for name in ("n_clients", "clients_per_round", "local_steps", "dimension")),
        *((rich, name, 0.0) for name in ("lipschitz", "smoothness")),
        *((rich, name, NEGATIVE) for name in ("smoothing", "dissimilarity", "gradient_std")),
        *((convex, name, 0) for name in ("rounds", "distance")),
        *((convex, name, NEGATIVE) for name in ("noise_multiplier", "strong_convexity")),
        *((rough, *pair) for pair in (("rounds", 0), ("gap", 0.0), ("noise_multiplier", NEGATIVE))),
        *((useful, name, 0) for name in ("n_clients", "clients_per_round", "lipschitz", "split")),
        *((useful, *pair) for pair in (("clients_per_round", 1001), ("split", 1.1))),
        *((within, name, 0.0) for name in ("rate", "noise_multiplier")),
        (within, "rate", 1.1),
        *((risk, name, NEGATIVE) for name in ("noise", "smoothing")),
    ],
)
def test_arguments_out_of_range_are_refused_by_name(prescribe, name, value):
    prescribe()
    with pytest.raises(ValueError, match=f"^{name} must "):
        prescribe(**{name: value})


@pytest.mark.parametrize("name", ["dissimilarity_factor", "global_step"])
def test_factor_and_server_step_are_at_least_one(name):
    assert rich(**{name: 1.0}).largest_step > 0
    with pytest.raises(ValueError, match="dissimilarity_factor >= 1 and global_step >= 1"):
        rich(**{name: math.nextafter(1.0, 0)})


def test_the_theorems_on_rounds_need_a_delta_which_by_default_is_that_of_the_number_of_clients():
    assert useful(n_clients=50_000, budget=2.0) == useful(n_clients=50_000, budget=(2.0, 2e-7))
    for prescribe in (useful, within):
        with pytest.raises(ValueError, match=r"(Theorem 3|Corollary 1) is about Gaussian noise"):
            prescribe(budget=(2.0, 0.0))


def test_by_default_a_loss_is_convex_and_not_strongly_so():
    assert convex() == federated_steps(RICH, 10**5, 0.0, distance=1.0)
    assert convex(strong_convexity=0.1) != convex()
