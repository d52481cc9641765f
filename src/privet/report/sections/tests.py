"""How good the model is on public test records, with intervals."""

from typing import Any

from privet.report.numbers import percent, plain

TITLE = "Test figures"


def values(report: Any) -> dict[str, Any] | None:
    """Return the figures, or None if there are none."""
    if not report.tests:
        return None
    rows = []
    for figure in report.tests:
        text = percent if figure.is_share else lambda value: plain(value, 3)
        rows.append(
            (figure.name, text(figure.value), f"{text(figure.low)} to {text(figure.high)}", f"{figure.records:,}")
        )
    return {"rows": rows, "notes": sorted({figure.note for figure in report.tests if figure.note})}
