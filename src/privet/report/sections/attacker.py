"""What an attacker can and cannot do: the exact trade-off of false alarms and recognised people."""

from typing import Any

import numpy as np

from privet.privacy import Adjacency, Guarantee
from privet.report.numbers import percent_up
from privet.report.svg import Axis, Chart

TITLE = "What an attacker can and cannot do"
RATES = (0.001, 0.01, 0.05, 0.1)
_PERCENT = [(k / 5, f"{20 * k}\u00a0%") for k in range(6)]


def values(report: Any) -> dict[str, Any]:
    """Return the chart and the table of true-positive rates."""
    guarantee: Guarantee = report.guarantee
    return {
        "chart": trade_off_chart(guarantee),
        "rows": [(f"{100 * fpr:g}\u00a0%", percent_up(guarantee.tpr(fpr))) for fpr in RATES],
        "question": question(guarantee),
        "unit": guarantee.unit,
    }


def question(guarantee: Guarantee) -> str:
    """Return what the attacker tries to find out."""
    if guarantee.adjacency is Adjacency.REPLACE_ONE:
        return f"whether the data contained a given {guarantee.unit}, or another one in its place"
    return f"whether the data contained a given {guarantee.unit}"


def trade_off_chart(guarantee: Guarantee) -> str:
    """Return the trade-off curve as SVG."""
    fpr = np.concatenate([[0.0], np.geomspace(1e-4, 0.01, 40), np.linspace(0.012, 1.0, 248)])
    tpr = guarantee.tpr(fpr)
    chart = _empty(
        f"The largest share of {guarantee.unit}s in the data that any attack can recognise, against its share of false "
        f"alarms. At 1\u00a0% false alarms, at most {percent_up(guarantee.tpr(0.01))} are recognised."
    )
    _draw(chart, fpr.tolist(), tpr.tolist())
    chart.point(0.01, guarantee.tpr(0.01))
    return chart.svg()


def empty_trade_off_chart() -> str:
    """Return the chart with the line of guessing alone, into which a script draws the curve."""
    chart = _empty("")
    _draw(chart, [0.0], [0.0])
    return chart.svg()


def _empty(description: str) -> Chart:
    axes = Axis("false alarms", 0, 1, _PERCENT), Axis("recognised", 0, 1, _PERCENT)
    return Chart(*axes, "Trade-off curve", description)


def _draw(chart: Chart, fpr: list[float], tpr: list[float]) -> None:
    chart.area(fpr, fpr, tpr)
    chart.line([0, 1], [0, 1], "guess")
    chart.line(fpr, tpr)
    chart.text(0.62, 0.56, "guessing", dy=4)
