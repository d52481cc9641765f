"""The check of a table finds every problem at once, and finds none if and only if the table can be used."""

import datetime
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privet import PrivateLogisticRegression, TableModel
from privet.tables import (
    Categorical,
    Date,
    Numeric,
    NumericTarget,
    SchemaError,
    Severity,
    TableError,
    TableSchema,
    Target,
)

FIRST, LAST = datetime.date(2000, 1, 1), datetime.date(2020, 1, 1)
KINDS = [
    lambda name: Numeric(name, 0, 10),
    lambda name: Numeric(name, 0, 10, missing="level"),
    lambda name: Categorical(name, ("female", "male")),
    lambda name: Categorical(name, ("1", "none"), missing="1"),
    lambda name: Date(name, FIRST, LAST),
    lambda name: Date(name, FIRST, LAST, format="%d/%m/%Y", missing="2010-01-01"),
]
TARGETS = [
    lambda name: Target(name, ("no", "yes")),
    Target,
    lambda name: NumericTarget(name, 0, 10),
    lambda name: None,
]
TEXTS = ["1", " 1.0", "3,5", "inf", "", "NA", "none", "female", "Female ", "2001-02-03", "3.2.2001", "03/02/2001", "no"]
OTHERS = [None, np.nan, 1, 2.5, np.inf, True, datetime.date(2001, 2, 3), pd.Timestamp("2001-02-03 04:05"), "yes"]
SOUND = {
    Numeric: ["1", 2.5],
    Categorical: ["1", "none", "female"],
    Date: [datetime.date(2001, 2, 3)],
    Target: ["no", "yes"],
}
MESSY = settings(deadline=None, derandomize=True, max_examples=250)


@st.composite
def tables(draw):
    """Return a schema and a table that may not fit it."""
    columns = [draw(st.sampled_from(KINDS))(name) for name in ("a", "b")]
    target = draw(st.sampled_from(TARGETS))("y")
    schema = TableSchema(tuple(columns), target, ids=("id",))
    n_rows = draw(st.integers(0, 4))
    names = draw(
        st.sampled_from(
            [("a", "b", "y", "id"), ("a", "b", "y"), ("a", "a", "b", "y"), ("A", "b", "y", "y"), ("b", "id")]
        )
    )
    kinds = {column.name: type(column) for column in (*columns, *([target] if target else []))}
    cells = {}
    for place, name in enumerate(names):
        sound = SOUND.get(kinds.get(name), ["1", "2"])
        some = draw(st.sampled_from([sound, sound, TEXTS, TEXTS + OTHERS]))
        cells[place] = draw(st.lists(st.sampled_from(some), min_size=n_rows, max_size=n_rows))
    return schema, pd.DataFrame(cells, dtype=object).set_axis(list(names), axis=1)


def refusal(schema, frame):
    """Return the error of encoding a table for training, or None if it is encoded."""
    try:
        schema = schema.with_target_levels(frame)
        schema.encode(frame)
        schema.encode_target(frame)
    except TableError as error:
        return error
    return None


@given(tables())
@MESSY
def test_there_is_no_problem_if_and_only_if_the_table_can_be_encoded(table):
    schema, frame = table
    problems = [finding for finding in schema.findings(frame) if finding.is_problem]
    assert bool(problems) == (refusal(schema, frame) is not None), (problems, refusal(schema, frame))


@given(tables())
@MESSY
def test_the_cells_of_problems_are_those_for_which_a_table_of_this_row_alone_is_refused(table):
    """A check of single rows is an independent count, because each row is interpreted independently of the others."""
    schema, frame = table
    names = list(frame.columns)
    for column in (*schema.features, *schema.targets):
        if names.count(column.name) != 1 or (isinstance(column, Target) and column.levels is None):
            continue
        cells = frame[column.name]
        bad = []
        for row in range(len(cells)):
            try:
                column.encode(cells.iloc[[row]])
            except TableError:
                bad.append(row + 1)
        found = [each for each in schema.findings(frame) if each.column == column.name and each.is_problem]
        assert sorted(row for each in found for row in each.rows) == bad
        assert sum(each.n_cells for each in found) == len(bad)


@pytest.mark.parametrize("classes", [["no", "yes"], ["no", "no"], ["no", "maybe"]])
@pytest.mark.parametrize("levels", [("no", "yes"), None])
def test_a_model_is_trained_if_and_only_if_there_is_no_problem(levels, classes):
    schema = TableSchema((Numeric("a", 0, 1),), Target("y", levels))
    frame = pd.DataFrame({"a": np.linspace(0, 1, 20), "y": classes * 10})
    has_problems = any(finding.is_problem for finding in schema.findings(frame))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            TableModel(schema, PrivateLogisticRegression(epsilon=1.0, random_state=0)).fit(frame)
        except TableError:
            assert has_problems
        else:
            assert not has_problems


def test_a_target_of_many_undeclared_classes_is_a_problem():
    schema = TableSchema((Numeric("a", 0, 1),), Target("y"))
    (problem,) = schema.findings(pd.DataFrame({"a": [0.5] * 60, "y": list(map(str, range(60)))}))
    assert "60 different values" in problem.what and "target_bounds" in problem.remedy and problem.is_problem


def test_findings_do_not_depend_on_how_far_cells_are_beyond_a_bound():
    """So nobody can choose a bound by them: the table is refitted to the bounds, and the bounds never to the table."""
    schema = TableSchema((Numeric("a", 0, 10), Date("d", FIRST, LAST)), NumericTarget("y", 0, 10))
    near = pd.DataFrame({"a": [11, -1, 5, "?"], "d": ["2020-01-02", "1999-12-31"] * 2, "y": [12, 3, 4, -5]})
    far = pd.DataFrame({"a": [1e9, -7e8, 1, "?"], "d": ["2999-01-02", "0999-12-31"] * 2, "y": [1e5, 0, 9, -77]})
    assert schema.findings(near) == schema.findings(far)
    clipped = {
        (each.column, each.what): each.n_cells for each in schema.findings(far) if each.severity is Severity.CLIPPED
    }
    assert clipped == {
        ("a", "below the bound 0"): 1,
        ("a", "above the bound 10"): 1,
        ("d", "below the bound 2000-01-01"): 2,
        ("d", "above the bound 2020-01-01"): 2,
        ("y", "below the bound 0"): 1,
        ("y", "above the bound 10"): 1,
    }


def test_values_that_are_wrong_in_the_same_way_are_one_finding_with_what_they_may_mean():
    schema = TableSchema((Categorical("sex", ("female", "male")),), Target("y", ("a", "b")))
    cells = ["femal", "female", "MALE", "femal", *[f"code {k}" for k in range(20)]]
    (finding,) = schema.findings(pd.DataFrame({"sex": cells, "y": ["a", "b"] * 12}))
    assert finding.n_cells == 23 and finding.rows == (1, 3, 4, 5, 6)
    assert finding.n_examples == 22 and finding.examples[:2] == ("'femal'", "'MALE'") and len(finding.examples) == 8
    assert "If 'femal' means 'female', replace it. If 'MALE' means 'male', replace it." in finding.remedy


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("3,5", '--decimal ","'),
        ("1,234", '--decimal "." or --decimal ","'),
        ("1 234", "separators of thousands"),
        ("12 kg", "without a unit"),
        ("<5", "without a unit"),
        ("?", "stands for a missing value"),
        ("many", "Correct it"),
    ],
)
def test_a_cell_that_is_not_a_number_has_a_remedy_of_its_own(cell, words):
    schema = TableSchema((Numeric("a", 0, 10),), Target("y", ("a", "b")))
    (finding,) = schema.findings(pd.DataFrame({"a": [cell, "1"], "y": ["a", "b"]}))
    assert finding.what == "not a number" and words in finding.remedy


def test_names_are_compared_in_any_case_and_ignored_columns_are_a_note():
    schema = TableSchema((Numeric("age", 0, 10), Numeric("bmi", 0, 10)), Target("y", ("a", "b")), ids=("id",))
    frame = pd.DataFrame([[1, 1, 2, "a", 7, 7], [1, 1, 2, "b", 7, 7]], columns=["Age", "bmi", "BMI ", "y", "z", "z"])
    found = {(each.column, each.what): each for each in schema.findings(frame)}
    assert "Did you mean 'Age'?" in found["age", "the table has no such column"].remedy
    assert not found["id", "the table has no such column"].is_problem
    assert found[None, "names that differ from a declared name only in case or blanks"].examples == ("'BMI '",)
    assert found[None, "columns that are not declared"].examples == ("'Age'", "'z'")
    assert found[None, "repeated names of columns that are not declared"].examples == ("'z'",)
    assert [each.is_problem for each in found.values()].count(True) == 1


def test_repeated_ids_are_a_note_and_missing_ones_are_not():
    schema = TableSchema((Numeric("a", 0, 10),), Target("y", ("a", "b")), ids=("id",))
    (note,) = schema.findings(pd.DataFrame({"id": ["1", "2", "1", "", "", None], "a": [1] * 6, "y": list("ababab")}))
    assert (note.column, note.rows, note.severity) == ("id", (3,), Severity.NOTE)


class TestSchemaErrors:
    TEXT = """
target = "late"
target_levels = ["no", "yes"]
ids = ["id", "age"]
categorcal = 3
[numeric]
age = [0, 120]
weight = [9, 2]
height = 7
[categorical]
sex = ["female", "male"]
site = ["A"]
age = ["young", "old"]
[dates]
admitted = [2019-01-01, 2018-12-31]
[missing]
sex = "level"
site = "level"
late = "level"
"""

    def errors(self, tmp_path, text=TEXT):
        (tmp_path / "s.toml").write_text(text)
        with pytest.raises(SchemaError) as caught:
            TableSchema.from_toml(tmp_path / "s.toml")
        return caught.value

    def test_all_errors_of_a_schema_file_are_found_at_once(self, tmp_path):
        error = self.errors(tmp_path)
        found = [(column, str(each)) for column, each in error.errors.found]
        assert [column for column, _ in found] == [None, "weight", "height", "site", "age", "admitted", "late", None]
        words = ("'categorical'", "below", "pair", "two levels", "more than once", "before", "target", "as an ID")
        for (_, message), word in zip(found, words, strict=True):
            assert word in message
        assert str(error).startswith(found[0][1]) and "7 more problems" in str(error)

    def test_the_table_is_checked_by_the_rest_of_the_schema(self, tmp_path):
        rest = self.errors(tmp_path).rest
        assert [column.name for column in rest.features] == ["age", "sex"]
        assert rest.target == Target("late", ("no", "yes")) and rest.ids == ("id",)

    def test_a_single_error_has_its_message_alone(self, tmp_path):
        error = self.errors(tmp_path, 'target = "y"\n[numeric]\na = [2, 1]\nb = [0, 1]\n')
        assert str(error) == "Column 'a': the low bound 2.0 must be below the high bound 1.0."
        assert [column.name for column in error.rest.features] == ["b"]

    def test_a_schema_without_any_sound_feature_has_no_rest(self, tmp_path):
        assert self.errors(tmp_path, 'target = "y"\n[numeric]\na = [2, 1]\n').rest is None
