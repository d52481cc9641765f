"""The check of a table file reads past lines that are not rows, and accepts exactly the files that can be used."""

import gzip

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.tables import Categorical, FileForm, Numeric, TableError, TableSchema, Target, check_table, read_table

SCHEMA = TableSchema(
    (Numeric("age", 0, 120), Categorical("sex", ("female", "male"))), Target("late", ("no", "yes")), ids=("id",)
)
HEADER = "id,age,sex,late"


def check(path, text, schema=SCHEMA, **options):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return check_table(path, schema, **options)


def words(report):
    return [(each.column, each.what, each.rows) for each in report.findings if each.is_problem]


def is_used(path, schema):
    """Return whether a model could be trained on the file, as ``privet fit`` finds out."""
    try:
        frame = read_table(path, schema)
        schema.with_target_levels(frame).encode_target(frame)
        schema.encode(frame)
    except TableError:
        return False
    return True


LINES = [
    b"1,30,female,no",
    b"2,31.5,male,yes",
    b'3,"32",male,yes',
    b"4,abc,male,no",
    b"5,,male,no",
    b"6,30,femal,no",
    b"7,30,male",
    b"8,30,male,no,9",
    b'9,30,"male,no',
    b"10,inf,male,no",
    b"11,30,male,",
    b"",
    b"   ",
    "12,30,femäle,no".encode("latin-1"),
    b"13;30;male;no",
]
HEADERS = [
    b"id,age,sex,late",
    b"id,age,sex,late",
    b"late,sex,age,id",
    b"id,Age,sex,late",
    b"id;age;sex;late",
    b"age,age,sex,late",
]


@given(
    st.sampled_from(HEADERS),
    st.lists(st.sampled_from(LINES[:3]) | st.sampled_from(LINES), max_size=5),
    st.sampled_from([b"\n", b"\r\n"]),
    st.sampled_from([FileForm(), FileForm(separator=","), FileForm(encoding="latin-1"), FileForm(encoding="utf-8")]),
)
@settings(deadline=None, derandomize=True, max_examples=200)
def test_a_file_is_accepted_if_and_only_if_it_can_be_used(tmp_path_factory, header, lines, end, form):
    path = tmp_path_factory.getbasetemp() / "messy.csv"
    schema = TableSchema(SCHEMA.features, SCHEMA.target, ids=("id",), form=form)
    report = check(path, end.join([header, *lines]), schema)
    assert report.is_accepted == is_used(path, schema), report.findings


def test_lines_that_are_not_rows_are_listed_with_the_rows_that_they_have_in_the_file(tmp_path):
    lines = [
        "1,30,female,no",
        "2,31",
        "3,x,male,yes",
        "",
        '4,30,"male,no',
        "5,30,male,yes,,",
        "6,30,femal,no",
        "7,200,male,no",
    ]
    report = check(tmp_path / "t.csv", "\n".join([HEADER, *lines]))
    assert report.n_rows == 7
    assert words(report) == [
        (None, "rows with 2 cells, but the header has 4", (2,)),
        (None, "rows with a quotation mark that is not closed in the same line", (4,)),
        (None, "rows with 6 cells, but the header has 4", (5,)),
        ("age", "not a number", (3,)),
        ("sex", "level is not declared (declared: 'female', 'male')", (6,)),
    ]


def test_rows_are_counted_across_the_blocks_in_which_a_file_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("privet.tables.lines.BLOCK", 64)
    lines = [f"{k},30,male,no" for k in range(1, 100)]
    lines[19], lines[49], lines[79] = "20,30", "50,abc,male,no", "80,30,m\xe4le,no"
    report = check(tmp_path / "t.csv.gz", gzip.compress("\n".join([HEADER, *lines]).encode("latin-1")))
    found = {(each.column, each.what): each.rows for each in report.findings}
    assert found[None, "rows with 2 cells, but the header has 4"] == (20,)
    assert found["age", "not a number"] == (50,)
    assert found[None, "rows with bytes that are not UTF-8"] == (80,)


def test_bytes_that_the_declared_encoding_does_not_have_are_a_problem(tmp_path):
    schema = TableSchema(SCHEMA.features, SCHEMA.target, ids=("id",), form=FileForm(encoding="utf-8"))
    report = check(tmp_path / "t.csv", "id,age,sex,late\n1,30,m\xe4le,no".encode("latin-1"), schema)
    assert not report.is_accepted and "utf-8" in str(report.findings[0])


def test_decimal_commas_in_a_file_with_commas_have_a_remedy(tmp_path):
    report = check(tmp_path / "t.csv", f'{HEADER}\n1,"30,5",female,no\n2,31,male,yes\n')
    (finding,) = report.findings
    assert (finding.what, finding.examples, finding.rows) == ("not a number", ("'30,5'",), (1,))
    assert 'decimal = ","' in finding.remedy
    declared = TableSchema(SCHEMA.features, SCHEMA.target, ids=("id",), form=FileForm(decimal=","))
    assert check_table(tmp_path / "t.csv", declared).is_accepted


@pytest.mark.parametrize("text", ["", "\n\n", HEADER, f"{HEADER}\n\n"])
def test_an_empty_file_is_a_finding(tmp_path, text):
    assert not check(tmp_path / "t.csv", text).is_accepted


def test_a_missing_file_or_a_folder_is_an_error(tmp_path):
    (tmp_path / "folder.csv").mkdir()
    for name in ("none.csv", "folder.csv"):
        with pytest.raises(TableError, match=name):
            check_table(tmp_path / name, SCHEMA)


def test_a_parquet_file_is_checked_with_its_types(tmp_path):
    frame = pd.DataFrame(
        {"id": [1, 2, 2], "age": [30.0, np.inf, 1e3], "sex": ["male", "Female", None], "late": ["no"] * 3}
    )
    frame.to_parquet(tmp_path / "t.parquet")
    report = check_table(tmp_path / "t.parquet", SCHEMA)
    assert words(report) == [
        ("age", "infinite value", (2,)),
        ("sex", "level is not declared (declared: 'female', 'male')", (2,)),
        ("sex", "missing value", (3,)),
    ]
    assert {each.column for each in report.findings if not each.is_problem} == {"id", "age", "late"}
