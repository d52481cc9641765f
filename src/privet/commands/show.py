"""``privet show``: what a saved model is, what it promises, and what each column adds to its predictions."""

import math
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from privet.commands.check import printable
from privet.commands.json_output import write_result
from privet.commands.model_facts import ColumnFacts, ModelFacts, TargetFacts, model_facts
from privet.linear import Effect, Effects
from privet.privacy import Guarantee
from privet.privacy.guarantees.statement import upwards

MOST_COLUMNS, MOST_EFFECTS, LEAST_EFFECTS, MOST_LEVELS = 30, 30, 3, 6
WIDEST = 100


def run(path: Path, *, verbose: bool = False, json: Path | None = None, console: Console) -> ModelFacts:
    """Print what a file says about its model, and return it."""
    facts = model_facts(path)
    for part in _text(path, facts, verbose, min(console.width, WIDEST)):
        console.print(part, soft_wrap=isinstance(part, str))
    write_result(json, _fields(path, facts))
    return facts


def _text(path: Path, facts: ModelFacts, verbose: bool, width: int) -> Iterator[str | Table]:
    headline, *promise = _statement(facts, verbose, width)
    yield headline
    if facts.guarantee is not None and facts.guarantee.is_private:
        yield from textwrap.wrap(in_persons_words(facts.guarantee), width)
    yield ""
    for name, value in _summary(path, facts):
        yield from _paragraph(name, value, width)
    if promise:
        yield ""
        yield from promise
    if any(column.bounds or column.levels for column in facts.columns):
        yield ""
        yield _columns(facts)
        yield from _left_out(len(facts.columns) - MOST_COLUMNS, "columns")
    room = max(LEAST_EFFECTS, MOST_EFFECTS // max(len(facts.effects), 1))
    for effects in facts.effects:
        yield ""
        yield from textwrap.wrap(_heading(effects), width)
        if any(effect.size > 0 for effect in effects.columns):
            yield _effects(effects, room)
        yield from _weak(effects, room)
    if facts.effects:
        yield ""
        yield from textwrap.wrap(" ".join(_remarks(facts.effects)), width)


def in_persons_words(guarantee: Guarantee) -> str:
    """Return what a guarantee means to one person: how often somebody who guesses about them can be right."""
    mu, percent = upwards(guarantee.mu, 3), upwards(100 * guarantee.best_guess, 3)
    return (
        f'To a person: the best possible answer to "Was this {guarantee.unit} in the data?" is right with a '
        f"probability of at most {percent} %, where tossing a coin is right with 50 %"
        + (f" (Gaussian differential privacy with mu = {mu})." if math.isfinite(guarantee.mu) else ".")
    )


def _statement(facts: ModelFacts, verbose: bool, width: int) -> list[str]:
    """Return the statement of the guarantee in lines of at most this width, the headline first.

    Unless it is ``verbose``, conditions that the code itself enforced are only counted.
    """
    if facts.guarantee is None:
        return ["No privacy cost: nothing was learned from rows, only from public declarations."]
    paragraphs: list[str] = []
    headline, *paragraphs = facts.guarantee.statement(verbose=True).splitlines()  # one line per paragraph
    lines = ["\n".join(textwrap.wrap(headline, width))]
    enforced = 0
    for paragraph in paragraphs:
        label, text = paragraph.split(maxsplit=1)
        if verbose or label != "Enforced:":
            lines += _paragraph(label, text, width)
        else:
            enforced += 1
    if enforced:
        lines += _paragraph(
            "Enforced:",
            f"{enforced} condition{'' if enforced == 1 else 's'} by the code itself, which --verbose lists.",
            width,
        )
    return lines


def _paragraph(label: str, text: str, width: int) -> list[str]:
    """Return a labelled paragraph, with its text in a column of its own."""
    first = f"{label:<10} "
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=" " * len(first)) or [first]


def _summary(path: Path, facts: ModelFacts) -> Iterator[tuple[str, str]]:
    yield "File", f"{path}, of {facts.saved:%Y-%m-%d %H:%M}" + (f", by privet {facts.version}" if facts.version else "")
    yield "Model", facts.kind
    if facts.columns and not any(column.bounds or column.levels for column in facts.columns):
        yield "Columns", f"{len(facts.columns):,}, without declared bounds"
    for target in facts.targets:
        yield "Target", _target(target)
    if facts.method is not None:
        steps = "" if facts.steps is None else ", 1 step" if facts.steps == 1 else f", {facts.steps:,} steps"
        yield "Method", f"{facts.method}{steps}" + (f". {_sentence(facts.reason)}" if facts.reason else "")
    if facts.rows is not None:
        yield "Rows", f"{facts.rows:,}"
    if facts.study is not None:
        yield "Study", facts.study
    yield from facts.details


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:].rstrip(".") + "."


def _target(target: TargetFacts) -> str:
    name = "" if target.name is None else f"{printable(target.name)}: "
    if target.levels:
        return f"{name}{_levels(target.levels, MOST_LEVELS)}"
    return name + ("a number" if target.bounds is None else f"a number from {_bounds(target.bounds)}")


def _levels(levels: tuple[str, ...], most: int) -> str:
    shown = ", ".join(map(printable, levels[:most]))
    return shown if len(levels) <= most else f"{shown} and {len(levels) - most:,} further levels"


def _bounds(bounds: tuple[Any, Any]) -> str:
    return f"{_value(bounds[0])} to {_value(bounds[1])}"


def _value(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _table(*columns: tuple[str, str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    for name, justify in columns:
        table.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    return table


def _columns(facts: ModelFacts) -> Table:
    shown = facts.columns[:MOST_COLUMNS]
    has_rules = any(column.missing for column in shown)
    names = ("column", "kind", "bounds or levels", *(("missing cells",) if has_rules else ()))
    table = _table(*((name, "left") for name in names))
    for column in shown:
        cells = (printable(column.name), column.kind, _declared(column), column.missing or "")
        table.add_row(*map(Text, cells[: len(names)]))  # Text, because names could contain what rich takes for markup.
    return table


def _declared(column: ColumnFacts) -> str:
    return _bounds(column.bounds) if column.bounds else _levels(column.levels, MOST_LEVELS)


def _heading(effects: Effects) -> str:
    """Return what the numbers of a table of effects are."""
    target = "" if effects.target is None else printable(effects.target)
    if effects.label is None:
        return f"Effects on {target or 'the prediction'}, in its units"
    label = f"{target} = {printable(effects.label)}" if target else f"class {printable(effects.label)}"
    if not effects.is_log_odds:
        return f"Effects on the score of {label}, which is predicted if its score is positive"
    return f"Effects on the log-odds of {label}" + ("" if effects.is_binary else ", against the average of all classes")


def _remarks(found: tuple[Effects, ...]) -> Iterator[str]:
    """Yield what a reader must know of all effects."""
    if any(effects.is_log_odds for effects in found):
        yield "A change of the log-odds by +0.69 doubles the odds, and one by -0.69 halves them."
    norm = found[0].largest_norm
    if norm is not None:
        yield f"Effects hold for rows of norm at most feature_norm = {norm:g}, to which longer rows are scaled down."
    yield "All weights contain noise, so a small effect may be nothing but noise."


def _effects(effects: Effects, most: int) -> Table:
    """Return a table with a line per number, and a line per level of a category but the first one."""
    shown = _strong(effects)[:most]
    if all(effect.interval is None and not effect.levels for effect in shown):
        table = _table(("column", "left"), ("change per unit", "right"))
        for effect in shown:
            table.add_row(Text(printable(effect.column)), Text(_signed(effect.per_unit or 0.0)))
        return table
    table = _table(("column", "left"), ("change", "right"), ("from", "left"), ("to", "left"), ("per unit", "right"))
    for effect in shown:
        for place, cells in enumerate(_lines(effect)):
            table.add_row(Text(printable(effect.column) if place == 0 else ""), *map(Text, cells))
    return table


def _lines(effect: Effect) -> Iterator[tuple[str, str, str, str]]:
    if effect.interval is not None and effect.per_unit is not None and effect.over_interval is not None:
        low, high = map(_value, effect.interval)
        unit = "" if isinstance(effect.interval[0], float) else " a year"
        yield _signed(effect.over_interval), low, high, _signed(effect.per_unit) + unit
        for level, difference in effect.levels:
            yield _signed(difference), "the middle", level, ""
        return
    (first, _), *others = effect.levels
    shown = sorted(others, key=lambda each: -abs(each[1]))[:MOST_LEVELS]
    for level, difference in shown:
        yield _signed(difference), printable(first), printable(level), ""
    if more := len(others) - len(shown):
        yield "", "", f"{more:,} other{'s' if more > 1 else ''}", ""


def _signed(value: float) -> str:
    return f"{float(f'{value:.3g}'):+,.7g}"  # +2,920 rather than +2.92e+03


def _strong(effects: Effects) -> list[Effect]:
    return [effect for effect in effects.columns if effect.size > 0]


def _weak(effects: Effects, most: int) -> Iterator[str]:
    """Yield what a table of effects leaves out."""
    strong = len(_strong(effects))
    yield from _left_out(strong - most, "columns with smaller effects")
    if none := len(effects.columns) - strong:
        yield f"{none:,} column{' has' if none == 1 else 's have'} no weight."


def _left_out(n: int, what: str) -> Iterator[str]:
    if n > 0:
        yield f"{n:,} further {what if n > 1 else what.replace('columns', 'column').replace('effects', 'effect')}."


def _fields(path: Path, facts: ModelFacts) -> dict[str, Any]:
    """Return all facts as JSON can hold them."""
    guarantee = facts.guarantee
    return {
        "file": str(path),
        "saved": facts.saved.isoformat(timespec="seconds"),
        "version": facts.version,
        "model": facts.kind,
        "method": facts.method,
        "reason": facts.reason,
        "steps": facts.steps,
        "rows": facts.rows,
        "study": facts.study,
        "details": dict(facts.details),
        "targets": [asdict(target) for target in facts.targets],
        "guarantee": None if guarantee is None else {**guarantee.to_dict(), **_meaning(guarantee)},
        "columns": [_plain(asdict(column)) for column in facts.columns],
        "effects": [_plain(asdict(effects)) for effects in facts.effects],
    }


def _meaning(guarantee: Guarantee) -> dict[str, Any]:
    return {"mu": _plain(guarantee.mu), "best_guess": guarantee.best_guess, "statement": guarantee.statement(True)}


def _plain(value: Any) -> Any:
    """Return a value with dates as texts."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
