import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.privacy import (
    Adjacency,
    Assumption,
    Budget,
    Guarantee,
    Unit,
    assumed,
    compose,
    enforced,
    gaussian_sigma,
    gdp_epsilon,
)
from privet.privacy.events import (
    ApproximateRelease,
    Composition,
    FixedSizeGaussian,
    GaussianRelease,
    LastIterate,
    Noiseless,
    PoissonGaussian,
    PureRelease,
)
from privet.privacy.guarantees.statement import upwards

REPLACE, ADD = Adjacency.REPLACE_ONE, Adjacency.ADD_OR_REMOVE
CLIPPED = enforced("each record's gradient is clipped to norm 1")
VOUCHED = assumed("no person has more than one record")
SECRET = assumed("the seed stays secret")


def guarantee(event=None, adjacency=REPLACE, delta=1e-5, *assumptions, released="the weights", unit=Unit.RECORD):
    event = GaussianRelease(0.5) if event is None else event
    return Guarantee.of(event, adjacency, delta, released=released, assumptions=assumptions, unit=unit)


# --- what it says -------------------------------------------------------------------------------------------------


def test_epsilon_equals_that_of_the_accountant():
    assert guarantee().epsilon == gdp_epsilon(0.5, 1e-5)
    sigma = gaussian_sigma(1.0, Budget(1.0, 1e-5))
    assert guarantee(GaussianRelease(1 / sigma)).epsilon == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("unit", Unit)
def test_statement_names_adjacency_unit_release_and_conditions(adjacency, unit):
    text = guarantee(None, adjacency, 1e-5, CLIPPED, VOUCHED, released="the last weights", unit=unit).statement()
    first, meaning, *rest = text.splitlines()
    assert str(adjacency) in first
    assert f"each {unit}" in first
    assert adjacency.in_words.format(unit=unit) in meaning
    assert "Released: the last weights." in text
    assert f"Enforced: {CLIPPED.text}" in text
    assert [line.split() for line in rest if VOUCHED.text in line] == [["Assumed:", *f"{VOUCHED.text}.".split()]]


@settings(max_examples=50)
@given(st.lists(st.tuples(st.text("abc ", min_size=1, max_size=9), st.booleans()), max_size=6))
def test_first_line_is_conditional_exactly_if_something_is_assumed(pairs):
    conditions = [Assumption(text, held) for text, held in pairs]
    subject = guarantee(None, REPLACE, 1e-5, *conditions)
    vouched = [text for text, held in pairs if not held]
    first, *rest = subject.statement(verbose=True).splitlines()
    assert subject.is_conditional == bool(vouched) == ("provided that" in first)
    if vouched:
        numbers = "assumption below holds" if len(vouched) == 1 else f"{len(vouched)} assumptions below hold"
        assert first.endswith(f"(replace-one), provided that the {numbers}.")
    assert [line.removeprefix("  Assumed:  ") for line in rest if "Assumed:" in line] == [
        f"{text}." for text in vouched
    ]
    assert sum("Enforced:" in line for line in rest) == len(pairs) - len(vouched)


LONG = "the bound on the contribution of each record was checked before the first step of the training was taken"


@pytest.mark.parametrize("n_enforced", [0, 1, 3, 9, 30])
@pytest.mark.parametrize("n_details", [0, 1, 5])
@pytest.mark.parametrize("text", ["rows are clipped", LONG])
def test_statement_has_at_most_12_lines_and_counts_what_it_leaves_out(n_enforced, n_details, text):
    conditions = [enforced(f"{text} {i}") for i in range(n_enforced)]
    conditions += [enforced(f"{text} {i}", detail=True) for i in range(n_details)]
    subject = guarantee(None, REPLACE, 1e-5, *conditions, VOUCHED, SECRET)
    lines = subject.statement().splitlines()
    shown = sum("Enforced:" in line for line in lines)
    assert len(lines) <= 12
    assert len(lines[0]) <= 120
    assert max(map(len, lines[1:])) <= 100
    assert shown == n_enforced or len(lines) >= 11
    further = n_enforced + n_details - shown
    note = f"({further} further {'detail' if further == 1 else 'details'} in the verbose statement)"
    assert (lines[-1].strip() == note) == (further > 0)
    assert subject.statement(verbose=True).count(text) == len(conditions)


def test_statement_leaves_out_the_longest_conditions_first():
    technical = enforced("; ".join([LONG] * 5))
    short = [enforced("the objective has an additional penalty"), enforced("long rows are scaled down")]
    text = guarantee(None, REPLACE, 1e-5, technical, *short, VOUCHED, SECRET).statement()
    assert [line for line in text.splitlines() if "Enforced:" in line] == [
        f"  Enforced: {each.text}." for each in short
    ]
    assert text.endswith("(1 further detail in the verbose statement)")
    assert technical.text in guarantee(None, REPLACE, 1e-5, technical, *short).statement(verbose=True)


def test_statement_shows_every_assumed_condition_before_the_enforced_ones():
    conditions = [CLIPPED, *(assumed(f"{LONG} {i}") for i in range(9)), Assumption("a detail is assumed", False, True)]
    text = guarantee(None, REPLACE, 1e-5, *conditions).statement()
    assert text.count("Assumed:") == 10
    assert "Enforced:" not in text
    listed = guarantee(None, REPLACE, 1e-5, *conditions).statement(verbose=True).splitlines()
    assert listed[-1] == f"  Enforced: {CLIPPED.text}."


def test_a_file_without_the_detail_field_still_loads():
    subject = guarantee(None, REPLACE, 1e-5, CLIPPED, enforced("the seed has 256 bits", detail=True))
    assert Guarantee.from_dict(subject.to_dict()) == subject
    fields = subject.to_dict()
    for condition in fields["assumptions"]:
        del condition["detail"]
    assert not any(condition.is_detail for condition in Guarantee.from_dict(fields).assumptions)


@pytest.mark.parametrize("value", ["false", "true", 1, [False], None])
def test_a_condition_of_a_file_counts_as_enforced_only_if_it_says_true(value):
    fields = guarantee(None, REPLACE, 1e-5, VOUCHED).to_dict()
    fields["assumptions"][0]["enforced"] = fields["assumptions"][0]["detail"] = value
    back = Guarantee.from_dict(fields)
    assert back.assumptions == (VOUCHED,)
    assert "provided that" in back.statement().splitlines()[0]


def test_str_is_the_statement_and_numbers_are_in_its_first_line():
    subject = guarantee()
    first = str(subject).splitlines()[0]
    assert str(subject) == subject.statement()
    assert float(first.split(",")[0].lstrip("(")) == pytest.approx(subject.epsilon, rel=1e-5)
    assert "1e-05" in first


def test_the_printed_epsilon_is_never_below_the_certified_one():
    """Statements are quoted, and rounding to the nearest number could promise more than is certified."""
    for mu in (0.1, 0.123456, 0.31, 0.5, 0.77, 1.9):
        subject = guarantee(GaussianRelease(mu))
        printed = float(subject.statement().split(",")[0].lstrip("("))
        assert subject.epsilon <= printed <= subject.epsilon * (1 + 1e-4)


@pytest.mark.parametrize(
    ("value", "digits", "printed"),
    [
        (0.0, 6, "0"),
        (math.inf, 6, "inf"),
        (0.3, 4, "0.3"),
        (1.0000000000001, 6, "1"),  # a rounding error of the number itself
        (1.00000000001, 6, "1.00001"),
        (1.000001, 6, "1.00001"),
        (1.00001, 6, "1.00001"),
        (1.2341, 4, "1.235"),
        (9.9991, 4, "10"),
        (1.0001e-05, 3, "1.01e-05"),
        (1e-05, 3, "1e-05"),
        (123456.1, 6, "123457"),
    ],
)
def test_printed_numbers_are_rounded_up(value, digits, printed):
    assert upwards(value, digits) == printed


def test_statement_mentions_delta_only_if_it_is_positive():
    assert "plus at most" not in guarantee(PureRelease(1.0), REPLACE, 0.0).statement()
    assert "plus at most 1e-05" in guarantee().statement()


def test_a_guarantee_is_frozen_and_hashable():
    subject = guarantee(None, REPLACE, 1e-5, CLIPPED)
    with pytest.raises(dataclasses.FrozenInstanceError):
        subject.epsilon = 0.1
    assert hash(subject) == hash(guarantee(None, REPLACE, 1e-5, CLIPPED))


def test_assuming_adds_and_keeps():
    subject = guarantee(None, REPLACE, 1e-5, CLIPPED)
    more = subject.assuming(VOUCHED, SECRET)
    assert more.assumptions == (CLIPPED, VOUCHED, SECRET)
    assert (subject.is_conditional, more.is_conditional) == (False, True)
    assert more.epsilon == subject.epsilon


@pytest.mark.parametrize(
    ("event", "adjacency"),
    [
        (GaussianRelease(0.5), REPLACE),
        (PoissonGaussian(1.0, 0.05, 20), ADD),
        (FixedSizeGaussian(2.0, 1000, 10, 100), REPLACE),
        (Composition((PureRelease(0.5), GaussianRelease(0.3))), ADD),
    ],
)
def test_epsilon_at_falls_with_delta_and_agrees_at_its_own(event, adjacency):
    subject = guarantee(event, adjacency)
    assert subject.epsilon_at(subject.delta) == subject.epsilon
    deltas = np.geomspace(1e-14, 0.5, 12)
    assert np.all(np.diff([subject.epsilon_at(float(delta)) for delta in deltas]) <= 0)
    assert subject.epsilon_at(0.0) == math.inf


def test_conditions_are_enforced_or_assumed_and_are_details_only_on_request():
    assert enforced("x") == Assumption("x", True, False) == Assumption("x", True)
    assert enforced("x", detail=True) == Assumption("x", True, True)
    assert assumed("x") == Assumption("x", False, False)


def test_a_guarantee_has_no_conditions_and_protects_records_unless_it_says_otherwise():
    event = GaussianRelease(0.5)
    bare = Guarantee(1.0, 1e-5, REPLACE, event, "the weights")
    assert (bare.assumptions, bare.unit) == ((), Unit.RECORD)
    assert Guarantee.of(event, REPLACE, 1e-5, released="the weights") == guarantee()
    numbers = Guarantee(np.float32(1), np.float32(0.5), REPLACE, event, "the weights")
    assert (type(numbers.epsilon), type(numbers.delta)) == (float, float)
    assert Guarantee(0.0, 0.0, REPLACE, GaussianRelease(0.0), "nothing").epsilon == 0.0


def test_one_release_without_noise_takes_all_privacy():
    with_noise = guarantee(Composition((GaussianRelease(0.5), PureRelease(0.1))))
    without = guarantee(Composition((GaussianRelease(0.5), Noiseless())))
    assert (with_noise.is_private, without.is_private) == (True, False)
    assert without.epsilon == math.inf
    assert without.statement().startswith("No differential privacy: the noise multiplier is 0")


@pytest.mark.parametrize("unit", Unit)
def test_the_local_guarantee_keeps_everything_but_what_is_seen(unit):
    subject = guarantee(LastIterate(3.0, n=20), REPLACE, 1e-5, CLIPPED, unit=unit)
    local = subject.local
    assert local.epsilon == pytest.approx(gdp_epsilon(2 / 3, 1e-5), rel=1e-9)
    assert (local.delta, local.adjacency, local.unit) == (1e-5, REPLACE, unit)
    assert local.released == "the state after every step"
    assert local.assumptions == (CLIPPED, assumed("each person makes their own step and adds its noise"))
    assert guarantee(LastIterate(3.0, n=20), REPLACE, 0.0).local is None
    assert guarantee(Composition(())).local is None
    assert guarantee(Composition((LastIterate(3.0, n=20), GaussianRelease(0.1)))).local is None


# --- JSON ---------------------------------------------------------------------------------------------------------

cheap_events = st.recursive(
    st.one_of(
        st.builds(GaussianRelease, st.floats(0.01, 3)),
        st.builds(PureRelease, st.floats(0.1, 3)),
        st.builds(FixedSizeGaussian, st.floats(0.5, 9), st.just(100), st.integers(1, 100), st.integers(1, 99)),
    ),
    lambda inner: st.lists(inner, min_size=1, max_size=3).map(lambda events: Composition(tuple(events))),
    max_leaves=5,
)


@settings(max_examples=40, deadline=None)
@given(
    cheap_events,
    st.floats(1e-9, 1e-2),
    st.sampled_from(Unit),
    st.lists(st.builds(Assumption, st.text(), st.booleans(), st.booleans())),
    st.text(),
)
def test_json_round_trip(event, delta, unit, conditions, released):
    fixed = "FixedSize" in repr(event)
    subject = guarantee(event, REPLACE if fixed else ADD, delta, *conditions, released=released, unit=unit)
    again = Guarantee.from_json(subject.to_json())
    assert again == subject
    assert again.statement() == subject.statement()
    assert again.epsilon_at(delta) == subject.epsilon


def strictly(text):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_json_of_an_infinite_epsilon_is_still_json():
    """A Gaussian release at delta = 0 has an infinite epsilon. RFC 8259 has no Infinity, so readers would fail."""
    subject = guarantee(GaussianRelease(1.0), REPLACE, 0.0)
    assert subject.epsilon == math.inf
    assert strictly(subject.to_json())
    assert Guarantee.from_json(subject.to_json()) == subject


def test_json_takes_numpy_numbers():
    event = FixedSizeGaussian(np.float64(2.0), np.int64(100), np.int64(10), np.int64(5))
    subject = guarantee(event, REPLACE, np.float64(1e-5))
    assert Guarantee.from_json(subject.to_json()) == subject


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("epsilon", math.nan),
        ("epsilon", -1.0),
        ("delta", 1.0),
        ("delta", math.nan),
        ("adjacency", "near"),
        ("unit", "dog"),
    ],
)
def test_a_forged_file_is_refused(field, value):
    fields = guarantee().to_dict() | {field: value}
    with pytest.raises(ValueError, match=rf"{field}|{value}"):
        Guarantee.from_dict(fields)


@pytest.mark.parametrize("event", [GaussianRelease(1.0), PoissonGaussian(1.0, 0.1, 10), PureRelease(5.0)], ids=repr)
def test_a_stated_epsilon_below_that_of_the_event_is_refused(event):
    subject = guarantee(event, ADD, 1e-6)
    text = subject.to_json().replace(json.dumps(subject.epsilon), "0.001")
    with pytest.raises(ValueError, match=rf"epsilon = 0\.001 [^\n]* gives epsilon = {subject.epsilon:.6g}\."):
        Guarantee.from_json(text)


def test_a_finite_epsilon_of_an_event_that_has_none_is_refused():
    fields = guarantee(GaussianRelease(1.0), REPLACE, 0.0).to_dict() | {"epsilon": 3.0}
    with pytest.raises(ValueError, match="its event gives epsilon = inf"):
        Guarantee.from_dict(fields)


def test_a_delta_below_the_one_that_was_certified_is_refused():
    fields = guarantee(GaussianRelease(1.0), REPLACE, 1e-3).to_dict() | {"delta": 1e-9}
    with pytest.raises(ValueError, match="at delta = 1e-09, but its event gives"):
        Guarantee.from_dict(fields)


def test_an_epsilon_of_another_version_is_never_read_as_less_than_the_event_gives():
    subject = guarantee(GaussianRelease(1.0), REPLACE, 1e-5)
    fields = subject.to_dict()
    assert Guarantee.from_dict(fields | {"epsilon": subject.epsilon * (1 - 0.9e-3)}) == subject
    assert Guarantee.from_dict(fields | {"epsilon": subject.epsilon * 2}).epsilon == subject.epsilon * 2
    with pytest.raises(ValueError, match="its event gives"):
        Guarantee.from_dict(fields | {"epsilon": subject.epsilon * (1 - 1.1e-3)})


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"epsilon": 1}'])
def test_text_that_is_not_a_guarantee_is_refused_in_one_line(text):
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        Guarantee.from_json(text)


# --- composition --------------------------------------------------------------------------------------------------


def test_gaussian_guarantees_compose_exactly():
    total = compose([guarantee(GaussianRelease(0.3)), guarantee(GaussianRelease(0.4))])
    assert total.delta == 2e-5
    assert total.epsilon == gdp_epsilon(0.5, 2e-5)


def test_pure_guarantees_add():
    parts = [guarantee(PureRelease(0.25), REPLACE, 0.0), guarantee(PureRelease(0.5), REPLACE, 0.0)]
    assert (compose(parts).epsilon, compose(parts).delta) == (0.75, 0.0)


def test_composition_keeps_every_assumption_once_and_every_release():
    one = guarantee(None, REPLACE, 1e-5, CLIPPED, VOUCHED, released="a table")
    two = guarantee(None, REPLACE, 1e-5, CLIPPED, SECRET, released="a model")
    total = compose([one, two])
    assert total.assumptions == (CLIPPED, VOUCHED, SECRET)
    assert "a table" in total.released
    assert "a model" in total.released
    assert total.is_conditional
    assert compose([one, two, one]).released == "a table; a model"
    assert compose([guarantee(unit=Unit.CLIENT)] * 2).unit is Unit.CLIENT
    assert compose([guarantee(None, ADD)] * 2).adjacency is ADD


@pytest.mark.parametrize(
    ("events", "adjacency"),
    [
        ([GaussianRelease(0.3), PureRelease(0.5), GaussianRelease(0.1)], REPLACE),
        ([FixedSizeGaussian(2.0, 1000, 10, 100), PureRelease(0.5), GaussianRelease(0.2)], REPLACE),
        ([PoissonGaussian(1.0, 0.01, 100), GaussianRelease(0.4), ApproximateRelease(0.1, 1e-6)], ADD),
    ],
)
def test_compose_lies_between_each_part_and_the_sum_in_any_order(events, adjacency):
    parts = [guarantee(event, adjacency) for event in events]
    total = compose(parts)
    at_total = [part.epsilon_at(total.delta) for part in parts]
    assert max(at_total) * (1 - 2e-3) <= total.epsilon <= 1.02 * sum(part.epsilon for part in parts)
    assert compose(parts[::-1]).epsilon == pytest.approx(total.epsilon, rel=1e-6)
    assert compose([compose(parts[:2]), parts[2]]).epsilon == pytest.approx(total.epsilon, rel=1e-9)


def test_composing_one_guarantee_changes_no_number():
    subject = guarantee(FixedSizeGaussian(2.0, 1000, 10, 100))
    assert compose([subject]).epsilon == subject.epsilon
    black_box = guarantee(ApproximateRelease(1.0, 1e-6), REPLACE, 1e-6)
    assert compose([black_box]).epsilon == pytest.approx(1.0)


def test_compose_at_a_given_delta():
    parts = [guarantee(GaussianRelease(0.3))] * 2
    assert compose(parts, delta=1e-7).epsilon == gdp_epsilon(math.hypot(0.3, 0.3), 1e-7)
    assert compose(parts, delta=0.0).epsilon == math.inf


def test_deltas_that_add_up_to_one_are_refused():
    with pytest.raises(ValueError, match=r"^delta must lie in \[0, 1\)"):
        compose([guarantee(None, REPLACE, 0.6), guarantee(None, REPLACE, 0.6)])


def test_adjacencies_and_units_never_mix():
    with pytest.raises(ValueError, match=r"^cannot compose replace-one with add-or-remove [^\n]*$"):
        compose([guarantee(), guarantee(None, ADD)])
    with pytest.raises(ValueError, match=r"^cannot compose [^\n]*each record [^\n]*each client\. State[^\n]*$"):
        compose([guarantee(), guarantee(unit=Unit.CLIENT)])
    with pytest.raises(ValueError, match=r"^nothing to compose[^\n]*$"):
        compose([])


# --- bad input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [1, -0.1, math.nan, math.inf, True, "1e-5", None], ids=repr)
def test_bad_delta_is_named(delta):
    for call in (lambda: guarantee(None, REPLACE, delta), lambda: guarantee().epsilon_at(delta)):
        with pytest.raises(ValueError, match=r"^delta must [^\n]*$"):
            call()
    if delta is not None:  # where None means the sum of the parts'
        with pytest.raises(ValueError, match=r"^delta must [^\n]*$"):
            compose([guarantee()], delta=delta)


def test_an_event_under_the_wrong_adjacency_makes_no_guarantee():
    with pytest.raises(ValueError, match="adjacency"):
        guarantee(PoissonGaussian(1.0, 0.1, 1), REPLACE)


def test_an_epsilon_given_by_hand_is_checked():
    for bad in (math.nan, -1.0):
        with pytest.raises(ValueError, match="epsilon"):
            Guarantee(bad, 1e-5, REPLACE, GaussianRelease(1.0), "the weights")
