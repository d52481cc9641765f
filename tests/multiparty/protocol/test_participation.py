"""Taking part in a study, in processes that exchange messages. tests/commands/test_party.py tests failures."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mpyc", reason="several parties need MPyC: install the extra multiparty")

from privet.multiparty import make_keys, verify
from privet.multiparty.protocol.gradient import gradient_plan
from privet.multiparty.protocol.output import output_plan
from privet.multiparty.protocol.participation import plan_of, signed_text
from privet.multiparty.study import Study

sys.path.insert(0, str(Path(__file__).parents[1]))

import joint_party as joint
from parties import Machine

STUDY = {
    "name": "stroke",
    "epsilon": 1.0,
    "delta": 1e-5,
    "steps": 7,
    "party": [{"name": name, "address": f"127.0.0.1:{port}"} for port, name in enumerate("abc", start=9100)],
    "table": {"target": "y", "target_levels": ["no", "yes"], "numeric": {"x": [0, 1]}},
}
REGRESSION = {"table": {"target": "y", "target_bounds": [0, 1], "numeric": {"x": [0, 1]}}}


def study(**changed):
    return Study.from_values(STUDY | changed)


# ------------------------------------------------------------------------------------------------------------- the plan


def test_the_plan_follows_from_the_settings_of_the_study():
    logistic = study()
    problem = logistic.problem([30, 0, 50])
    assert plan_of(logistic, problem) == gradient_plan(problem, logistic.budget(80), steps=7)
    output = study(method="output")
    assert plan_of(output, problem) == output_plan(problem, output.budget(80))
    ridge = study(model="ridge", clip_norm=0.3, **REGRESSION)
    plan = plan_of(ridge, ridge.problem([30, 0, 50]))
    assert (plan.sensitivity, plan.steps) == (0.6, 7)


def test_the_default_delta_depends_on_the_rows_of_all_parties():
    free = Study.from_values({key: value for key, value in STUDY.items() if key != "delta"})
    problem = free.problem([30_000, 0, 50_000])
    assert plan_of(free, problem).guarantee(0.01 / 80_000).epsilon <= 1.0
    assert plan_of(free, problem).guarantee(0.01 / 81_000).epsilon > 1.0


# ----------------------------------------------------------------------------------------------------------- the result


def test_the_signed_text_does_not_depend_on_the_order_of_keys():
    assert signed_text({"b": [1.5], "a": {"d": 1, "c": 2}}) == signed_text({"a": {"c": 2, "d": 1}, "b": [1.5]})
    assert signed_text({"a": 1.0}) != signed_text({"a": np.nextafter(1.0, 2.0)})
    with pytest.raises(ValueError):
        signed_text({"a": math.nan})


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return make_keys(tmp_path_factory.mktemp("study") / "keys", list("abc"))


def found(folder, do, **options):
    with Machine() as machine:
        orders = {"do": [do], "ports": machine.ports, "study": STUDY, **options}
        parties = [machine.start(folder / str(index), joint.main, {**orders, "index": index}) for index in range(3)]
        assert [party.wait() for party in parties] == [0, 0, 0], [party.err for party in parties]
    return [json.loads((party.folder / "found.json").read_text())[do] for party in parties]


def test_all_parties_sign_the_same_result(tmp_path, keys):
    signed = found(tmp_path, "signing", other=None, keys=str(keys))
    assert signed[0] == signed[1] == signed[2]
    authority = (keys / "ca.crt").read_bytes()
    for index, each in enumerate(signed[0]["signatures"]):
        certificate = (keys / f"party_{index}.crt").read_bytes()
        payload = signed_text({"weights": [0.0]})
        verify(certificate, payload, bytes.fromhex(each), authority=authority, party=index)
        with pytest.raises(ValueError, match="signed text was changed"):
            verify(certificate, signed_text({"weights": [1.0]}), bytes.fromhex(each), authority=authority)


def test_a_different_result_at_one_party_is_noticed_by_all(tmp_path, keys):
    for each in found(tmp_path, "signing", other=1, keys=str(keys)):
        assert "a different result. Nothing was saved." in each["error"]
        assert "signatures" not in each


# ------------------------------------------------------------------------------------------------------------ the order


def test_the_budget_is_recorded_after_agreement_and_before_anything_is_opened(tmp_path):
    """No party records its budget before all hold their shares of the first sum, so all wait for the slowest."""
    for each in found(tmp_path, "ordered", slow=1):
        events = each["events"]
        assert [event for event in events if event != "opened"] == ["agreed", "booked"]
        assert events.index("booked") < events.index("opened")
        assert events.count("opened") == STUDY["steps"]
        assert each["booked"] >= each["slowest"]
        assert each["epsilon"] <= 1.0
        assert each["counts"] == [20, 0, 20]


def test_nothing_is_opened_unless_all_parties_could_record_their_budget(tmp_path):
    """Two of three shares would open a sum, so the other parties must wait for the confirmation of the third."""
    north, south, west = found(tmp_path, "ordered", slow=1, refuses=1)
    assert south == {"events": ["agreed"], "error": "the ledger is full"}
    for each in (north, west):
        assert each["events"] in (
            ["agreed"],
            ["agreed", "booked"],
        )  # It may hear of the failure before.
        assert each["error"].startswith("party 1: ended with ValueError")
