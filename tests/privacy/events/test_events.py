import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from privet.privacy import Adjacency, gdp_epsilon
from privet.privacy.analyses.gaussian import averaged_epsilon
from privet.privacy.events import (
    ApproximateRelease,
    Composition,
    FixedSizeGaussian,
    GaussianRelease,
    LastIterate,
    NearlyGaussian,
    PoissonGaussian,
    PureRelease,
    Secret,
    Unsampled,
    event_from_dict,
)

REPLACE, ADD = Adjacency.REPLACE_ONE, Adjacency.ADD_OR_REMOVE

positive = st.floats(1e-6, 1e6)
multipliers = st.floats(1e-3, 1e12)
counts = st.integers(1, 10**9)
elementary = st.one_of(
    st.builds(GaussianRelease, st.floats(0, 1e3)),
    st.builds(PureRelease, positive),
    st.builds(ApproximateRelease, st.floats(0, 10), st.floats(0, 0.5)),
    st.builds(PoissonGaussian, multipliers, st.floats(1e-9, 1), counts),
    st.tuples(counts, counts).flatmap(
        lambda pair: st.builds(FixedSizeGaussian, multipliers, st.just(max(pair)), st.just(min(pair)), counts)
    ),
)
events = st.recursive(elementary, lambda inner: st.lists(inner, max_size=4).map(lambda es: Composition(tuple(es))))

EXAMPLES = [
    GaussianRelease(0.5),
    PureRelease(1.0),
    NearlyGaussian(0.3, 1e-7),
    ApproximateRelease(1.0, 1e-6),
    PoissonGaussian(1.0, 0.01, 10),
    FixedSizeGaussian(1.0, 100, 10, 5),
    LastIterate(1.0, n=10, passes=3, size=4, public=2, contraction=0.9, diameter=2.0, secret="order", runs=2),
    LastIterate(1.0, n=1, passes=2, contraction=(0.9, 1.0), step_size=(1.0, 0.5)),
    Composition((GaussianRelease(1.0),)),
]


@given(events)
def test_events_survive_json(event):
    assert event_from_dict(json.loads(json.dumps(event.to_dict(), allow_nan=False))) == event


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: type(event).__name__)
def test_events_are_frozen_values(event):
    field = dataclasses.fields(event)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(event, field, 1)
    assert hash(event) == hash(event_from_dict(event.to_dict()))


@pytest.mark.parametrize(
    "event",
    [
        GaussianRelease(np.float32(0.5)),
        PureRelease(np.float32(0.5)),
        ApproximateRelease(np.float32(0.5), np.float32(1e-6)),
        PoissonGaussian(np.float32(1), np.float32(0.5), np.int64(3)),
        FixedSizeGaussian(np.float32(1), np.int64(10), np.int32(5), np.uint8(3)),
    ],
    ids=lambda event: type(event).__name__,
)
def test_numpy_numbers_become_plain_ones(event):
    assert event_from_dict(json.loads(json.dumps(event.to_dict()))) == event


@given(events)
def test_leaves_are_elementary_and_flatten_any_nesting(event):
    flat = event.leaves()
    assert not any(isinstance(leaf, Composition) for leaf in flat)
    assert Composition((event, Composition((event,)))).leaves() == flat + flat


def test_leaves_keep_their_order():
    one, two, three = GaussianRelease(1.0), PureRelease(2.0), GaussianRelease(3.0)
    assert Composition((one, Composition((two, one)), three)).leaves() == (one, two, one, three)


@pytest.mark.parametrize("fields", [{}, {"kind": "Laplace"}, {"kind": None}, {"kind": "Event"}], ids=repr)
def test_an_unknown_kind_is_refused_by_name(fields):
    with pytest.raises(ValueError, match=f"unknown event {fields.get('kind')!r}: known are .*PureRelease"):
        event_from_dict(fields)


def test_sampling_is_claimed_only_where_its_analysis_holds():
    assert PoissonGaussian.adjacencies == {Adjacency.ADD_OR_REMOVE}
    assert FixedSizeGaussian.adjacencies == {Adjacency.REPLACE_ONE}
    assert GaussianRelease.adjacencies == PureRelease.adjacencies == set(Adjacency)


NOT_POSITIVE = [0, -1, math.nan, math.inf, True, "1", None]
NEGATIVE = [-1, math.nan, math.inf, True, "1", None]
NOT_COUNTS = [0, -1, 1.5, math.nan, True, "1", None]


@pytest.mark.parametrize(
    ("name", "build", "values"),
    [
        ("mu", GaussianRelease, NEGATIVE),
        ("epsilon", PureRelease, NOT_POSITIVE),
        ("epsilon", lambda v: ApproximateRelease(v, 1e-6), NEGATIVE),
        ("delta", lambda v: ApproximateRelease(1, v), [*NEGATIVE, 1]),
        ("noise_multiplier", lambda v: PoissonGaussian(v, 0.1, 1), NOT_POSITIVE),
        ("rate", lambda v: PoissonGaussian(1, v, 1), [*NOT_POSITIVE, 1.0001]),
        ("steps", lambda v: PoissonGaussian(1, 0.1, v), NOT_COUNTS),
        ("noise_multiplier", lambda v: FixedSizeGaussian(v, 10, 5, 1), NOT_POSITIVE),
        ("n", lambda v: FixedSizeGaussian(1, v, 5, 1), NOT_COUNTS),
        ("size", lambda v: FixedSizeGaussian(1, 10, v, 1), NOT_COUNTS),
        ("steps", lambda v: FixedSizeGaussian(1, 10, 5, v), NOT_COUNTS),
    ],
)
def test_bad_numbers_are_named(name, build, values):
    for value in values:
        with pytest.raises(ValueError, match=rf"^{name} must [^\n]*$"):
            build(value)


@pytest.mark.parametrize(
    ("name", "build"),
    [
        ("steps", lambda v: PoissonGaussian(1, 0.1, v)),
        ("steps", lambda v: FixedSizeGaussian(1, 10, 5, v)),
        ("n", lambda v: FixedSizeGaussian(1, v, 5, 1)),
    ],
)
def test_counts_that_no_float_holds_are_refused(name, build):
    with pytest.raises(ValueError, match=rf"^{name} must [^\n]*$"):
        build(10**400)


def test_a_batch_larger_than_the_data_is_refused():
    with pytest.raises(ValueError, match=r"size 11 cannot be drawn from n = 10"):
        FixedSizeGaussian(1, 10, 11, 1)


@pytest.mark.parametrize("parts", [(1,), ("PureRelease",), (None,), (PureRelease,)], ids=repr)
def test_a_composition_holds_events_only(parts):
    with pytest.raises(ValueError, match="event"):
        Composition(parts)


def test_a_composition_of_a_list_is_still_a_frozen_value():
    assert hash(Composition([PureRelease(1.0)])) == hash(Composition((PureRelease(1.0),)))


@pytest.mark.parametrize(
    ("question", "arguments"),
    [
        ("repeated", (2,)),
        ("unsampled", (ADD,)),
        ("renyi", (ADD, np.array([2.0]))),
        ("spread", ()),
        ("largest_loss", ()),
        ("loss_distribution", (0.1,)),
    ],
)
def test_a_question_without_a_safe_answer_is_refused_by_name(question, arguments):
    with pytest.raises(ValueError, match=r"^the analysis '\w+' does not cover Composition$"):
        getattr(Composition(()), question)(*arguments)


@pytest.mark.parametrize("fields", [[], "PureRelease", None, 3], ids=repr)
def test_an_event_that_is_not_an_object_is_refused(fields):
    with pytest.raises(ValueError, match=r"^an event must be a JSON object"):
        event_from_dict(fields)


# --- the ranges that can be analysed --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "build",
    [lambda z: PoissonGaussian(z, 0.1, 1), lambda z: FixedSizeGaussian(z, 10, 5, 1), lambda z: LastIterate(z, n=5)],
    ids=["Poisson", "fixed size", "last iterate"],
)
def test_noise_multipliers_lie_in_the_range_that_can_be_analysed(build):
    assert [build(z).noise_multiplier for z in (1e-3, 1e12)] == [1e-3, 1e12]
    for z in (math.nextafter(1e-3, 0), math.nextafter(1e12, math.inf)):
        with pytest.raises(ValueError, match=r"^noise_multiplier must lie in \[0\.001, 1e\+12\]"):
            build(z)


@pytest.mark.parametrize("build", [GaussianRelease, lambda mu: NearlyGaussian(mu, 1e-9)], ids=["exact", "nearly"])
def test_the_largest_mu_is_a_billion(build):
    assert build(1e9).mu == 1e9
    with pytest.raises(ValueError, match=r"^mu must be at most 1e\+09"):
        build(math.nextafter(1e9, math.inf))


@pytest.mark.parametrize("distance", [-1e-12, 1.0, math.nan, "0", None, True], ids=repr)
def test_a_bad_distance_is_refused(distance):
    with pytest.raises(ValueError, match="must"):
        NearlyGaussian(1.0, distance)
    assert NearlyGaussian(1.0, 0.0).approximation_error == 0.0
    assert NearlyGaussian(1.0, 0.5).approximation_error == 0.5


# --- answers that are known exactly ---------------------------------------------------------------------------------


def loss_of_a_step(sigma, rate, x):
    """Return log(M/Q) at x, where M samples N(1, sigma^2) with the rate and else Q = N(0, sigma^2)."""
    return np.log1p(rate * np.expm1((2 * x - 1) / (2 * sigma**2)))


@pytest.mark.parametrize("sigma", [0.7, 1.0, 4.0])
def test_the_spread_of_rarely_sampled_steps_is_the_deviation_of_their_loss(sigma):
    rate = 1e-4
    mean, square = (
        quad(lambda x, k=k: loss_of_a_step(sigma, rate, x) ** k * norm.pdf(x, 0, sigma), -9 * sigma, 9 * sigma)[0]
        for k in (1, 2)
    )
    exact = math.sqrt(square - mean**2)
    assert PoissonGaussian(sigma, rate, 7).spread() == pytest.approx(exact, rel=5e-3)
    assert FixedSizeGaussian(2 * sigma, 10_000, 1, 7).spread() == pytest.approx(exact, rel=5e-3)


def test_the_spread_is_at_most_that_without_sampling():
    for event in (PoissonGaussian(0.5, 0.9, 3), FixedSizeGaussian(1.0, 10, 9, 3)):
        assert event.spread() == 2.0
    assert PoissonGaussian(0.01, 0.5, 1).spread() == 100.0


@pytest.mark.parametrize("sigma", [0.2, 1.0, 30.0])
@pytest.mark.parametrize("rate", [1e-3, 0.5])
def test_the_largest_loss_is_that_at_ten_deviations(sigma, rate):
    exact = float(loss_of_a_step(sigma, rate, 1 + 10 * sigma))
    assert PoissonGaussian(sigma, rate, 7).largest_loss() == pytest.approx(exact, rel=1e-12)
    assert FixedSizeGaussian(2 * sigma, 1000, int(1000 * rate), 7).largest_loss() == pytest.approx(exact, rel=1e-12)


def test_a_loss_whose_exponential_overflows_is_bounded_by_that_without_sampling():
    assert PoissonGaussian(0.03, 0.1, 1).largest_loss() == pytest.approx(1.6 / 0.0018, rel=1e-12)


def test_losses_of_gaussian_releases_and_black_boxes_are_known():
    mu = LastIterate(1.0, n=1).unsampled(REPLACE).mu
    assert mu == pytest.approx(2.0, rel=1e-9)
    for event, spread, largest in (
        (GaussianRelease(0.5), 0.5, 0.125 + 5),
        (LastIterate(1.0, n=1), mu, mu**2 / 2 + 10 * mu),
        (PureRelease(0.7), 0.7, 0.7),
        (ApproximateRelease(0.7, 1e-3), 0.7, 0.7),
    ):
        assert (event.spread(), event.largest_loss()) == pytest.approx((spread, largest), rel=1e-14)


def test_the_loss_of_a_black_box_is_infinite_with_a_chance_of_delta():
    for event, chance in ((ApproximateRelease(0.3, 1e-3), 1e-3), (PureRelease(0.3), 0.0)):
        distribution = event.loss_distribution(1e-3)
        assert distribution.get_delta_for_epsilon(5.0) == pytest.approx(chance, rel=1e-9)
        assert distribution.get_delta_for_epsilon(0.3 - 1e-3) > chance


def test_the_chance_that_a_unit_is_never_used_is_that_of_all_batches():
    assert PoissonGaussian(1.0, 0.1, 10).log_chance_of_no_contact() == pytest.approx(10 * math.log(0.9))
    assert FixedSizeGaussian(1.0, 10, 1, 10).log_chance_of_no_contact() == pytest.approx(10 * math.log(0.9))
    for event in (PoissonGaussian(1.0, 1.0, 10), FixedSizeGaussian(1.0, 5, 5, 1), GaussianRelease(1.0)):
        assert event.log_chance_of_no_contact() == -math.inf


def test_only_batches_of_all_units_are_gaussian():
    assert PoissonGaussian(2.0, 1.0, 9).gaussian_mu(ADD) == 1.5
    assert FixedSizeGaussian(2.0, 5, 5, 9).gaussian_mu(REPLACE) == 3.0
    assert PoissonGaussian(2.0, math.nextafter(1.0, 0.0), 9).gaussian_mu(ADD) is None
    assert FixedSizeGaussian(2.0, 5, 4, 9).gaussian_mu(REPLACE) is None


def test_divergences_of_a_secret_order_average_the_moments_of_all_places():
    event, orders = LastIterate(3.0, n=4, secret=Secret.ORDER, runs=5), np.array([2.0, 7.0, 40.0])
    mus = 2 / 3 / np.sqrt(np.arange(4, 0, -1))
    by_hand = [5 * math.log(np.mean(np.exp(a * (a - 1) * mus**2 / 2))) / (a - 1) for a in orders]
    np.testing.assert_allclose(event.renyi(REPLACE, orders), by_hand, rtol=1e-8)
    assert event.spread() == pytest.approx(math.sqrt(np.mean(mus**2)), rel=1e-8)
    assert event.largest_loss() == pytest.approx((2 / 3) ** 2 / 2 + 10 * 2 / 3, rel=1e-8)


def test_a_last_iterate_is_by_default_one_plain_pass_of_single_records():
    explicit = {
        "passes": 1,
        "size": 1,
        "public": 0,
        "contraction": 1.0,
        "step_size": 1.0,
        "diameter": None,
        "secret": Secret.NOTHING,
        "runs": 1,
        "rounding": 0.0,
        "shuffled": False,
    }
    assert LastIterate(4.0, n=5) == LastIterate(4.0, n=5, **explicit)


def test_without_other_releases_their_mu_is_zero():
    event = LastIterate(4.0, n=5, secret=Secret.ORDER)
    assert event.closed_form_epsilon(1e-5) == event.closed_form_epsilon(1e-5, 0.0)
    assert event.closed_form_epsilon(1e-5) < event.closed_form_epsilon(1e-5, 0.1)
    for secret in Secret:
        one = dataclasses.replace(event, secret=secret)
        assert np.array_equal(one.record_epsilons(1e-5), one.record_epsilons(1e-5, 0.0))
    assert tuple(Unsampled()) == (0.0, 0.0, 0.0)


# --- records --------------------------------------------------------------------------------------------------------


def test_events_that_treat_all_records_alike_say_nothing_about_each():
    for event in (
        GaussianRelease(1.0),
        PureRelease(1.0),
        PoissonGaussian(1.0, 0.1, 1),
        FixedSizeGaussian(1.0, 9, 3, 1),
    ):
        assert (event.distinguishes_records, event.is_by_row) == (False, True)
        assert event.record_epsilons(1e-5) is event.closed_form_epsilon(1e-5) is event.local() is None


def test_a_shuffled_order_is_not_that_of_the_data():
    plain = LastIterate(4.0, n=5)
    shuffled = dataclasses.replace(plain, shuffled=True)
    assert (plain.is_by_row, shuffled.is_by_row) == (True, False)
    assert LastIterate(4.0, n=5, shuffled=True, secret=Secret.ORDER).is_by_row
    assert np.array_equal(shuffled.record_epsilons(1e-5), plain.record_epsilons(1e-5))
    assert dataclasses.replace(plain, runs=2).record_epsilons(1e-5) is not None
    assert dataclasses.replace(shuffled, runs=2).record_epsilons(1e-5) is None


def test_a_secret_order_gives_all_records_the_epsilon_of_one_run():
    event = LastIterate(4.0, n=5, secret=Secret.ORDER)
    found = event.record_epsilons(1e-5, 0.3)
    mus = np.hypot(event.place_mus(), 0.3)
    assert np.array_equal(found, np.full(5, averaged_epsilon(mus, np.full(5, 0.2), 1e-5)))
    assert dataclasses.replace(event, runs=2).record_epsilons(1e-5) is None


@pytest.mark.parametrize("secret", [Secret.STOP, Secret.SKIP])
def test_a_secret_stop_or_skip_is_analysed_alone(secret):
    event = LastIterate(4.0, n=5, secret=secret)
    assert event.record_epsilons(1e-5) is not None
    assert event.record_epsilons(1e-5, 1e-9) is dataclasses.replace(event, runs=2).record_epsilons(1e-5) is None


def test_units_that_are_skipped_more_often_than_delta_allows_have_no_loss():
    found = LastIterate(0.5, n=40, secret=Secret.SKIP).record_epsilons(0.06)
    assert found[0] == 0  # It is taken with a chance of 1/21.
    assert found[10] == pytest.approx(gdp_epsilon(4 / math.sqrt(30), 0.06 * 21 / 11), rel=1e-8)


def test_of_many_places_under_a_secret_stop_those_between_get_the_epsilon_of_an_earlier_one():
    n = 450
    event = LastIterate(4.0, n=n, secret=Secret.STOP)
    found, mus = event.record_epsilons(1e-5), event.place_mus()

    def alone(place):
        return averaged_epsilon(mus[place:], np.full(n - place, 1 / n), 1e-5)

    for place in (0, 1, 2, 3, 224, 225, 226, 446, 447, 448, 449):
        assert alone(place) * (1 - 1e-9) <= found[place] <= alone(max(place - 2, 0)) * 1.01 + 1e-9


def test_numbers_of_a_schedule_become_plain_ones_and_are_all_checked():
    event = LastIterate(4.0, n=3, step_size=(1, np.float32(0.5), 0.25), contraction=[np.float64(1.0), 1, 0])
    assert event.step_size == (1.0, 0.5, 0.25)
    assert event.contraction == (1.0, 1.0, 0.0)
    assert {type(value) for value in (*event.step_size, *event.contraction)} == {float}
    for bad in ((1.0, math.nan, 1.0), (1.0, math.inf, 1.0), (1.0, 0.0, 1.0), (1, -1, 1), (True, 1.0, 1.0)):
        with pytest.raises(ValueError, match=r"^step_size must"):
            LastIterate(4.0, n=3, step_size=bad)


@pytest.mark.parametrize("shuffled", [1, 0, "yes", None])
def test_whether_an_order_is_shuffled_is_true_or_false(shuffled):
    with pytest.raises(ValueError, match=r"^shuffled must be True or False"):
        LastIterate(4.0, n=3, shuffled=shuffled)
