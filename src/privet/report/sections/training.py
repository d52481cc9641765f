"""How the model was trained, and the courses of its training that are public."""

from typing import Any

from privet.report.facts import Curve
from privet.report.svg import Axis, Chart, round_ticks

TITLE = "The model and its training"
MOST_INPUTS = 16


def values(report: Any) -> dict[str, Any]:
    """Return the settings, the columns and the charts of public courses."""
    facts = report.facts
    return {
        "settings": facts.settings,
        "inputs": facts.inputs[:MOST_INPUTS],
        "hidden": max(0, len(facts.inputs) - MOST_INPUTS),
        "curves": [(curve, _chart(curve)) for curve in facts.curves],
    }


def _chart(curve: Curve) -> str:
    xs, ys = [x for x, _ in curve.points], [y for _, y in curve.points]
    low, high = min(0.0, *ys), max(*ys, 1e-9) * 1.05
    chart = Chart(
        Axis(curve.x, 0, max(xs), round_ticks(0, max(xs))),
        Axis(curve.y, low, high, round_ticks(low, high)),
        curve.title,
        f"{curve.note} The last value is {ys[-1]:.4g}, after {xs[-1]:g} {curve.x}.",
    )
    chart.line(xs, ys)
    for x, y in curve.points if len(curve.points) < 15 else curve.points[-1:]:
        chart.point(x, y)
    return chart.svg()
