"""What the promise rests on: conditions that the software made true, and those that somebody must vouch for."""

from typing import Any

TITLE = "What the promise rests on"
ALWAYS = (
    "bounds, levels and settings are public, and were not chosen by looking at the data",
    "nobody can predict the random numbers of the computer",
)
"""What no software can make true, whatever ran."""


def values(report: Any) -> dict[str, Any]:
    """Return what was released, and the conditions by who answers for them."""
    conditions = report.guarantee.assumptions
    return {
        "released": report.guarantee.released,
        "is_private": report.guarantee.is_private,
        "always": ALWAYS,
        "assumed": [each.text for each in conditions if not each.is_enforced],
        "enforced": [each.text for each in conditions if each.is_enforced],
    }
