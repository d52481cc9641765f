"""Missing cells: refused, a level of their own, or a public constant, and never a statistic of the rows."""

import datetime
import json
import math

import numpy as np
import pandas as pd
import pytest

from privet.tables import Categorical, Date, Numeric, TableError, TableSchema, Target

FRAME = pd.DataFrame(
    {
        "age": ["30", "", "120"],
        "sex": ["female", "male", "NA"],
        "admitted": [None, "2019-01-11", "2019-01-01"],
        "sick": ["yes", "no", "no"],
    }
)


def fails(words, call, *args, **kwargs):
    with pytest.raises(TableError) as caught:
        call(*args, **kwargs)
    message = str(caught.value)
    assert "\n" not in message
    for word in [words] if isinstance(words, str) else words:
        assert word in message, message


def schema_of(age="refuse", sex="refuse", admitted="refuse"):
    return TableSchema(
        (
            Numeric("age", 0, 120, missing=age),
            Categorical("sex", ("female", "male"), missing=sex),
            Date("admitted", "2019-01-01", "2019-01-11", missing=admitted),
        ),
        Target("sick", ("no", "yes")),
    )


LEVELS = schema_of("level", "level", "level")
CONSTANTS = schema_of(60, "male", "2019-01-06")


def test_missing_cells_are_a_level_of_their_own():
    assert LEVELS.columns == (
        *("age", "age=(missing)"),
        *("sex=female", "sex=male", "sex=(missing)"),
        *("admitted", "admitted=(missing)"),
    )
    expected = [[-0.5, 0, 1, 0, 0, 0, 1], [0, 1, 0, 1, 0, 1, 0], [1, 0, 0, 0, 1, -1, 0]]
    np.testing.assert_allclose(LEVELS.encode(FRAME) * math.sqrt(3), expected, atol=1e-14)


def test_missing_cells_count_as_a_public_constant():
    assert CONSTANTS.columns == ("age", "sex=female", "sex=male", "admitted")
    expected = [[-0.5, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, -1]]
    np.testing.assert_allclose(CONSTANTS.encode(FRAME) * math.sqrt(3), expected, atol=1e-14)


def test_missing_cells_are_refused_by_default():
    fails(["'age'", "1 missing value", "row 2", '[missing]: age = "level"'], schema_of().encode, FRAME)
    fails(["'sex'", "1 missing value", "row 3"], schema_of(age=60).encode, FRAME)
    fails(["'admitted'", "1 missing value", "row 1"], schema_of(age="level", sex="male").encode, FRAME)


@pytest.mark.parametrize("schema", [LEVELS, CONSTANTS])
def test_the_norm_of_rows_is_at_most_one_and_no_entry_exceeds_the_declared_one(schema):
    encoded = schema.encode(FRAME)
    assert (np.linalg.norm(encoded, axis=1) <= 1).all()
    assert np.abs(encoded).max() <= 1 / schema.row_norm
    np.testing.assert_allclose(np.linalg.norm(LEVELS.encode(FRAME)[2]), 1)


@pytest.mark.parametrize("schema", [LEVELS, CONSTANTS])
def test_no_row_changes_what_a_missing_cell_of_another_row_becomes(schema):
    rows = schema.encode(FRAME)
    other = FRAME.copy()
    other.loc[0] = ["119", "male", "2019-01-10", "no"]
    np.testing.assert_array_equal(schema.encode(other)[1:], rows[1:])
    alone = np.vstack([schema.encode(FRAME.iloc[[row]]) for row in range(3)])
    np.testing.assert_array_equal(alone, rows)


def test_other_kinds_of_missing_cells_are_recognised():
    feature = Numeric("x", -1, 1, missing="level")
    for cells in ([np.nan], [None], ["nan"], pd.array([None], dtype="Int64"), [pd.NA], [" N/A "]):
        assert TableSchema((feature,)).encode(pd.DataFrame({"x": cells})).tolist() == [[0, 1 - 5 * 2.0**-52]]
    fails("1 infinite value", TableSchema((feature,)).encode, pd.DataFrame({"x": ["-inf"]}))
    fails("'?' is not a number", TableSchema((feature,)).encode, pd.DataFrame({"x": ["?"]}))


def test_a_declared_level_is_not_missing():
    schema = TableSchema((Categorical("x", ("none", "some"), missing="level"),))
    np.testing.assert_allclose(schema.encode(pd.DataFrame({"x": ["none", "some", ""]})), np.eye(3), atol=1e-14)


def test_a_missing_target_is_refused():
    frame = FRAME.assign(sick=["yes", "", "no"])
    fails(["target 'sick'", "1 missing value", "row 2", "Drop those rows"], LEVELS.encode_target, frame)


# --------------------------------------------------------------------------------------------------------- declaration

TOML = """
target = "sick"
target_levels = ["no", "yes"]
{missing}
[numeric]
age = [0, 120]
[categorical]
sex = ["female", "male"]
[dates]
admitted = [2019-01-01, 2019-01-11]
"""
TABLE = "[missing]\n{}"


def read(tmp_path, section, **options):
    (tmp_path / "schema.toml").write_text(TOML.format(missing=section))
    return TableSchema.from_options(toml=tmp_path / "schema.toml", **options)


def test_rules_are_read_from_toml(tmp_path):
    assert read(tmp_path, "") == schema_of()
    assert read(tmp_path, 'missing = "refuse"') == schema_of()
    assert read(tmp_path, 'missing = "level"') == LEVELS
    assert read(tmp_path, '[missing]\n"*" = "level"') == LEVELS
    assert read(tmp_path, '[missing]\nage = 60\nsex = "male"\nadmitted = 2019-01-06') == CONSTANTS
    mixed = read(tmp_path, '[missing]\nage = "refuse"\nsex = "male"\n"*" = "level"')
    assert mixed == schema_of("refuse", "male", "level")


def test_options_override_the_rules_of_the_file(tmp_path):
    assert read(tmp_path, "", missing=["level"]) == LEVELS
    assert read(tmp_path, "", missing=["age=60", "sex=male", "admitted=2019-01-06"]) == CONSTANTS
    assert read(tmp_path, 'missing = "level"', missing=["age=60"]) == schema_of(60, "level", "level")
    assert read(tmp_path, "[missing]\nage = 60", missing=["age=refuse", "level"]) == schema_of(
        "refuse", "level", "level"
    )


def test_a_rule_in_an_option_belongs_to_the_longest_name_that_fits():
    options = {"levels": ["income=<=50K,>50K"], "bounds": ["a=0:1", "a=b=0:1"]}
    made = TableSchema.from_options(**options, missing=["income=<=50K", "a=b=0.5"])
    missing = {feature.name: feature.missing for feature in made.features}
    assert missing == {"income": "<=50K", "a": "refuse", "a=b": 0.5}


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ("missing = 3", "[missing]"),
        ('missing = "drop"', ["'drop'", "'refuse' or 'level'"]),
        ('[missing]\n"*" = 0', "all columns"),
        ("[missing]\nAge = 3", ["'Age'", "Did you mean 'age'?"]),
        ("[missing]\nsick = 'no'", ["target 'sick'", "drop rows"]),
        ("[missing]\nage = 121", ["'age'", "between the bounds 0 and 120"]),
        ("[missing]\nage = true", ["'age'", "between the bounds"]),
        ("[missing]\nage = 'mean'", ["'age'", "'mean'", "between the bounds"]),
        ("[missing]\nsex = 'unknown'", ["'sex'", "'female', 'male'"]),
        ("[missing]\nsex = ['male']", ["'sex'", "'female', 'male'"]),
        ("[missing]\nadmitted = 2018-12-31", ["'admitted'", "between the bounds 2019-01-01 and 2019-01-11"]),
        ("[missing]\nadmitted = 5", ["'admitted'", "between the bounds"]),
    ],
)
def test_a_bad_rule_is_refused_with_its_cause(tmp_path, missing, words):
    fails(words, read, tmp_path, missing)


def test_bad_options_are_refused_with_their_cause(tmp_path):
    fails("given twice for 'age'", read, tmp_path, "", missing=["age=1", "age=2"])
    fails("given twice for all columns", read, tmp_path, "", missing=["level", "refuse"])
    fails(["'size'", "not a declared feature"], read, tmp_path, "", missing=["size=1"])
    fails(["'x'", "(missing)", "more than once"], Categorical, "x", ("a", "(missing)"), missing="level")


def test_a_schema_is_restored_from_json_and_one_without_rules_reads_as_in_earlier_versions():
    for schema in (LEVELS, CONSTANTS, schema_of(datetime_free := 3.5)):
        assert TableSchema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema
    assert datetime_free == 3.5
    assert CONSTANTS.features[2].missing == datetime.date(2019, 1, 6)
    assert schema_of().to_dict()["features"][0] == {"kind": "numeric", "name": "age", "low": 0.0, "high": 120.0}


# ----------------------------------------------------------------------------------------------------------------- IDs


def test_ids_are_neither_features_nor_undeclared(tmp_path):
    made = read(tmp_path, 'ids = ["patient", "visit"]')
    assert made.ids == ("patient", "visit")
    assert made.columns == schema_of().columns
    frame = FRAME.assign(patient="p", visit="1", note="")
    assert made.undeclared(frame) == ("note",)
    assert TableSchema.from_dict(json.loads(json.dumps(made.to_dict()))) == made
    assert "ids" not in schema_of().to_dict()
    assert read(tmp_path, 'ids = "patient"', ids=["visit", "patient"]).ids == ("patient", "visit")


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ("ids = 3", 'ids = ["patient_id"]'),
        ("ids = [3]", "not a column name"),
        ("ids = ['age']", ["'age'", "both as an ID and as a feature"]),
        ("ids = ['sick']", ["'sick'", "both as an ID and as a feature or target"]),
    ],
)
def test_bad_ids_are_refused_with_their_cause(tmp_path, ids, words):
    fails(words, read, tmp_path, ids)
