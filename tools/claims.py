"""The index of the papers' tables and figures in docs/results, and one page per paper, from experiments/claims.toml.

    python tools/claims.py           # rewrites the index in docs/results/README.md and the pages of the papers
    python tools/claims.py --check   # ends with exit code 1 if one of them or a quoted figure is out of date

An entry names its figures, and its evidence refers to them as ``{name}``. A figure is a path into a result file, the
number of digits, and optionally a way to summarise several values: see :func:`figure`. The numbers on the page are thus
those of the files. ``[[quoted]]`` entries hold sentences of other pages to the same rule.
"""

import json
import re
import statistics
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "results"
PAGE = RESULTS / "README.md"
SOURCE = ROOT / "experiments" / "claims.toml"
VERDICTS = {
    "beaten": "privet is better than the paper's own figures, in a comparison that the entry describes",
    "reproduced": "the paper's statement holds here",
    "mixed": "it holds in part, or only a part of it was tested",
    "contradicted": "the opposite was found, in the setting that the entry describes",
    "not run yet": "nothing was run that tests it",
    "not possible here": "it cannot be run, for the reason given",
}
SUMMARIES: dict[str, Callable[[list[float]], float]] = {
    "max": max,
    "min": min,
    "mean": statistics.fmean,
    "count": len,
}
Entry = dict[str, Any]


def load() -> Entry:
    """Return the data of the index."""
    return tomllib.loads(SOURCE.read_text(encoding="utf-8"))


# -------------------------------------------------------------------------------------------------------------- figures


def figure(path: str, digits: int, how: str = "one", other: str = "") -> str:
    """Return a number of a result file as text.

    Parameters
    ----------
    path
        A file of docs/results and the way into it, separated by slashes: ``file.json/rows/epsilon=1&method=DP-GD/0``.
        ``key=value`` selects the element of a list, ``key^=text`` compares beginnings, and ``&`` joins conditions.
        After ``*``, a selection takes all elements that match.
    digits
        The digits after the decimal point.
    how
        ``"one"`` value; its ``"percent"``; the ``"max"``, ``"min"``, ``"mean"`` or ``"count"`` of several; or
        ``"below"``, the number of values that are smaller than those of the path ``other``, one by one.
    """
    name, *steps = path.split("/")
    values = [number(value) if how != "count" else 0.0 for value in walk([read(name)], steps, path)]
    if how == "below":
        name, *steps = other.split("/")
        others = [number(value) for value in walk([read(name)], steps, other)]
        return str(sum(a < b for a, b in zip(values, others, strict=True)))
    if how in SUMMARIES:
        return f"{SUMMARIES[how](values):,.{digits}f}"
    if len(values) != 1:
        raise ValueError(f"{path} leads to {len(values)} values. Select one, or say how to summarise them.")
    return f"{values[0] * (100 if how == 'percent' else 1):,.{digits}f}"


@cache
def read(name: str) -> Any:
    """Return the content of a result file."""
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def walk(found: list[Any], steps: list[str], path: str) -> list[Any]:
    """Follow the steps of a path from each of the values found so far."""
    for step in steps:
        found = [value for each in found for value in chosen(each, step)]
        if not found:
            raise KeyError(f"{path}: nothing matches {step!r}.")
    return found


def chosen(value: Any, step: str) -> Iterable[Any]:
    """Return the parts of a value that one step of a path selects."""
    if isinstance(value, dict):
        return [value[step]] if step in value else []
    if step.isdigit():
        return [value[int(step)]]
    conditions = [condition for condition in step.removeprefix("*").split("&") if condition]
    matches = [each for each in value if all(holds(each, condition) for condition in conditions)]
    if not step.startswith("*") and len(matches) > 1:
        raise ValueError(f"{step!r} matches {len(matches)} elements. Begin it with * to take them all.")
    return matches


def holds(element: Any, condition: str) -> bool:
    """Say whether an element of a list fulfils ``key=value`` or ``key^=beginning``."""
    key, _, wanted = condition.partition("=")
    name = key.removesuffix("^")
    value = element[int(name)] if isinstance(element, list) else element.get(name)
    if name != key:
        return (value if isinstance(value, str) else json.dumps(value)).startswith(wanted)
    try:
        return bool(value == json.loads(wanted))
    except json.JSONDecodeError:
        return bool(value == wanted)


def number(value: Any) -> float:
    """Return a number, or the first one in a text."""
    if isinstance(value, str):
        value = re.findall(r"-?\d+(?:\.\d+)?", value)[0]
    return float(value)


def filled(text: str, figures: dict[str, list[Any]]) -> str:
    """Return a text with its figures inserted. A figure that the text does not use is an error."""
    unused = set(figures) - set(re.findall(r"{(\w+)}", text))
    if unused:
        raise ValueError(f"{text!r} does not use {sorted(unused)}.")
    return text.format(**{name: figure(*spec) for name, spec in figures.items()})


# ---------------------------------------------------------------------------------------------------------------- index


def with_originals(claims: list[Entry]) -> list[Entry]:
    """Return the entries, where those that repeat another (``same_as``) have its verdict."""
    known = {(each["paper"], each["item"]): each for each in claims}
    complete = []
    for each in claims:
        copied: Entry = {}
        if "same_as" in each:
            paper, item = each["same_as"]
            copied = {"verdict": known[paper, item]["verdict"], "evidence": f"The same as {item} of {paper}."}
        complete.append({"configuration": "", **each, **copied})
    return complete


def index() -> str:
    """Return the index: what the verdicts mean and how many there are, then one table per paper."""
    data = load()
    claims = with_originals(data["claim"])
    counts = Counter(each["verdict"] for each in claims)
    lines = [f"{len(claims)} entries. Each has one of these verdicts:", "", "| verdict | number | meaning |"]
    lines += ["|---|---|---|", *(f"| {name} | {counts[name]} | {text} |" for name, text in VERDICTS.items())]
    for paper in data["paper"]:
        own = [each for each in claims if each["paper"] == paper["name"]]
        lines += ["", f"### {paper['name']}", "", f"*{paper['title']}*: {summary(own)}."]
        lines += [f"What the paper says, what was found, tables and pictures: [{paper['page']}]({paper['page']})."]
        lines += ["", "| what | configuration here | verdict | files |", "|---|---|---|---|"]
        lines += [row(each, paper["page"]) for each in own]
    return "\n".join(lines)


def summary(claims: list[Entry]) -> str:
    """Return how many entries have each verdict."""
    total = Counter(each["verdict"] for each in claims)
    return ", ".join(f"{total[name]} {name}" for name in VERDICTS if total[name])


def row(claim: Entry, page: str) -> str:
    """Return the line of one entry."""
    name = f"**[{claim['item']}]({page}#{anchor(claim)}).** {claim['title']}"
    figures = {key: spec for key, spec in claim.get("figures", {}).items() if f"{{{key}}}" in claim["configuration"]}
    return filled(f"| {name} | {claim['configuration']} | {claim['verdict']} | {links(claim)} |", figures)


def links(claim: Entry) -> str:
    """Return the script and the files of an entry."""
    script = [f"`{claim['script']}`"] if claim.get("script") else []
    return ", ".join([*script, *(f"[{name}]({name})" for name in claim.get("files", ()))])


def anchor(claim: Entry) -> str:
    """Return the anchor of an entry's heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading(claim).lower()).replace(" ", "-")


def heading(claim: Entry) -> str:
    """Return the heading of an entry on the page of its paper."""
    return f"{claim['item']}: {claim['title'].removesuffix('.')}"


# ---------------------------------------------------------------------------------------------------------------- pages


def page_of(paper: Entry) -> str:
    """Return the page of a paper: a short verdict, then a section for each of its tables and figures."""
    claims = with_originals(load()["claim"])
    own = [each for each in claims if each["paper"] == paper["name"]]
    parts = [
        f"# {paper['name']}: what was found",
        f"*{paper['title']}*",
        filled(paper["verdict"], paper.get("figures", {})),
        f"{len(own)} entries: {summary(own)}. "
        "The verdicts are explained in the [index](README.md#tables-of-the-papers). "
        "Where the noise of a paper does not give its guarantee, see [what is wrong in the papers](../errata.md). "
        "This page is written by `tools/claims.py` from the result files.",
    ]
    parts += [paper["note"]] if "note" in paper else []
    parts.append(
        markdown(["entry", "verdict"], [[f"[{heading(each)}](#{anchor(each)})", each["verdict"]] for each in own])
    )
    shown: set[str] = set()
    for claim in own:
        parts += section(claim, shown)
    return "\n\n".join(parts) + "\n"


def section(claim: Entry, shown: set[str]) -> list[str]:
    """Return the section of one entry. Each picture is shown once per page."""
    told = {"The paper says": claim.get("says"), "Run here": claim["configuration"]}
    lines = [f"- {name}: {text.removesuffix('.')}." for name, text in told.items() if text]
    found = " ".join(claim[key] for key in ("reason", "evidence") if key in claim)
    lines.append(f"- Verdict: **{claim['verdict']}**. {found}")
    parts = [f"## {heading(claim)}", filled("\n".join(lines), claim.get("figures", {}))]
    for spec in claim.get("tables", ()):
        parts += table(spec)
    for name in claim.get("files", ()):
        if name.endswith(".png") and name not in shown:
            shown.add(name)
            parts.append(f"![{heading(claim)}]({name})")
    return parts + ([f"From {links(claim)}."] if links(claim) else [])


def table(spec: Entry) -> list[str]:
    """Return a table: one that a result file holds as text, or columns of some of its rows.

    A column is a heading, a path within the row, and, for numbers, the digits and optionally ``"percent"``. A pair of
    mean and standard deviation is shown as both.
    """
    name, *steps = spec["rows"].split("/")
    rows = walk([read(name)], steps, spec["rows"])
    if "columns" not in spec:
        return [text for each in rows for text in (f"**{each['title']}**", markdown(each["columns"], each["rows"]))]
    lines = [[cell(each, *column[1:]) for column in spec["columns"]] for each in rows]
    return [f"**{spec['title']}**", markdown([column[0] for column in spec["columns"]], lines)]


def cell(row: Any, path: str, digits: int | None = None, how: str = "one") -> str:
    """Return one cell of a table, empty if the row has no such value."""
    value = row
    for step in path.split("/"):
        value = value[int(step)] if isinstance(value, list) else (value or {}).get(step)
    if value is None or digits is None:
        return "" if value is None else str(value)
    if isinstance(value, dict):
        value = [value["mean"], value["std"]]
    factor = 100 if how == "percent" else 1
    if isinstance(value, list):
        return " ± ".join(f"{each * factor:,.{digits}f}" for each in value)
    return value if isinstance(value, str) else f"{value * factor:,.{digits}f}"


def markdown(columns: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [columns, ["---"] * len(columns), *rows])


def written() -> dict[Path, str]:
    """Return the generated files and what they should hold."""
    return {
        PAGE: rendered(PAGE.read_text(encoding="utf-8")),
        **{RESULTS / paper["page"]: page_of(paper) for paper in load()["paper"]},
    }


def rendered(page: str) -> str:
    """Return the page with the index replaced."""
    pattern = re.compile(r"(<!-- claims: [^\n]*-->\n).*?(<!-- end of claims -->)", re.S)
    if not pattern.search(page):
        raise SystemExit(f"{PAGE.name} has no part between <!-- claims: ... --> and <!-- end of claims -->.")
    return pattern.sub(lambda match: f"{match[1]}{index()}\n{match[2]}", page)


def misquoted() -> list[str]:
    """Return the sentences, with the figures of the files, that their pages do not have."""
    missing = []
    for each in load().get("quoted", []):
        text = filled(each["text"], each["figures"])
        if text not in " ".join((ROOT / each["page"]).read_text(encoding="utf-8").split()):
            missing.append(f"{each['page']}: {text}")
    return missing


def main() -> None:
    """Rewrite the index and the pages, or check them and the quoted figures."""
    for path, fresh in written().items():
        if "--check" not in sys.argv[1:]:
            path.write_text(fresh, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != fresh:
            sys.exit(f"{path.relative_to(ROOT)} is out of date. Run: python tools/claims.py")
    if missing := misquoted():
        sys.exit("These pages do not say what the result files say:\n" + "\n".join(missing))


if __name__ == "__main__":
    main()
