"""Warnings that save people: when each is given, and its words. A warning never changes what is computed.

All of them are in the category :class:`PrivetWarning`. They go to whoever runs the training and are no part of a
release. Those that depend on rows say so, name no value and suggest no bound, because a bound must be public.
"""

import math
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import FrameType

LARGEST_EPSILON = 10.0
CLIPPED_CELLS = 0.1
"""The share of the cells of a column from which clipping is reported."""
SAMPLED_ROWS = 10_000
"""How many rows of a table are looked at for such a report."""

_NOT_PRIVATE = "(depends on the rows; not private)"
_EVERYTHING = "everything"
_LIBRARIES = ("privet", "sklearn", "joblib", "contextlib")
_given: ContextVar[set[str] | None] = ContextVar("given", default=None)
_given_by_searches: set[tuple[str, int, str]] = set()


class PrivetWarning(UserWarning):
    """A hint to the person who trains. ``warnings.simplefilter("ignore", privet.PrivetWarning)`` silences all hints."""


@contextmanager
def once() -> Iterator[None]:
    """Give each warning at most once inside this block, whatever it is repeated for: targets, groups or trials."""
    token = _given.set(set()) if _given.get() is None else None
    try:
        yield
    finally:
        if token is not None:
            _given.reset(token)


@contextmanager
def silenced() -> Iterator[None]:
    """Give no warning inside this block, for fits that are experiments rather than models."""
    token = _given.set({_EVERYTHING})
    try:
        yield
    finally:
        _given.reset(token)


def is_silent(kind: str) -> bool:
    """Return whether a kind of warning was given already, or is silenced. Its condition need not be computed then."""
    given = _given.get()
    if given is not None and not given.isdisjoint((kind, _EVERYTHING)):
        return True
    for action, text, category, module, _ in warnings.filters:
        if text is None and module is None and issubclass(PrivetWarning, category):
            return action == "ignore"
    return False


def about_budget(epsilon: float, delta: float, n: int, unit: str = "record of the table") -> None:
    """Warn about an epsilon above 10, and about a delta of at least 1/n, where n is the number of units."""
    if math.isinf(epsilon):
        _warn(
            "epsilon",
            "epsilon is infinite, because there is no noise: the result may reveal everything about a record. Keep it "
            "to yourself, or train on public records only.",
        )
    elif epsilon > LARGEST_EPSILON:
        _warn(
            "epsilon",
            f"epsilon={epsilon:g} is above {LARGEST_EPSILON:g}, which promises little: one record may change the odds "
            f"of a result by a factor of e^{epsilon:g}. Use an epsilon of at most {LARGEST_EPSILON:g}; 1 is usual.",
        )
    if delta * n >= 1:
        _warn(
            "delta",
            f"delta={delta:g} is at least 1/n, which permits publishing a {unit}. Leave delta out: its "
            "default is min(1e-6, 0.01/n).",
        )


def about_noise(epsilon: float | None, n: float | None, basis: str = "n, the number of weights and the budget") -> None:
    """Warn that the noise is expected to hide what the rows could teach.

    Parameters
    ----------
    epsilon : float or None
        The epsilon that would do for as many records, or None if it is above 10.
    n : float or None
        The number of records that would do at this epsilon, or None if there is no such number.
    basis : str
        The public numbers from which this was computed.
    """
    remedies = [] if epsilon is None else [f"epsilon={_rounded_up(epsilon):g}"]
    remedies += [] if n is None else [f"about {_rounded_up(n):,.0f} records"]
    would_do = f"{' or '.join(remedies)} would do" if remedies else "use more records or fewer columns"
    _warn(
        "noise",
        "the privacy budget is small for so few records: the noise is expected to be as strong as what the model could "
        f"learn, so it may predict no better than guessing. By {basis}, {would_do}.",
    )


def about_rows(name: str, scaled: float) -> None:
    """Warn about a bound on rows that was left at its default, if most rows are at least twice as long."""
    if scaled > 0.5:
        _warn(
            name,
            f"most rows are more than twice as long as {name}, which was left at its default, and are scaled down to "
            f"it. Set {name} to a public bound on the norm of a row, or scale the columns by public bounds with "
            f"PublicScaler. {_NOT_PRIVATE}",
        )


def about_targets(clipped: float) -> None:
    """Warn about ``target_bound`` if it was left at its default and most targets are beyond it."""
    if clipped > 0.5:
        _warn(
            "target_bound",
            "most targets are beyond target_bound, which was left at its default, and are clipped to it, as are "
            "predictions. Set target_bound to a public bound on the absolute value of y, and subtract a public middle "
            f"value from y first. {_NOT_PRIVATE}",
        )


def about_clipped_cells(clipped: Mapping[str, int], n: int) -> None:
    """Warn about each column of which a notable share of ``n`` cells is clipped to its bounds."""
    for name, number in clipped.items():
        share = number / n
        if share >= CLIPPED_CELLS:
            much = "more than half" if share > 0.5 else "more than a quarter" if share > 0.25 else "a tenth or more"
            _warn(
                f"cells of {name}",
                f"{much} of the cells of column {name!r} are beyond its bounds and are clipped to them. Check the unit "
                f"of the column and its bounds. {_NOT_PRIVATE}",
            )


def about_loader(sampler: str) -> None:
    """Say that the sampler of a DataLoader is not used."""
    _warn("loader", f"Batches are drawn by {sampler}, as the guarantee accounts for, not by the sampler of the loader.")


def about_existing_file(path: Path) -> None:
    """Warn that a model file will be replaced."""
    if path.exists():
        _warn(
            f"file {path}",
            f"the model in {path} will be replaced, although its budget stays spent. Give another file to keep it.",
        )


def _rounded_up(number: float) -> float:
    """Return the number with one significant digit. More would differ between the folds of a cross-validation."""
    unit = 10.0 ** math.floor(math.log10(number))
    return math.ceil(number / unit * (1 - 1e-9)) * unit


def _warn(kind: str, text: str) -> None:
    """Give a warning that points at the first caller outside privet and scikit-learn.

    Of the many fits of a search or a cross-validation, each line of code gives each kind of warning once. Python's own
    record of what was shown is of no use there, because scikit-learn clears it at each fit.
    """
    if is_silent(kind):
        return
    if (given := _given.get()) is not None:
        given.add(kind)
    frame, is_repeated = sys._getframe(1), False
    while frame.f_back is not None and (package := _package(frame)) in _LIBRARIES:
        is_repeated = is_repeated or package == "sklearn"
        frame = frame.f_back
    module, path, line = frame.f_globals.get("__name__", "<unknown>"), frame.f_code.co_filename, frame.f_lineno
    if is_repeated:
        if (path, line, kind) in _given_by_searches:
            return
        _given_by_searches.add((path, line, kind))
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    warnings.warn_explicit(text, PrivetWarning, path, line, module, registry)


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
