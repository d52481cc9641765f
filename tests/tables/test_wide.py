"""Tables and schemas of many columns: no work grows with the square of their number."""

import sys

import numpy as np
import pandas as pd

from privet.tables import Numeric, SchemaError, Severity, TableSchema, Target, check_table

FEW, MANY = 500, 1000


def schema_of(names, target="y"):
    return TableSchema(tuple(Numeric(name, -1, 1) for name in names), Target(target, ("0", "1")))


def table_of(names):
    return pd.DataFrame(np.zeros((4, len(names))), columns=names).assign(y=["0", "1", "0", "1"])


def events(work):
    """Return how many lines of Python a function runs, which does not depend on how busy the machine is."""
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def is_linear(work):
    """Return whether twice as many columns take about twice the work."""
    work(10)  # imports
    few, many = (events(lambda n=n: work(n)) for n in (FEW, MANY))
    return many < 2.5 * few


def names(n):
    return [f"x{k}" for k in range(n)]


def test_reading_a_schema_takes_time_in_proportion_to_its_columns(tmp_path):
    def work(n):
        lines = ['target = "y"', "[numeric]", *(f"{name} = [0, 1]" for name in names(n)), "[missing]"]
        (tmp_path / "s.toml").write_text("\n".join([*lines, *(f'{name} = "level"' for name in names(n))]) + "\n")
        assert len(TableSchema.from_toml(tmp_path / "s.toml").features) == n

    assert is_linear(work)


def test_reading_a_schema_of_wrong_columns_takes_time_in_proportion_to_them(tmp_path):
    def work(n):
        (tmp_path / "s.toml").write_text("\n".join(["[numeric]", *(f"{name} = [1, 0]" for name in names(n))]) + "\n")
        try:
            TableSchema.from_toml(tmp_path / "s.toml")
        except SchemaError as error:
            assert len(error.errors.found) >= n
        else:
            raise AssertionError

    assert is_linear(work)


def test_clipped_cells_are_counted_in_time_in_proportion_to_the_columns():
    assert is_linear(lambda n: schema_of(names(n)).n_clipped(table_of(names(n))))


def test_a_check_takes_time_in_proportion_to_the_columns():
    assert is_linear(lambda n: schema_of(names(n)).findings(table_of(names(n))))
    assert is_linear(lambda n: schema_of(names(n)).findings(table_of([name.upper() for name in names(n)])))


def test_many_missing_columns_are_one_problem(tmp_path):
    table_of(["X0", "X1"]).to_csv(tmp_path / "t.csv", index=False)
    report = check_table(tmp_path / "t.csv", schema_of(names(60)))
    (missing,) = (finding for finding in report.findings if finding.severity is Severity.PROBLEM)
    assert missing.what == "declared columns that the table does not have" and missing.n_examples == 60
    few = check_table(tmp_path / "t.csv", schema_of(names(3)))
    assert [finding.column for finding in few.findings if finding.is_problem] == ["x0", "x1", "x2"]
    assert "Did you mean 'X0'" in next(finding.remedy for finding in few.findings if finding.column == "x0")
