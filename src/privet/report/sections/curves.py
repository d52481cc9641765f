"""The curves of an additive model, with bands for the noise that privacy added."""

from typing import Any

TITLE = "Curves"


def values(report: Any) -> dict[str, Any] | None:
    """Return the charts of the most important columns, or None if the model has no curves."""
    facts = report.facts
    if not facts.shapes:
        return None
    return {"charts": facts.shapes, "note": facts.shapes_note}
