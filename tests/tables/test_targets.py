"""Numeric targets: values in [-1, 1] for any table, rows that do not influence each other, and errors with a cause."""

import json
import sys
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from privet.tables import Categorical, Numeric, NumericTarget, TableError, TableSchema, Target, read_table

AGE, SEX = Numeric("age", 0, 120), Categorical("sex", ("female", "male"))
COST = NumericTarget("cost", 0, 5000)
SCHEMA = TableSchema((AGE, SEX), COST)
FRAME = pd.DataFrame({"age": 30, "sex": "male", "cost": [0, 1250.0, 2500, 5000, 1e9, -7]})
ENCODED = [-1, -0.5, 0, 1, 1, -1]


def fails(words, call, *args, **kwargs):
    """Assert that the call raises a TableError of one line that contains all the words."""
    with pytest.raises(TableError) as caught:
        call(*args, **kwargs)
    message = str(caught.value)
    assert "\n" not in message
    for word in [words] if isinstance(words, str) else words:
        assert word in message, message


def costs(values):
    return pd.DataFrame({"cost": values})


class TestEncode:
    def test_a_numeric_target_is_clipped_centred_and_scaled(self):
        encoded = SCHEMA.encode_target(FRAME)
        assert encoded.dtype == np.float64
        assert encoded.tolist() == ENCODED
        assert COST.half_width == 2500

    def test_predictions_are_decoded_to_the_units_of_the_target(self):
        assert COST.decode(np.array([-1, -0.5, 0, 1])).tolist() == [0, 1250, 2500, 5000]
        shifted = NumericTarget("t", -10, 30)
        assert shifted.decode(shifted.encode(pd.Series([-10, 0, 30, 31]))).tolist() == [-10, 0, 30, 30]

    def test_the_true_target_is_not_clipped(self):
        assert SCHEMA.true_target(FRAME).tolist() == FRAME["cost"].tolist()
        classes = TableSchema((AGE,), Target("sex", ("male", "female")))
        assert classes.true_target(pd.DataFrame({"sex": ["female", "male"]})).tolist() == ["female", "male"]

    def test_no_bound_is_read_from_the_data(self):
        assert SCHEMA.with_target_levels(FRAME) is SCHEMA
        assert COST.levels is None

    @pytest.mark.parametrize(
        "values",
        [
            np.array([0, 1250, 5000], dtype=np.int16),
            np.array([0, 1250, 5000], dtype=np.float32),
            [" 0", "1.25e3", "5000.0 "],
            pd.Categorical([0, 1250, 5000]),
            pd.array([0, 1250, 5000], dtype="Int64"),
            pd.array([0, 1250, 5000], dtype="double[pyarrow]"),
            np.array([0, "1250", Decimal(5000)], dtype=object),
        ],
    )
    def test_numbers_of_every_type_are_encoded_alike(self, values):
        assert SCHEMA.encode_target(costs(values)).tolist() == [-1, -0.5, 1]

    @pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
    def test_numeric_targets_are_read_from_files(self, tmp_path, name):
        path = tmp_path / name
        if name.endswith("csv"):
            FRAME.to_csv(path, index=False)
        else:
            FRAME.to_parquet(path)
        assert SCHEMA.encode_target(read_table(path)).tolist() == ENCODED

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, None, "", "NA", "nan", "1e999", pd.NA])
    def test_a_missing_or_infinite_target_is_refused(self, bad):
        frame = costs(pd.Series([1, bad, bad], dtype=object))
        for read in (SCHEMA.encode_target, SCHEMA.true_target):
            fails(
                ["'cost'", "2 ", "missing value" if str(bad).strip("-") not in ("inf", "1e999") else "infinite value"],
                read,
                frame,
            )

    @pytest.mark.parametrize("bad", ["much", [1], 1j, pd.Timestamp("2020-01-01"), 10**400])
    def test_a_cell_that_is_not_a_number_is_named_with_its_row(self, bad):
        fails(["'cost'", "is not a number"], SCHEMA.encode_target, costs(pd.Series([1, bad], dtype=object)))

    def test_tables_without_a_usable_target_column_are_refused(self):
        fails("no column 'cost'", SCHEMA.encode_target, FRAME.drop(columns="cost"))
        fails("no column 'cost'", SCHEMA.with_target_levels, FRAME.drop(columns="cost"))
        fails("no rows", SCHEMA.encode_target, FRAME.iloc[:0])
        fails("2 columns named 'cost'", SCHEMA.encode_target, pd.concat([FRAME, FRAME[["cost"]]], axis=1))


NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([1e308, -1e308, 5e-324, -0.0, 1.7e308])


@st.composite
def targets(draw):
    low, high = sorted((draw(NUMBERS), draw(NUMBERS)))
    return NumericTarget("y", low, high) if high / 2 - low / 2 > 0 else NumericTarget("y", -1e308, 1e308)


class TestPrivacy:
    @settings(deadline=None)
    @given(target=targets(), values=st.lists(NUMBERS | st.integers(-(2**70), 2**70), min_size=1, max_size=8))
    @example(target=NumericTarget("y", 1e308, sys.float_info.max), values=[sys.float_info.max, 0.0])
    def test_encoded_targets_are_bounded_and_decoded_within_the_bounds(self, target, values):
        encoded = target.encode(pd.Series(values, dtype=object))
        assert (np.abs(encoded) <= 1).all()
        decoded = target.decode(encoded)
        assert ((target.low <= decoded) & (decoded <= target.high)).all()
        width = Fraction(target.high) - Fraction(target.low)
        size = max(abs(Fraction(target.low)), abs(Fraction(target.high)))
        for value, back in zip(values, decoded.tolist(), strict=True):
            clipped = min(max(Fraction(float(value)), Fraction(target.low)), Fraction(target.high))
            assert abs(Fraction(back) - clipped) <= (width + size) * Fraction(2) ** -50 + Fraction(2) ** -1070

    @settings(deadline=None)
    @given(target=targets(), values=st.lists(NUMBERS, min_size=2, max_size=8), other=NUMBERS, data=st.data())
    def test_one_row_never_changes_another(self, target, values, other, data):
        changed = data.draw(st.integers(0, len(values) - 1))
        neighbour = [other if row == changed else value for row, value in enumerate(values)]
        one, two = (target.encode(pd.Series(cells)) for cells in (values, neighbour))
        assert np.delete(one, changed).tolist() == np.delete(two, changed).tolist()
        assert one.tolist() == [target.encode(pd.Series([value]))[0] for value in values]


class TestDescription:
    def test_a_numeric_target_is_restored_from_json_with_its_kind(self):
        values = json.loads(json.dumps(SCHEMA.to_dict()))
        assert values["target"] == {"kind": "number", "name": "cost", "low": 0.0, "high": 5000.0}
        assert TableSchema.from_dict(values) == SCHEMA
        assert hash(TableSchema.from_dict(values)) == hash(SCHEMA)

    def test_a_numeric_target_is_declared_and_is_not_a_feature(self):
        assert SCHEMA.undeclared(FRAME.assign(name="x")) == ("name",)
        fails("also declared as a feature", TableSchema, (AGE,), NumericTarget("age", 0, 1))

    @pytest.mark.parametrize(
        ("bounds", "words"),
        [
            ((0, np.inf), "finite"),
            ((np.nan, 1), "finite"),
            ((None, 1), "finite"),
            (("0", 1), "finite"),
            ((False, True), "finite"),
            ((0, 10**400), "finite"),
            ((1, 1), "below"),
            ((2, 1), "below"),
            ((0, 5e-324), "below"),
        ],
    )
    def test_bad_bounds_are_refused_with_their_cause(self, bounds, words):
        fails(["'cost'", words], NumericTarget, "cost", *bounds)
        saved = {"kind": "number", "name": "cost", "low": bounds[0], "high": bounds[1]}
        fails(["'cost'", words], TableSchema.from_dict, SCHEMA.to_dict() | {"target": saved})

    def test_a_bad_name_is_refused(self):
        fails("column name", NumericTarget, " ", 0, 1)

    def toml(self, folder: Path, text: str) -> Path:
        path = folder / "schema.toml"
        path.write_text(text + '\n[numeric]\nage = [0, 120]\n[categorical]\nsex = ["female", "male"]\n')
        return path

    def test_a_schema_is_read_from_toml(self, tmp_path):
        assert TableSchema.from_toml(self.toml(tmp_path, 'target = "cost"\ntarget_bounds = [0, 5e3]')) == SCHEMA

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("target_bounds = [0, 1]", ["target_bounds but no target", 'target = "column"']),
            ('target = "y"\ntarget_bounds = [0]', ["'y'", "not a pair", "target_bounds = [low, high]"]),
            ('target = "y"\ntarget_bounds = "0:1"', ["'y'", "not a pair"]),
            ('target = "y"\ntarget_bounds = [1, 0]', ["'y'", "below"]),
            ('target = "y"\ntarget_bounds = [0, inf]', ["'y'", "finite"]),
            (
                'target = "y"\ntarget_bounds = [0, 1]\ntarget_levels = ["a", "b"]',
                "both target_levels and target_bounds",
            ),
            ('target = "age"\ntarget_bounds = [0, 1]', ["'age'", "also declared as a feature", "target_bounds"]),
            ("target = 3\ntarget_bounds = [0, 1]", "not a column name"),
        ],
    )
    def test_a_bad_toml_file_is_refused_with_its_cause(self, tmp_path, text, words):
        fails(words, TableSchema.from_toml, self.toml(tmp_path, text))

    def test_a_numeric_target_is_made_from_options(self):
        features = {"bounds": ["age=0:120"], "levels": ["sex=female,male"]}
        assert TableSchema.from_options(**features, target="cost", target_bounds=" 0 : 5e3 ") == SCHEMA
        named = features | {"bounds": ["age=0:120", "cost=0:5000"]}
        assert TableSchema.from_options(**named, target="cost") == SCHEMA
        assert TableSchema.from_options(**features, target="y", target_bounds="-3:-1").target.low == -3

    def test_options_override_the_file(self, tmp_path):
        path = self.toml(tmp_path, 'target = "cost"\ntarget_levels = ["low", "high"]')
        assert TableSchema.from_options(toml=path, target_bounds="0:5000") == SCHEMA
        assert TableSchema.from_options(toml=path, bounds=["cost=0:5000"]) == SCHEMA
        path = self.toml(tmp_path, 'target = "cost"\ntarget_bounds = [0, 1]')
        assert TableSchema.from_options(toml=path, target="cost", target_bounds="0:5000") == SCHEMA
        assert TableSchema.from_options(toml=path, levels=["cost=a,b"]).target == Target("cost", ("a", "b"))
        assert TableSchema.from_options(toml=path, target="other").target == Target("other")
        other = TableSchema.from_options(toml=path, target="other", target_bounds="2:3").target
        assert other == NumericTarget("other", 2, 3)

    def test_contradictory_options_are_refused(self, tmp_path):
        read = TableSchema.from_options
        fails(["no target", "Name the column to predict"], read, bounds=["age=0:1"], target_bounds="0:1")
        twice = {"target": "y", "target_bounds": "0:1"}
        fails(["'y'", "more than once"], read, bounds=["age=0:1", "y=0:2"], **twice)
        fails(["'y'", "more than once"], read, bounds=["age=0:1"], levels=["y=a,b"], **twice)
        path = self.toml(tmp_path, "")
        fails(["'age'", "also declared as a feature"], read, toml=path, target="age", target_bounds="0:1")

    @pytest.mark.parametrize("text", ["", "5", "0:", ":1", "0:x", "0:1:2", "y=0:1", "0,1"])
    def test_unreadable_bounds_are_refused(self, text):
        fails([repr(text), "low:high"], TableSchema.from_options, bounds=["a=0:1"], target="y", target_bounds=text)
