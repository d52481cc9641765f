"""The study file: what it may contain, its error messages, and that its digest covers everything in it."""

import copy
import json
import math
import tomllib
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from privet.multiparty.protocol.aggregation import JointProblem
from privet.multiparty.study import PartyInfo, Study, StudyError, parse_address
from privet.objectives import L2, Huber, Logistic, Squared
from privet.privacy.budget import default_delta
from privet.tables import Categorical, Numeric, NumericTarget, TableError, Target

TEXT = """
name = "stroke"
epsilon = 1.0
delta = 1e-6

[[party]]
name = "north"
address = "north.example:9100"
[[party]]
name = "south"
address = "south.example:9100"
[[party]]
name = "west"
address = "west.example:9100"

[table]
target = "stroke"
target_levels = ["no", "yes"]
[table.numeric]
age = [0, 120]
bmi = [10, 60]
[table.categorical]
sex = ["female", "male"]
"""
VALUES = tomllib.loads(TEXT)
NUMBERS = {"target": "cost", "target_bounds": [0, 400], "numeric": {"age": [0, 120]}}


def study(**changed):
    return Study.from_values({**copy.deepcopy(VALUES), **changed})


STUDY = study()
SERVERS = [{"name": f"server {index}", "address": f"server{index}.example:9100"} for index in range(3)]


def with_servers(**changed):
    values = {key: value for key, value in copy.deepcopy(VALUES).items() if key != "party"}
    return Study.from_values({**values, "owners": 10, "rows_per_owner": 50, "server": SERVERS, **changed})


COMMITTEE = with_servers()


# ----------------------------------------------------------------------------------------------------------- what it is


def test_a_typical_study_file_is_read(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(TEXT)
    read = Study.read(path)
    assert read == STUDY
    assert read.parties[1] == PartyInfo("south", "south.example", 9100)
    assert read.table.features == (
        Numeric("age", 0, 120),
        Numeric("bmi", 10, 60),
        Categorical("sex", ("female", "male")),
    )
    assert read.table.target == Target("stroke", ("no", "yes"))
    assert (read.model, read.method, read.steps) == ("logistic", "gradient", 100)


def test_the_example_in_the_docstring_is_a_valid_study():
    from privet.multiparty import study as module

    example = (
        module.__doc__.split(".. code-block:: toml\n")[1]
        .partition("\n\nWith many")[0]
        .replace(
            "    ...\n",
            '    name = "south"\n    address = "south.example:9100"\n    [[party]]\n    name = "west"\n    '
            'address = "west.example:9100"\n',
        )
    )
    read = Study.from_values(tomllib.loads(example))
    assert [party.name for party in read.parties] == ["north", "south", "west"]


def test_the_example_with_servers_is_a_valid_study():
    from privet.multiparty import study as module

    example = tomllib.loads(module.__doc__.split(".. code-block:: toml\n")[2])
    example["server"].append({"name": "south", "address": "south.example:9100"})
    read = with_servers(**example)
    assert (read.n_owners, read.trust, [server.name for server in read.servers]) == (1000, "one", ["north", "south"])


def test_model_and_settings_determine_the_loss_and_the_problem():
    assert isinstance(STUDY.objective(), Logistic)
    assert isinstance(study(model="ridge", table=NUMBERS).objective(), Squared)
    assert study(model="huber", table=NUMBERS).objective().threshold == 0.25
    assert study(model="huber", table=NUMBERS, threshold=40).objective().threshold == pytest.approx(0.2)
    problem = study(alpha=0.02, intercept_scaling=0.3).problem([10, 0, 30])
    assert isinstance(problem, JointProblem)
    assert (problem.counts, problem.row_norm, problem.intercept) == ((10, 0, 30), 1.0, 0.3)
    assert (problem.n_features, problem.regulariser) == (4, L2(0.02))
    assert isinstance(study(model="huber", table=NUMBERS).problem([1]).objective, Huber)


def test_gradients_of_a_squared_loss_are_always_clipped():
    assert STUDY.gradient_clip is None
    assert study(clip_norm=0.5).gradient_clip == 0.5
    assert study(model="ridge", table=NUMBERS).gradient_clip == 1.0
    assert study(model="ridge", table=NUMBERS, clip_norm=0.2).gradient_clip == 0.2


def test_the_budget_uses_the_default_delta_only_if_none_is_given():
    assert (STUDY.budget(10).epsilon, STUDY.budget(10).delta) == (1.0, 1e-6)
    without = {key: value for key, value in VALUES.items() if key != "delta"}
    assert Study.from_values(without).budget(500).delta == default_delta(500)


# ----------------------------------------------------------------------------------------------------------- the digest

RELAY = ("order", "passes", "batch", "on_failure")
OTHERS = {
    "name": "other",
    "parties": (*STUDY.parties[:2], PartyInfo("west", "west.example", 9101)),
    "table": replace(STUDY.table, features=STUDY.table.features[:2]),
    "epsilon": 1.5,
    "delta": 2e-6,
    "model": "ridge",
    "method": "output",
    "alpha": 0.01,
    "steps": 99,
    "step_size": 0.5,
    "averaged": 0.5,
    "order": "lot",
    "passes": 2,
    "batch": 7,
    "on_failure": "skip",
    "clip_norm": 0.7,
    "threshold": 30.0,
    "intercept_scaling": 0.25,
}
OTHERS_WITH_SERVERS = {
    "servers": (*COMMITTEE.servers[:2], PartyInfo("server 2", "server2.example", 9200)),
    "trust": "one",
    "owners": 11,
    "rows_per_owner": 51,
    "fewest_owners": 2,
    "check_norms": True,
}


@pytest.mark.parametrize(("ports", "message"), [((9100, 9101, 9200), "adjacent ports"), ((9100, 65535, 9200), "65535")])
def test_servers_whose_second_ports_are_taken_are_refused(ports, message):
    servers = tuple(PartyInfo(f"server {port}", "one.example", port) for port in ports)
    with pytest.raises(StudyError, match=message):
        replace(COMMITTEE, servers=servers)
    apart = tuple(replace(each, host=f"{each.port}.example", port=9100 + place) for place, each in enumerate(servers))
    assert replace(COMMITTEE, servers=apart).servers == apart  # on hosts of their own


def test_a_party_of_version_0_1_0_is_stopped_by_its_digest():
    """Both versions would otherwise open all sums, and then disagree on the words of the guarantee that they sign."""
    saved = json.loads((Path(__file__).parents[1] / "saved" / "party.json").read_text())["study"]
    digest = saved.pop("digest")
    again = Study.from_dict(saved)
    same = {key: value for key, value in again.to_dict().items() if key in saved}
    assert {**same, "table": None, "parties": None} == {**saved, "table": None, "parties": None}
    assert again.digest != digest


def test_every_field_changes_the_digest():
    assert {*OTHERS, *OTHERS_WITH_SERVERS} == {field.name for field in fields(Study)}
    huber, relay = study(model="huber", table=NUMBERS), study(method="relay")
    bases = dict.fromkeys(("model", "threshold"), huber) | dict.fromkeys(RELAY, relay)
    changed = [replace(bases.get(name, STUDY), **{name: value}) for name, value in OTHERS.items()]
    assert len({each.digest for each in (STUDY, huber, relay, *changed)}) == len(OTHERS) + 3
    changed = [replace(COMMITTEE, **{name: value}) for name, value in OTHERS_WITH_SERVERS.items()]
    assert len({each.digest for each in (COMMITTEE, *changed)}) == len(OTHERS_WITH_SERVERS) + 1
    assert not {*OTHERS_WITH_SERVERS} & {*STUDY.to_dict()}


def test_a_relay_of_two_owners_is_a_study_and_keeps_its_settings():
    relay = study(method="relay", party=VALUES["party"][:2], order="lot", passes=3, batch=10)
    assert Study.from_dict(relay.to_dict()) == relay
    assert {name: relay.to_dict()[name] for name in RELAY} == {
        "order": "lot",
        "passes": 3,
        "batch": 10,
        "on_failure": "stop",
    }
    assert not {*RELAY} & {*STUDY.to_dict()}  # so that the digest of other studies is that of earlier versions


@pytest.mark.parametrize(
    "old",
    [
        '"north"',
        "north.example",
        ":9100",
        '"stroke"\ntarget_levels',
        '"no", "yes"',
        "age =",
        "[0, 120]",
        "[10, 60]",
        "sex =",
        '"female", "male"',
    ],
)
def test_every_value_in_the_file_changes_the_digest(old):
    new = {
        '"north"': '"nord"',
        "north.example": "nord.example",
        ":9100": ":9200",
        '"stroke"\ntarget_levels': '"death"\ntarget_levels',
        '"no", "yes"': '"yes", "no"',
        "age =": "years =",
        "[0, 120]": "[0, 121]",
        "[10, 60]": "[10, 60.5]",
        "sex =": "gender =",
        '"female", "male"': '"male", "female"',
    }[old]
    changed = Study.from_values(tomllib.loads(TEXT.replace(old, new, 1)))
    assert changed.digest != STUDY.digest


def test_the_order_of_parties_and_of_columns_changes_the_digest():
    """A party is identified by its position, and so is the weight of a column."""
    assert replace(STUDY, parties=STUDY.parties[::-1]).digest != STUDY.digest
    table = {**VALUES["table"], "numeric": {"bmi": [10, 60], "age": [0, 120]}}
    assert study(table=table).digest != STUDY.digest


def test_order_of_keys_comments_and_spaces_do_not_change_the_digest():
    other = """
    # written by west
    delta   =  0.000001
    epsilon = 1
    name = 'stroke'   # one of several
    table.categorical.sex = ["female",
        "male"]
    table.numeric = { age = [0.0, 120.0], bmi = [10, 6e1] }
    table.target_levels = ["no", "yes"]
    table.target = "stroke"
    party = [
        { address = "north.example:9100", name = "north" },
        { name = "south", address = "south.example:9100" },
        { name = "west", address = "west.example:9100" },
    ]
    steps = 100
    averaged = 0.3
    """
    assert Study.from_values(tomllib.loads(other)).digest == STUDY.digest


def test_the_digest_is_reproducible():
    assert len(STUDY.digest) == 64
    assert json.loads(json.dumps(STUDY.to_dict(), sort_keys=True, allow_nan=False))["name"] == "stroke"
    assert study().digest == STUDY.digest


def test_a_study_is_restored_from_plain_values():
    assert Study.from_dict(json.loads(json.dumps(STUDY.to_dict()))) == STUDY
    with pytest.raises(StudyError, match="'a, b' is not a valid name of a party"):
        PartyInfo("a, b", "here", 1)


def test_a_study_can_be_moved_to_other_addresses():
    moved = STUDY.moved([("127.0.0.1", 1), ("127.0.0.1", 2), ("::1", 3)])
    assert [party.name for party in moved.parties] == ["north", "south", "west"]
    assert [(party.host, party.port) for party in moved.parties] == [("127.0.0.1", 1), ("127.0.0.1", 2), ("::1", 3)]
    assert moved.digest != STUDY.digest
    with pytest.raises(StudyError, match="3 parties, got 2 addresses"):
        STUDY.moved([("a", 1), ("b", 2)])


# ------------------------------------------------------------------------------------------------------ what is refused

PARTIES = VALUES["party"]
TABLE = VALUES["table"]


def without(table, *keys):
    return {key: value for key, value in table.items() if key not in keys}


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        (
            {"party": PARTIES[:2]},
            r"at least three parties, got 2\. .* no minority of the parties can open them\. .* may bring no data",
        ),
        ({"party": []}, "at least three parties, got 0"),
        ({"party": [*PARTIES[:2], {**PARTIES[2], "name": "north"}]}, "Two parties have the same name"),
        ({"party": [*PARTIES[:2], {**PARTIES[2], "address": "north.example:9100"}]}, "the same address"),
        ({"party": [*PARTIES[:2], {"name": "west"}]}, r"each \[\[party\]\] must have a name and an address"),
        (
            {"party": [*PARTIES[:2], {**PARTIES[2], "rows": 7}]},
            r"each \[\[party\]\] must have a name .* and nothing else",
        ),
        ({"party": [*PARTIES[:2], "west"]}, r"each \[\[party\]\] must have a name"),
        ({"party": [*PARTIES[:2], {**PARTIES[2], "name": ""}]}, "'' is not a valid name of a party"),
        ({"party": [*PARTIES[:2], {**PARTIES[2], "name": "../west"}]}, "is not a valid name of a party"),
        ({"party": [*PARTIES[:2], {**PARTIES[2], "name": 7}]}, "7 is not a valid name of a party"),
        ({"party": [*PARTIES[:2], {**PARTIES[2], "name": "w" * 65}]}, "is not a valid name of a party"),
        ({"party": [*PARTIES[:2], {**PARTIES[2], "name": "west, east"}]}, "'west, east' is not a valid name"),
        ({"party": [*PARTIES[:2], {**PARTIES[2], "name": "west "}]}, "do not end with a space"),
        ({"name": "stroke\nSigned"}, "is not a valid name of a study"),
        ({"name": " "}, "is not a valid name of a study"),
        ({"name": "s" * 101}, "Use up to 100 printable characters"),
        ({"party": {"name": "north"}}, r"parties as \[\[party\]\]"),
        ({"name": 7}, "must have the name as text"),
        ({"table": []}, r"the table as \[table\]"),
        ({"table": without(TABLE, "target", "target_levels")}, 'no target. Add target = "column"'),
        ({"table": without(TABLE, "target_levels")}, r"two declared classes\. Add target_levels"),
        ({"table": {**TABLE, "target_levels": ["a", "b", "c"]}}, "two declared classes"),
        ({"table": without(TABLE, "target")}, "has target_levels but no target"),
        (
            {"table": without(TABLE, "target_levels") | {"target": ["sick", "grade"]}},
            "a model of one target together, but the table has 2",
        ),
        ({"table": {**TABLE, "columns": 3}}, r"\[table\] of the study has an unknown key 'columns'"),
        ({"table": {**TABLE, "numeric": {"age": [120, 0]}}}, "'age': the low bound"),
        ({"table": {**TABLE, "numeric": {"age": 120}}}, "'age': the bounds 120 are not a pair"),
        ({"table": NUMBERS}, "logistic needs a target with two declared classes"),
        ({"model": "ridge"}, r"model ridge needs a numeric target\. Add target_bounds = \[low, high\]"),
        ({"model": "huber"}, "model huber needs a numeric target"),
        ({"model": "sparse"}, "got 'sparse'. Parties cannot train other models together"),
        ({"model": "svm"}, "model must be one of logistic, ridge, huber, got 'svm'"),
        ({"method": "objective"}, "method must be one of gradient, output, relay, got 'objective'"),
        ({"model": "ridge", "method": "output", "table": NUMBERS}, "bounded gradients, but the model is ridge"),
        ({"method": "relay", "party": PARTIES[:1]}, "at least three parties, got 1"),
        ({"method": "relay", "delta": 0}, "the steps of a relay add Gaussian noise, which gives no pure epsilon"),
        ({"method": "relay", "order": "random"}, 'order must be "fixed" or "lot", got \'random\''),
        ({"method": "relay", "on_failure": "retry"}, 'on_failure must be "stop" or "skip", got \'retry\''),
        ({"method": "relay", "party": PARTIES[:2], "on_failure": "skip"}, '"skip" needs at least three parties'),
        ({"method": "relay", "passes": 0}, "passes must be at least 1"),
        ({"method": "relay", "batch": 2.5}, "batch must be a whole number"),
        ({"passes": 2}, "passes is a setting of the method relay, but the method is gradient"),
        ({"order": "lot", "method": "output"}, "order is a setting of the method relay, but the method is output"),
        ({"threshold": 1.0}, "setting of the model huber, but the model is logistic"),
        ({"averaged": 1.5}, "averaged must be a fraction of the steps, from 0 to 1, got 1.5"),
        ({"averaged": -0.5}, "averaged must not be negative"),
        ({"epsilon": 0}, "epsilon must be positive"),
        ({"epsilon": "1"}, "epsilon must be a number"),
        ({"epsilon": math.inf}, "epsilon must be finite"),
        ({"delta": -1e-9}, r"delta must lie in \[0, 1\)"),
        ({"delta": 1.0}, r"delta must lie in \[0, 1\)"),
        ({"alpha": 0.0}, "alpha must be positive"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"steps": 10.5}, "steps must be a whole number"),
        ({"step_size": -1.0}, "step_size must be positive"),
        ({"clip_norm": 0.0}, "clip_norm must be positive"),
        ({"intercept_scaling": -1.0}, "intercept_scaling must not be negative"),
        ({"parties": PARTIES}, r"unknown key 'parties'\. The keys are alpha, .*party"),
        ({"eps": 1.0}, r"unknown key 'eps'\. The keys are .*epsilon"),
    ],
)
def test_every_error_names_its_cause_in_one_line(changed, match):
    with pytest.raises(ValueError, match=match) as error:
        study(**changed)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("key", ["name", "epsilon", "party", "table"])
def test_missing_keys_are_named(key):
    with pytest.raises(StudyError, match=f"The study has no {key}"):
        Study.from_values(without(VALUES, key))


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("name = ", "is not valid TOML"),
        ("\xff\xfe", "is not valid TOML"),
        ("", "has no name"),
        (None, "cannot be read"),
    ],
)
def test_files_without_a_study_are_refused_by_name(tmp_path, content, match):
    path = tmp_path / "study.toml"
    if content is not None:
        path.write_bytes(content.encode("latin-1"))
    with pytest.raises(StudyError, match=match) as error:
        Study.read(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["north", "north:", ":9100", "north:0", "north:65536", "north:9x", "north:²", ""])
def test_invalid_addresses_are_refused(text):
    with pytest.raises(StudyError, match=r"is not an address\. Write host:port"):
        parse_address(text)


@pytest.mark.parametrize(
    ("text", "address"), [("a.b:1", ("a.b", 1)), ("[::1]:9100", ("::1", 9100)), ("10.0.0.1:65535", ("10.0.0.1", 65535))]
)
def test_addresses_are_split_into_host_and_port(text, address):
    assert parse_address(text) == address


# ------------------------------------------------------------------------------------------------------------ the table

FRAME = pd.DataFrame({"age": [30, 120.0], "bmi": [10, 20.5], "sex": ["male", "female"], "stroke": ["no", "yes"]})


def test_tables_are_encoded_as_declared():
    rows, targets = STUDY.encode(FRAME)
    assert rows.shape == (2, 4)
    assert np.linalg.norm(rows, axis=1).max() <= 1
    assert targets.tolist() == [0.0, 1.0]
    assert targets.dtype == np.float64


@pytest.mark.parametrize(("column", "bounds"), [("age", (0.0, 120.0)), ("bmi", (10.0, 60.0))])
@pytest.mark.parametrize("value", [-1e-9, 120.001, 1e30])
def test_values_beyond_the_bounds_are_clipped_not_refused(column, bounds, value):
    """A refusal is visible to the other parties, so that studies with other bounds could find the largest value."""
    frame = FRAME.assign(**{column: [20.0, value]})
    rows, targets = STUDY.encode(frame)
    clipped, _ = STUDY.encode(frame.assign(**{column: np.clip(frame[column], *bounds)}))
    np.testing.assert_array_equal(rows, clipped)
    assert targets.tolist() == [0.0, 1.0]


def test_targets_beyond_the_bounds_are_clipped():
    numbers = study(model="ridge", table=NUMBERS)
    table = pd.DataFrame({"age": [1, 2], "cost": [-3, 401]})
    assert numbers.encode(table)[1].tolist() == [-1.0, 1.0]
    assert numbers.table.n_clipped(table) == {"cost": 2}
    assert numbers.table.target == NumericTarget("cost", 0, 400)


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"sex": ["male", "other"]}, "'other' is not declared"),
        ({"stroke": ["no", "maybe"]}, "'maybe' is not declared"),
        ({"age": ["30", "old"]}, "'old' is not a number"),
        ({"age": [30, np.nan]}, "1 missing value"),
    ],
)
def test_cells_that_do_not_match_the_schema_are_refused(changed, match):
    with pytest.raises(TableError, match=match):
        STUDY.encode(FRAME.assign(**changed))


def test_a_missing_column_is_named():
    with pytest.raises(TableError, match="no column 'bmi'"):
        STUDY.encode(FRAME.drop(columns="bmi"))


def test_clipped_values_are_counted_by_column():
    assert STUDY.table.n_clipped(FRAME) == {}
    assert STUDY.table.n_clipped(FRAME.assign(age=[0, 121], bmi=[9.99, 61])) == {"age": 1, "bmi": 2}


def test_a_path_may_be_a_string(tmp_path):
    (tmp_path / "s.toml").write_text(TEXT)
    assert Study.read(str(Path(tmp_path) / "s.toml")) == STUDY


# ------------------------------------------------------------------------------------------------------------- servers


def test_owners_are_numbered_or_listed_without_an_address():
    assert COMMITTEE.owner_names[:2] == ["owner 0", "owner 1"]
    listed = with_servers(owners=0, party=[{"name": "clinic"}, {"name": "ward"}])
    assert (listed.n_owners, listed.owner_names) == (2, ["clinic", "ward"])
    assert listed.members == COMMITTEE.members == COMMITTEE.servers
    assert STUDY.members == STUDY.parties
    assert Study.from_dict(listed.to_dict()) == listed


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"method": "relay"}, "A relay has no servers"),
        ({"check_norms": True, "trust": "one"}, 'check_norms needs trust = "majority"'),
        ({"trust": "all"}, "trust must be one of majority, one"),
        ({"server": [{"name": "a"}] * 3}, r"each \[\[server\]\] must have a name and an address"),
        ({"server": SERVERS[:2]}, "needs 3 to 7 servers, got 2. Add a server"),
        ({"server": SERVERS[:1], "trust": "one"}, "needs 2 to 7 servers, got 1"),
        ({"server": [SERVERS[0], SERVERS[0], SERVERS[1]]}, "Two servers have the same name"),
        ({"owners": 0}, "either a number of owners or a list of parties"),
        ({"party": [{"name": "clinic"}]}, "either a number of owners or a list of parties"),
        ({"rows_per_owner": None}, "needs rows_per_owner"),
        ({"rows_per_owner": 0}, "rows_per_owner"),
        ({"fewest_owners": 11}, "exceeds the number of owners, 10"),
        ({"party": [{"name": "clinic", "address": "a:1"}], "owners": 0}, "must have a name, and nothing else"),
    ],
)
def test_invalid_committees_are_refused(changed, words):
    with pytest.raises(ValueError, match=words):
        with_servers(**changed)


def test_settings_of_servers_are_refused_without_servers():
    with pytest.raises(StudyError, match="settings of a study with servers"):
        study(owners=3)


def test_the_sum_plan_a_committee_covers_every_number_of_rows_up_to_the_limit():
    """The noise is known before any owner calls, so it must suffice for the worst numbers of rows."""
    from privet.multiparty.protocol.participation import sum_plan

    chosen = with_servers(method="output", rows_per_owner=40)
    worst = sum_plan(chosen, chosen.committee_problem())
    for rows in (1, 2, 7, 39, 40):
        fewer = replace(chosen.problem([rows] * 10), are_limits=False)
        plan = sum_plan(chosen, fewer)
        assert plan.sensitivity * fewer.n <= worst.sensitivity * 400 * (1 + 1e-9)
        assert plan.largest <= worst.largest
