"""How guarantees and fitted models show themselves in a notebook: the figures of a report, as a small table."""

from html import escape
from typing import Any

from privet.privacy import Guarantee
from privet.report.numbers import delta as as_power
from privet.report.numbers import percent_up, up

_TABLE = 'style="border-collapse:collapse;margin:0.5em 0;text-align:left"'
_CELL = 'style="text-align:left;padding:2px 12px 2px 0;vertical-align:top"'


def to_html(thing: Any) -> str:
    """Return a guarantee, or the guarantee of a fitted model, as HTML that inherits the colours of the notebook."""
    guarantee = thing if isinstance(thing, Guarantee) else getattr(thing, "guarantee_", None)
    if guarantee is None:
        return f"<p>{escape(type(thing).__name__)}</p>"
    rows = "".join(
        f"<tr><th {_CELL} scope='row'>{escape(name)}</th><td {_CELL}>{escape(value)}</td></tr>"
        for name, value in _rows(guarantee)
    )
    named = "" if thing is guarantee else f"{escape(_name(thing))}: "
    return (
        f'<div class="privet-guarantee"><b>{named}{_heading(guarantee)}</b>'
        f"<table {_TABLE}><tbody>{rows}</tbody></table>"
        f"<details><summary>What it rests on</summary><pre>{escape(guarantee.statement(True))}</pre></details></div>"
    )


def _name(thing: Any) -> str:
    return (
        f"{type(thing).__name__} of {type(thing.estimator).__name__}"
        if hasattr(thing, "estimator")
        else type(thing).__name__
    )


def _heading(guarantee: Guarantee) -> str:
    if not guarantee.is_private:
        return "No differential privacy"
    return f"({up(guarantee.epsilon, 4)}, {as_power(guarantee.delta)})-differential privacy for each {guarantee.unit}"


def _rows(guarantee: Guarantee) -> list[tuple[str, str]]:
    rows = [("Neighbours", guarantee.adjacency.in_words.format(unit=guarantee.unit)), ("Released", guarantee.released)]
    if guarantee.is_private:
        rows += [
            ("Best guess of membership is right", f"at most {percent_up(guarantee.best_guess)} (a coin toss: 50 %)"),
            ("Recognised at 1 % false alarms", f"at most {percent_up(guarantee.tpr(0.01))}"),
        ]
    vouched = [each.text for each in guarantee.assumptions if not each.is_enforced]
    return [*rows, ("Assumed", "; ".join(vouched) or "nothing")]
