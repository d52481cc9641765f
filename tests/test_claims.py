"""The index of the papers' tables and figures is complete, up to date, and takes its numbers from the result files."""

import importlib.util
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def loaded():
    """Return the module that writes the index."""
    spec = importlib.util.spec_from_file_location("claims", ROOT / "tools" / "claims.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TOOL = loaded()
DATA = TOOL.load()
CLAIMS = DATA["claim"]
# Numbers that state a setting and not a result.
SETTING = r"\b(?:epsilon|delta|z|rate|sigma|lambda|at|Table|Figure)(?: of| =)? [\d.]+(?:(?:,| and| or| to) [\d.]+)*"


def named(claim):
    return f"{claim['paper']}: {claim['item']}"


@pytest.mark.parametrize("name", ["README.md", *(paper["page"] for paper in DATA["paper"])])
def test_the_index_and_the_pages_of_the_papers_are_up_to_date(name):
    path = TOOL.RESULTS / name
    assert TOOL.written()[path] == path.read_text(encoding="utf-8"), "Run: python tools/claims.py"


def test_figures_that_pages_quote_are_those_of_the_result_files():
    assert not TOOL.misquoted()


def test_the_table_of_the_demo_is_the_same_on_both_pages():
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    start = lines.index("| epsilon | noise in every step | noise on the result |")
    rows = [line for line in lines[start : start + 6] if line.startswith("|")]
    assert len(rows) == 6
    assert set(rows) <= set(TOOL.PAGE.read_text(encoding="utf-8").splitlines())


def test_no_item_occurs_twice():
    counts = Counter(named(claim) for claim in CLAIMS)
    assert not [name for name, count in counts.items() if count > 1]


@pytest.mark.parametrize("kind", ["Table", "Figure"])
@pytest.mark.parametrize("paper", DATA["paper"], ids=lambda paper: paper["name"])
def test_numbers_of_a_paper_have_no_gap(paper, kind):
    """Numbers start again in each chapter, but not in appendices, which have letters."""

    def parts(label):
        chapter, _, number = label.rpartition(".")
        return (chapter if chapter.isdigit() else "", int(number))

    found = defaultdict(list)
    for claim in CLAIMS:
        word, _, label = claim["item"].partition(" ")
        if (claim["paper"], word) == (paper["name"], kind):
            chapter, number = parts(label)
            found[chapter].append(number)
    expected = {chapter: list(range(1, number + 1)) for chapter, number in map(parts, paper["last"][kind])}
    assert {chapter: sorted(numbers) for chapter, numbers in found.items()} == expected


@pytest.mark.parametrize("claim", CLAIMS, ids=named)
def test_an_entry_is_well_formed(claim):
    assert claim["paper"] in {paper["name"] for paper in DATA["paper"]}
    assert claim["title"].endswith(".")
    if "same_as" in claim:
        assert claim["same_as"] in [[other["paper"], other["item"]] for other in CLAIMS]
        return
    assert claim["verdict"] in TOOL.VERDICTS
    if claim["verdict"] == "not possible here":
        assert claim["reason"].endswith(".")
        return
    assert claim["evidence"].endswith(".")
    if claim["verdict"] != "not run yet":
        assert claim["script"], "a verdict needs a run"
        assert claim["configuration"]
        assert claim["files"]


@pytest.mark.parametrize("claim", CLAIMS, ids=named)
def test_scripts_and_files_of_an_entry_exist(claim):
    if "script" in claim:
        assert (ROOT / "experiments" / claim["script"]).is_file()
    for name in claim.get("files", ()):
        assert (TOOL.RESULTS / name).is_file(), name
    used = {spec[0].split("/")[0] for spec in claim.get("figures", {}).values()}
    used |= {spec["rows"].split("/")[0] for spec in claim.get("tables", ())}
    assert used <= set(claim.get("files", ()))


@pytest.mark.parametrize("claim", CLAIMS, ids=named)
def test_results_in_the_evidence_come_from_files(claim):
    """Only settings are typed. Whole numbers, such as the number of epochs, may be."""
    rest = re.sub(SETTING, "", claim.get("reason", "") + claim.get("evidence", ""))
    assert not re.findall(r"\d+\.\d+", rest)


def test_every_script_belongs_to_an_entry_or_has_a_reason_why_not():
    scripts = {
        file.name
        for file in (ROOT / "experiments").glob("*.py")
        if '__name__ == "__main__"' in file.read_text(encoding="utf-8")
    }
    used = {claim["script"] for claim in CLAIMS if "script" in claim}
    others = set(DATA["without_a_paper"])
    assert used | others == scripts
    assert not used & others


def test_a_table_shows_columns_of_rows_with_spreads_and_empty_cells(monkeypatch):
    rows = [
        {"method": "A", "error": [0.25, 0.125], "paper": None},
        {"method": "B", "error": {"mean": 0.5, "std": 0.25}, "paper": [0.75, 1.0]},
    ]
    monkeypatch.setattr(
        TOOL, "read", lambda name: {"rows": rows, "tables": [{"title": "T", "columns": ["a"], "rows": [["1"]]}]}
    )
    columns = [["method", "method"], ["error, %", "error", 1, "percent"], ["paper", "paper/0", 2]]
    title, text = TOOL.table({"title": "Errors", "rows": "x.json/rows/*", "columns": columns})
    assert title == "**Errors**"
    assert text.splitlines()[2:] == ["| A | 25.0 ± 12.5 |  |", "| B | 50.0 ± 25.0 | 0.75 |"]
    assert TOOL.table({"rows": "x.json/tables/*"}) == ["**T**", "| a |\n| --- |\n| 1 |"]


def test_a_path_selects_one_value_or_says_how_to_summarise(monkeypatch):
    rows = [
        {"method": "A", "epsilon": 1.0, "error": [0.25, 0.1]},
        {"method": "A", "epsilon": 2.0, "error": [0.5, 0.1]},
        {"method": "B, new", "epsilon": 1.0, "error": [0.5, 0.1]},
        {"method": "B, new", "epsilon": 2.0, "error": [0.125, 0.1]},
    ]
    monkeypatch.setattr(TOOL, "read", lambda name: {"rows": rows, "told": "a gain of -1.5 points"})
    assert TOOL.figure("x.json/rows/method=B, new&epsilon=2.0/error/0", 3) == "0.125"
    assert TOOL.figure("x.json/rows/method=B, new&epsilon=2/error/0", 1, "percent") == "12.5"
    assert TOOL.figure("x.json/rows/*method^=B/error/0", 2, "max") == "0.50"
    assert TOOL.figure("x.json/rows/*epsilon=1", 0, "count") == "2"
    assert TOOL.figure("x.json/rows/*method=A/error/0", 0, "below", "x.json/rows/*method^=B/error/0") == "1"
    assert TOOL.figure("x.json/told", 1) == "-1.5"
    with pytest.raises(KeyError, match="nothing matches"):
        TOOL.figure("x.json/rows/method=C/error/0", 1)
    with pytest.raises(ValueError, match="matches 2 elements"):
        TOOL.figure("x.json/rows/method=A/error/0", 1)
    with pytest.raises(ValueError, match="leads to 2 values"):
        TOOL.figure("x.json/rows/*method=A/error/0", 1)
    with pytest.raises(ValueError, match="does not use"):
        TOOL.filled("no number", {"a": ["x.json/told", 1]})
