"""Writing CSV files: what is written is read back as it was."""

import csv
import io

import numpy as np
import pandas as pd

from privet.tables import write_csv


def rows_of(columns):
    file = io.StringIO(newline="")
    write_csv(columns, file)
    return list(csv.reader(io.StringIO(file.getvalue(), newline="")))


def test_texts_are_quoted_where_they_must_be():
    texts = ["a", "a,b", 'the "Au"', "two\nlines", " x ", "", "é"]
    head, *rows = rows_of({"id, old": pd.Series(texts), "n": np.arange(7)})
    assert head == ["id, old", "n"]
    assert [row[0] for row in rows] == texts
    file = io.StringIO()
    write_csv({"a": np.array(["yes"], dtype=object)}, file)
    assert file.getvalue() == "a\nyes\n"


def test_numbers_are_written_exactly():
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.normal(size=500) * 10.0 ** rng.integers(-300, 300, 500), [0.0, 1e10, 5e-324]])
    assert [float(row[0]) for row in rows_of({"x": values})[1:]] == values.tolist()


def test_missing_cells_are_empty_and_long_tables_are_complete():
    column = pd.Series(pd.Categorical(["a", None] * 100_000))
    rows = rows_of({"a": column, "b": pd.Series([None, "x"] * 100_000, dtype=object)})
    assert len(rows) == 200_001
    assert rows[1:3] == rows[-2:] == [["a", ""], ["", "x"]]
