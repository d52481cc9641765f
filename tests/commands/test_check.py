"""``privet check`` on real files."""

import json

import pytest
from typer.testing import CliRunner

from privet.cli import app
from privet.commands.check import NOTICE

SCHEMA = """
target = "late"
target_levels = ["no", "yes"]
[numeric]
age = [0, 120]
[categorical]
sex = ["female", "male"]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "220")
    (tmp_path / "s.toml").write_text(SCHEMA)
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(app, ["check", *map(str, arguments)])


def write(folder, *rows, header="age,sex,late"):
    (folder / "t.csv").write_text("\n".join([header, *rows]))


def test_a_sound_table_ends_with_exit_code_0(folder):
    write(folder, "30,male,no", "31,female,yes")
    done = run("t.csv", "--schema", "s.toml")
    assert done.exit_code == 0, done.output
    assert "No problems: privet fit accepts the 2 rows of t.csv." in done.stdout and done.stdout.count(NOTICE) == 1


def test_all_problems_are_in_one_table_and_end_with_exit_code_1(folder):
    write(folder, "abc,male,no", "131,femal,yes", ",Male,maybe", header="age,sex,late")
    done = run("t.csv", "--schema", "s.toml")
    assert done.exit_code == 1 and done.stdout.count(NOTICE) == 1 and done.stderr == ""
    for text in ("'abc'", "'femal'", "'Male'", "'maybe'", "clipped: above the bound 120", '[missing]: age = "level"'):
        assert text in done.stdout, done.stdout
    assert "4 problems" in done.stdout and "131" not in done.stdout


def test_problems_of_the_schema_and_of_the_table_are_found_together(folder):
    (folder / "s.toml").write_text(SCHEMA + "site = ['A']\n[numric]\n")
    write(folder, "abc,male,no", "31,female,yes")
    done = run("t.csv", "--schema", "s.toml", "--json", "-")
    found = [(each["column"], each["what"], each["remedy"]) for each in json.loads(done.stdout)["findings"]]
    assert done.exit_code == 1 and len(found) == 3
    assert found[0][2] == "Did you mean 'numeric'?"
    assert found[1][:2] == ("site", "Column 'site' needs at least two levels, not 1")
    assert found[2][:2] == ("age", "not a number")


@pytest.mark.parametrize(
    "arguments",
    [
        ("none.csv", "--schema", "s.toml"),
        ("t.csv", "--schema", "none.toml"),
        ("t.csv", "--schema", "s.toml", "--bounds", "age=5"),
        ("t.csv", "--schema", "s.toml", "--decimal", "x"),
    ],
)
def test_bad_arguments_are_errors_and_no_findings(folder, arguments):
    write(folder, "30,male,no", "31,female,yes")
    done = run(*arguments)
    assert isinstance(done.exception, ValueError) and NOTICE not in done.output  # main() turns it into exit code 2


def test_options_describe_the_table_like_those_of_fit(folder):
    write(folder, '"30,5";;no;7', "31;male;yes;7", header="age;sex;late;id")
    options = ("--bounds", "age=0:120", "--levels", "sex=female,male", "--target", "late", "--id", "id")
    assert run("t.csv", *options).exit_code == 1
    done = run("t.csv", *options, "--missing", "sex=level", "--decimal", ",", "--sep", "semicolon")
    assert done.exit_code == 0, done.output
    assert "note: IDs that occur before" in done.stdout


def test_json_holds_every_finding_and_says_that_they_are_not_private(folder):
    write(folder, "abc,male,no", "131,female,yes")
    printed = run("t.csv", "--schema", "s.toml", "--json", "-")
    found = json.loads(printed.stdout)
    assert printed.exit_code == 1 and (found["is_private"], found["is_accepted"], found["rows"]) == (False, False, 2)
    kinds = [(each["column"], each["severity"], each["n_cells"], each["rows"]) for each in found["findings"]]
    assert kinds == [("age", "problem", 1, [1]), ("age", "clipped", 1, [])]
    run("t.csv", "--schema", "s.toml", "--json", "found.json")
    assert json.loads((folder / "found.json").read_text()) == found


def test_cells_and_names_are_shown_as_they_are_and_never_control_the_terminal(folder):
    write(folder, '"[red]\x1b[31m",male,no,1', "1,female,yes,1", header="age,sex,late,[bold]x\x1b[2J")
    done = run("t.csv", "--schema", "s.toml")
    assert "[red]" in done.stdout and "[bold]x" in done.stdout and "\x1b" not in done.stdout


def test_findings_are_paragraphs_in_a_narrow_terminal_and_a_table_in_a_wide_one(tmp_path):
    cells = "".join(f"{cell},{k % 2}\n" for k, cell in enumerate(["1", "2", "abc [kg]", "", "4"]))
    (tmp_path / "t.csv").write_text("a column with a long name,y\n" + cells)
    described = ("--target", "y", "--levels", "y=0,1", "--bounds", "a column with a long name=0:3")
    narrow, wide = (
        CliRunner(env={"COLUMNS": columns}).invoke(app, ["check", str(tmp_path / "t.csv"), *described]).stdout
        for columns in ("80", "160")
    )
    listed = narrow[: narrow.index("Rows are counted")]
    assert max(map(len, listed.splitlines())) <= 80 and "─" not in narrow and "─" in wide
    assert "a column with a long name: not a number (1 cell)\n  rows      3\n  examples  'abc [kg]'\n" in narrow
    assert "a column with a long name: clipped: above the bound 3 (1 cell)" in narrow
    assert "'abc [kg]'" in wide
