"""The map from a table to a bounded matrix: bounded rows that do not influence each other, and errors with a cause."""

import gzip
import json
import math
import re
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.tables import (
    Categorical,
    Numeric,
    TableError,
    TableSchema,
    Target,
    parse_bounds,
    parse_levels,
    read_table,
)

AGE, SEX = Numeric("age", 0, 120), Categorical("sex", ("female", "male"))
SCHEMA = TableSchema((AGE, SEX), Target("visited", ("no", "yes")))
FRAME = pd.DataFrame({"age": [30, 150, -1], "sex": ["female", "male", "male"], "visited": ["no", "yes", "no"]})
CSV = "age,sex,visited\n30,female,no\n150,male,yes\n-1,male,no\n"
EXPECTED = np.array([[-0.5, 1, 0], [1, 0, 1], [-1, 0, 1]]) / math.sqrt(2)


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-14, atol=1e-14)


def fails(words, call, *args, **kwargs):
    """Assert that the call raises a TableError of one line that contains all the words."""
    with pytest.raises(TableError) as caught:
        call(*args, **kwargs)
    message = str(caught.value)
    assert "\n" not in message
    for word in [words] if isinstance(words, str) else words:
        assert word in message, message


class TestEncode:
    def test_encoded_values_and_column_names_are_right(self):
        assert SCHEMA.columns == ("age", "sex=female", "sex=male")
        assert SCHEMA.row_norm == math.sqrt(2)
        encoded = SCHEMA.encode(FRAME)
        assert encoded.dtype == np.float64
        close(encoded, EXPECTED)
        assert SCHEMA.encode_target(FRAME).tolist() == [0, 1, 0]
        assert SCHEMA.encode_target(FRAME).dtype == np.int64

    def test_columns_are_encoded_in_the_declared_order(self):
        np.testing.assert_array_equal(SCHEMA.encode(FRAME[["visited", "sex", "age"]]), SCHEMA.encode(FRAME))
        flipped = TableSchema((Categorical("sex", ("male", "female")), AGE))
        close(flipped.encode(FRAME), EXPECTED[:, [2, 1, 0]])

    def test_other_columns_are_ignored_and_listed(self):
        wide = FRAME.assign(name="x", nothing=np.nan)
        np.testing.assert_array_equal(SCHEMA.encode(wide), SCHEMA.encode(FRAME))
        assert SCHEMA.undeclared(wide) == ("name", "nothing")
        assert SCHEMA.undeclared(FRAME) == ()
        assert TableSchema((AGE,)).undeclared(FRAME) == ("sex", "visited")

    def test_features_encode_without_a_target_column(self):
        close(SCHEMA.encode(FRAME.drop(columns="visited")), EXPECTED)

    def test_the_index_of_the_frame_does_not_matter(self):
        close(SCHEMA.encode(FRAME.set_axis([5, 5, 5])), EXPECTED)
        assert SCHEMA.encode_target(FRAME.set_axis([5, 5, 5])).tolist() == [0, 1, 0]

    def test_columns_named_by_numbers_are_found(self):
        close(TableSchema((Numeric("0", 0, 2),)).encode(pd.DataFrame({0: [0, 1, 2]}))[:, 0], [-1, 0, 1])

    def test_input_is_not_changed(self):
        before = FRAME.copy(deep=True)
        SCHEMA.encode(FRAME)
        pd.testing.assert_frame_equal(FRAME, before)

    @pytest.mark.parametrize(
        "values",
        [
            np.array([0, 30, 200], dtype=np.int16),
            np.array([0, 30, 200], dtype=np.uint8),
            np.array([0, 30, 200], dtype=np.float32),
            ["0", "30", "200"],
            [" 0", "3e1", "200.0 "],
            pd.Categorical([0, 30, 200]),
            pd.array([0, 30, 200], dtype="Int64"),
            pd.array([0, 30, 200], dtype="Float32"),
            pd.array([0, 30, 200], dtype="double[pyarrow]"),
            np.array([0, "30", Decimal(200)], dtype=object),
        ],
    )
    def test_numbers_of_every_type_are_encoded_alike(self, values):
        close(TableSchema((AGE,)).encode(pd.DataFrame({"age": values}))[:, 0], [-1, -0.5, 1])

    def test_booleans_can_be_encoded_as_numbers(self):
        close(TableSchema((Numeric("x", 0, 1),)).encode(pd.DataFrame({"x": [False, True]}))[:, 0], [-1, 1])

    @pytest.mark.parametrize(
        ("levels", "values"),
        [
            (("0", "1"), [0, 1]),
            (("0", "1"), [0.0, 1.0]),
            (("0", "1"), ["0.0", "1"]),
            (("0.0", "1.0"), [0, 1]),
            ((0, 1), ["0", "1"]),
            ((0.0, 1.0), pd.array([0, 1], dtype="Int64")),
            ((False, True), [False, True]),
            (("false", "true"), [False, True]),
            (("False", "True"), ["FALSE", "true"]),
            (("1", "True"), np.array([1, True], dtype=object)),
            (("True", "1"), np.array([True, 1.0], dtype=object)),
            (("a", "b"), pd.Categorical(["a", "b"], categories=["b", "a", "unused"])),
            (("a", "b"), np.array(["a", "b"], dtype=object)),
            (("a", "b"), pd.array([" a", "b "], dtype="string")),
            (("a", "b"), pd.array(["a", "b"], dtype="string[pyarrow]")),
            (("1", "2"), pd.Categorical([1, 2])),
            (("None", "NA"), ["None", "NA"]),
            (("0.1", "-3"), [0.1, -3.0]),
            (("10000000000000000", "x"), np.array([1e16, "x"], dtype=object)),
            (("2020-01-01", "2021-01-01"), [pd.Timestamp("2020-01-01").date(), pd.Timestamp("2021-01-01").date()]),
        ],
    )
    def test_levels_of_different_types_compare_by_their_text(self, levels, values):
        frame = pd.DataFrame({"x": values})
        close(TableSchema((Categorical("x", levels),)).encode(frame), np.eye(2))
        schema = TableSchema((AGE,), Target("x", levels))
        assert schema.encode_target(frame).tolist() == [0, 1]

    def test_levels_with_leading_zeros_are_different_levels(self):
        schema = TableSchema((Categorical("x", ("01", "1", "001")),))
        close(schema.encode(pd.DataFrame({"x": ["1", "01", "001"]})), np.eye(3)[[1, 0, 2]])
        fails("'1' is not declared", TableSchema((Categorical("x", ("01", "02")),)).encode, pd.DataFrame({"x": [1]}))

    def test_target_levels_that_were_read_from_the_data_are_flagged(self):
        schema = TableSchema((AGE,), Target("visited"))
        assert schema.target.levels is None
        assert schema.target.levels_from_data
        assert schema.encode_target(FRAME).tolist() == [0, 1, 0]
        read = schema.with_target_levels(FRAME)
        assert read.target == Target("visited", ("no", "yes"), levels_from_data=True)
        assert TableSchema.from_dict(read.to_dict()) == read
        assert not SCHEMA.target.levels_from_data
        assert SCHEMA.with_target_levels(FRAME) is SCHEMA
        with_truth = pd.DataFrame({"visited": [True, False, True]})
        assert schema.with_target_levels(with_truth).target.levels == ("False", "True")
        assert schema.encode_target(with_truth).tolist() == [1, 0, 1]


NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([1e308, -1e308, 5e-324, -0.0, 1.7e308])
LEVELS = ("a", "b", "1", "True")
CELLS = st.tuples(NUMBERS | st.integers(-(2**70), 2**70), st.sampled_from(["a", "b", 1, True, "1", 1.0, "true"]))


@st.composite
def numeric_features(draw):
    low, high = sorted((draw(NUMBERS), draw(NUMBERS)))
    if not high / 2 - low / 2 > 0:
        low, high = -1e308, 1e308
    return Numeric("x", low, high)


def frame_of(cells, *, as_text):
    numbers, levels = zip(*cells, strict=True)
    if as_text:
        return pd.DataFrame({"x": [repr(x) for x in numbers], "c": [str(x) for x in levels]})
    return pd.DataFrame({"x": pd.Series(numbers), "c": pd.Series(levels, dtype=object)})


class TestPrivacy:
    @settings(deadline=None)
    @given(feature=numeric_features(), cells=st.lists(CELLS, min_size=1, max_size=12), as_text=st.booleans())
    def test_the_norm_of_encoded_rows_is_at_most_one_for_any_cells(self, feature, cells, as_text):
        schema = TableSchema((feature, Categorical("c", LEVELS)))
        encoded = schema.encode(frame_of(cells, as_text=as_text))
        assert np.isfinite(encoded).all()
        assert (np.linalg.norm(encoded, axis=1) <= 1).all()

    @pytest.mark.parametrize("count", [*range(1, 20), 50, 1000])
    def test_the_bound_on_the_norm_is_attained_and_never_exceeded(self, count):
        schema = TableSchema(tuple(Numeric(f"x{i}", -1e308, 1e308) for i in range(count)))
        extreme = pd.DataFrame(np.full((2, count), 1.7e308) * [[1], [-1]], columns=schema.columns)
        encoded = schema.encode(extreme)
        assert all(sum(Fraction(x) ** 2 for x in row) <= 1 for row in encoded.tolist())  # exactly
        norms = np.linalg.norm(encoded, axis=1)
        assert (norms <= 1).all()
        assert (norms > 1 - 1e-9).all()

    @settings(max_examples=200, deadline=None)
    @given(feature=numeric_features(), cells=st.lists(CELLS, min_size=2, max_size=8), other=CELLS, data=st.data())
    def test_one_row_never_changes_another(self, feature, cells, other, data):
        schema = TableSchema((feature, Categorical("c", LEVELS)))
        as_text = data.draw(st.booleans())
        changed = data.draw(st.integers(0, len(cells) - 1))
        neighbour = [other if row == changed else cell for row, cell in enumerate(cells)]
        one, two = (schema.encode(frame_of(rows, as_text=as_text)) for rows in (cells, neighbour))
        np.testing.assert_array_equal(np.delete(one, changed, 0), np.delete(two, changed, 0))
        alone = np.vstack([schema.encode(frame_of([cell], as_text=as_text)) for cell in cells])
        np.testing.assert_array_equal(one, alone)


class TestDescription:
    def test_a_schema_is_restored_from_json(self):
        for schema in (SCHEMA, TableSchema((AGE,)), TableSchema((SEX,), Target("visited"))):
            assert TableSchema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema

    @pytest.mark.parametrize(
        "bad",
        [
            {},
            {"features": [{"kind": "odd"}], "target": None},
            {"features": 3},
            {"features": [1]},
            {"features": [{"kind": "number", "name": "x", "low": 0, "high": 1}], "target": None},
            SCHEMA.to_dict() | {"target": {"kind": "numeric", "name": "x", "low": 0, "high": 1}},
            SCHEMA.to_dict() | {"target": {"kind": "number", "name": "x", "levels": ["a", "b"]}},
            SCHEMA.to_dict() | {"target": {"kind": "classes", "name": "x", "low": 0, "high": 1}},
            SCHEMA.to_dict() | {"target": {"name": "x"}},
            SCHEMA.to_dict() | {"target": "x"},
        ],
    )
    def test_a_dictionary_that_is_not_a_schema_is_refused(self, bad):
        fails("not a table schema", TableSchema.from_dict, bad)

    def test_schemas_compare_and_hash_by_value(self):
        assert hash(SCHEMA) == hash(TableSchema([AGE, Categorical("sex", ["female", "male"])], SCHEMA.target))
        with pytest.raises(AttributeError):
            AGE.low = 3

    def toml(self, folder: Path, text: str) -> Path:
        path = folder / "schema.toml"
        path.write_text(text)
        return path

    def test_a_schema_is_read_from_toml(self, tmp_path):
        text = """
            target = "visited"
            target_levels = ["no", "yes"]
            [numeric]
            age = [0, 120]
            [categorical]
            sex = ["female", "male"]
        """
        assert TableSchema.from_toml(self.toml(tmp_path, text)) == SCHEMA
        short = self.toml(tmp_path, 'target = "y"\n[categorical]\n"the site" = [1, 2]')
        assert TableSchema.from_toml(str(short)) == TableSchema((Categorical("the site", ("1", "2")),), Target("y"))

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("age = ", "not valid TOML"),
            ("[numerics]\nage = [0, 1]", ["unknown key 'numerics'", "numeric"]),
            ("numeric = 3", "[numeric]"),
            ("[numeric]\nage = [0]", ["'age'", "[low, high]"]),
            ("[numeric]\nage = 3", ["'age'", "[low, high]"]),
            ('[numeric]\nage = ["a", "b"]', ["'age'", "finite number"]),
            ("[numeric]\nage = [false, true]", ["'age'", "finite number"]),
            ("[numeric]\nage = [0, inf]", ["'age'", "finite number"]),
            ("[numeric]\nage = [0, 1" + "0" * 400 + "]", ["'age'", "finite number"]),
            ("[numeric]\nage = [3, 3]", ["'age'", "below"]),
            ('[categorical]\nsex = "female"', ["'sex'", "not a list"]),
            ("[categorical]\nsex = [[1], [2]]", ["'sex'", "not a list"]),
            ('[numeric]\nage = [0, 1]\n[categorical]\nage = ["a", "b"]', ["'age'", "more than once"]),
            ('target = "age"\n[numeric]\nage = [0, 1]', ["target 'age'", "also declared as a feature"]),
            ("target = 3\n[numeric]\nage = [0, 1]", "not a column name"),
            ("target_levels = [0, 1]\n[numeric]\nage = [0, 1]", "no target"),
            ('target = "y"', "no feature is declared"),
        ],
    )
    def test_a_bad_toml_file_is_refused_with_its_cause(self, tmp_path, text, words):
        fails(words, TableSchema.from_toml, self.toml(tmp_path, text))

    def test_a_missing_toml_file_is_refused(self, tmp_path):
        fails(["none.toml", "No such file"], TableSchema.from_toml, tmp_path / "none.toml")

    def test_a_schema_is_made_from_options_alone(self):
        made = TableSchema.from_options(
            bounds=["age=0:120"], levels=["sex=female,male", "visited=no,yes"], target="visited"
        )
        assert made == SCHEMA

    def test_options_override_the_file(self, tmp_path):
        path = self.toml(tmp_path, 'target = "y"\ntarget_levels = [0, 1]\n[numeric]\nage = [0, 1]\nbmi = [10, 60]')
        made = TableSchema.from_options(toml=path, bounds=["age=0:120"], levels=["sex=female,male"])
        assert made == TableSchema((AGE, Numeric("bmi", 10, 60), SEX), Target("y", ("0", "1")))
        assert TableSchema.from_options(toml=path, target="y") == TableSchema.from_toml(path)
        assert TableSchema.from_options(toml=path, levels=["y=a,b"]).target == Target("y", ("a", "b"))
        assert TableSchema.from_options(toml=path, target="z").target == Target("z")

    def test_contradictory_options_are_refused(self):
        fails(["'age'", "more than once"], TableSchema.from_options, bounds=["age=0:1", "age=0:2"])
        fails(["'age'", "more than once"], TableSchema.from_options, bounds=["age=0:1"], levels=["age=a,b"])
        fails("no feature is declared", TableSchema.from_options, bounds=["age=0:1"], target="age")
        fails("no feature is declared", TableSchema.from_options, target="age")

    def test_bounds_and_levels_are_parsed_from_text(self):
        assert parse_bounds("age=0:120") == AGE
        assert parse_bounds(" a=b = -1e3 : .5") == Numeric("a=b", -1000, 0.5)
        assert parse_levels("sex=female, male") == SEX
        assert parse_levels("income=<=50K,>50K") == Categorical("income", ("<=50K", ">50K"))
        assert parse_levels('town="Ely, Cambs",York') == Categorical("town", ("Ely, Cambs", "York"))

    @pytest.mark.parametrize("text", ["age", "age=", "age=3", "age=0:x", "age:0:1", "age=0:1:2", ""])
    def test_bad_bounds_are_refused_with_their_cause(self, text):
        fails([repr(text), "age=0:120"], parse_bounds, text)

    def test_bad_options_are_refused_with_their_cause(self):
        fails("'age'", parse_bounds, "age=2:1")
        fails("finite", parse_bounds, "age=0:inf")
        fails("finite", parse_bounds, "age=nan:1")
        fails("column name", parse_bounds, "=0:1")
        fails("sex=female,male", parse_levels, "sex")
        fails("at least two levels, not 0", parse_levels, "sex=")
        fails("at least two levels, not 1", parse_levels, "sex=a")
        fails("empty level", parse_levels, "sex=a,,b")
        fails("column name", parse_levels, "=a,b")

    def test_bad_declarations_are_refused_with_their_cause(self):
        fails("below", Numeric, "x", 0, 5e-324)  # too close to divide by
        fails("finite", Numeric, "x", None, 1)
        fails("column name", Numeric, 3, 0, 1)
        fails("column name", Target, " ")
        fails(["'a'", "more than once"], Categorical, "x", ("a", "b", "a"))
        fails(["'1.0'", "more than once"], Categorical, "x", ("1", "1.0"))
        fails("at least two", Target, "x", ("a",))
        fails("not a list", Categorical, "x", "ab")
        fails("no feature", TableSchema, ())
        fails("more than once", TableSchema, (AGE, AGE))
        fails("also declared as a feature", TableSchema, (AGE,), Target("age"))
        assert Numeric("x", np.int64(0), np.float32(1)) == Numeric("x", 0.0, 1.0)


class TestBadTables:
    def encode(self, **columns):
        return SCHEMA.encode(pd.DataFrame({"age": [1, 2], "sex": ["male", "female"]} | columns))

    def test_a_missing_column_is_named_with_similar_names(self):
        fails(["no column 'age'", "Did you mean 'Age'?"], SCHEMA.encode, FRAME.rename(columns={"age": "Age"}))
        fails(["no column 'sex'", "'age', 'visited'"], SCHEMA.encode, FRAME.drop(columns="sex"))
        fails("no column 'visited'", SCHEMA.encode_target, FRAME.drop(columns="visited"))
        fails("no column 'visited'", TableSchema((AGE,), Target("visited")).encode_target, FRAME[["age"]])

    def test_a_wide_table_is_not_listed_in_full(self):
        fails("and 88 more", SCHEMA.encode, pd.DataFrame(np.zeros((1, 100))))

    def test_a_repeated_column_is_refused(self):
        fails("2 columns named 'age'", SCHEMA.encode, pd.concat([FRAME, FRAME[["age"]]], axis=1))

    @pytest.mark.parametrize(
        "ages",
        [["1", "old"], [1, "old"], np.array([None, "old"], dtype=object), pd.Categorical(["1", "old"])],
    )
    def test_a_cell_that_is_not_a_number_is_named_with_its_row(self, ages):
        fails(["'age'", "row 2", "'old' is not a number"], self.encode, age=ages)

    def test_dates_complex_numbers_and_lists_are_not_numbers(self):
        fails(["row 1", "is not a number"], self.encode, age=pd.to_datetime(["2020-01-01", "2021-01-01"]))
        fails(["row 1", "is not a number"], self.encode, age=[1j, 2])
        fails(["row 2", "is not a number"], self.encode, age=np.array([1, 10**400], dtype=object))
        fails(["row 1", "is not a number"], self.encode, age=[[1], [2]])

    @pytest.mark.parametrize(
        "bad", [np.nan, np.inf, -np.inf, None, "", " ", "NA", "nan", "inf", "1e999", pd.NA, pd.NaT]
    )
    def test_missing_and_infinite_numbers_are_refused(self, bad):
        is_infinite = str(bad).strip("-") in ("inf", "1e999")
        words = ["'age'", "row 2", "2 infinite values" if is_infinite else "2 missing values"]
        frame = pd.DataFrame({"age": pd.Series([1, bad, bad], dtype=object), "sex": "male"})
        fails(words, SCHEMA.encode, frame)
        if isinstance(bad, float):
            fails(words, SCHEMA.encode, frame.astype({"age": float}))

    def test_missing_cells_of_a_nullable_column_are_refused(self):
        fails(["1 missing", "row 2"], self.encode, age=pd.array([1, None], dtype="Int64"))

    @pytest.mark.parametrize("bad", [np.nan, None, "", " ", "NA", pd.NA])
    def test_missing_levels_are_refused(self, bad):
        words = ["2 missing values", "row 2", "a level of their own"]
        frame = pd.DataFrame({"age": 1, "sex": ["male", bad, bad], "visited": ["no", bad, bad]})
        fails(["'sex'", *words], SCHEMA.encode, frame)
        for schema in (SCHEMA, TableSchema((AGE,), Target("visited"))):
            fails(["'visited'", *words[:2], "Drop those rows"], schema.encode_target, frame)
        fails(["'sex'", *words], SCHEMA.encode, frame.astype({"sex": "category"}).fillna({"age": 1}))

    def test_an_undeclared_level_is_refused(self):
        fails(["'sex'", "row 2", "'Female' is not declared", "'female', 'male'"], self.encode, sex=["male", "Female"])
        fails(["'visited'", "row 1", "'maybe'", "'no', 'yes'"], SCHEMA.encode_target, FRAME.replace("no", "maybe"))
        fails("row 1", self.encode, sex=[[1], [2]])
        fails("...", self.encode, sex=["x" * 500, "line\nbreak"])
        fails(r"line\nbreak", self.encode, sex=["line\nbreak", "male"])

    def test_encoding_a_target_that_is_not_declared_is_refused(self):
        fails("no target is declared", TableSchema((AGE,)).encode_target, FRAME)

    def test_a_target_with_one_class_is_refused(self):
        schema = TableSchema((AGE,), Target("visited"))
        fails(["'visited'", "only one class, 'no'"], schema.encode_target, FRAME.assign(visited="no"))

    def test_an_empty_table_is_refused(self):
        fails("no rows", SCHEMA.encode, FRAME.iloc[:0])
        fails("no rows", SCHEMA.encode_target, FRAME.iloc[:0])
        fails("no rows", TableSchema((AGE,), Target("visited")).with_target_levels, FRAME.iloc[:0])


class TestFiles:
    @pytest.mark.parametrize("name", ["t.csv", "t.CSV", "t.csv.gz", "t.tsv", "t.tsv.gz", "t.parquet", "t.pq"])
    def test_every_format_reads_the_same(self, tmp_path, name):
        path = tmp_path / name
        text = CSV.replace(",", "\t") if ".tsv" in name else CSV
        if path.suffix in (".parquet", ".pq"):
            FRAME.to_parquet(path)
        elif path.suffix == ".gz":
            path.write_bytes(gzip.compress(text.encode()))
        else:
            path.write_text(text)
        for given_path in (path, str(path)):
            table = read_table(given_path)
            close(SCHEMA.encode(table), EXPECTED)
            assert SCHEMA.encode_target(table).tolist() == [0, 1, 0]

    def test_cells_of_a_csv_file_stay_text(self, tmp_path):
        path = tmp_path / "t.csv"
        path.write_text('\ufeffcode , note,x\n01,None,1\n1, "a, b",2e0\n')
        table = read_table(path)
        assert list(table.columns) == ["code", "note", "x"]
        assert table["code"].tolist() == ["01", "1"]
        schema = TableSchema(
            (Categorical("code", ("1", "01")), Categorical("note", ("None", "a, b"))), Target("x", (1, 2))
        )
        close(schema.encode(table) * math.sqrt(2), [[0, 1, 1, 0], [1, 0, 0, 1]])
        fails(["'2e0' is not declared"], schema.encode_target, table)

    def test_cells_of_a_parquet_file_keep_their_types(self, tmp_path):
        frame = pd.DataFrame({"b": [True, False], "i": [1, 2], "c": pd.Categorical(["u", "v"])})
        frame.to_parquet(tmp_path / "t.parquet")
        frame.to_csv(tmp_path / "t.csv", index=False)
        schema = TableSchema(
            (Categorical("b", ("true", "false")), Categorical("i", ("1", "2")), Categorical("c", ("u", "v")))
        )
        for name in ("t.parquet", "t.csv"):
            close(schema.encode(read_table(tmp_path / name)) * math.sqrt(3), [[1, 0] * 3, [0, 1] * 3])

    def test_a_repeated_name_in_a_header_is_not_renamed(self, tmp_path):
        (tmp_path / "t.csv").write_text("age,age,sex\n1,2,male\n")
        fails("2 columns named 'age'", SCHEMA.encode, read_table(tmp_path / "t.csv"))

    def test_a_row_with_another_number_of_cells_is_refused(self, tmp_path):
        (tmp_path / "t.csv").write_text("age,sex\n1,male\n2\n")
        fails(["row 2 has 1 cells", "header has 2"], read_table, tmp_path / "t.csv")

    @pytest.mark.parametrize(
        ("name", "content", "words"),
        [
            ("t.xlsx", b"x", ["ending", ".csv", ".parquet"]),
            ("t.csv", b"", "is empty"),
            ("t.csv", b"\n\n", "is empty"),
            ("t.csv", b"age,sex\n", "no rows"),
            ("t.csv", b"age,sex\n1,male,3\n", "row 1 has 3 cells, but the header has 2"),
            ("t.csv", b'age,sex\n"1,male\n', "cannot read"),
            ("t.csv", b"age\0\n1\n", "not a text file"),
            ("t.csv.gz", b"age\n1\n", "cannot read"),
            ("t.csv.gz", gzip.compress(CSV.encode() * 99, mtime=0)[:-20], "cannot read"),
            ("t.parquet", b"age\n1\n", "cannot read"),
            ("t.parquet", b"", "cannot read"),
        ],
    )
    def test_an_unreadable_file_is_refused_with_its_cause(self, tmp_path, name, content, words):
        path = tmp_path / name
        path.write_bytes(content)
        fails([words] if isinstance(words, str) else words, read_table, path)
        fails(name, read_table, path)

    def test_a_missing_file_is_refused(self, tmp_path):
        fails(["no file", "none.csv"], read_table, tmp_path / "none.csv")
        (tmp_path / "folder.csv").mkdir()
        fails("is a folder", read_table, tmp_path / "folder.csv")

    def test_an_empty_parquet_file_is_refused(self, tmp_path):
        FRAME.iloc[:0].to_parquet(tmp_path / "t.parquet")
        fails("no rows", read_table, tmp_path / "t.parquet")


def test_encoding_is_fast(takes_less_than):
    rows, rng = 200_000, np.random.default_rng(0)
    numbers = {f"x{i}": rng.normal(size=rows) for i in range(5)}
    classes = {f"c{i}": rng.choice(["a", "b", "c"], rows) for i in range(5)}
    frame = pd.DataFrame(numbers | classes)
    schema = TableSchema(
        (*(Numeric(name, -3, 3) for name in numbers), *(Categorical(name, ("a", "b", "c")) for name in classes))
    )
    for table in (frame, frame.astype(str)):
        assert schema.encode(table).shape == (rows, 20)
        assert takes_less_than(3.0, lambda table=table: schema.encode(table))


def test_importing_tables_does_not_import_pandas():
    code = "import sys, privet.tables; print('pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"False\s*", done.stdout)
