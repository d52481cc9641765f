import copy
import dataclasses
import math
import pickle
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import expit, softmax
from scipy.stats import chi2, chisquare, norm

from privet.plans.adaptive import AdaptivePlan, Purse, selection_epsilon, selection_mu
from privet.plans.gradient import PlanError
from privet.privacy import Adjacency, Budget, Guarantee, NoiseSource, Unit, enforced, gdp_mu
from privet.privacy.analyses.gaussian import gdp_delta
from privet.privacy.events import GaussianRelease
from privet.privacy.guarantees.guarantee import compose

RARELY = 1e-6


class Watched(NoiseSource):
    """A source that records the requested scales."""

    def __init__(self, seed=0):
        super().__init__(seed)
        self.scales = []

    def add_gaussian(self, values, std, *options):
        self.scales.append(std)
        return super().add_gaussian(values, std, *options)

    def top(self, scores, scale, number=1, claim=None):
        self.scales.append(scale)
        return super().top(scores, scale, number, claim)


def purse_of(mu=1.0, seed=0):
    return AdaptivePlan(mu).open(NoiseSource(seed))


def has_std(sample, std):
    energy = np.sum(np.square(np.asarray(sample, dtype=np.float64) / std))
    return min(chi2.cdf(energy, sample.size), chi2.sf(energy, sample.size)) > RARELY


# ------------------------------------------------------------------------------------------------ the guarantee


@pytest.mark.parametrize(("epsilon", "inverse_mu"), [(1.0, 3.7306), (0.5, 7.0318)])
def test_the_total_is_that_of_the_errata(epsilon, inverse_mu):
    plan = AdaptivePlan.for_budget(Budget(epsilon, 1e-5))
    assert plan.mu == pytest.approx(1 / inverse_mu, rel=2e-5)
    assert plan.event == GaussianRelease(plan.mu)
    assert epsilon * (1 - 1e-6) < plan.guarantee(1e-5).epsilon <= epsilon
    assert plan.guarantee(1e-5).adjacency is plan.adjacency is Adjacency.REPLACE_ONE


def test_the_guarantee_says_what_is_assumed_and_what_is_enforced():
    plan = AdaptivePlan(0.3)
    bare = plan.guarantee(1e-5)
    assert bare.is_conditional
    assert "bound stated for that sum" in bare.statement(verbose=True)
    clipped = plan.guarantee(1e-5, bound=enforced("everything is clipped"), released="sums", unit=Unit.CLIENT)
    assert not clipped.is_conditional
    for words in ("everything is clipped", "Released: sums", "at most 0.3^2", "for each client"):
        assert words in clipped.statement(verbose=True)
    assert clipped.epsilon == bare.epsilon
    assert Guarantee.from_json(clipped.to_json()) == clipped
    assert compose([bare, bare], 1e-5).epsilon == pytest.approx(
        AdaptivePlan(0.3 * math.sqrt(2)).guarantee(1e-5).epsilon, rel=1e-6
    )


def test_pure_epsilon_is_refused():
    with pytest.raises(ValueError, match="no pure epsilon"):
        AdaptivePlan.for_budget(Budget(1.0))


@pytest.mark.parametrize("mu", [0, -1, math.nan, math.inf, True, "1", None, 1e10])
def test_an_impossible_total_is_named(mu):
    with pytest.raises(ValueError, match=r"^mu must"):
        AdaptivePlan(mu)


def test_a_plan_is_frozen_and_allows_no_other_adjacency():
    plan = AdaptivePlan(1)
    assert plan == AdaptivePlan(1.0)
    assert isinstance(plan.mu, float)
    for name in ("mu", "adjacency"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(plan, name, 2.0)
    assert dataclasses.replace(plan, mu=2.0).guarantee(1e-5).epsilon > plan.guarantee(1e-5).epsilon
    with pytest.raises(TypeError):
        AdaptivePlan(1.0, Adjacency.ADD_OR_REMOVE)


# --------------------------------------------------------------------------------------- what a noisy sum draws


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(20_000,), (4000, 5)])
def test_a_noisy_sum_has_the_noise_of_twice_the_bound_over_mu(dtype, shape):
    total = np.full(shape, 11.0, dtype)
    noisy = purse_of(5.0).noisy(total, 0.7, 0.4)
    assert noisy.dtype == dtype
    assert noisy.shape == shape
    assert (total == 11.0).all()
    for factor in (1.0, 2 / 3, 3 / 2, 1 / 2, 2.0):
        assert has_std((noisy - total).astype(np.float64), factor * 2 * 0.7 / 0.4) == (factor == 1.0)


@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
def test_one_noisy_sum_against_the_two_densities_of_the_farthest_neighbours(mu):
    """For sums of -bound and +bound, the exact profile with the noise that is drawn is that of mu and no smaller."""
    source = Watched()
    AdaptivePlan(mu).open(source).noisy(np.zeros(1), 0.7, mu)
    (std,) = source.scales
    for epsilon in (0.0, 0.5, 2.0):
        reach = 1.4 + 12 * std
        delta = quad(
            lambda x, e=epsilon: max(norm.pdf(x, 0.7, std) - math.exp(e) * norm.pdf(x, -0.7, std), 0.0),
            -reach,
            reach,
            limit=400,
            points=[epsilon * std**2 / 1.4],
        )[0]
        assert delta == pytest.approx(gdp_delta(mu, epsilon), rel=1e-6, abs=1e-12)


def test_releases_draw_their_own_noise():
    purse = purse_of()
    noises = [purse.noisy(np.zeros(500), 1.0, 0.3) for _ in range(4)]
    assert np.abs(np.corrcoef(noises) - np.eye(4)).max() < 0.25


# ------------------------------------------------------------------------------------------- what a choice draws


def probabilities(sums, bound, epsilon):
    """Return the law of the textbook exponential mechanism: scores over twice the sensitivity, which is 2 bound."""
    return softmax(-epsilon * np.asarray(sums) / (2 * (2 * bound)))


@pytest.mark.parametrize("sums", [[0.0, 1.0, 3.0], [5.0, 5.0], [-2.0, 7.0, 0.5, 0.0, 1e9]])
def test_choices_are_those_of_the_exponential_mechanism(sums):
    source, plan = NoiseSource(1), AdaptivePlan(100.0)
    chosen = [plan.open(source).noisy_min(np.array(sums), 0.8, 2.0) for _ in range(4000)]
    counts = np.bincount(chosen, minlength=len(sums))

    def fits(factor):
        expected = 4000 * probabilities(sums, 0.8 * factor, 2.0)
        if (counts[expected < 1e-9] > 0).any():
            return False
        counted = expected > 1e-9
        return chisquare(counts[counted], expected[counted] / expected.sum() * 4000).pvalue > RARELY

    assert fits(1.0)
    if len(set(sums)) > 1:
        assert not fits(2 / 3)
        assert not fits(3 / 2)


def test_a_single_candidate_is_always_chosen():
    assert purse_of().noisy_min(np.array([3.0]), 0.8, 1.0) == 0


def test_the_scale_of_the_noise_on_a_choice():
    source = Watched()
    AdaptivePlan(100.0).open(source).noisy_min(np.zeros(3), 0.5, 0.25)
    assert source.scales == [4 * 0.5 / 0.25]


def neighbouring_sums(rng, k, bound):
    """Yield sums before and after one record, worth at most ``bound`` everywhere, is replaced."""
    for _ in range(300):
        others = rng.normal(0, rng.choice([0.0, 1.0, 30.0]) * bound, k)
        one, other = (rng.choice([-1, 1, rng.uniform(-1, 1), 0], k) * bound for _ in range(2))
        yield others + one, others + other


@pytest.mark.parametrize("k", [2, 3, 21])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 5.0])
def test_a_choice_is_epsilon_private_and_of_range_epsilon_by_brute_force(k, epsilon):
    rng, worst, widest = np.random.default_rng(k), 0.0, 0.0
    extreme = np.full(k, 1.0), np.full(k, -1.0)
    extreme[0][0], extreme[1][0] = -1.0, 1.0
    far = (
        np.r_[-40.0 / epsilon, np.zeros(k - 1)] + extreme[0],
        np.r_[-40.0 / epsilon, np.zeros(k - 1)] + extreme[1],
    )
    for one, other in [*neighbouring_sums(rng, k, 1.0), extreme, extreme[::-1], far, far[::-1]]:
        ratios = np.log(probabilities(one, 1.0, epsilon)) - np.log(probabilities(other, 1.0, epsilon))
        worst, widest = max(worst, np.abs(ratios).max()), max(widest, np.ptp(ratios))
    assert 0.9 * epsilon < worst <= epsilon * (1 + 1e-9)
    assert 0.9999 * epsilon < widest <= epsilon * (1 + 1e-9)


# ---------------------------------------------------------------------------------------------- what a choice costs


def corners(p, q):
    """Return the (type I, type II) errors of the likelihood-ratio tests of q against p."""
    order = np.argsort(-(np.log(p) - np.log(q)))
    return np.concatenate([[0.0], np.cumsum(q[order])]), 1 - np.concatenate([[0.0], np.cumsum(p[order])])


def smallest_mu(p, q):
    """Return the smallest mu whose Gaussian trade-off function lies below that of p against q, both ways."""
    found = 0.0
    for one, other in ((p, q), (q, p)):
        first, second = corners(one, other)
        inner = (first > 1e-12) & (first < 1 - 1e-12) & (second > 1e-12) & (second < 1 - 1e-12)
        gaps = norm.isf(first[inner]) - norm.ppf(second[inner])
        found = max(found, gaps.max(initial=0.0))
    return found


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 4.0])
@pytest.mark.parametrize("k", [2, 3, 8])
def test_no_exponential_mechanism_costs_more_by_brute_force_over_trade_off_functions(epsilon, k):
    rng = np.random.default_rng(k)
    worst = 0.0
    for one, other in neighbouring_sums(rng, k, 1.0):
        p, q = probabilities(one, 1.0, epsilon), probabilities(other, 1.0, epsilon)
        worst = max(worst, smallest_mu(p, q))
    assert worst <= selection_mu(epsilon) * (1 + 1e-9)
    apart = np.r_[
        1.0, np.full(k - 1, -1.0)
    ]  # two records that push the first place and all others apart, equally likely
    balance = np.r_[0.0, np.full(k - 1, 4 / epsilon * math.log(k - 1))]
    p, q = (probabilities(balance + record, 1.0, epsilon) for record in (apart, -apart))
    assert smallest_mu(p, q) == pytest.approx(selection_mu(epsilon), rel=1e-9)


def test_the_whole_trade_off_function_of_the_worst_choice_lies_above_the_gaussian_one():
    p = np.array([expit(0.5), expit(-0.5)])  # range 1
    levels = np.linspace(0, 1, 2001)
    errors = np.interp(levels, *corners(p, p[::-1]))
    gaussian = norm.cdf(norm.isf(levels) - selection_mu(1.0))
    assert (errors >= gaussian - 1e-12).all()
    assert np.min(errors - gaussian) == pytest.approx(0, abs=1e-6)
    too_small = norm.cdf(norm.isf(levels) - 0.99 * selection_mu(1.0))
    assert (errors < too_small - 1e-4).any()


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 4.0])
def test_pure_privacy_alone_would_cost_that_of_twice_the_range(epsilon):
    """Among all pairs that are epsilon-DP the worst is randomised response, whose range is 2 epsilon."""
    rng, worst = np.random.default_rng(0), 0.0
    for _ in range(300):
        q = rng.dirichlet(np.ones(4) * rng.choice([0.3, 3.0]))
        tilt = q * np.exp(rng.choice([-epsilon, epsilon, 0.0], 4))
        p = tilt / tilt.sum()
        if np.abs(np.log(p / q)).max() <= epsilon:
            worst = max(worst, smallest_mu(p, q))
    coin = np.array([expit(epsilon), expit(-epsilon)])
    assert worst <= smallest_mu(coin, coin[::-1]) * (1 + 1e-9)
    assert smallest_mu(coin, coin[::-1]) == pytest.approx(selection_mu(2 * epsilon), rel=1e-9)


@pytest.mark.parametrize("epsilon", [1e-300, 1e-12, 1e-6, 0.3, 0.999, 1.0, 1.001, 3.0, 40.0, 700.0, 1e4, 1e8])
def test_the_price_of_a_choice_against_many_digits(epsilon):
    with mpmath.workdps(60):
        e = mpmath.mpf(epsilon)
        if epsilon < 40:
            exact = 2 * mpmath.sqrt(2) * mpmath.erfinv(mpmath.tanh(e / 4))
        else:  # Phi(-mu/2) = 1 / (1 + e^(epsilon/2))
            tail = mpmath.log1p(mpmath.exp(e / 2))
            exact = 2 * mpmath.findroot(
                lambda z: mpmath.log(mpmath.erfc(z / mpmath.sqrt(2)) / 2) + tail, mpmath.sqrt(e), tol=1e-40
            )
        assert 0 <= mpmath.mpf(selection_mu(epsilon)) / exact - 1 < 1e-11


@pytest.mark.parametrize("mu", [1e-300, 1e-9, 0.01, 0.5, 0.99, 1.0, 1.01, 3.0, 30.0, 1e4])
def test_the_price_of_a_choice_can_be_inverted(mu):
    assert mu * (1 - 1e-10) < selection_mu(selection_epsilon(mu)) <= mu


def test_the_worst_coin_is_symmetric():
    """The least obvious step of the proof: h = Phi^-1 o S has its steepest piece of any given length around zero."""
    z = np.linspace(0, 12, 5001)
    upper, lower = norm.cdf(z), norm.sf(z)
    assert (norm.pdf(z) * (upper - lower) - z * upper * lower >= -1e-18).all()
    x = np.linspace(-30, 30, 4001)
    for width in (0.01, 1.0, 7.0):
        pieces = norm.isf(expit(-(x + width / 2))) - norm.isf(expit(-(x - width / 2)))
        assert pieces.max() <= selection_mu(width) * (1 + 1e-9)
        assert abs(x[np.argmax(pieces)]) < 1e-9


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, True, "1"])
def test_impossible_prices_are_named(value):
    with pytest.raises(ValueError, match=r"^epsilon must"):
        selection_mu(value)
    with pytest.raises(ValueError, match=r"^mu must"):
        selection_epsilon(value)


# --------------------------------------------------------------------------------------------- the filter theorem


def profile(mu, epsilon):
    """The hockey-stick divergence of N(mu, 1) from N(0, 1), for any real epsilon."""
    return norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


RULES = {
    "all or nothing": lambda x, left: left * np.where(x > 0.5, 1.0, 1e-6),
    "the other way": lambda x, left: left * np.where(x < 0.5, 1.0, 1e-6),
    "by degrees": lambda x, left: left * (0.05 + 0.95 * expit(3 * x)),
    "always all": lambda x, left: left + 0 * x,
}


def adaptive_delta(rule, first, total, epsilon):
    """Return the exact delta of two releases, where a rule chooses the mu of the second from the first result."""
    x = np.linspace(first - 12, first + 12, 200_001)
    second = rule(x, math.sqrt(total**2 - first**2))
    loss = first * x - first**2 / 2
    return float(np.trapezoid(norm.pdf(x, first) * profile(second, epsilon - loss), x))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("total", [0.3, 1.5])
@pytest.mark.parametrize("share", [0.2, 0.7])
def test_choosing_what_to_spend_by_what_was_seen_costs_nothing(rule, total, share):
    for epsilon in (0.0, 0.1, 0.5, 2.0):
        delta = adaptive_delta(RULES[rule], share * total, total, epsilon)
        assert delta <= gdp_delta(total, epsilon) * (1 + 1e-6) + 1e-12
    if rule == "always all":
        assert delta == pytest.approx(gdp_delta(total, epsilon), rel=1e-4, abs=1e-12)


def test_spending_more_than_the_total_would_be_seen():
    delta = adaptive_delta(lambda x, left: np.where(x > 0.2, 1.1 * left, left), 0.5, 1.5, 1.0)
    assert delta > 1.05 * gdp_delta(1.5, 1.0)


# ------------------------------------------------------------------------------------------------------- the purse


amounts = st.floats(1e-6, 3.0)


@settings(max_examples=150, deadline=None)
@given(st.floats(1e-3, 3.0), st.lists(st.tuples(st.booleans(), amounts, st.booleans()), max_size=40), st.integers(0, 9))
def test_a_purse_never_overspends(mu, wishes, seed):
    """Random releases, half of them chosen by the noise of earlier ones, are compared with exact fractions."""
    plan, source = AdaptivePlan(mu), Watched(seed)
    purse, spent, nudge = plan.open(source), Fraction(0), 1.0
    for is_sum, wish, is_adaptive in wishes:
        amount = wish * nudge if is_adaptive else wish
        price = amount if is_sum else selection_mu(amount)
        is_affordable = spent + Fraction(price) ** 2 <= Fraction(mu) ** 2
        assert purse.affords(price) == is_affordable
        before = len(source.scales)
        try:
            outcome = purse.noisy(np.zeros(2), 1.0, amount)[0] if is_sum else purse.noisy_min(np.zeros(3), 1.0, amount)
        except PlanError:
            assert not is_affordable
            assert len(source.scales) == before  # nothing was drawn
            continue
        assert is_affordable
        nudge = 0.1 + abs(float(outcome)) % 2
        # The noise that was drawn costs no more than what was paid: std 2/mu, scale 4/epsilon.
        assert source.scales[-1] >= (2 / amount if is_sum else 4 / amount) * (1 - 1e-15)
        spent += Fraction(price) ** 2
        assert Fraction(purse.left) ** 2 <= Fraction(mu) ** 2 - spent
    assert spent <= Fraction(mu) ** 2


@pytest.mark.parametrize("mu", [0.1, 1 / 3, 1.0, 7.7, 1e-150, 1e8])
def test_a_purse_refuses_a_price_one_bit_above_what_is_left(mu):
    purse, bound = purse_of(mu), 1e-70  # such that noise can be drawn at all of these prices
    assert purse.left == mu
    above = math.nextafter(mu, math.inf)
    assert not purse.affords(above)
    with pytest.raises(PlanError, match="exceeds what the plan has left"):
        purse.noisy(np.zeros(2), bound, above)
    assert purse.left == mu  # a refusal costs nothing
    purse.noisy(np.zeros(2), bound, mu)
    assert purse.left == 0
    with pytest.raises(PlanError):
        purse.noisy(np.zeros(2), bound, 1e-160)
    with pytest.raises(PlanError):
        purse.noisy_min(np.zeros(2), bound, 1e-160)


@pytest.mark.parametrize("seed", range(20))
def test_all_that_is_left_of_a_purse_can_be_spent(seed):
    rng = np.random.default_rng(seed)
    purse = purse_of(float(rng.uniform(0.1, 3)))
    for share in rng.uniform(0.1, 0.9, 5):
        purse.noisy(np.zeros(1), 1.0, share * purse.left)
    rest = purse.left
    assert not purse.affords(math.nextafter(math.nextafter(rest, 9), 9))
    assert purse.affords(rest)
    assert not purse.affords(rest, rest / 100)
    purse.noisy(np.zeros(1), 1.0, rest)
    assert purse.left < 1e-7


def test_several_releases_are_afforded_together():
    purse = purse_of(1.0)
    assert purse.affords()
    assert purse.affords(0.6, 0.79)
    assert not purse.affords(0.6, 0.81)
    assert purse.affords(0.99)


def test_a_purse_serves_one_run():
    plan = AdaptivePlan(1.0)
    with plan.open(NoiseSource(0)) as purse:
        purse.noisy(np.zeros(2), 1.0, 0.5)
    assert purse.left == 0
    with pytest.raises(PlanError):
        purse.noisy(np.zeros(2), 1.0, 0.1)
    with pytest.raises(RuntimeError, match="stop here"), plan.open(NoiseSource(0)) as broken:
        raise RuntimeError("stop here")
    assert broken.left == 0
    assert plan.open(NoiseSource(0)).left == 1.0  # a new run is a new release


@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy], ids=lambda f: f.__name__)
def test_a_purse_cannot_be_duplicated(duplicate):
    with pytest.raises(TypeError, match="spent twice"):
        duplicate(purse_of())


def test_threads_cannot_overspend_together():
    purse = purse_of(1.0)

    def spend(_):
        try:
            purse.noisy(np.zeros(1), 1.0, 0.25)
        except PlanError:
            return 0
        return 1

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(spend, range(64))) == 16


def test_seeds_repeat():
    def run(seed):
        purse = purse_of(3.0, seed)
        return [*purse.noisy(np.zeros(3), 1.0, 1.0), purse.noisy_min(np.zeros(50), 1.0, 1.0)]

    assert run(5) == run(5)
    assert run(5) != run(6)


# -------------------------------------------------------------------------------------------------------- bad input


@pytest.fixture
def untouched(no_noise):
    """Provide a purse from which no noise may be drawn and nothing may be spent."""
    purse = purse_of(1.0)
    yield purse
    assert purse.left == 1.0


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, True, "1", None])
def test_bad_numbers_are_named_before_noise_is_drawn(untouched, value):
    for name, call in {
        "bound": lambda: untouched.noisy(np.zeros(2), value, 0.5),
        "mu": lambda: untouched.noisy(np.zeros(2), 1.0, value),
        "bound ": lambda: untouched.noisy_min(np.zeros(2), value, 0.5),
        "epsilon": lambda: untouched.noisy_min(np.zeros(2), 1.0, value),
        "mu ": lambda: untouched.affords(value),
    }.items():
        with pytest.raises(ValueError, match=rf"^{name.strip()} must"):
            call()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_sums_that_are_not_finite_are_refused_before_noise_is_drawn(untouched, bad):
    with pytest.raises(ValueError, match="a sum must be finite"):
        untouched.noisy(np.array([0.0, bad]), 1.0, 0.5)
    with pytest.raises(ValueError, match="the sums must be finite"):
        untouched.noisy_min(np.array([0.0, bad]), 1.0, 0.5)


def test_sums_of_other_kinds_are_refused_before_noise_is_drawn(untouched):
    for dtype in (int, bool, object, complex, np.float16, np.longdouble):
        with pytest.raises(ValueError, match="float32 or float64"):
            untouched.noisy(np.zeros(2, dtype), 1.0, 0.5)
    with pytest.raises(ValueError, match="float32 or float64"):
        untouched.noisy_min(np.zeros(2, int), 1.0, 0.5)
    for shape in ((0,), (2, 2), ()):
        with pytest.raises(ValueError, match="at least one number"):
            untouched.noisy_min(np.zeros(shape), 1.0, 0.5)


def test_noise_beyond_floating_point_is_refused_before_it_is_drawn(untouched):
    with pytest.raises(ValueError, match=r"2 bound / mu, must be finite"):
        untouched.noisy(np.zeros(2), 1e300, 1e-300)
    with pytest.raises(ValueError, match=r"noise of scale 4e\+290 cannot be drawn exactly"):
        untouched.noisy(np.zeros(2), 1e290, 0.5)
    with pytest.raises(ValueError, match=r"4 bound / epsilon, must be finite"):
        untouched.noisy_min(np.zeros(2), 1e300, 1e-300)


def test_a_purse_is_opened_by_its_plan():
    assert isinstance(AdaptivePlan(gdp_mu(Budget(1.0, 1e-5))).open(NoiseSource()), Purse)


@pytest.mark.parametrize(
    ("scores", "number"), [(np.zeros(3), 0), (np.zeros(3), 4), (np.zeros((3, 1)), 1), (np.zeros(0), 1)]
)
def test_an_impossible_number_of_indices_is_refused_before_it_is_paid_for(scores, number):
    with AdaptivePlan(2.0).open(NoiseSource(0)) as purse:
        with pytest.raises(ValueError, match="indices cannot be chosen from scores of shape"):
            purse.noisy_top(scores, 1.0, 0.5, number)
        assert purse.left == 2.0
        assert list(purse.noisy_top(np.zeros(3), 1.0, 0.5, 3)) == [0, 1, 2]
        assert purse.left == pytest.approx(math.sqrt(4 - 0.25))


@pytest.mark.parametrize("sums", [np.zeros((2, 1)), np.zeros(0)])
def test_a_choice_needs_a_list_of_sums_before_it_is_paid_for(sums):
    with AdaptivePlan(2.0).open(NoiseSource(0)) as purse:
        with pytest.raises(ValueError, match="list of at least one number"):
            purse.noisy_min(sums, 1.0, 0.5)
        assert purse.left == 2.0
        purse.noisy_min(np.zeros(1), 1.0, 0.5)
        assert purse.left == pytest.approx(math.sqrt(4 - selection_mu(0.5) ** 2))
        purse.noisy(np.zeros(1), 1.0, 0.5)
        assert purse.left == pytest.approx(math.sqrt(4 - 0.25 - selection_mu(0.5) ** 2))
