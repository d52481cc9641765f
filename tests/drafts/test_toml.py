"""Drafts as files: whatever the names and comments are, the file reads back as the schema of the draft."""

import datetime
import tomllib

import pytest

from privet.drafts import Draft, DraftColumn, to_toml
from privet.tables import Categorical, Date, Numeric, NumericTarget, TableError, TableSchema, Target

ODD = 'a "b"\\ \n# [c] = \x7f\x00 é 😀'


def columns():
    return (
        DraftColumn("sex", Categorical("sex", ("female", ODD)), comments=("two levels", "a second comment")),
        DraftColumn("age", Numeric("age", -0.5, 1.5e300, missing=0.25), comments=(ODD,)),
        DraftColumn("since", Date("since", "2019-01-01", "2024-12-31", missing="2020-05-01")),
        DraftColumn(ODD.strip(), Numeric(ODD.strip(), 0, 1, missing="level")),
        DraftColumn("born", Date("born", "1900-01-01", "2024-12-31", format="%d/%m/%Y")),
        DraftColumn("id", is_id=True, comments=("a number\x85# of a patient\u2028x = 1",)),
        DraftColumn("note", comments=("free text",)),
        DraftColumn("other"),
    )


def read(text, tmp_path):
    (tmp_path / "s.toml").write_bytes(text.encode())
    return TableSchema.from_toml(tmp_path / "s.toml")


@pytest.mark.parametrize(
    "target",
    [None, Target("y", ("no", ODD)), Target("y"), NumericTarget("y", -3, 1e22)],
    ids=["none", "levels", "class", "number"],
)
def test_the_file_reads_back_as_the_schema_of_the_draft(target, tmp_path):
    last = () if target is None else (DraftColumn("y", target=target, comments=("to be predicted",)),)
    draft = Draft(("made\nby a test",), (*columns(), *last))
    assert read(to_toml(draft), tmp_path) == draft.schema


def test_columns_keep_their_order_within_a_section():
    values = tomllib.loads(to_toml(Draft((), columns())))
    assert list(values["numeric"]) == ["age", ODD.strip()]
    assert list(values["dates"]) == ["since", "born"]
    assert values["dates"]["since"] == [datetime.date(2019, 1, 1), datetime.date(2024, 12, 31)]


def test_every_column_and_comment_is_in_the_file():
    text = to_toml(Draft(("origin",), columns()))
    for part in ("# origin", "# sex: two levels", "# a second comment", "# note: free text", "# other: not described"):
        assert part in text


def test_a_column_that_is_described_twice_is_an_error():
    with pytest.raises(TableError, match="'age' occurs more than once"):
        Draft((), (DraftColumn("age"), DraftColumn("age")))


def test_a_named_target_takes_over_the_levels_or_bounds_of_its_column():
    draft = Draft((), columns()).with_roles("sex", ["note"])
    assert draft.schema.target == Target("sex", ("female", ODD))
    assert draft.schema.ids == ("id", "note")
    assert Draft((), columns()).with_roles("age", ()).schema.target == NumericTarget("age", -0.5, 1.5e300)
    with pytest.raises(TableError, match="only numbers and categories can be predicted"):
        Draft((), columns()).with_roles("born", ())
    with pytest.raises(TableError, match=r"no column 'agee'"):
        Draft((), columns()).with_roles("agee", ())
