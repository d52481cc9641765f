"""Reports and pictures of results: the methods that results offer, whose work :mod:`privet.report` does.

Users look for ``report`` and ``plot`` on the results themselves, while the package that makes them builds on all
results. This module is therefore the only one that imports from a layer above it, when such a method is called.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Reported:
    """Mixin for the result of a private training, which can be reported."""

    def report(self, path: str | os.PathLike[str], *, title: str | None = None, ledger: Any = None) -> Path:
        """Write a report of what was promised, for readers who know nothing about differential privacy.

        It is one HTML page that needs no network access and prints on at most four pages. This requires
        ``pip install 'privet[report]'``.

        Parameters
        ----------
        path : path
            The file to write.
        title : str or None
            The heading. None names what was trained.
        ledger : path, Ledger or None
            Also show everything that was spent on the same data, with the labels of its entries.

        Returns
        -------
        Path
            The file that was written.

        Notes
        -----
        A report contains what the guarantee covers and public facts, and nothing else about the data.
        """
        from privet.report import Report

        return Report.of(self, title=title, ledger=ledger).save(path)


def plot(thing: Any, ax: "Axes | None", column: str | None = None) -> "Axes":
    """Draw a guarantee, the effects of a model or a curve of an additive model. This requires matplotlib."""
    from privet.report import plots

    return plots.plot(thing, ax) if column is None else plots.curve(thing, ax, column)


def to_html(thing: Any) -> str:
    """Return how a guarantee, or what has one, shows itself in a notebook."""
    from privet.report import notebook

    return notebook.to_html(thing)
