"""Other libraries under the audit by replay: what moves, and what is left behind, when one record changes.

python experiments/replay_peers.py opacus        (in an environment with Opacus 1.6.0)
python experiments/replay_peers.py diffprivlib   (in an environment with diffprivlib 0.6.6)

A small adapter hands every random sample and every value that gets noise to :func:`privet.audit.replay`, with the
sensitivity that the library itself declares. ``replay_opacus.py`` and ``replay_diffprivlib.py`` hold the adapters and
the scenarios. Scenarios are replayed on a table of which one record is replaced, or on one of which it is removed.
A library chooses which of the two it protects, so a scenario counts as refuted only if none of them is consistent. Each
finding has a sentence that was checked by reading the library's code.
"""

import argparse
import importlib
import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import support
from support import console, print_table

from privet.privacy import Adjacency, Guarantee
from privet.privacy.events import PureRelease
from privet.replay import Replayed, replay

LIBRARIES = ("opacus", "diffprivlib")
REPLACED, REMOVED = "one record replaced", "one record removed"


@dataclass(frozen=True)
class Scenario:
    """A training with a library, and neighbouring datasets.

    Attributes
    ----------
    name : str
        What is trained.
    train : callable
        ``train(data)`` returns what is released.
    data : dataset
    neighbours : dict
        Neighbouring datasets by the kind of change.
    finding : str
        If the replay refutes the claim: what happens, in a sentence.
    epsilon : float or None
        The claim of pure differential privacy, if the total cost is compared.
    """

    name: str
    train: Callable[[Any], Any]
    data: Any
    neighbours: dict[str, Any] = field(default_factory=dict)
    finding: str = ""
    epsilon: float | None = None


def row_of(scenario: Scenario, library: str) -> dict[str, Any]:
    """Return the outcomes of a scenario's replays."""
    outcomes: dict[str, Any] = {}
    for kind, neighbour in scenario.neighbours.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found = replay(scenario.train, scenario.data, neighbour, guarantee=claim(scenario.epsilon, kind))
            except ValueError as error:
                if "refuses the data" not in str(error):
                    raise
                outcomes[kind] = {"is_violation": False, "is_refused": True, "problems": [str(error)]}
                continue
        outcomes[kind] = summary(found)
    is_refuted = all(outcome["is_violation"] for outcome in outcomes.values())
    return {
        "library": library,
        "scenario": scenario.name,
        "outcomes": outcomes,
        "is_refuted": is_refuted,
        "finding": scenario.finding if is_refuted else "",
    }


def claim(epsilon: float | None, kind: str) -> Guarantee | None:
    """Return the claim about a kind of neighbour."""
    if epsilon is None:
        return None
    adjacency = Adjacency.REPLACE_ONE if kind == REPLACED else Adjacency.ADD_OR_REMOVE
    return Guarantee.of(PureRelease(epsilon), adjacency, 0.0, released="a fit of another library")


def summary(found: Replayed) -> dict[str, Any]:
    """Return what a replay found, with the first three problems."""
    return {
        "is_violation": bool(found.is_violation),
        "is_refused": False,
        "releases": int(found.releases),
        "moved": int(found.moved),
        "problems": list(found.problems[:3]),
        "further_problems": max(len(found.problems) - 3, 0),
    }


def verdict(row: dict[str, Any], kind: str) -> str:
    """Return the cell of a table."""
    outcome = row["outcomes"].get(kind)
    if outcome is None:
        return "not replayed"
    if outcome["is_refused"]:
        return "refused before training"
    return "refuted" if outcome["is_violation"] else "consistent"


def page(rows: Sequence[dict[str, Any]], versions: dict[str, str]) -> str:
    """Return the page of results."""
    lines = [
        "# Other libraries under the audit by replay",
        "",
        "Written by `python experiments/replay_peers.py` (`make bench`), "
        f"with {' and '.join(f'{name} {versions[name]}' for name in sorted(versions))}.",
        "",
        "A scenario is trained on a small table, and replayed on a neighbouring one with the same random samples and",
        "the same released values ([audit](../audit.md)). The claim is the sensitivity that the library declares where",
        "it adds noise. A library chooses whether its neighbours replace or remove a record. A scenario counts as",
        "refuted only if it is refuted under each kind of neighbour that was replayed. Every finding was checked by",
        "reading the library's code. Replays do not test the distributions of noise and samples. The quantiles of",
        "diffprivlib are not covered: they choose an interval between records instead of adding noise to a value.",
        "",
        f"| library | scenario | {REPLACED} | {REMOVED} | finding |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        cells = row["library"], row["scenario"], verdict(row, REPLACED), verdict(row, REMOVED), row["finding"]
        lines.append("| " + " | ".join(cells) + " |")
    refuted = sum(row["is_refuted"] for row in rows)
    lines += ["", f"{refuted} of {len(rows)} scenarios are refuted. The first problems of each replay are in", NOTE, ""]
    return "\n".join(lines)


NOTE = "[replay_peers.json](replay_peers.json)."


def write(library: str, rows: Sequence[dict[str, Any]]) -> None:
    """Write the rows of one library, and keep those of the others."""
    target = support.RESULTS / "replay_peers.json"
    old = json.loads(target.read_text()) if target.exists() else {"versions": {}, "rows": []}
    versions = {**old["versions"], library: version(library)}
    others = [row for row in old["rows"] if row["library"] != library]
    every = sorted([*others, *rows], key=lambda row: LIBRARIES.index(row["library"]))
    support.write_results("replay_peers", {"versions": versions, "rows": every})
    (support.RESULTS / "replay_peers.md").write_text(page(every, versions))


def main(arguments: Sequence[str] | None = None) -> None:
    """Replay all scenarios of one library."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("--only", default="", help="replay the scenarios whose names contain this, and write nothing")
    options = parser.parse_args(arguments)
    scenarios = importlib.import_module(f"replay_{options.library}").scenarios()
    rows = []
    for scenario in scenarios:
        if options.only in scenario.name:
            rows.append(row_of(scenario, options.library))
            if options.only:
                console.print(json.dumps(rows[-1], indent=1))
    cells = [[row["scenario"], verdict(row, REPLACED), verdict(row, REMOVED)] for row in rows]
    print_table(f"{options.library} {version(options.library)}", ["scenario", REPLACED, REMOVED], cells)
    unexplained = [row["scenario"] for row in rows if row["is_refuted"] and not row["finding"]]
    if unexplained:
        console.print(f"refuted without an explanation: {', '.join(unexplained)}")
    if not options.only:
        write(options.library, rows)


if __name__ == "__main__":
    main()
