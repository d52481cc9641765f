"""What the promise rests on: conditions that the software made true, and those that somebody must vouch for."""

from typing import Any

TITLE = "What the promise rests on"


def values(report: Any) -> dict[str, Any]:
    """Return what was released, and the conditions by who answers for them."""
    conditions = report.guarantee.assumptions
    return {
        "released": report.guarantee.released,
        "assumed": [each.text for each in conditions if not each.is_enforced],
        "enforced": [each.text for each in conditions if each.is_enforced],
    }
