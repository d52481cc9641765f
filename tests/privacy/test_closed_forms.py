import math
import pickle

import dp_accounting as dpa
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln, logsumexp

from privet.privacy.analyses import closed_forms as cf
from privet.privacy.analyses import subsampling_lemmas as lemmas

LEMMAS = {
    "lssgd": (lemmas.DP_LSSGD, lemmas.DP_LSSGD.rdp),
    "srm": (lemmas.DP_SRM, lemmas.DP_SRM.rdp),
    "fed": (lemmas.DP_FED_LS_UNIFORM, lemmas.DP_FED_LS_UNIFORM.rdp),
    "poisson": (lemmas.DP_FED_LS_POISSON, lemmas.DP_FED_LS_POISSON.rdp),
}
REPLACE_ONE = dpa.NeighboringRelation.REPLACE_ONE
ADD_OR_REMOVE = dpa.NeighboringRelation.ADD_OR_REMOVE_ONE
ORDERS = list(range(2, 129))


# --- the truth to compare with ------------------------------------------------------------------------------------


def log_comb(order, j):
    return gammaln(order + 1) - gammaln(j + 1) - gammaln(order - j + 1)


def theorem_9(order, rate, nu2):
    """Return the bound of Wang, Balle and Kasiviswanathan for fixed-size sampling, at an integer order."""
    j = np.arange(3, order + 1)
    second = min(math.log(4 * math.expm1(1 / nu2)), math.log(2) + 1 / nu2)
    terms = np.concatenate(
        [
            [0.0, 2 * math.log(rate) + log_comb(order, 2) + second],
            j * math.log(rate) + log_comb(order, j) + math.log(2) + j * (j - 1) / (2 * nu2),
        ]
    )
    return logsumexp(terms) / (order - 1)


def exact_poisson(order, rate, nu2):
    """Return the exact RDP of the Poisson-sampled Gaussian at an integer order (Mironov, Talwar and Zhang)."""
    j = np.arange(order + 1)
    weights = log_comb(order, j) + (order - j) * math.log1p(-rate) + j * math.log(rate)
    return logsumexp(weights + j * (j - 1) / (2 * nu2)) / (order - 1)


def sampled(lemma, rate, nu):
    """Return the dp-accounting event. In both cases nu is relative to the sensitivity under the lemma's adjacency."""
    gaussian = dpa.GaussianDpEvent(nu)
    if lemma.adjacency == "add-or-remove":
        return dpa.PoissonSampledDpEvent(rate, gaussian)
    n = 10**6
    return dpa.SampledWithoutReplacementDpEvent(n, round(rate * n), gaussian)


def accountant(lemma, orders=ORDERS):
    return RdpAccountant(orders, REPLACE_ONE if lemma.adjacency == "replace-one" else ADD_OR_REMOVE)


def points(lemma):
    """Return all (order, rate, nu^2) of a grid that meet the conditions of the lemma, including the noise floor."""
    for rate in np.geomspace(1e-5, 0.3, 25):
        for nu2 in lemma.noise_floor * np.geomspace(1.0 + 1e-12, 1e4, 40):
            holding = [a for a in range(2, 80) if max(lemma.misses(a, rate, math.sqrt(nu2))) <= 0]
            for order in {*holding[:3], *holding[-3:], *holding[::7]}:
                yield order, rate, nu2


# --- the lemmas ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "constant", "floor"), [("lssgd", 5, 1.5), ("srm", 3.5, 0.7), ("fed", 3.5, 2 / 3), ("poisson", 2, 5 / 9)]
)
def test_lemma_is_its_formula(name, constant, floor):
    lemma, rdp = LEMMAS[name]
    assert (lemma.constant, lemma.noise_floor) == (constant, floor)
    assert rdp(3, 1e-3, 2.0) == pytest.approx(constant * 1e-6 * 3 / 4, rel=1e-14)
    assert lemma.multiplier_for(rdp(3, 1e-3, 2.0), 3, 1e-3) == pytest.approx(2.0, rel=1e-14)


@pytest.mark.parametrize(("name", "worst"), [("lssgd", 0.579), ("srm", 0.847), ("fed", 0.863), ("poisson", 0.708)])
def test_lemma_bounds_the_truth_wherever_its_conditions_hold(name, worst):
    lemma, rdp = LEMMAS[name]
    truth = exact_poisson if name == "poisson" else theorem_9
    ratios = [truth(order, rate, nu2) / rdp(order, rate, math.sqrt(nu2)) for order, rate, nu2 in points(lemma)]
    assert len(ratios) > 1000
    assert max(ratios) < 1
    assert max(ratios) == pytest.approx(worst, abs=0.005)


@pytest.mark.parametrize("name", LEMMAS)
def test_lemma_bounds_dp_accounting(name):
    lemma, rdp = LEMMAS[name]
    sample = np.random.default_rng(0).permutation(np.array(list(points(lemma)), dtype=object))[:60]
    for order, rate, nu2 in sample:
        event = sampled(lemma, rate := max(round(rate, 6), 1e-5), nu := math.sqrt(nu2))
        own = accountant(lemma, [order]).compose(event).rdp[0]
        if max(lemma.misses(order, rate, nu)) <= 0:  # rounding the rate to a whole batch may cross a boundary
            assert min(own, order / (2 * nu2)) <= rdp(order, rate, nu)


def test_the_poisson_lemma_needs_the_repaired_inequality():
    """exp(1/nu^2) <= 3.5/nu^2, which the paper's proof uses, fails; one less on the left is enough."""
    nu2 = np.geomspace(5 / 9, 1e6, 10_000)
    assert np.all(np.expm1(1 / nu2) <= 0.81 * 3.5 / nu2)
    broken = np.exp(1 / nu2) > 3.5 / nu2
    assert nu2[broken].min() == pytest.approx(2.239, abs=0.005)


def test_the_lssgd_order_condition_divides_by_one_plus_the_noise():
    """With 1 + nu^2 in the numerator, the condition admits points where the underlying bound is far larger."""
    order, rate, nu2 = 9, 0.5, 1e4
    assert order <= math.log((1 + nu2) / rate)
    assert theorem_9(order, rate, nu2) > 50 * 5 * rate**2 * order / nu2
    with pytest.raises(lemmas.SideConditionError, match="order condition"):
        lemmas.DP_LSSGD.rdp(order, rate, math.sqrt(nu2))


# --- every side condition trips -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LEMMAS)
def test_a_noise_multiplier_below_the_floor_is_refused(name):
    lemma, rdp = LEMMAS[name]
    floor = math.sqrt(lemma.noise_floor)
    rdp(2, 1e-6, floor * (1 + 1e-9))
    with pytest.raises(lemmas.SideConditionError, match="noise floor") as caught:
        rdp(2, 1e-6, floor * (1 - 1e-9))
    assert caught.value.condition == "noise floor"
    assert caught.value.left == pytest.approx(lemma.noise_floor)
    assert caught.value.right == lemma.noise_floor
    assert lemma.name in str(caught.value)
    assert "GradientPlan.for_budget" in str(caught.value)


@pytest.mark.parametrize("name", LEMMAS)
def test_an_order_above_its_limit_is_refused(name):
    lemma, rdp = LEMMAS[name]
    nu, rate = 2.0, 1e-3
    largest = max(a for a in range(2, 100) if a <= lemma.order_limit(a, rate, nu**2))
    rdp(largest, rate, nu)
    with pytest.raises(lemmas.SideConditionError, match="order condition") as caught:
        rdp(largest + 1, rate, nu)
    assert caught.value.condition == "order condition"
    assert caught.value.left == largest + 1
    assert caught.value.right == lemma.order_limit(largest + 1, rate, nu**2)
    assert f"{caught.value.left:.6g} against {caught.value.right:.6g}" in str(caught.value)


def test_order_limits_by_hand():
    assert lemmas.DP_LSSGD.order_limit(9, 0.01, 3.0) == pytest.approx(math.log(1 / (0.01 * 4)))
    for lemma in (lemmas.DP_SRM, lemmas.DP_FED_LS_UNIFORM, lemmas.DP_FED_LS_POISSON):
        assert lemma.order_limit(9, 1e-3, 3.0) == pytest.approx(1 + 2 * math.log(1 / (1e-3 * 9 * 4)))


def test_side_condition_error_survives_pickling():
    with pytest.raises(lemmas.SideConditionError) as caught:
        lemmas.DP_FED_LS_POISSON.rdp(2, 0.5, 0.1)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert str(copy) == str(caught.value)
    assert copy.condition == caught.value.condition


# --- the theorems -------------------------------------------------------------------------------------------------

LSSGD = {"n": 10**6, "batch_size": 100, "steps": 10**5, "lipschitz": 3.0, "epsilon": 5.0, "delta": 1e-5}
SRM = {
    "n": 10**5,
    "first_batch_size": 60,
    "batch_size": 40,
    "steps": 20_000,
    "gradient_bound": 1.5,
    "difference_bound": 0.1,
    "momentum": 0.2,
    "epsilon": 4.0,
    "delta": 1e-5,
}
UNIFORM = {"n_clients": 500, "clients_per_round": 25, "rounds": 30, "clip": 0.7, "epsilon": 8.0, "delta": 500**-1.1}
POISSON = {"rate": 0.05, "rounds": 30, "clip": 0.7, "epsilon": 8.0, "delta": 500**-1.1}


def test_each_theorem_as_printed_gives_the_noise_of_the_paper():
    """With the order as printed, each theorem gives the number that the paper prints."""
    got = cf.dp_lssgd_noise(**LSSGD, split=0.002, rounded_order=False)
    alpha = math.log(1e5) / (0.998 * 5) + 1
    assert got.order == pytest.approx(alpha)
    assert got.std**2 == pytest.approx(20 * 10**5 * alpha * 9 / (0.002 * 10**12 * 5))

    got = cf.dp_fed_ls_noise_uniform(**UNIFORM, split=0.07, rounded_order=False)
    root = math.sqrt(14 * 30 / 0.07 * (1.1 * math.log(500) / 0.93 + 8))
    assert got.std == pytest.approx(0.05 * 0.7 / 8 * root)
    assert got.multiplier == pytest.approx(got.std / (2 * 0.7))
    assert got.order == pytest.approx(1.92, abs=0.01)  # below 2, where nothing is proved

    got = cf.dp_fed_ls_noise_poisson(**POISSON, split=0.04, rounded_order=False)
    assert got.std == pytest.approx(0.05 * 0.7 / 8 * math.sqrt(2 * 30 / 0.04 * (1.1 * math.log(500) / 0.96 + 8)))
    assert got.multiplier == pytest.approx(got.std / 0.7)

    got = cf.dp_srm_noise(**SRM, split=0.01, rounded_order=False)
    alpha = math.log(1e5) / (0.99 * 4) + 1
    assert got.first.std**2 == pytest.approx(14 * 20_000 * 1.5**2 * alpha / (0.01 * 10**10 * 4))
    assert got.later.std**2 == pytest.approx(14 * 20_000 * (0.8 * 0.1 + 0.2 * 1.5) ** 2 * alpha / (0.01 * 10**10 * 4))


def test_rounding_the_order_up_costs_the_root_of_the_ratio():
    printed = cf.dp_fed_ls_noise_uniform(**UNIFORM, split=0.07, rounded_order=False)
    proved = cf.dp_fed_ls_noise_uniform(**UNIFORM, split=0.07)
    assert proved.order == math.ceil(printed.order) == 2
    assert proved.std / printed.std == pytest.approx(math.sqrt(2 / printed.order))


def test_search_finds_the_split_at_which_rounding_is_free():
    found = cf.dp_fed_ls_noise_uniform(10**5, 10, 10**8, clip=1.0, epsilon=2.0, delta=1e-3)
    printed = 1 + math.log(1e3) / ((1 - found.split) * 2)
    assert found.order == pytest.approx(printed, rel=1e-9)
    assert isinstance(found.order, int)


def test_search_beats_every_split_of_a_grid():
    best = cf.dp_fed_ls_noise_uniform(**UNIFORM)
    for split in np.linspace(0.01, 0.99, 99):
        try:
            other = cf.dp_fed_ls_noise_uniform(**UNIFORM, split=float(split))
        except lemmas.SideConditionError:
            continue
        assert best.std <= other.std * (1 + 1e-9)


def epsilon_of(lemma, events, delta):
    spent = accountant(lemma)
    for event, count in events:
        spent.compose(event, count)
    return spent.get_epsilon(delta)


def test_lssgd_noise_meets_its_budget():
    noise = cf.dp_lssgd_noise(**LSSGD)
    assert noise.adjacency == "replace-one"
    assert noise.multiplier == pytest.approx(noise.std * 100 / (2 * 3.0))
    assert epsilon_of(lemmas.DP_LSSGD, [(sampled(lemmas.DP_LSSGD, 1e-4, noise.multiplier), 10**5)], 1e-5) <= 5.0


def test_srm_noise_meets_its_budget():
    noise = cf.dp_srm_noise(**SRM)
    first = noise.first.std * 60 / (2 * 1.5)
    later = noise.later.std * 40 / (2 * (0.8 * 0.1 + 0.2 * 1.5))
    events = [(sampled(lemmas.DP_SRM, 6e-4, first), 1), (sampled(lemmas.DP_SRM, 4e-4, later), SRM["steps"] - 1)]
    assert epsilon_of(lemmas.DP_SRM, events, 1e-5) <= 4.0


@pytest.mark.parametrize("epsilon", [7.0, 8.0, 9.0, 20.0])
def test_fed_noise_meets_its_budget(epsilon):
    uniform = cf.dp_fed_ls_noise_uniform(**(UNIFORM | {"epsilon": epsilon}))
    event = sampled(lemmas.DP_FED_LS_UNIFORM, 0.05, uniform.std / (2 * 0.7))
    assert epsilon_of(lemmas.DP_FED_LS_UNIFORM, [(event, 30)], 500**-1.1) <= epsilon
    poisson = cf.dp_fed_ls_noise_poisson(**(POISSON | {"epsilon": epsilon}))
    assert poisson.adjacency == "add-or-remove"
    event = sampled(lemmas.DP_FED_LS_POISSON, 0.05, poisson.std / 0.7)
    assert epsilon_of(lemmas.DP_FED_LS_POISSON, [(event, 30)], 500**-1.1) <= epsilon


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(["lssgd", "uniform", "poisson"]),
    size=st.floats(1, 5).map(lambda exponent: round(10**exponent)),
    steps=st.floats(0, 7).map(lambda exponent: round(10**exponent)),
    budget=st.fixed_dictionaries(
        {
            "epsilon": st.floats(0.1, 50),
            "delta": st.floats(-9, -1).map(lambda exponent: 10**exponent),
            "split": st.none() | st.floats(0.001, 0.999),
        }
    ),
)
def test_noise_is_refused_or_proved(name, size, steps, budget):
    """For any input, either a failed side condition is named, or lemma, composition and conversion give epsilon."""
    try:
        if name == "lssgd":
            lemma, noise = lemmas.DP_LSSGD, cf.dp_lssgd_noise(10**6, size, steps, lipschitz=1.0, **budget)
        elif name == "uniform":
            lemma, noise = lemmas.DP_FED_LS_UNIFORM, cf.dp_fed_ls_noise_uniform(10**6, size, steps, clip=1.0, **budget)
        else:
            lemma, noise = lemmas.DP_FED_LS_POISSON, cf.dp_fed_ls_noise_poisson(size / 10**6, steps, clip=1.0, **budget)
    except lemmas.SideConditionError as error:
        assert error.condition in ("noise floor", "order condition")
        return
    spent = steps * lemma.rdp(noise.order, size / 10**6, noise.multiplier)
    assert spent + math.log(1 / budget["delta"]) / (noise.order - 1) <= budget["epsilon"] * (1 + 1e-12)


# --- the papers' own experiments ----------------------------------------------------------------------------------


@pytest.mark.parametrize("rounded", [True, False])
@pytest.mark.parametrize("epsilon", [0.1, 0.15, 0.2, 0.25, 0.3])
def test_lssgd_own_experiment_is_outside_its_theorem(epsilon, rounded):
    """50 epochs on 50,000 digits need an alpha of at least 39, but no noise allows more than 5.05."""
    with pytest.raises(lemmas.SideConditionError, match=r"DP-LSSGD, Lemma 11 \(alpha <= log\(1/\(tau") as caught:
        cf.dp_lssgd_noise(50_000, 128, 50 * 390, lipschitz=1.0, epsilon=epsilon, delta=1e-5, rounded_order=rounded)
    assert caught.value.condition == "order condition"
    least_order = 1 + math.log(1e5) / epsilon
    assert least_order <= caught.value.left < least_order + 10  # the nearest split, not an absurd one
    assert lemmas.DP_LSSGD.order_limit(least_order, 128 / 50_000, 1.5) == pytest.approx(5.05, abs=0.005)


def test_lssgd_printed_noise_of_its_own_experiment_still_protects():
    """The paper's noise at epsilon 0.2 is not covered by its theorem, but is far larger than needed."""
    split, steps = 0.5, 50 * 50_000 // 128
    alpha = 1 + math.log(1e5) / (split * 0.2)
    nu = lemmas.DP_LSSGD.multiplier_for(split * 0.2 / steps, alpha, 128 / 50_000)
    assert nu == pytest.approx(27.3, abs=0.05)
    event = dpa.SampledWithoutReplacementDpEvent(50_000, 128, dpa.GaussianDpEvent(nu))
    spent = RdpAccountant(list(range(100, 257, 4)), REPLACE_ONE).compose(event, steps)
    assert spent.get_epsilon(1e-5) == pytest.approx(0.089, abs=0.003)


@pytest.mark.parametrize("rounded", [True, False])
@pytest.mark.parametrize("steps", [100, 1000, 10_000])
@pytest.mark.parametrize("batch_size", [50, 100, 200])
@pytest.mark.parametrize("epsilon", [0.2, 0.5])
def test_srm_own_a9a_runs_are_outside_their_theorem(epsilon, batch_size, steps, rounded):
    with pytest.raises(lemmas.SideConditionError, match="order condition of DP-SRM") as caught:
        cf.dp_srm_noise(
            32_561,
            batch_size,
            batch_size,
            steps,
            gradient_bound=1.0,
            difference_bound=0.01,
            momentum=0.01,
            epsilon=epsilon,
            delta=1e-5,
            rounded_order=rounded,
        )
    assert caught.value.left > caught.value.right


@pytest.mark.parametrize(("epsilon", "needed", "allowed"), [(0.2, 57.6, 2.13), (0.5, 23.0, 6.01)])
def test_srm_a9a_order_condition_fails_at_any_noise(epsilon, needed, allowed):
    beyond_one = math.log(1e5) / epsilon
    assert beyond_one == pytest.approx(needed, abs=0.05)
    limits = [lemmas.DP_SRM.order_limit(1 + beyond_one, 50 / 32_561, nu2) - 1 for nu2 in np.geomspace(0.7, 1e4, 5000)]
    assert max(limits) == pytest.approx(allowed, abs=0.005)


def fed_feasible(n_clients, rounds, epsilon, rounded):
    """Whether the uniform and the Poisson theorem accept the paper's rate of 0.05."""
    budget = {"clip": 1.0, "epsilon": epsilon, "delta": n_clients**-1.1, "rounded_order": rounded}
    accepted = []
    for theorem, sampling in [
        (cf.dp_fed_ls_noise_uniform, (n_clients, n_clients // 20)),
        (cf.dp_fed_ls_noise_poisson, (0.05,)),
    ]:
        try:
            theorem(*sampling, rounds, **budget)
            accepted.append(True)
        except lemmas.SideConditionError as error:
            assert error.condition == "order condition"
            accepted.append(False)
    return tuple(accepted)


@pytest.mark.parametrize("n_clients", [500, 1000])
@pytest.mark.parametrize("epsilon", [6.0, 7.0, 8.0, 9.0])
def test_fed_own_experiments_are_feasible_as_printed_and_above_log_one_over_delta_when_proved(n_clients, epsilon):
    """At rate 0.05 no noise admits order 3, and order 2 needs epsilon > log(1/delta): 6.84 and 7.60."""
    assert fed_feasible(n_clients, 30, epsilon, rounded=False) == (True, True)
    proved = epsilon > 1.1 * math.log(n_clients)
    assert fed_feasible(n_clients, 30, epsilon, rounded=True) == (proved, proved)
    for lemma in (lemmas.DP_FED_LS_UNIFORM, lemmas.DP_FED_LS_POISSON):
        assert max(lemma.order_limit(3, 0.05, nu2) for nu2 in np.geomspace(0.5, 100, 2000)) < 2.08


@pytest.mark.parametrize("rounded", [True, False])
@pytest.mark.parametrize(("n_clients", "rounds", "most"), [(500, 30, 4.0), (2000, 200, 6.0)])
def test_fed_small_budgets_are_infeasible(n_clients, rounds, most, rounded):
    for epsilon in np.linspace(0.5, most, 8):
        assert fed_feasible(n_clients, rounds, float(epsilon), rounded) == (False, False)


# --- the repairs of DP-SRM ----------------------------------------------------------------------------------------


def test_srm_first_noise_is_measured_with_the_squared_batch_size():
    """The sensitivity is 2 G / b0. With b0 in place of b0^2, nu^2 would be computed 60 times too small."""
    noise = cf.dp_srm_noise(**SRM)
    b0, bound = SRM["first_batch_size"], SRM["gradient_bound"]
    assert b0 * noise.first.std**2 / (4 * bound**2) < 0.7  # as printed: this run would be refused
    assert b0**2 * noise.first.std**2 / (4 * bound**2) == pytest.approx(noise.first.multiplier**2)
    assert noise.first.multiplier**2 >= 0.7
    alpha, split = noise.first.order, noise.first.split
    right = 3.5 * b0**2 * SRM["steps"] * alpha / (split * SRM["n"] ** 2 * SRM["epsilon"])
    assert noise.first.multiplier**2 == pytest.approx(right)  # and not 7 b0^2 T alpha / ..., as its proof says


@pytest.mark.parametrize(("first", "later"), [(10, 100), (100, 10)])
def test_srm_holds_each_release_to_its_own_conditions(first, later):
    """The theorem's pair (larger rate, smaller nu) passes here, yet the larger batch fails its own order condition."""
    order, rates = 3, (first / 10**4, later / 10**4)
    nus = [lemmas.DP_SRM.multiplier_for(0.1 * 8 / 10**5, order, rate) for rate in rates]
    lemmas.DP_SRM.check(order, max(rates), min(nus))  # the printed pair
    with pytest.raises(lemmas.SideConditionError, match="order condition") as caught:
        cf.dp_srm_noise(
            10**4,
            first,
            later,
            10**5,
            gradient_bound=1.0,
            difference_bound=0.1,
            momentum=0.1,
            epsilon=8.0,
            delta=1e-5,
            split=0.1,
        )
    assert "tau = 0.01" in str(caught.value)


def test_srm_corollary_on_large_batches():
    """The corollary with b0 = b = n sqrt(epsilon / T) and beta = 1/2 holds, but only for T above 10^7."""
    common = {"gradient_bound": 1.0, "difference_bound": 0.1, "momentum": 0.1, "epsilon": 1.0, "delta": 1e-5}

    def noise(steps):
        batch_size = round(10**7 / math.sqrt(steps))
        return cf.dp_srm_noise(10**7, batch_size, batch_size, steps, **common, split=0.5)

    assert noise(4 * 10**7).later.multiplier ** 2 == pytest.approx(7 * 25, rel=1e-3)
    with pytest.raises(lemmas.SideConditionError, match="order condition"):
        noise(10**7)


# --- bad input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"epsilon": 0.0}, "epsilon must be positive"),
        ({"epsilon": -1.0}, "epsilon must be positive"),
        ({"epsilon": math.nan}, "epsilon must be finite"),
        ({"epsilon": math.inf}, "epsilon must be finite"),
        ({"epsilon": 1e-300}, "too small for a closed form"),
        ({"delta": 0.0}, "delta must lie in"),
        ({"delta": 1.0}, "delta must lie in"),
        ({"delta": math.nan}, "delta must lie in"),
        ({"split": 0.0}, "split must lie in"),
        ({"split": 1.0}, "split must lie in"),
        ({"split": math.nan}, "split must lie in"),
    ],
)
def test_a_bad_budget_is_refused_by_every_theorem(change, cause):
    for theorem, arguments in [
        (cf.dp_lssgd_noise, LSSGD),
        (cf.dp_srm_noise, SRM),
        (cf.dp_fed_ls_noise_uniform, UNIFORM),
        (cf.dp_fed_ls_noise_poisson, POISSON),
    ]:
        with pytest.raises(ValueError, match=cause):
            theorem(**(arguments | change))


@pytest.mark.parametrize(
    ("theorem", "arguments", "change", "cause"),
    [
        (cf.dp_lssgd_noise, LSSGD, {"n": 1000.0}, "n must be a whole number"),
        (cf.dp_lssgd_noise, LSSGD, {"steps": 0}, "steps must be at least 1"),
        (cf.dp_lssgd_noise, LSSGD, {"steps": True}, "steps must be a whole number"),
        (cf.dp_lssgd_noise, LSSGD, {"batch_size": 10**6 + 1}, "batch_size = 1000001 exceeds n"),
        (cf.dp_lssgd_noise, LSSGD, {"lipschitz": 0.0}, "lipschitz must be positive"),
        (cf.dp_srm_noise, SRM, {"first_batch_size": 1.5}, "first_batch_size must be a whole number"),
        (cf.dp_srm_noise, SRM, {"batch_size": 0}, "batch_size must be at least 1"),
        (cf.dp_srm_noise, SRM, {"gradient_bound": math.inf}, "gradient_bound must be finite"),
        (cf.dp_srm_noise, SRM, {"difference_bound": -1.0}, "difference_bound must be positive"),
        (cf.dp_srm_noise, SRM, {"momentum": 1.1}, "momentum must lie in"),
        (cf.dp_fed_ls_noise_uniform, UNIFORM, {"clients_per_round": 501}, "clients_per_round = 501 exceeds n_clients"),
        (cf.dp_fed_ls_noise_uniform, UNIFORM, {"clip": math.nan}, "clip must be finite"),
        (cf.dp_fed_ls_noise_poisson, POISSON, {"rate": 0.0}, "rate must lie in"),
        (cf.dp_fed_ls_noise_poisson, POISSON, {"rate": 1.5}, "rate must lie in"),
        (cf.dp_fed_ls_noise_poisson, POISSON, {"rounds": 2.5}, "rounds must be a whole number"),
    ],
)
def test_bad_arguments_of_a_theorem_are_refused(theorem, arguments, change, cause):
    with pytest.raises(ValueError, match=cause):
        theorem(**(arguments | change))


@pytest.mark.parametrize("name", LEMMAS)
def test_bad_arguments_of_a_lemma_are_refused(name):
    _, rdp = LEMMAS[name]
    for order in (1, 0, 2.5, 3.0, True, math.nan):
        with pytest.raises(ValueError, match="order must be"):
            rdp(order, 1e-3, 2.0)
    for rate in (0.0, -0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="rate must"):
            rdp(2, rate, 2.0)
    for nu in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="noise_multiplier must be"):
            rdp(2, 1e-3, nu)
    with pytest.raises(lemmas.SideConditionError, match="order condition"):
        rdp(2, 1.0, 2.0)  # a rate of one is legal, but nothing is amplified
    assert rdp(np.int64(2), 1e-3, 2.0) == rdp(2, 1e-3, 2.0)


def test_orders_are_limited():
    cf._Run(1, math.log(1e5) / 0.9e12, 1e-5)
    with pytest.raises(ValueError, match="its order would exceed 1e12"):
        cf._Run(1, math.log(1e5) / 1.1e12, 1e-5)


# --- orders and splits ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epsilon", "share", "exact", "rounded"),
    [(1.0, 0.5, 21.0, 21), (1.0, 0.6, 26.0, 26), (3.0, 0.5, 1 + 20 / 3, 8), (100.0, 0.5, 1.2, 2)],
)
def test_orders_by_hand(epsilon, share, exact, rounded):
    """The order is 1 + log(1/delta) / ((1 - split) epsilon), rounded up, and at least 2."""
    run = cf._Run(1, epsilon, math.exp(-10) * (1 + 1e-9))
    assert run._order(share, False) == pytest.approx(exact, rel=1e-8)
    assert run._order(share, True) == rounded


@pytest.mark.parametrize("epsilon", [0.3, 2.0, 30.0])
def test_the_other_splits_of_the_search_are_the_largest_of_the_same_order(epsilon):
    run = cf._Run(1, epsilon, 1e-5)
    candidates = list(run._candidate_splits())
    grid, widest = candidates[::2], candidates[1::2]
    assert grid[0] < 1e-8
    assert grid[-1] > 1 - 1e-8
    assert np.all(np.diff(np.log(grid) - np.log1p(-np.array(grid))) < 0.0101)
    for share, other in list(zip(grid, widest, strict=True))[::50]:
        assert other >= share
        order = run._order(share, True)
        if order < 1e6:
            assert run._order(other, True) == order
            assert run._order(other + 1e-9, True) > order or other == share or order == 2


def test_a_run_searches_for_its_split_and_rounds_its_order_by_default():
    assert cf._Run(3, 1.0, 1e-5) == cf._Run(3, 1.0, 1e-5, None, True)
