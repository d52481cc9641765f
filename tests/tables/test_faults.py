"""Faults: every cell that cannot be used is listed once, with its row, and encoding raises the first of them."""

import datetime

import numpy as np
import pandas as pd
import pytest

from privet.tables import Categorical, Date, Numeric, NumericTarget, TableError, Target

DATES = (datetime.date(2000, 1, 1), datetime.date(2020, 1, 1))
CASES = [
    (Numeric("a", 0, 1), ["x", "1", "", "x", "inf", "y", None], [[0, 3], [5], [4], [2, 6]]),
    (Numeric("a", 0, 1, missing="level"), ["x", "", "nan"], [[0]]),
    (Numeric("a", 0, 1), [0.5, np.nan, np.inf], [[2], [1]]),
    (NumericTarget("a", 0, 1), ["x", "1", ""], [[0], [2]]),
    (Categorical("a", ("u", "v")), ["w", "u", "", "x", "w"], [[0, 4], [3], [2]]),
    (Categorical("a", ("u", "v"), missing="v"), ["u", "", "x"], [[2]]),
    (Target("a", ("u", "v")), ["w", "u", ""], [[0], [2]]),
    (Target("a"), ["w", "u", ""], [[2]]),
    (Date("a", *DATES), ["2001-01-01", "soon", "", "1.2.03", "soon"], [[1, 4], [3], [2]]),
    (Date("a", *DATES, missing="level"), ["2001-01-01", "", "1/2/03"], [[2]]),
    (Numeric("a", 0, 1), ["0", "1"], []),
]


@pytest.mark.parametrize(("column", "cells", "rows"), CASES)
def test_every_fault_is_listed_with_all_its_rows_and_encoding_raises_the_first(column, cells, rows):
    series = pd.Series(cells)
    faults = column.faults(series)
    assert [fault.rows.tolist() for fault in faults] == rows
    if faults:
        with pytest.raises(TableError) as raised:
            column.encode(series)
        assert str(raised.value) == str(faults[0])
        assert f"row {rows[0][0] + 1}" in str(faults[0])
    else:
        column.encode(series)


def test_a_value_that_occurs_often_is_reported_once_with_its_number():
    (fault,) = Numeric("age", 0, 120).faults(pd.Series(["1", "old", "old", "old"]))
    assert str(fault).startswith("Column 'age', row 2 (and 2 more with this value): 'old' is not a number. Correct it")
