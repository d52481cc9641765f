"""The report of a private model: one self-contained page, and the entry for the registry of deployments."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from privet.files import check_writable, written_whole
from privet.privacy import Guarantee, Ledger
from privet.privacy.ledger.timeline import Moment, moments
from privet.report.about import About
from privet.report.facts import Facts, TestFigure, facts_of


@dataclass(frozen=True)
class Report:
    """What is said about one private model: its guarantee, public facts, and what was spent on the same data.

    Parameters
    ----------
    guarantee : Guarantee
    facts : Facts
    title : str
    spent : sequence of Moment
        The time line of a ledger, or nothing.
    tests : sequence of TestFigure
        Figures on public test records.
    about : About
        What the holder of the data has to say.
    digest : str
        SHA-256 of the file of the model, if there is one.
    version : str
        The version of privet that wrote the file, or an empty string if it is not known.
    made : date
    """

    guarantee: Guarantee
    facts: Facts
    title: str
    spent: Sequence[Moment] = ()
    tests: Sequence[TestFigure] = ()
    about: About = field(default_factory=About)
    digest: str = ""
    version: str = ""
    made: date = field(default_factory=lambda: datetime.now(UTC).date())

    @classmethod
    def of(cls, thing: Any, *, title: str | None = None, ledger: Any = None, **options: Any) -> "Report":
        """Return the report of a model, a training or a run, with the time line of a ledger if it is given.

        ``options`` are further fields of the report.
        """
        guarantee, facts = facts_of(thing)
        return cls(guarantee, facts, title or facts.title, spent=() if ledger is None else _timeline(ledger), **options)

    def html(self) -> str:
        """Return the page."""
        from privet.report.page import render

        return render(self)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to a file, completely or not at all, and return its path."""
        target = Path(path)
        check_writable(target)
        text = self.html()
        with written_whole(target, is_public=True) as file:
            file.write(text.encode())
        return target


def _timeline(ledger: Any) -> list[Moment]:
    """Return the time line of a ledger, whose epsilons are recomputed."""
    found = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
    if not found.path.is_file():
        raise ValueError(f"The ledger {found.path} does not exist. Give the file in which the fits were booked.")
    return moments(found.timeline(), None, float("inf"))
