import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privet.privacy import Adjacency
from privet.privacy.events import (
    ApproximateRelease,
    Composition,
    FixedSizeGaussian,
    GaussianRelease,
    LastIterate,
    NearlyGaussian,
    PoissonGaussian,
    PureRelease,
    event_from_dict,
)

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
