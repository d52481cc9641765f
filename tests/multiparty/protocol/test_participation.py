"""Taking part in a study, in processes that exchange messages. tests/commands/test_party.py tests failures."""

import copy
import json
import math
import re
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("mpyc", reason="several parties need MPyC: install the extra multiparty")

from privet.multiparty import Identity, make_keys, verify
from privet.multiparty.protocol import agreement, participation
from privet.multiparty.protocol.aggregation import JointAggregator
from privet.multiparty.protocol.gradient import gradient_plan
from privet.multiparty.protocol.output import output_plan
from privet.multiparty.protocol.participation import plan_of, take_part
from privet.multiparty.protocol.results import Signature, sign, signed_text, to_result, verify_result, with_signatures
from privet.multiparty.study import MODELS, Study, StudyError

sys.path.insert(0, str(Path(__file__).parents[1]))

import joint_party as joint
from alone import alone
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


TABLE = np.linspace(0, 1, 40)[:, None], np.zeros(40)


def taken_part(made, table=TABLE, **options):
    """Return the release and the result of a study with a single party, and what it signed without keys."""

    async def work(session):
        release = await take_part(session, made, table, **options)
        result = to_result(made, release)
        return release, result, await sign(session, made, result)

    return alone(work)


@pytest.mark.parametrize("method", ["gradient", "output"])
def test_the_guarantee_is_checked_and_recorded_once_each(method):
    events = []
    release, result, signatures = taken_part(
        study(method=method),
        check=lambda guarantee: events.append(("checked", guarantee)),
        book=lambda guarantee: events.append(("recorded", guarantee)),
        progress=lambda *steps: events.append(steps),
    )
    plan = plan_of(study(method=method), study(method=method).problem([40]))
    assert [event for event, _ in events[:2]] == ["checked", "recorded"]
    assert events[0][1] == events[1][1] == plan.guarantee()
    assert events[2:] == ([(done, 7) for done in range(1, 8)] if method == "gradient" else [])
    assert release.trace["counts"] == [40]
    assert release.guarantee.epsilon == plan.guarantee().epsilon
    held = release.guarantee.assumptions[-1]
    assert held.is_enforced
    assert f"the same study 'stroke' (SHA-256 {study(method=method).digest[:16]})" in held.text
    assert signatures == []
    assert (
        result["model"]["learned"]["method_"]
        == {
            "gradient": "joint gradient descent",
            "output": "joint output perturbation",
        }[method]
    )


def test_nothing_is_recorded_if_the_check_refuses():
    def refuse(guarantee):
        raise ValueError("the budget of the ledger is spent")

    recorded = []
    with pytest.raises(ValueError, match="the ledger is spent"):
        taken_part(study(), check=refuse, book=recorded.append)
    assert not recorded


@pytest.mark.parametrize("options", [{"step_size": 0.7}, {"averaged": 0.5}])
def test_the_settings_of_the_descent_are_those_of_the_study(options, monkeypatch):
    given, descent = [], participation.joint_gradient_descent

    async def spy(*arguments, **settings):
        given.append(settings)
        return await descent(*arguments, **settings)

    monkeypatch.setattr(participation, "joint_gradient_descent", spy)
    made = study(**options)
    taken_part(made)
    assert given == [{"step_size": made.step_size, "averaged": made.averaged, "progress": None}]
    name, value = next(iter(options.items()))
    assert given[0][name] == value


def test_the_result_states_the_settings_of_the_study():
    made = study(alpha=0.02, intercept_scaling=0.25)
    release, result, _ = taken_part(made)
    settings = result["model"]["settings"]
    assert {name: settings[name] for name in ("epsilon", "delta", "alpha", "intercept_scaling", "max_iter")} == {
        "epsilon": 1.0,
        "delta": 1e-5,
        "alpha": 0.02,
        "intercept_scaling": 0.25,
        "max_iter": 7,
    }
    assert settings["fit_intercept"] is True
    assert result["model"]["learned"]["method_reason_"] == "1 parties with 40 rows in all"
    assert result["study"] == {"digest": made.digest, **made.to_dict()}
    without = replace(release, trace={"counts": [30, 0, 50]})
    assert to_result(made, without)["model"]["learned"]["method_reason_"] == "2 parties with 80 rows in all"


def test_a_model_without_intercept_and_the_threshold_of_huber_are_stated():
    plain = study(intercept_scaling=0.0)
    assert taken_part(plain)[1]["model"]["settings"]["fit_intercept"] is False
    bounds = {"table": {"target": "y", "target_bounds": [0, 4], "numeric": {"x": [0, 1]}}}
    huber = taken_part(study(model="huber", threshold=0.5, **bounds))[1]
    assert huber["model"]["settings"]["threshold"] == 0.25  # targets from 0 to 4 are scaled to -1 to 1
    usual = taken_part(study(model="huber", **bounds))[1]
    assert usual["model"]["settings"]["threshold"] == MODELS["huber"]().threshold
    ridge = taken_part(study(model="ridge", clip_norm=0.3, **bounds))[1]
    assert "threshold" not in ridge["model"]["settings"]


@pytest.mark.parametrize("message", [b"", b"1234567", b"123456789"])
def test_a_number_of_rows_has_eight_bytes(message):
    with pytest.raises(StudyError, match="did not announce its number of rows"):
        participation._count(message)
    assert participation._count((2**40 + 3).to_bytes(8, "big")) == 2**40 + 3


def test_a_table_without_rows_is_no_table():
    """A party without rows takes part with an empty table or with none."""
    for table in (None, (np.zeros((0, 1)), np.zeros(0))):
        with pytest.raises(ValueError, match="No party brings any rows"):
            taken_part(study(), table)


def test_signatures_are_written_as_text():
    fields = with_signatures({"model": 1}, [Signature("a", b"certificate", b"\xff\x00")])
    assert fields == {
        "model": 1,
        "signatures": [{"party": "a", "certificate": "certificate", "signature": "/wA="}],
    }


@pytest.mark.parametrize(("others", "named"), [([1], "party 1 (b) has"), ([1, 2], "party 1 (b) and party 2 (c) have")])
def test_parties_that_differ_are_named_to_all(others, named):
    """The messages of the other parties are given here, since this process has no peers."""
    stopped = []

    async def work(session):
        async def exchange(own):
            return [own, *(b"other" if index in others else own for index in (1, 2))]

        async def stop(cause):
            stopped.append(cause)

        session.exchange, session.stop, session.parties = exchange, stop, 3
        await agreement.agree(session, study(), b"own", "a different result.")

    with pytest.raises(StudyError, match=re.escape(f"{named} a different result.")):
        alone(work)
    assert stopped == [f"{named} a different result."]


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return make_keys(tmp_path_factory.mktemp("study") / "keys", list("abc"))


def found(folder, do, **options):
    with Machine() as machine:
        orders = {"do": [do], "ports": machine.ports, "study": STUDY, **options}
        parties = [machine.start(folder / str(index), joint.main, {**orders, "index": index}) for index in range(3)]
        assert [party.wait() for party in parties] == [0, 0, 0], [party.err for party in parties]
    return [json.loads((party.folder / "found.json").read_text())[do] for party in parties]


@pytest.fixture(scope="module")
def signed(keys):
    """Return the content of a result file that three parties signed."""
    result = taken_part(study())[1]
    signers = [Identity.load(keys, index) for index in range(3)]
    signatures = [
        Signature(name, signer.certificate, signer.sign(signed_text(result)))
        for name, signer in zip("abc", signers, strict=True)
    ]
    return with_signatures(result, signatures)


def test_a_result_that_all_parties_signed_is_verified(keys, signed):
    authority = (keys / "ca.crt").read_bytes()
    assert verify_result(signed, authority).digest == study().digest
    long_ago = datetime(2000, 1, 1, tzinfo=UTC)
    with pytest.raises(ValueError, match=r"valid|expired"):
        verify_result(signed, authority, long_ago)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda fields: fields["study"].update(epsilon=2.0), "does not match its digest"),
        (lambda fields: fields["study"].update(digest="0" * 64), "does not match its digest"),
        (lambda fields: fields["model"].update(estimator="another"), "the signed text was changed"),
        (lambda fields: fields["signatures"].reverse(), "not signed by all of a, b, c"),
        (lambda fields: fields["signatures"].pop(), "not signed by all of a, b, c"),
        (lambda fields: fields["signatures"].clear(), "is not signed, because its study was run without keys"),
        (lambda fields: fields.pop("schema"), "not the result of a study"),
        (lambda fields: fields["signatures"][0].pop("party"), "not the result of a study"),
    ],
)
def test_a_changed_result_is_refused(keys, signed, change, cause):
    fields = copy.deepcopy(signed)
    change(fields)
    with pytest.raises(ValueError, match=cause):
        verify_result(fields, (keys / "ca.crt").read_bytes())


def taken_part_with_keys(folder, index):
    async def work(session):
        session.identity = Identity.load(folder, index)
        release = await take_part(session, study(), TABLE)
        return await sign(session, replaced_parties(study(), 1), to_result(study(), release))

    return alone(work)


def replaced_parties(made, number):
    return SimpleNamespace(members=made.members[:number], on_failure=made.on_failure)


def test_certificates_must_be_those_of_the_parties_of_the_study(keys, tmp_path):
    (signature,) = taken_part_with_keys(keys, 0)
    assert (signature.party, signature.certificate) == ("a", (keys / "party_0.crt").read_bytes())
    with pytest.raises(ValueError, match="belongs to party 1"):
        taken_part_with_keys(keys, 1)
    others = make_keys(tmp_path / "keys", ["x", "b", "c"])
    with pytest.raises(ValueError, match="names 'x', but the study names that party 'a'"):
        taken_part_with_keys(others, 0)


@pytest.mark.parametrize("rows", [0, 40])
def test_the_rows_of_a_party_count_and_a_party_may_bring_none(rows, monkeypatch):
    """The other party's number of rows is given here, since this process has no peers."""
    locals_ = []

    class Spy(JointAggregator):
        def __init__(self, plan, session, problem, before_release):
            super().__init__(plan, session, problem, before_release)
            locals_.append(problem)

    monkeypatch.setattr(participation, "JointAggregator", Spy)

    async def work(session):
        exchange = session.exchange

        async def told(payload):
            found = await exchange(payload)
            return [*found, (20).to_bytes(8, "big")] if payload == rows.to_bytes(8, "big") else found

        session.exchange = told
        return await take_part(session, study(), (TABLE[0][:rows], TABLE[1][:rows]))

    assert alone(work).trace["counts"] == [rows, 20]
    assert [None if each is None else each.rows.n for each in locals_] == [rows or None]


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
