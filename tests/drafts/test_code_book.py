"""Code books in the forms that people write, and what is said about lines that are not understood."""

import contextlib
import datetime
import itertools

import pytest

from privet.drafts import read_code_book, to_toml
from privet.drafts.code_book import parse_code_book
from privet.tables import Categorical, Date, Numeric, NumericTarget, TableError, TableSchema, Target

SEX = Categorical("sex", ("female", "male"))
CODED = Categorical("sex", ("1", "2"))
BORN = Date("born", "1900-01-01", "2024-12-31", format="%d/%m/%Y")


def only(line):
    """Return the feature of the only column of a code book, which must have no problem."""
    book = parse_code_book(line)
    assert not book.problems
    (feature,) = book.draft.features
    return feature


def problem(line):
    """Return the only problem of a line that follows a good one."""
    (found,) = parse_code_book(f"first: 0-1\n{line}\n").problems
    assert found.line == 2
    return found.message


@pytest.mark.parametrize(
    "line",
    [
        "age: integer, 0-120, age in years",
        "age: 0-120",
        "age: int 0 to 120",
        "age = [0, 120]",
        "age\tnumber, 0..120",
        "- **age** (integer, 0\u2013120): age in years",
        "* `age`: numeric; min 0; max 120; unit: years",
        "1. age \u2014 float64, range: 0 - 120 years",
        "age: integer, >= 0, <= 120",
        "age: between 0 and 120",
        '"age": number, values 0:120',
    ],
)
def test_numbers(line):
    assert only(line) == Numeric("age", 0, 120)


@pytest.mark.parametrize(
    "line",
    [
        "sex: female, male",
        "sex: categorical, female, male",
        "sex = ['female', 'male']",
        'sex: "female", "male", the sex that the passport states',
        "sex: female/male",
        "sex (female|male): recorded at birth",
        "- sex: category; female; male",
    ],
)
def test_categories(line):
    assert only(line) == SEX


@pytest.mark.parametrize("line", ["sex: 1=female; 2=male", "sex: 1 = female, 2 = male", "sex: {1=female, 2=male}"])
def test_codes_are_the_levels_and_labels_are_comments(line):
    assert only(line) == CODED
    assert "# 1 = female; 2 = male." in to_toml(parse_code_book(line).draft)


@pytest.mark.parametrize(
    "line",
    [
        "born: date, 1900-01-01 to 2024-12-31, format %d/%m/%Y",
        "born: date, 1.1.1900 - 31.12.2024, format: %d/%m/%Y",
        "born: 1900-01-01..2024-12-31, format '%d/%m/%Y'",
    ],
)
def test_dates(line):
    assert only(line) == BORN


@pytest.mark.parametrize(
    ("line", "levels"),
    [
        ("x: yes/no", ("yes", "no")),
        ("x: boolean", ("False", "True")),
        ("x: 18-30, 31-60, 61+", ("18-30", "31-60", "61+")),
        ("x: category, <18, 18-30, 31-60", ("<18", "18-30", "31-60")),
        ("x: integer, 1=low, 2=high", ("1", "2")),
    ],
)
def test_other_levels(line, levels):
    assert only(line) == Categorical("x", levels)


def test_ids_texts_and_targets():
    book = parse_code_book("id: ID\nnote: free text\nage: 0-120\nill: no, yes, target\n")
    assert not book.problems
    assert book.draft.schema == TableSchema((Numeric("age", 0, 120),), Target("ill", ("no", "yes")), (), ("id",))
    assert "# note: text without levels" in to_toml(book.draft)
    assert parse_code_book("x: 0-1\ncost: number 0-5000, target").draft.schema.target == NumericTarget("cost", 0, 5000)


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_tables_with_any_separator(separator):
    rows = [
        ("Variable", "Data type", "Min", "Max", "Levels", "Unit", "Label", "Missing codes"),
        ("age", "integer", "0", "120", "", "years", "Age at entry", "999"),
        ("sex", "factor", "", "", '"1=female; 2=male"' if separator == ";" else "1=female; 2=male", "", "", "no"),
    ]
    book = parse_code_book("\n".join(separator.join(row) for row in rows))
    assert not book.problems
    assert book.draft.features == (Numeric("age", 0, 120, missing="level"), CODED)
    assert "Missing codes 999: privet takes them for numbers." in to_toml(book.draft)


def test_a_markdown_table_and_its_line_numbers():
    book = parse_code_book(
        "# Data\n\n| name | type | range |\n|------|:----:|------:|\n| age | int | 0-120 |\n| bmi | float | wide |\n"
    )
    assert book.draft.features == (Numeric("age", 0, 120),)
    assert [(each.line, "'wide'" in each.message) for each in book.problems] == [(6, True)]


def test_a_redcap_data_dictionary():
    header = '"Variable / Field Name","Field Type","Field Label","Choices, Calculations, OR Slider Labels",'
    header += '"Text Validation Min","Text Validation Max","Identifier?"\n'
    rows = 'record_id,text,Record,,,,y\nage,text,Age,,0,120,\nsex,radio,Sex,"1, Female | 2, Male",,,\n'
    book = parse_code_book(header + rows)
    assert not book.problems
    assert book.draft.schema == TableSchema((Numeric("age", 0, 120), CODED), None, (), ("record_id",))


@pytest.mark.parametrize("label", ["label", "value label"])
@pytest.mark.parametrize("name", ["", "sex"])
def test_a_table_with_one_line_per_level(name, label):
    book = parse_code_book(f"name,code,{label}\nsex,1,female\n{name},2,male\nage,0-120,\n")
    assert not book.problems
    assert book.draft.features == (Numeric("age", 0, 120), CODED)
    assert "# 1 = female; 2 = male." in to_toml(book.draft)


def test_quoted_cells_may_span_lines_and_later_lines_keep_their_numbers():
    book = parse_code_book('name,values,description\nsex,"female\nmale","a\nb"\n,x,\nbad,,\n')
    assert book.draft.features == (Categorical("sex", ("female", "male", "x")),)
    assert [each.line for each in book.problems] == [6]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("This is a study of many years", "is not understood. Write one column per line"),
        ("cost: number, >= 0", "lacks a high bound"),
        ("cost: number", "lacks bounds"),
        ("cost: range wide", "The range 'wide' of 'cost' is not understood"),
        ("cost: 1,000 - 2,000", "'1,000' can be 1000 or 1.000"),
        ("cost: 5-5", "must be below"),
        ("ward: category", "is a category without levels"),
        ("ward: A=surgery", "Only one level of 'ward'"),
        ("ward: A, B, ...", "end in dots"),
        ("ward: A, B, A", "more than once"),
        ("born: date", "lacks bounds"),
        ("born: date, 0-5", "are not dates"),
        ("born: date, 2020-01-01 to 2021-01-01, format %d", "does not determine a date"),
        ("thing: wibble", "Neither a type, nor bounds, nor levels"),
        ("first: 0-2", "described twice"),
    ],
)
def test_a_line_that_is_not_understood_is_named_with_a_remedy(line, said):
    assert said in problem(line)


def test_a_column_with_a_problem_stays_as_a_comment():
    assert "# cost: line 2 of the code book: 'cost' lacks a high bound." in to_toml(
        parse_code_book("age: 0-120\ncost: number, >= 0\n").draft
    )


def test_unknown_columns_and_long_lines_of_a_table_are_named():
    book = parse_code_book("name,range,site\nage,0-120,x\nbmi,10-60,,y\n")
    assert [(each.line, each.message.split(".")[0]) for each in book.problems] == [
        (1, "The columns 'site' of the code book are not used"),
        (3, "The line has 4 cells, but the header has 3"),
    ]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_encodings_and_line_ends(encoding, ending, tmp_path):
    path = tmp_path / "book.txt"
    path.write_bytes(f"größe: 0-250, in cm{ending}sex: female, male{ending}".encode(encoding))
    assert read_code_book(path).draft.features == (Numeric("größe", 0, 250), SEX)


def test_a_code_book_that_cannot_be_read_is_an_error(tmp_path):
    with pytest.raises(TableError, match="cannot read the code book"):
        read_code_book(tmp_path / "none.txt")
    with pytest.raises(TableError, match="cannot read the code book"):
        read_code_book(tmp_path)


def test_no_text_ends_in_another_error_than_a_table_error():
    pieces = [",", "1", "-", "=", "[", "]", '"', "|", "\n", " ", "date", "0-9", "%d", ">"]
    for text in map("".join, itertools.product(("a:", "name,range\n"), pieces, pieces)):
        with contextlib.suppress(TableError):
            to_toml(parse_code_book(text).draft)


def test_bounds_of_dates_in_a_table():
    (feature,) = parse_code_book("name,type,min,max\nsince,date,2019-01-01,2024-12-31\n").draft.features
    assert (feature.low, feature.high) == (datetime.date(2019, 1, 1), datetime.date(2024, 12, 31))


def test_a_description_is_also_that_of_a_column_with_a_unit_in_its_name():
    draft = parse_code_book("height: number, 100-220\nweight (kg): number, 30-200\nage: 0-120, target\n").draft
    names = ["height (cm)", "weight (kg)", "age [years]"]
    fitting, others = draft.for_table(names)
    assert others == () and [column.name for column in fitting.columns] == names
    assert fitting.features == (Numeric("height (cm)", 100, 220), Numeric("weight (kg)", 30, 200))
    assert fitting.schema.target == NumericTarget("age [years]", 0, 120)
    twice, others = draft.for_table(["height (cm)", "height (in)", "weight", "age"])
    assert [column.is_used for column in twice.columns] == [False, False, True, True] and others == ("height",)
