"""Every registered event answers every question of the analyses, or raises an error that names itself.

Examples are the ``EXAMPLES`` of all test files in this folder. A new event brings its own test file with examples.
"""

import importlib.util
import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from privet.privacy import Adjacency
from privet.privacy.analyses.accounting import epsilon, gaussian_mu, merged
from privet.privacy.analyses.profile import delta
from privet.privacy.events import Composition, Event, PureRelease, event_from_dict


def collected_examples():
    """Return the examples of all other test files in this folder."""
    found = []
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        if path != Path(__file__):
            spec = importlib.util.spec_from_file_location(path.stem, path)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            found += getattr(module, "EXAMPLES", [])
    return found


EXAMPLES = collected_examples()
LEAVES = [event for event in EXAMPLES if not isinstance(event, Composition)]
CASES = [(event, adjacency) for event in LEAVES for adjacency in sorted(event.adjacencies)]
IDS = [f"{type(event).__name__}-{adjacency}" for event, adjacency in CASES]
ORDERS = np.array([2.0, 3.0, 8.0, 64.0, 300.0])
each_case = pytest.mark.parametrize(("event", "adjacency"), CASES, ids=IDS)


def answer(event, question, *arguments):
    """Return the answer, or None if the event raises the error that names it."""
    try:
        return getattr(event, question)(*arguments)
    except ValueError as error:
        assert type(event).__name__ in str(error)
        assert "does not cover" in str(error)
        return None


def test_every_registered_event_has_an_example():
    assert {type(event).__name__ for event in EXAMPLES} == set(Event.kinds)


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: type(event).__name__)
def test_an_event_survives_json_and_says_under_which_adjacency_it_holds(event):
    assert event_from_dict(json.loads(json.dumps(event.to_dict(), allow_nan=False))) == event
    assert event.adjacencies
    assert event.adjacencies <= set(Adjacency)
    assert all(isinstance(leaf, Event) for leaf in event.leaves())


@each_case
def test_a_repeatable_event_merges_with_its_equals_and_others_are_one_part(event, adjacency):
    assert event.repeats >= 1
    if event.is_repeatable:
        assert event.repeated(1).repeats == 1
        assert event.repeated(1).repeated(event.repeats) == event
    else:
        assert event.repeats == 1
        assert answer(event, "repeated", 2) is None
    assert len(merged(Composition((event, event)), adjacency)) <= 2


@each_case
def test_an_event_is_gaussian_or_has_a_bound_without_sampling(event, adjacency):
    mu, bound = event.gaussian_mu(adjacency), answer(event, "unsampled", adjacency)
    assert mu is not None or bound is not None
    if mu is not None:
        assert 0 <= mu < math.inf
        assert bound is None or bound == (mu, 0.0, 0.0)
    if bound is not None:
        assert min(bound) >= 0
        assert not event.is_black_box or bound.mu == 0
    assert 0 <= event.approximation_error < 1
    assert event.log_chance_of_no_contact() <= 0


@each_case
def test_renyi_divergences_grow_with_the_order_and_keep_within_the_unsampled_bound(event, adjacency):
    divergences = answer(event, "renyi", adjacency, ORDERS)
    if divergences is None:
        return
    assert divergences.shape == ORDERS.shape
    assert np.all(divergences >= 0)
    assert np.all(np.diff(divergences) >= -1e-12)
    mu, epsilon_alone, _ = event.unsampled(adjacency)
    assert np.all(divergences <= (ORDERS * mu**2 / 2 + epsilon_alone) * (1 + 1e-6) + 1e-9)


@each_case
def test_losses_have_a_spread_below_the_largest_loss_and_a_distribution(event, adjacency):
    spread, largest = answer(event, "spread"), answer(event, "largest_loss")
    distribution = answer(event, "loss_distribution", 1e-3)
    assert (spread is None) == (largest is None) == (distribution is None)
    if distribution is not None:
        assert 0 <= spread <= largest < math.inf
        assert distribution.get_epsilon_for_delta(0.01) >= 0


@each_case
def test_all_analyses_certify_the_event_and_the_tightest_is_no_looser(event, adjacency):
    found = {}
    for analysis in ("tightest", "rdp", "pld", "unsampled"):
        found[analysis] = epsilon(event, adjacency, 1e-3, analysis=analysis)
    assert found["tightest"] >= 0
    smallest = min(found, key=found.get)
    assert found["tightest"] <= found[smallest] * (1 + 1e-3), f"another answer of the event is looser than {smallest!r}"
    alone = event.closed_form_epsilon(1e-3)
    assert alone is None or found["tightest"] <= alone
    mu = gaussian_mu(event, adjacency)
    assert mu is None or found["tightest"] == found["unsampled"]
    if not event.has_noise:
        return
    deltas = event.closed_form_deltas(np.array([0.0, found["tightest"]]))
    assert (deltas is None) == (alone is None)
    assert deltas is None or deltas[1] <= min(1e-3 * (1 + 1e-6), deltas[0])
    assert delta(event, adjacency, found["tightest"]) <= 1e-3 * (1 + 1e-6)


@each_case
def test_records_have_an_epsilon_each_where_they_differ(event, adjacency):
    epsilons = event.record_epsilons(1e-3)
    if event.distinguishes_records and epsilons is not None:
        assert epsilons.ndim == 1
        assert epsilons.max() <= epsilon(event, adjacency, 1e-3) * (1 + 1e-6)
    if not event.distinguishes_records:
        assert epsilons is None or len(epsilons) == 1


def test_an_event_without_answers_is_refused_by_name_in_every_analysis():
    class Silent(Event):
        pass

    try:
        for analysis in ("tightest", "rdp", "pld", "unsampled"):
            with pytest.raises(ValueError, match="does not cover Silent"):
                epsilon(Silent(), Adjacency.REPLACE_ONE, 1e-3, analysis=analysis)
        with pytest.raises(ValueError, match="unknown analysis 'other'"):
            epsilon(Silent(), Adjacency.REPLACE_ONE, 1e-3, analysis="other")
    finally:
        del Event.kinds["Silent"]


def test_an_event_that_is_described_only_approximately_keeps_its_own_privacy_loss():
    @dataclass(frozen=True)
    class Rough(PureRelease):
        approximation_error = 1e-9

    try:
        for analysis in ("tightest", "rdp", "pld", "unsampled"):
            exact = epsilon(PureRelease(1.0), Adjacency.REPLACE_ONE, 1e-6, analysis=analysis)
            rough = epsilon(Rough(1.0), Adjacency.REPLACE_ONE, 1e-6, analysis=analysis)
            assert exact <= rough < 1.01 * exact
        assert epsilon(Rough(1.0), Adjacency.REPLACE_ONE, 1e-9) == math.inf  # the error alone takes more than delta
    finally:
        del Event.kinds["Rough"]
