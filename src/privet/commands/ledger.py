"""``privet ledger``: show, export and limit what has been spent on a data set."""

import csv
import io
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from privet.files import write_json, written_whole
from privet.privacy import Budget, Ledger
from privet.privacy.ledger.timeline import Moment, moments

MOST_LINES = 50
"""How many lines of a time line are shown, unless all are asked for."""


def show(
    path: Path, *, delta: float | None = None, every: bool = False, verbose: bool = False, console: Console
) -> dict[str, Any]:
    """Print the time line of a ledger and the total, and return them as a JSON-ready dictionary.

    The epsilon of every entry is recomputed from its event. An entry that states less is an error.
    """
    ledger, found = _moments(path, delta, math.inf if every else MOST_LINES)
    shown = found if every else found[-MOST_LINES:]
    if hidden := len(found) - len(shown):
        console.print(f"The first {hidden} lines are not shown. Show them with --all.", highlight=False)
    console.print(_table(path, shown))
    total = None
    if any(moment.entry is not None for moment in found):
        if found[-1].delta >= 1:
            raise ValueError("The deltas of the entries add up to 1 or more. Give the delta of the total with --delta.")
        total = ledger.total(found[-1].delta)
    if total is None:
        console.print("Nothing has been spent.")
    else:
        console.print(total.statement(verbose), highlight=False, markup=False, soft_wrap=True)
    limit = next((moment.change.limit for moment in reversed(found) if moment.change is not None), None)
    if limit is None:
        console.print("There is no limit. Set one with --set-limit.", highlight=False)
    else:
        stated = f"Limit: epsilon = {limit.epsilon:g} at delta = {limit.delta:g}."
        console.print(f"{stated} Of this, {_rounded(found[-1].left, math.floor)} is left.", highlight=False)
    return {
        "ledger": str(path),
        "limit": None if limit is None else {"epsilon": limit.epsilon, "delta": limit.delta},
        "total": None if total is None else total.to_dict(),
        "lines": [_plain(moment) for moment in shown],
    }


def set_limit(path: Path, limit: Budget, reason: str, console: Console) -> None:
    """Set the limit of a ledger, and say what it was."""
    ledger = Ledger(path)
    before = ledger.limit
    ledger.set_limit(limit, reason)
    was = "There was none before." if before is None else f"It was {before.epsilon:g} at delta = {before.delta:g}."
    console.print(f"The limit is now epsilon = {limit.epsilon:g} at delta = {limit.delta:g}. {was}", highlight=False)


def drop_cut_line(path: Path, console: Console) -> None:
    """Remove the last line of a ledger in text form if it is cut off."""
    dropped = Ledger(path).drop_cut_line()
    found = "No line is cut off." if dropped is None else f"Removed a line that was cut off: {dropped!r}"
    console.print(found, highlight=False, markup=False, soft_wrap=True)


def export(path: Path, output: Path, *, delta: float | None = None, console: Console) -> None:
    """Write the time line of a ledger to a JSON or CSV file. JSON also holds the guarantees in full."""
    if output.exists() and path.exists() and output.samefile(path):
        raise ValueError(f"{output} is the ledger itself. Give the name of another file.")
    _, found = _moments(path, delta, math.inf)
    lines = [_plain(moment) for moment in found]
    if output.suffix == ".json":
        write_json(output, {"ledger": str(path), "lines": lines})
    else:
        with written_whole(output) as file:
            file.write(_to_csv(lines).encode())
    console.print(f"{len(lines)} lines written to {output}.", highlight=False, markup=False, soft_wrap=True)


def _moments(path: Path, delta: float | None, last: float) -> tuple[Ledger, list[Moment]]:
    ledger = Ledger(path)
    return ledger, moments(ledger.timeline(), delta, last)


def _table(path: Path, shown: Sequence[Moment]) -> Table:
    table = Table(title=str(path), title_justify="left")
    table.add_column("time (UTC)", no_wrap=True)
    table.add_column("label", overflow="fold")
    for name in ("epsilon", "delta", "total", "left"):
        table.add_column(name, justify="right", no_wrap=True)
    for moment in shown:
        entry, limit = moment.entry, moment.change
        if entry is not None:
            given = entry.guarantee
            cells = [entry.label, _rounded(given.epsilon, math.ceil), f"{given.delta:.3g}"]
        else:
            assert limit is not None
            words = "limit set" + (f": {limit.label}" if limit.label else "")
            cells = [words, f"{limit.limit.epsilon:.4f}", f"{limit.limit.delta:.3g}"]
        cells += [_rounded(moment.total, math.ceil), _rounded(moment.left, math.floor)]
        table.add_row(_minute(moment.time), *cells)
    for one, other in pairwise(shown):
        if other.time < one.time:
            table.caption = "Lines are in the order in which they were booked. The clock was set back in between."
    return table


def _minute(time: str) -> str:
    """Return a time of ISO 8601 in universal time up to the minute, so that the table fits into 80 columns."""
    return time[:16].replace("T", " ")


def _rounded(value: float | None, round_off: Callable[[float], int]) -> str:
    """Return a number with four digits, rounded to the safe side, after an allowance for its own rounding errors."""
    if value is None or math.isinf(value):
        return "" if value is None else "unlimited"
    return f"{round_off(round(value * 1e4, 6)) / 1e4:.4f}"


def _plain(moment: Moment) -> dict[str, Any]:
    """Return a line as JSON can hold it. An infinite total becomes None."""
    total = None if moment.total is None or math.isinf(moment.total) else moment.total
    common = {"total_epsilon": total, "total_delta": moment.delta, "left": moment.left}
    if moment.entry is not None:
        entry = moment.entry
        fields = entry.guarantee.to_dict()
        return {
            "kind": "entry",
            "id": entry.id,
            "time": entry.time,
            "label": entry.label,
            "epsilon": fields["epsilon"],
            "delta": fields["delta"],
            "adjacency": fields["adjacency"],
            "unit": fields["unit"],
            **common,
            "run": entry.run,
            "guarantee": fields,
        }
    change = moment.change
    assert change is not None
    return {
        "kind": "limit",
        "id": change.id,
        "time": change.time,
        "label": change.label,
        "epsilon": change.limit.epsilon,
        "delta": change.limit.delta,
        **common,
    }


_CSV = ("time", "kind", "label", "epsilon", "delta", "adjacency", "unit", "total_epsilon", "total_delta", "left", "id")


def _to_csv(lines: Sequence[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, _CSV, restval="", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()
