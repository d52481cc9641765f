"""Reading files: their form is recognised from the header alone, and no line changes how another one is read."""

import gzip
import itertools

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from privet.tables import (
    Categorical,
    Date,
    FileForm,
    Numeric,
    NumericTarget,
    TableError,
    TableSchema,
    Target,
    lines,
    read_header,
    read_table,
)
from privet.tables.categories import distinct_levels
from privet.tables.gathering import decoded

SCHEMA = TableSchema(
    (
        Numeric("age", 0, 120, missing="level"),
        Categorical("town", ("Köln", "Bad; Ems", 'the "Au"', "a, b"), missing="level"),
        Date("day", "2000-01-01", "2030-01-01", missing="level"),
    ),
    Target("y", ("no", "yes")),
    ids=("id",),
)
NAMES = ["id", "age", "town", "day", "y"]
ROWS = [
    ["p1", "17.5", "Köln", "2011-01-31", "no"],
    ["p2", "0.1", "Bad; Ems", "31.1.2012", "yes"],
    ["p3", "", 'the "Au"', "", "no"],
    ["p4", "1e2", "a, b", "2029-12-31", "yes"],
    ["p5", "+3", "NA", "NA", "yes"],
]


def written(rows, separator=",", end="\n", quoting="needed"):
    """Return the text of a file."""

    def cell(text):
        needs = quoting == "all" or any(mark in text for mark in (separator, '"'))
        return '"' + text.replace('"', '""') + '"' if needs else text

    return "".join([separator.join(map(cell, row)) + end for row in rows])


def encoded(path, schema=SCHEMA, **form):
    frame = read_table(path, schema, form=FileForm(**form))
    return np.column_stack([schema.encode(frame), schema.encode_target(frame)]), frame["id"].tolist()


@pytest.fixture
def expected(tmp_path):
    frame = pd.DataFrame(ROWS, columns=NAMES)
    return np.column_stack([SCHEMA.encode(frame), SCHEMA.encode_target(frame)])


@pytest.fixture(params=[1 << 22, 64])
def block(request, monkeypatch):
    """Read files in blocks of the usual size, and in small ones."""
    monkeypatch.setattr(lines, "BLOCK", request.param)


FORMS = [
    pytest.param(separator, end, quoting, encoding, id=f"{separator!r} {end!r} {quoting} {encoding}")
    for separator, end, quoting, encoding in [
        *itertools.product(",;\t|", ["\n"], ["needed", "all"], ["utf-8"]),
        *itertools.product(";", ["\r\n", "\r", "\n\n"], ["needed", "all"], ["utf-8"]),
        *itertools.product(",", ["\r\n"], ["needed"], ["utf-8-sig", "latin-1", "utf-16", "utf-32", "cp1252"]),
    ]
]


@pytest.mark.parametrize(("separator", "end", "quoting", "encoding"), FORMS)
@pytest.mark.usefixtures("block")
def test_files_of_all_forms_read_the_same(tmp_path, expected, separator, end, quoting, encoding):
    path = tmp_path / "t.csv"
    path.write_bytes(written([NAMES, *ROWS], separator, end, quoting).encode(encoding))
    matrix, ids = encoded(path)
    assert (matrix == expected).all()
    assert ids == ["p1", "p2", "p3", "p4", "p5"]
    assert read_header(path, SCHEMA) == tuple(NAMES)


def test_a_file_without_a_final_line_end_or_with_spaces_around_cells_reads_the_same(tmp_path, expected):
    path = tmp_path / "t.csv"
    text = written([NAMES, *ROWS], quoting="all").replace('","', '" ,  "')
    path.write_text(f" {text.strip()}")
    with pytest.raises(TableError):  # text after a closing quotation mark belongs to the cell
        encoded(path, TableSchema(SCHEMA.features, SCHEMA.target, ids=("id ",)))
    path.write_text(written([NAMES, *ROWS], quoting="all").replace('","', '",  "').strip())
    assert (encoded(path)[0] == expected).all()


def test_the_separator_is_the_one_with_which_the_declared_columns_are_found(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a;b,c,d,e;y\n1;2;no\n")
    schema = TableSchema((Numeric("a", 0, 9), Numeric("b,c,d,e", 0, 9)), Target("y", ("no", "yes")))
    assert read_table(path, schema)["b,c,d,e"].tolist() == [2.0]
    assert read_header(path) == ("a;b", "c", "d", "e;y")
    assert read_header(path, form=FileForm("semicolon")) == ("a", "b,c,d,e", "y")


OTHER_ROWS = [
    b'"',
    b'"p3,1,a,b,c',
    b'p3,"1',
    b'p3,1","',
    b'",",",",","',
    b'p3,"",",",,"',
    b'p3,1,"a""',
    b'p3,1,"a"b"c,2000-01-01,no',
    b"p3;1;a;2000-01-01;no",
    b"p3\t1\ta\t2000-01-01\tno",
    b"p3,1\r,,,no",
    b"p3,1,,,no\r",
    b"p3,1,,,no\r\r\n\n",
    b"p3,\x00,\x00,2000-01-01,no",
    b"\x00\x00\x00\x00,,,,yes",
    b"p3,1,K\xf6ln,2000-01-01,no",
    b"\xff\xfe\x00,1,,,no",
    b"\xef\xbb\xbfp3,1,,,no",
    b"p3,1,\xc3,2000-01-01,no",
    b"p3," + b"9" * 3000 + b",,,no",
    b"p3,1," + b"x" * 3000 + b",,no",
    b"p3,1",
    b"p3,1,,,no,,,",
    b"",
    b"   ",
    b"p3,nan,,,no",
    b"p3,NaN(0),,,no",
    b"p3,0x10,,,no",
    b"p3,1_0,,,no",
    b'p3,"1,5",,,no',
    b'p3,"1.234,5",,,no',
    b"p3,inf,,,no",
    b"p3,old,,,no",
    b"p3,1,Atlantis,soon,no",
    b"p3,1,,31/12/2000,yes",
    b'p3, "1", "K\xc3\xb6ln", "2000-01-01", "no"',
    b"id,age,town,day,y",
    b"# a comment",
    b"sep=;",
    b"\x1a",
    b"\xe2\x80\xa8",
    b"p3,\xd9\xa1,,,no",
    b"p3,1\\,a,,no",
    b"p3,'1,2',,no",
]


@pytest.mark.parametrize("other", OTHER_ROWS, ids=lambda row: repr(row[:24])[2:-1])
@pytest.mark.parametrize("position", [0, 2, 4])
@pytest.mark.usefixtures("block")
def test_no_row_changes_how_another_is_read_unless_the_whole_file_is_refused(tmp_path, other, position):
    """The cells of the other rows, faults included, are those that they have without this row."""
    path = tmp_path / "t.csv"
    rest = [written([row]).rstrip("\n").encode() for row in ROWS if row is not ROWS[position]]
    head = ",".join(NAMES).encode()
    path.write_bytes(b"\n".join([head, *rest]) + b"\n")
    plain = read_table(path, SCHEMA)
    path.write_bytes(b"\n".join([head, *rest[:position], other, *rest[position:]]) + b"\n")
    try:
        frame = read_table(path, SCHEMA)
    except TableError as error:
        assert "row" in str(error)
        return
    added = len(frame) - len(plain)
    assert added == len([line for line in other.splitlines() if line.strip(b" ")])
    kept = frame.drop(index=range(position, position + added)).reset_index(drop=True)
    for name in NAMES:
        assert [*map(repr, kept[name])] == [*map(repr, plain[name])]


@pytest.mark.usefixtures("block")
def test_a_quotation_mark_that_is_left_open_never_joins_rows(tmp_path):
    """A cell that is a separator in quotes could close what an earlier row opened."""
    path = tmp_path / "t.csv"
    path.write_bytes(b'id,a\np1,"1\np2,","\np3,2\n')
    schema = TableSchema((Categorical("a", ("1", "2")),), ids=("id",))
    with pytest.raises(TableError, match="row 1 has a quotation mark that is not closed in the same line"):
        read_table(path, schema)
    path.write_bytes(b'id,a\np1,1\np2,2\np3,"2')
    with pytest.raises(TableError, match="row 3 has a quotation mark"):
        read_table(path, schema)


def test_all_rows_that_are_malformed_are_named(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("id,a\np1\n\np2,1\np3,1,2\n")
    with pytest.raises(TableError, match=r"row 1 has 1 cells, but the header has 2: 'p1'; row 3 has 3 cells"):
        read_table(path)


def test_each_cell_is_decoded_on_its_own(tmp_path):
    path = tmp_path / "t.csv"
    cells = ["Köln".encode(), "Köln".encode("latin-1"), "10 €".encode("cp1252"), b"\x81"]
    path.write_bytes(b"id,st\xe4dte\n" + b"".join([cell + b"," + cell + b"\n" for cell in cells]))
    frame = read_table(path)
    assert frame["städte"].tolist() == frame["id"].tolist() == ["Köln", "Köln", "10 €", "\x81"]
    levels = read_table(path, TableSchema((Categorical("städte", ("Köln", "10 €")),), ids=("id",)))
    assert levels["städte"].tolist() == ["Köln", "Köln", "10 €", "\x81"]
    assert levels["städte"].cat.categories.tolist() == ["Köln", "10 €", "\x81"]


def test_a_given_encoding_is_used_strictly(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes("id,town\n1,Łódź\n".encode("cp1250"))
    assert read_table(path, form=FileForm(encoding="windows-1250"))["town"].tolist() == ["Łódź"]
    with pytest.raises(TableError, match="utf-8"):
        read_table(path, form=FileForm(encoding="utf-8"))
    path.write_bytes("id,town\n1,x\n".encode("utf-16-le"))
    with pytest.raises(TableError, match="give its encoding"):
        read_table(path)
    assert read_table(path, form=FileForm(encoding="utf-16-le"))["town"].tolist() == ["x"]


@pytest.mark.parametrize(
    "encoding", ["klingon", "rot13", "base64", "utf-7", "iso2022_jp", "hz", "cp037x", "unicode_escape"]
)
def test_encodings_that_carry_a_state_or_are_none_are_refused(encoding):
    with pytest.raises(TableError, match="encoding"):
        FileForm(encoding=encoding)


@pytest.mark.parametrize(("key", "value"), [("separator", ":"), ("decimal", ";"), ("encoding", "x"), ("separator", 3)])
def test_a_bad_form_is_refused(tmp_path, key, value):
    with pytest.raises(TableError, match=key):
        FileForm(**{key: value})
    path = tmp_path / "s.toml"
    path.write_text(f"[numeric]\na = [0, 1]\n[file]\n{key} = {value!r}\n")
    with pytest.raises(TableError, match=key):
        TableSchema.from_toml(path)


def test_a_form_is_declared_in_the_schema_file_and_kept_with_the_schema(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text('[numeric]\na = [0, 9999]\n[file]\nseparator = "semicolon"\ndecimal = ","\n')
    schema = TableSchema.from_toml(path)
    assert schema.form == FileForm(";", ",")
    assert TableSchema.from_dict(schema.to_dict()) == schema
    assert TableSchema.from_options(toml=path, form=FileForm(decimal=".")).form == FileForm(";", ".")
    (tmp_path / "t.csv").write_text("a;b\n1.234,5;x\n")
    assert read_table(tmp_path / "t.csv", schema)["a"].tolist() == [1234.5]
    path.write_text("[numeric]\na = [0, 1]\n[file]\nsep = 1\n")
    with pytest.raises(TableError, match="Its keys are separator, decimal, encoding"):
        TableSchema.from_toml(path)


def test_only_the_declared_columns_are_read_and_missing_ones_are_named(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("secret,a,a,b\n1,2,3,4\n")
    schema = TableSchema((Numeric("b", 0, 9),), NumericTarget("secret", 0, 9))
    assert list(read_table(path, schema).columns) == ["b", "secret"]
    assert list(read_table(path, schema, with_targets=False).columns) == ["b"]
    with pytest.raises(TableError, match="2 columns named 'a'"):
        read_table(path, TableSchema((Numeric("a", 0, 9),)))
    with pytest.raises(TableError, match=r"no column 'secrets'\. Did you mean 'secret'"):
        read_table(path, TableSchema((Numeric("secrets", 0, 9),)))


def test_blank_lines_are_no_rows_and_row_numbers_do_not_count_them(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("\n\na\n\n1\n   \n2\n\n\nx\n\n")
    schema = TableSchema((Numeric("a", 0, 9),))
    frame = read_table(path, schema)
    assert frame["a"].tolist() == [1.0, 2.0, "x"]
    with pytest.raises(TableError, match="Column 'a', row 3: 'x' is not a number"):
        schema.encode(frame)


def test_a_line_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "BLOCK", 1 << 10)
    monkeypatch.setattr(lines, "LONGEST_LINE", 1 << 12)
    path = tmp_path / "t.csv"
    path.write_text("a\n" + "1" * 10_000)
    with pytest.raises(TableError, match="a line of more than"):
        read_table(path)


def test_a_truncated_or_wrong_gzip_file_is_refused_as_a_whole(tmp_path):
    path = tmp_path / "t.csv.gz"
    packed = gzip.compress(written([NAMES, *ROWS * 999]).encode(), mtime=0)
    path.write_bytes(packed)
    assert len(read_table(path, SCHEMA)) == 999 * len(ROWS)
    for content in (packed[:-9], packed[: len(packed) // 2], b"x" + packed):
        path.write_bytes(content)
        with pytest.raises(TableError, match="cannot read"):
            read_table(path, SCHEMA)


def test_a_file_that_fails_while_it_is_read_is_refused(tmp_path):
    """The file /proc/self/mem can be opened, but the first bytes of it cannot be read, not even by root."""
    path = tmp_path / "t.csv"
    path.symlink_to("/proc/self/mem")
    with pytest.raises(TableError, match="cannot read"):
        read_table(path)
    (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
    with pytest.raises(TableError, match=r"loop\.csv"):
        read_table(tmp_path / "loop.csv")


def test_parquet_columns_of_all_types_are_read(tmp_path):
    import datetime
    import decimal

    moments = [datetime.datetime(2011, 1, 31, 23), None]
    table = pa.table(
        {
            "exact": pa.array([decimal.Decimal("0.10"), None], pa.decimal128(9, 2)),
            "words": pa.array(["a", "b"]).dictionary_encode(),
            "moment": pa.array(moments, pa.timestamp("us", tz="UTC")),
            "day": pa.array([moment and moment.date() for moment in moments], pa.date32()),
            "nested": pa.array([{"a": 1}, {"a": 2}]),
            "listed": pa.array([[1], [2]]),
            "text": pa.array(["1.5", ""]),
            "whole": pa.array([1, None], pa.int64()),
            "a.b": pa.array([True, False]),
        }
    )
    path = tmp_path / "t.parquet"
    pyarrow.parquet.write_table(table, path)
    schema = TableSchema(
        (
            *(Numeric(name, 0, 2, missing="level") for name in ("exact", "text", "whole", "a.b")),
            *(Date(name, "2011-01-01", "2011-03-02", missing="level") for name in ("moment", "day")),
            Categorical("words", ("a", "b")),
        )
    )
    frame = read_table(path, schema)
    assert read_header(path) == tuple(table.column_names)
    decoded = np.round(schema.encode(frame) * schema.row_norm, 12)
    assert decoded[0].tolist() == [-0.9, 0, 0.5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]
    assert decoded[1].tolist() == [0, 1, 0, 1, 0, 1, -1, 0, 0, 1, 0, 1, 0, 1]
    for name in ("nested", "listed"):
        bad = TableSchema((Numeric(name, 0, 9),))
        with pytest.raises(TableError, match=f"Column '{name}', row 1"):
            bad.encode(read_table(path, bad))


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([2**53 + 1, 2**53], pa.int64()),
        ([2**64 - 1, 2**64 - 2], pa.uint64()),
        ([{"a": 1}, {"a": 2}], pa.struct([("a", pa.int64())])),
        ([[1], [2]], pa.list_(pa.int64())),
        ([True, False], pa.bool_()),
        ([0.1, -0.0], pa.float32()),
    ],
    ids=lambda value: str(value) if isinstance(value, pa.DataType) else "",
)
def test_a_missing_cell_of_a_parquet_file_does_not_change_how_others_are_read(tmp_path, cells, kind):
    path = tmp_path / "t.parquet"
    found = []
    for further in (cells[0], None):
        pyarrow.parquet.write_table(pa.table({"x": pa.array([*cells, further], kind)}), path)
        codes, levels = distinct_levels(read_table(path)["x"])
        found.append([levels[code] for code in codes[:2]])
    assert found[0] == found[1]
    assert len(set(found[0])) == 2


@pytest.mark.parametrize("names", ["x", "x,y"])
@pytest.mark.parametrize("cell", [b"\xef\xbb\xbf1", b"\xef", b"\xef\xbb"])
def test_a_byte_order_mark_in_the_middle_of_a_file_belongs_to_its_cell(tmp_path, monkeypatch, names, cell):
    """How a row is read does not depend on whether a block of the file begins with it."""
    path = tmp_path / "t.csv"
    row = cell + b",1" * names.count(",")
    path.write_bytes(b"\n".join([names.encode(), *[row] * 9]) + b"\n")
    for block in range(1, 12):
        monkeypatch.setattr(lines, "BLOCK", block)
        assert set(read_table(path)["x"]) == {decoded(cell)}


def test_many_columns_are_read_at_once(tmp_path):
    names = [f"x{k}" for k in range(1000)]
    path = tmp_path / "t.csv"
    path.write_text(",".join(names) + "\n" + ",".join(["1", *["old"] * 999]) + "\n")
    schema = TableSchema(tuple(Numeric(name, 0, 1) for name in names))
    frame = read_table(path, schema)
    assert frame.shape == (1, 1000)
    with pytest.raises(TableError, match="Column 'x1', row 1: 'old' is not a number"):
        schema.encode(frame)
