"""Numbers of a file are read as Python's float reads them, whatever the other cells of the column are."""

import math
import random

import pytest

from privet.tables import RECOGNISED, FileForm, Numeric, TableError, TableSchema, read_table

SCHEMA = TableSchema((Numeric("a", -1e300, 1e300),))
CELLS = [
    *(
        "1",
        "+1",
        "-1",
        "1e5",
        "1E+05",
        ".5",
        "5.",
        "-0",
        "00012",
        "1_000",
        " 1",
        "1 ",
        "\t1",
        "\x0b1",
        "\x1f1",
        "\xa01",
    ),
    *("0x10", "1__0", "_1", "1d5", "1e", "e5", ".", "+", "-", "--1", "1f", "1L", "1%", "$1", "1 2", "1\x00", "(1)"),
    *("inf", "-Infinity", "nan", "-nan", "NaN(0)", "nan(abc)", "1e400", "-1e400", "1e-400", "1#INF", "\u0661\u0662"),
    *("9007199254740993", "4.35", "1e23", "2.2250738585072011e-308", "5e-324", "2.4703282292062328e-324"),
    *(
        "179769313486231580793728971405301e276",
        "8.5e15",
        "0." + "0" * 400 + "1",
        "1" + "0" * 350,
        "0.1" + "0" * 900 + "1",
    ),
    *("9" * 400, "1,5", "1.5.5", "true", "one", "\u22121", "1\u00b2", "6.02e+23", "123456789012345678901234567890"),
]


def as_float(text):
    try:
        return float(text)
    except ValueError:
        return text


def read(path, cells, separator=",", form=RECOGNISED):
    path.write_text("a" + separator + "b\n" + "".join([f'"{cell}"{separator}\n' for cell in cells]))
    return read_table(path, SCHEMA, form=form)["a"].tolist()


@pytest.mark.parametrize("company", [[], ["x"], ["nan"], ["1e400"], ["0x1"]], ids=str)
def test_a_cell_is_read_as_float_reads_it_in_any_company(tmp_path, company):
    for cell in CELLS:
        found, expected = read(tmp_path / "t.csv", [cell, *company])[0], as_float(cell)
        assert repr(found) == repr(expected), cell


def test_random_decimals_are_rounded_correctly(tmp_path):
    rng = random.Random(0)
    digits = ["".join(rng.choices("0123456789", k=rng.randint(1, 30))) for _ in range(3000)]
    cells = [f"{text[: len(text) // 2]}.{text[len(text) // 2 :]}e{rng.randint(-330, 310)}" for text in digits]
    cells = [cell for cell in cells if math.isfinite(float(cell))]
    expected = list(map(float, cells))
    for company in ([], ["x"]):
        assert read(tmp_path / "t.csv", [*cells, *company])[: len(cells)] == expected


@pytest.mark.parametrize(
    ("cell", "recognised", "comma", "point"),
    [
        ("1.5", 1.5, "1.5", 1.5),
        ("1,5", 1.5, 1.5, "1,5"),
        (",5", 0.5, 0.5, ",5"),
        ("5,", 5.0, 5.0, "5,"),
        ("-1,5e3", -1500.0, -1500.0, "-1,5e3"),
        ("1.234,5", "1.234,5", 1234.5, "1.234,5"),
        ("1,234.5", "1,234.5", "1,234.5", 1234.5),
        ("1.234", 1.234, 1234.0, 1.234),
        ("1,234", 1.234, 1.234, 1234.0),
        ("1.234.567", "1.234.567", 1234567.0, "1.234.567"),
        ("12.34.567", "12.34.567", "12.34.567", "12.34.567"),
        ("1,2,3", "1,2,3", "1,2,3", "1,2,3"),
        ("1_0,5", 10.5, "1_0,5", "1_0,5"),
        ("1e5", 1e5, 1e5, 1e5),
        ("1_000", 1000.0, 1000.0, 1000.0),
        (",", ",", ",", ","),
        ("n,a", "n,a", "n,a", "n,a"),
    ],
)
@pytest.mark.parametrize("company", [[], ["x"], ["2,5", "2.5"]], ids=str)
def test_decimal_marks_are_understood_cell_by_cell(tmp_path, cell, recognised, comma, point, company):
    path = tmp_path / "t.csv"
    assert read(path, [cell, *company], ";")[0] == recognised
    assert read(path, [cell, *company], ";", FileForm(decimal=","))[0] == comma
    assert read(path, [cell, *company], ";", FileForm(decimal="."))[0] == point
    assert read(path, [cell, *company], ",")[0] == as_float(cell)
    assert read(path, [cell, *company], ",", FileForm(decimal=","))[0] == comma


@pytest.mark.parametrize("cell", ["1.234,5", "1,234.5", "1,234,567"])
def test_a_number_with_two_marks_is_refused_with_the_remedy(tmp_path, cell):
    path = tmp_path / "t.csv"
    path.write_text(f"a;b\n1;2\n{cell};2\n")
    with pytest.raises(TableError, match=rf"row 2: '{cell}' is not a number. .*decimal"):
        SCHEMA.encode(read_table(path, SCHEMA))


@pytest.mark.parametrize("mark", ["", "NA", "na", "N/A", "nAn", "NaT", "<NA>", "null", "NONE", " NA ", "\xa0"])
@pytest.mark.parametrize("company", [[], ["x"]], ids=str)
def test_marks_of_missing_cells_are_missing(tmp_path, mark, company):
    assert math.isnan(read(tmp_path / "t.csv", [mark, *company])[0])
