"""Every call in the table of the papers' algorithms runs and gives what it promises."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("torch")
pytest.importorskip("mpyc")

from privet.cli import app

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "algorithms.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and line.count("`") >= 2
]
PAPERS = {"DP-LSSGD", "Dissertation", "Iteration", "Efficient ERM", "DP-Fed-LS", "all"}


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """Return the names that the page defines. Calls run where it wrote its tables."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("algorithms"))
        defined = {"__name__": "document"}
        (block,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.S | re.M)
        exec(compile(block, "docs/algorithms.md", "exec"), defined)
        yield defined


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[1]}: {row[0]}")
def test_the_call_runs(row, names):
    (call,) = re.findall(r"^`(.*)`$", row[-1])
    if call.startswith("privet "):
        done = CliRunner().invoke(app, shlex.split(call)[1:])
        assert done.exit_code == 0, done.output
        return
    result = eval(compile(call, "docs/algorithms.md", "eval"), names)
    for each in result if isinstance(result, list) else [result]:
        assert each is not None
        guarantee = getattr(each, "guarantee_", None) or getattr(each, "guarantee", None)
        if guarantee is not None and not callable(guarantee):
            assert (guarantee.epsilon <= 2.0 + 1e-9) == ("not private" not in row[0])


def test_the_table_names_a_place_in_a_paper_for_every_call():
    assert len(ROWS) > 70
    for row in ROWS:
        assert len(row) == 3, row
        assert row[1].split(",")[0] in PAPERS, row
    calls = [row[2] for row in ROWS]
    assert len(calls) == len(set(calls))
