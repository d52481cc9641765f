"""Drafts of public samples, and of private rows that hold the same kinds of columns."""

import numpy as np
import pandas as pd
import pytest

from privet.drafts import from_rows, from_sample, to_toml
from privet.tables import Categorical, Date, Numeric, NumericTarget, TableError, TableSchema, Target

N = 4000


def visits(n=N):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "patient_id": np.arange(n).astype(str),
            "age": rng.integers(18, 95, n).astype(str),
            "bmi": np.round(rng.normal(27, 3, n), 1).astype(str),
            "sex": rng.choice(["female", "male"], n),
            "since": [f"20{year:02d}-05-17" for year in rng.integers(10, 20, n)],
            "born": [f"{day}/{month}/1980" for day, month in zip(*rng.integers(1, (29, 13), (n, 2)).T, strict=True)],
            "note": [f"text {place}" for place in range(n)],
            "empty": [""] * n,
            "same": ["7"] * n,
            "ill": rng.integers(0, 2, n).astype(str),
        }
    )
    frame.loc[: n // 4, "bmi"] = "NA"
    frame.loc[: n // 8, "sex"] = ""
    return frame


def by_name(draft):
    return {column.name: column for column in draft.columns}


def test_a_sample_gives_kinds_widened_bounds_and_levels():
    columns = by_name(from_sample(visits(), "visits.csv"))
    assert columns["age"].feature == Numeric("age", 10, 105)
    assert columns["sex"].feature == Categorical("sex", ("female", "male"), missing="level")
    assert columns["since"].feature == Date("since", "2010-01-01", "2019-12-31")
    assert columns["born"].feature == Date("born", "1980-01-01", "1980-12-31", format="%d/%m/%Y")
    assert columns["bmi"].feature.missing == "level"
    assert columns["same"].feature.low < 7 < columns["same"].feature.high
    assert columns["ill"].feature == Numeric("ill", 0, 1)
    assert not any(columns[name].is_used for name in ("patient_id", "note", "empty"))
    assert 'levels = ["0", "1"]' in columns["ill"].comments[1]


def test_cells_of_another_kind_are_named_as_mistakes_in_a_sample():
    frame = visits(200)
    frame.loc[3, "age"] = "unknown"
    column = by_name(from_sample(frame))["age"]
    assert isinstance(column.feature, Numeric)
    assert "'unknown'" in column.comments[-1]


def test_private_rows_give_the_same_kinds_as_a_sample_and_nearby_bounds():
    draft, guarantee = from_rows(visits(), 6.0, target="ill", random_state=1)
    columns = by_name(draft)
    assert guarantee.epsilon <= 6
    assert columns["ill"].target == Target("ill", ("0", "1"))
    age = columns["age"].feature
    assert 18 <= age.low <= 25
    assert 88 <= age.high <= 95
    assert columns["sex"].feature == Categorical("sex", ("female", "male"), missing="level")
    assert columns["since"].feature == Date("since", "2010-01-01", "2019-12-31")
    assert columns["born"].feature == Date("born", "1980-01-01", "1980-12-31", format="%d/%m/%Y")
    assert columns["bmi"].feature.missing == "level"
    assert columns["same"].feature.low < 7 < columns["same"].feature.high
    assert not any(columns[name].is_used for name in ("patient_id", "note", "empty"))
    assert "free text or an ID" in columns["note"].comments[0]
    assert [column.name for column in draft.columns] == list(visits(1).columns)


def test_the_noisy_counts_of_a_draft_differ_from_run_to_run():
    frame = visits(1000)[["age", "sex"]]
    texts = {to_toml(from_rows(frame, 3.0)[0]) for _ in range(3)}
    assert len(texts) == 3


@pytest.mark.parametrize(("target", "kind"), [("bmi", NumericTarget), ("sex", Target)])
def test_a_target_with_missing_cells_says_so(target, kind):
    column = by_name(from_rows(visits(), 6.0, target=target, random_state=1)[0])[target]
    assert type(column.target) is kind
    assert any("each needs a target" in comment for comment in column.comments)


def test_columns_that_cannot_be_targets_are_left_out_with_the_reason():
    column = by_name(from_rows(visits(), 6.0, target="since", random_state=1)[0])["since"]
    assert not column.is_used
    assert "dates cannot be predicted" in column.comments[0]


@pytest.mark.parametrize(
    ("frame", "problem"),
    [
        (visits(5), "too small for 5 rows"),
        (pd.DataFrame([["1", "2"]] * 3, columns=["a", "a"]), "more than once"),
    ],
)
def test_nothing_is_asked_of_a_table_that_cannot_be_described(frame, problem):
    asked = []
    with pytest.raises(TableError, match=problem):
        from_rows(frame, 1.0, before_asking=asked.append)
    assert not asked


def test_ids_cost_nothing():
    frame = visits(1500)
    few, all_of_them = (from_rows(frame, 9.0, ids=ids, random_state=1)[0] for ids in (list(frame)[4:], ()))
    assert by_name(few)["note"].is_id
    assert by_name(few)["note"].comments == ()
    assert not by_name(all_of_them)["note"].is_id


@pytest.mark.parametrize("ids", [(), ("",)])
def test_a_column_without_a_name_such_as_the_index_that_pandas_writes_is_left_out_and_not_asked_about(ids, tmp_path):
    """It used to end the draft with an error, after its budget was spent."""
    draft, guarantee = from_rows(visits().rename(columns={"patient_id": ""}), 6.0, ids=ids, random_state=1)
    (tmp_path / "s.toml").write_text(to_toml(draft))
    assert TableSchema.from_toml(tmp_path / "s.toml") == draft.schema
    assert not by_name(draft)[""].is_used
    assert f"{visits().shape[1] - 1} columns" in guarantee.released


@pytest.mark.parametrize("frame", [pd.DataFrame({"": range(5000)}), visits().rename(columns={"age": " "})])
def test_a_table_or_target_without_a_name_costs_nothing(frame):
    with pytest.raises(TableError, match="name"):
        from_rows(frame, 6.0, target=" " if " " in frame else None, before_asking=lambda guarantee: pytest.fail())
