"""Relays between real processes: who receives what, and what happens if an owner fails or sends something wrong."""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mpyc", reason="several parties need MPyC: install the extra multiparty")
pytest.importorskip("cryptography", reason="several parties need cryptography: install the extra multiparty")

from privet.multiparty import make_keys
from privet.multiparty.protocol.participation import plan_of
from privet.multiparty.protocol.relay import order_of
from privet.multiparty.protocol.results import verify_result
from privet.privacy import Ledger

sys.path.insert(0, str(Path(__file__).parents[1]))

import relay_party
from parties import Machine, command

STAMP = 32 + 4
STATE = STAMP + 3 * 8  # two columns and the intercept


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return make_keys(tmp_path_factory.mktemp("relay") / "keys", list("abcde"))


def relays(folder, cases, parties, keys=None, ended=None):
    """Run studies one after the other, in as many processes as there are parties; return what each found per case.

    ``ended`` are the parties that end by themselves, by default all. Of the others there is nothing to wait for.
    """
    with Machine(parties) as machine:
        orders = {"ports": machine.ports, "cases": cases, "keys": None if keys is None else str(keys)}
        made = [machine.start(folder / str(i), relay_party.main, orders | {"index": i}) for i in range(parties)]
        for index in range(parties) if ended is None else ended:
            assert made[index].wait() == 0, made[index].err
            assert "Traceback" not in made[index].err, made[index].err
    read = {}
    for name in cases:
        files = [each.folder / f"{name}.json" for each in made]
        read[name] = [json.loads(file.read_text()) if file.exists() else None for file in files]
    return read


# --------------------------------------------------------------------------------------------------- when all goes well

SKIP = {"on_failure": "skip"}
WRONG = {
    "truncated": f"sent a state that has {STATE - 1} bytes instead of {STATE}",
    "oversized": f"sent a state that has {STATE + 8} bytes instead of {STATE}",
    "stale": "sent a state that belongs to round 1 instead of 2",
    "of another study": "sent a state that belongs to another study",
    "not a number": "sent a state that has values that no turn can lead to",
    "far away": "sent a state that has values that no turn can lead to",
}
CASES = {
    "lot": {"study": {"order": "lot", "passes": 2, "on_failure": "skip"}},
    "two": {"parties": 2, "study": {"passes": 3, "epsilon": 1000.0}},
    **{name: {"parties": 3, "study": {}, "of": {"0": {"fault": name}}} for name in WRONG},
    "skipped": {"parties": 3, "study": SKIP, "of": {"1": {"fault": "truncated"}}},
    "another lot": {"parties": 3, "study": {"order": "lot"}, "of": {"1": {"fault": "another lot"}}},
    "raises": {"parties": 3, "study": {}, "of": {"1": {"fault": "raises"}}},
    "refuses": {"parties": 3, "study": {}, "of": {"1": {"refuses": True}}},
    "other study": {"parties": 3, "study": {}, "of": {"2": {"study": {"passes": 2}}}},
}


@pytest.fixture(scope="module")
def found(tmp_path_factory, keys):
    return relays(tmp_path_factory.mktemp("relays"), CASES, 5, keys)


def test_five_owners_agree_on_the_order_and_sign_the_same_model(found, keys):
    first, *others = found["lot"]
    for other in others:
        assert other["result"] == first["result"]
        assert other["weights"] == first["weights"]
    order = first["trace"]["order"]
    assert sorted(order) == [0, 1, 2, 3, 4]
    assert first["result"]["relay"] == {"order": ["abcde"[index] for index in order], "skipped": []}
    study = verify_result(first["result"], (keys / "ca.crt").read_bytes())
    assert (study.order, study.passes) == ("lot", 2)
    assert first["trace"]["steps"] == 2 * 5 * relay_party.ROWS // 4


def test_states_go_to_the_next_owner_only(found):
    order = found["lot"][0]["trace"]["order"]
    after = dict(zip(order, order[1:] + order[:1], strict=True))
    for index, party in enumerate(found["lot"]):
        turns = 1 if index == order[-1] else 2  # The last state is published instead.
        assert party["sent"] == [[after[index], STATE]] * turns


def test_the_budget_is_booked_before_anything_is_handed_over(found):
    for party in found["lot"]:
        ((epsilon, sent),) = party["booked"]
        assert sent == 0
        assert party["epsilon"] <= epsilon <= 8.0
        assert "assumptions below hold" in party["statement"]


def test_the_guarantee_is_that_of_the_plan_for_what_ran(found):
    order = found["lot"][0]["trace"]["order"]
    study = relay_party.study(range(9100, 9105), **CASES["lot"]["study"])
    plan = plan_of(study, study.problem([relay_party.ROWS] * 5), order)
    assert plan.guarantee(plan.turns, list("abcde")).epsilon == found["lot"][0]["epsilon"]
    assert plan.guarantee(plan.turns, list("abcde")).released in found["lot"][0]["statement"]


def test_two_owners_train_a_useful_model(found):
    for party in found["two"][:2]:
        assert party["trace"]["order"] == [0, 1]
        assert party["weights"] == found["two"][0]["weights"]
    rows, targets = relay_party.table(7)
    weights = np.ravel(found["two"][0]["weights"])
    assert np.mean((rows @ weights[:2] + weights[2] / 2 > 0) == targets) > 0.9


# ------------------------------------------------------------------------------------------------ what must be noticed


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_state_stops_all_and_names_its_sender(found, name):
    for party in found[name][:3]:
        assert f"party 0 (a) {WRONG[name]}" in party["error"], party


def test_a_wrong_state_is_skipped_if_the_study_says_so(found):
    first, skipped, last = found["skipped"][:3]
    # The others go on without party 1, which may notice that they have left before it is told why.
    reasons = WRONG["truncated"], "is not connected with all others"
    assert any(f"party 1 (b) {reason}" in skipped["error"] for reason in reasons), skipped["error"]
    for party in (first, last):
        assert party["trace"]["skipped"] == [1]
        assert party["result"]["relay"]["skipped"] == ["b"]
        assert party["trace"]["steps"] == 2 * relay_party.ROWS // 4
    assert first["weights"] == last["weights"]


def test_a_skipped_owner_need_not_sign_but_all_others_must(found, keys):
    authority = (keys / "ca.crt").read_bytes()
    result = found["skipped"][0]["result"]
    assert [each["party"] for each in result["signatures"]] == ["a", "c"]
    verify_result(result, authority)
    with pytest.raises(ValueError, match="not signed by all of a, c"):
        verify_result(result | {"signatures": result["signatures"][:1]}, authority)
    with pytest.raises(ValueError, match="not signed by all of a, b, c"):
        verify_result(result | {"relay": result["relay"] | {"skipped": []}}, authority)
    with pytest.raises(ValueError, match="which the study does not allow"):
        verify_result(result | {"relay": result["relay"] | {"skipped": ["b", "c"]}}, authority)
    with pytest.raises(ValueError, match="does not say who was skipped"):
        verify_result({key: value for key, value in result.items() if key != "relay"}, authority)
    complete = found["two"][0]["result"]
    for order in (["b", "a"], []):
        with pytest.raises(ValueError, match="signature"):
            verify_result(complete | {"relay": complete["relay"] | {"order": order}}, authority)


def test_a_lot_other_than_the_drawn_one_is_noticed(found):
    for party in found["another lot"][:3]:
        assert "party 1 drew one lot and showed another. Nothing was released." in party["error"]
        assert party["booked"] == []


def test_an_error_at_an_owner_stops_all_without_its_text(found):
    for index, party in enumerate(found["raises"][:3]):
        if index != 1:
            assert "party 1" in party["error"]
            assert "ZeroDivisionError" in party["error"]
            assert "division by zero" not in party["error"]


def test_nothing_is_handed_over_if_an_owner_cannot_book(found):
    assert "the ledger is full" in found["refuses"][1]["error"]
    for index in (0, 2):
        assert "party 1" in found["refuses"][index]["error"]


def test_another_study_is_refused_before_anything_is_booked(found):
    for party in found["other study"][:3]:
        assert "a different study" in party["error"]
        assert "party 2 (c)" in party["error"]
        assert party["booked"] == []


# ----------------------------------------------------------------------------------------------------- owners that fail


def test_if_an_owner_is_killed_all_others_stop_and_name_it(tmp_path):
    cases = {"stop": {"study": {}, "of": {"1": {"fault": "dies in its first turn"}}}}
    found = relays(tmp_path, cases, 3, ended=[0, 2])["stop"]
    for party in (found[0], found[2]):
        assert "party 1" in party["error"]
        assert "closed the connection" in party["error"] or "no longer connected" in party["error"]


@pytest.mark.parametrize(
    ("faults", "left", "turns"),
    [
        ({"1": "dies in its first turn", "3": "dies when it hands over"}, [0, 2, 4], [0, 2, 4, 0, 2, 4]),
        ({"1": "dies in its second turn", "4": "dies when it publishes"}, [0, 2, 3], [0, 1, 2, 3, 4, 0, 2, 3]),
    ],
)
def test_the_relay_goes_on_without_owners_that_are_killed(tmp_path, keys, faults, left, turns):
    options = {"passes": 2, "on_failure": "skip"}
    case = {"study": options, "of": {index: {"fault": fault} for index, fault in faults.items()}}
    found = relays(tmp_path, {"skip": case}, 5, keys, ended=left)["skip"]
    study = relay_party.study(range(9100, 9105), **options)
    plan = plan_of(study, study.problem([relay_party.ROWS] * 5))
    promised, held = plan.guarantee(), plan.guarantee(turns)
    assert held.epsilon <= promised.epsilon <= study.epsilon
    for index in left:
        party = found[index]
        assert party["result"] == found[0]["result"]
        assert party["trace"]["skipped"] == [int(lost) for lost in faults]
        assert party["trace"]["steps"] == len(turns) * relay_party.ROWS // 4
        assert party["epsilon"] == held.epsilon
        assert party["booked"] == [[promised.epsilon, 0]]
    verify_result(found[0]["result"], (keys / "ca.crt").read_bytes())


def test_an_owner_that_hangs_is_skipped(tmp_path):
    case = {"study": SKIP, "timeout": 4.0, "of": {"1": {"fault": "hangs"}}}
    found = relays(tmp_path, {"skip": case}, 3, ended=[0, 2])["skip"]
    for index in (0, 2):
        assert found[index]["trace"]["skipped"] == [1]
        assert found[index]["weights"] == found[0]["weights"]


def test_a_minority_does_not_go_on(tmp_path):
    of = {"0": {"fault": "dies when it hands over"}, "1": {"fault": "dies in its first turn"}}
    found = relays(tmp_path, {"skip": {"study": SKIP, "of": of}}, 3, ended=[2])["skip"]
    assert "2 of 3 parties are lost" in found[2]["error"]
    assert "Nothing was published" in found[2]["error"]


# ----------------------------------------------------------------------------------------------------- the command line

STUDY = """
name = "relay"
epsilon = 4.0
delta = 1e-3
method = "relay"
passes = 2
batch = 5
{parties}
[table]
target = "y"
target_levels = ["no", "yes"]
[table.numeric]
u = [0, 1]
"""


def test_the_command_line_runs_a_relay_of_two_and_verifies_its_model(tmp_path, keys):
    with Machine(2) as machine:
        made = []
        party = '[[party]]\nname = "{}"\naddress = "127.0.0.1:{}"'
        parties = "\n".join(party.format(*each) for each in zip("ab", machine.ports, strict=True))
        for index in range(2):
            folder = tmp_path / str(index)
            folder.mkdir()
            (folder / "study.toml").write_text(STUDY.format(parties=parties))
            rows = "".join(f"{number / 20},{'yes' if number > 10 else 'no'}\n" for number in range(20))
            (folder / "rows.csv").write_text("u,y\n" + rows)
            options = ["--index", str(index), "--data", "rows.csv", "--keys", str(keys), "-o", "model.privet.json"]
            words = ["party", "study.toml", *options, "--ledger", "ledger.jsonl"]
            made.append(machine.start(folder, command, *words))
        assert [each.wait() for each in made] == [0, 0], [each.err for each in made]
        checked = machine.start(
            tmp_path / "verified", command, "party", "verify", "../0/model.privet.json", "--ca", str(keys / "ca.crt")
        )
        assert checked.wait() == 0, checked.err
    models = [(each.folder / "model.privet.json").read_text() for each in made]
    assert models[0] == models[1]
    assert json.loads(models[0])["relay"] == {"order": ["a", "b"], "skipped": []}
    assert "Signed by all 2 parties" in checked.out
    for each in made:
        assert "to the next owner only: epsilon" in " ".join(each.out.split())
        spent = Ledger(each.folder / "ledger.jsonl").total()
        assert 3.9 < spent.epsilon <= 4.0
        files = [path.name.lstrip(".") for path in each.written]
        assert all(name.startswith(("model.", "ledger.")) for name in files), files  # No state is written anywhere.


# ----------------------------------------------------------------------------------------------------------------- lots


def test_every_order_is_equally_likely_and_depends_on_every_lot():
    drawn = [order_of([hashlib.sha256(bytes([k, n // 256, n % 256])).digest() for k in range(3)]) for n in range(6000)]
    counts = np.unique(drawn, axis=0, return_counts=True)[1]
    assert len(counts) == 6
    assert np.abs(counts - 1000).max() < 5 * 29  # five standard deviations
    lots = [bytes(32)] * 3
    changed = {order_of([*lots[:k], bytes([n]) * 32, *lots[k + 1 :]]) for n in range(40) for k in range(3)}
    assert len(changed) == 6
