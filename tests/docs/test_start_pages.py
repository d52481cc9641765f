"""The start pages can be followed: their files, commands and printed results are those of the program."""

import math
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from privet.cli import app

DOCS = Path(__file__).resolve().parents[2] / "docs"
IS_LONG = os.environ.get("PRIVET_DOCS") == "long"


def blocks(page, language):
    """Return the blocks of a language, where "" stands for blocks that name none."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.findall(r"^```(\w*)\n(.*?)^```", text, re.S | re.M)
    return [code for named, code in found if named == language]


def commands(page):
    """Return the privet commands of a page, without the name of the program."""
    text = "".join(blocks(page, "sh")).replace("\\\n", "")
    lines = [line for line in text.splitlines() if line.startswith("privet ")]
    return [shlex.split(line)[1:] for line in lines]


def prepare(page):
    """Write the files that a page begins with into the current folder: its tables and its settings."""
    exec(compile(blocks(page, "python")[0], page, "exec"), {"__name__": "document"})
    (settings,) = blocks(page, "toml")
    name = re.search(r"[Ss]ave\s+(?:it|this)\s+as `(\w+\.toml)`", (DOCS / page).read_text(encoding="utf-8"))[1]
    Path(name).write_text(settings, encoding="utf-8")


def test_an_analyst_gets_from_the_file_to_the_guarantee_that_the_page_shows(tmp_path, monkeypatch):
    pytest.importorskip("statsmodels")
    monkeypatch.chdir(tmp_path)
    prepare("start/analyst.md")
    printed = {}
    for command in commands("start/analyst.md"):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
        printed[command[0]] = done.output
    assert list(printed) == ["check", "fit", "predict", "ledger", "show", "report"]
    (promise,), (answer,) = blocks("start/analyst.md", ""), blocks("start/analyst.md", "text")
    assert promise in printed["fit"]
    assert " ".join(answer.split()) in " ".join(printed["show"].split())


def test_the_best_guesses_that_the_analyst_quotes_are_not_too_small():
    rows = re.findall(r"^\| ([\d.]+) \| ([\d.]+) % \|$", (DOCS / "start" / "analyst.md").read_text("utf-8"), re.M)
    assert len(rows) == 5
    for epsilon, percent in rows:
        most = 100 * (math.exp(float(epsilon)) + 1e-6) / (1 + math.exp(float(epsilon)))
        assert most <= float(percent) <= most + 0.1


@pytest.mark.parametrize(("page", "place"), [("guarantees.md", 0), ("index.md", 0)])
def test_a_guarantee_that_a_page_shows_is_what_its_first_example_prints(page, place, capsys):
    exec(compile(blocks(page, "python")[0], page, "exec"), {})
    assert capsys.readouterr().out.endswith(blocks(page, "")[place])


@pytest.mark.skipif(not IS_LONG, reason="starts four processes; make docs-execute runs it")
def test_owners_train_together_as_the_page_says(tmp_path, monkeypatch):
    pytest.importorskip("mpyc")
    monkeypatch.chdir(tmp_path)
    prepare("start/owners.md")
    for command in commands("start/owners.md"):
        done = subprocess.run([sys.executable, "-m", "privet", *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert Path("predictions.csv").read_text(encoding="utf-8").count("\n") == 1501
