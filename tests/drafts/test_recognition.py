"""What cells are taken for, one by one."""

import datetime
import decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from privet.drafts.recognition import Cells, Kind, recognised
from privet.tables.numerals import EITHER, numerals


@pytest.mark.parametrize(
    ("cell", "kind", "level"),
    [
        ("", Kind.MISSING, ""),
        (" NaN ", Kind.MISSING, ""),
        (None, Kind.MISSING, ""),
        (np.nan, Kind.MISSING, ""),
        (pd.NaT, Kind.MISSING, ""),
        (pd.NA, Kind.MISSING, ""),
        ("1.0", Kind.NUMBER, "1"),
        (1, Kind.NUMBER, "1"),
        (np.float32(2), Kind.NUMBER, "2"),
        (decimal.Decimal("1.5"), Kind.NUMBER, "1.5"),
        (10**5000, Kind.TEXT, "inf"),
        ("01", Kind.NUMBER, "01"),
        ("5e-324", Kind.NUMBER, "5e-324"),
        ("1e999", Kind.TEXT, "1e999"),
        (np.inf, Kind.TEXT, "inf"),
        ("-nan", Kind.TEXT, "-nan"),
        (True, Kind.TEXT, "True"),
        ("true", Kind.TEXT, "True"),
        ("\ud800", Kind.TEXT, "?"),
        ("2020-01-31 12:00", Kind.DATE, "2020-01-31 12:00"),
        ("31.1.2020", Kind.DATE, "31.1.2020"),
        (datetime.date(2020, 1, 31), Kind.DATE, "2020-01-31"),
        (pd.Timestamp("2020-01-31"), Kind.DATE, "2020-01-31 00:00:00"),
        ("31/12/2020", Kind.DAY_FIRST, "31/12/2020"),
        ("12/31/2020", Kind.MONTH_FIRST, "12/31/2020"),
        ("1/2/2020", Kind.EITHER_FIRST, "1/2/2020"),
        ("31/31/2020", Kind.TEXT, "31/31/2020"),
    ],
    ids=lambda value: repr(value)[:20] if isinstance(value, str | float) else type(value).__name__,
)
def test_each_cell_has_a_kind_and_a_level(cell, kind, level):
    found = recognised(cell)
    assert (found.kind, found.level) == (kind, level)
    counted = Cells.of(pd.Series([cell], dtype=object)).by_kind()
    assert counted[kind] == counted.sum() == 1


@pytest.mark.parametrize("dtype", ["float64", "int64", "bool", "string", "datetime64[ns]"])
def test_typed_columns_are_counted_completely(dtype):
    column = pd.Series([1, 1, 0]).astype("int64" if dtype == "string" else dtype).astype(dtype)
    assert Cells.of(column).by_kind().sum() == 3


def test_dates_beyond_those_of_python_count_as_its_first_or_last_year():
    """Parquet files and numpy have years beyond 1 to 9999, which are not on the public grid of a private draft."""
    days = pd.Series(np.array(["-0500-01-01", "0000-01-01", "12000-01-01", "2020-01-01"], "datetime64[s]"))
    values, counts = Cells.of(days).tally(Kind.DATE)
    assert sorted(values) == [1, 1, 2020, 9999]
    assert counts.sum() == 4


def test_a_text_with_a_comma_is_a_number_only_where_decimal_commas_are_expected():
    texts = pd.Series(["1,5", "2.5", "1,5,2", "1.234,5", ",5", "a,b", ","])
    assert Cells.of(texts).by_kind()[Kind.NUMBER] == 1
    found = Cells.of(texts, EITHER)
    assert sorted(found.tally(Kind.NUMBER)[0]) == [0.5, 1.5, 2.5]
    assert list(found.levels()) == sorted(texts)
    assert sorted(Cells.of(texts, ",").tally(Kind.NUMBER)[0]) == [0.5, 1.5, 1234.5]
    assert sorted(Cells.of(texts, ".").tally(Kind.NUMBER)[0]) == [2.5]


@pytest.mark.parametrize("decimal", [None, EITHER, ",", "."])
def test_a_draft_takes_a_text_for_the_number_that_a_fit_reads(decimal):
    texts = "1,5|2.5|1.234|1,234|1.234,5|1,234.5|12.34| 1,5 |1,5\xa0|-,5|1_0.5|1e3||.|1,5e2|1.234.567|1,234,567|,|+"
    texts = [
        *texts.split("|"),
        *["٣,٥", "٣.٥", "٣", "x", "1.5,2", "31.1.2019", "1,", "007", "1.234e5", "+.5", "1,5e", "NA"],
    ]
    separator = "," if decimal is None else ";"
    values, wrong = numerals(pa.array(texts), None if decimal == EITHER else decimal, separator)
    for place, text in enumerate(texts):
        alone, among = Cells.of(pd.Series([text]), decimal), Cells.of(pd.Series([text, "1", "2"]), decimal)
        expected = [] if place in wrong or np.isnan(values[place]) else [values[place]]
        assert alone.tally(Kind.NUMBER)[0].tolist() == expected, text
        assert among.tally(Kind.NUMBER)[0].tolist()[: len(expected)] == expected, text  # whatever the other cells are
