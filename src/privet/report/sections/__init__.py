"""The sections of a report: one file each, which computes what its part of the template shows."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any

ORDER = (
    "summary",
    "attacker",
    "budget",
    "conditions",
    "training",
    "effects",
    "curves",
    "tests",
    "spending",
    "evaluation",
    "software",
)


@dataclass(frozen=True)
class Section:
    """One section of a report.

    Parameters
    ----------
    key : str
        Its name in addresses, and that of its template.
    title : str
    values : dict
        What the template shows. A value that is HTML, such as a chart, is used as it is.
    """

    key: str
    title: str
    values: dict[str, Any]


def sections(report: Any) -> list[Section]:
    """Return the sections that a report has, in order. A section without content is left out."""
    found = []
    for key in ORDER:
        module = import_module(f"privet.report.sections.{key}")
        values = module.values(report)
        if values is not None:
            found.append(Section(key, module.TITLE, values))
    return found
