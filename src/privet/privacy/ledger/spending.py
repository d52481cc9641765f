"""Booking the private fits of a block of code: ``with privet.spending("patients.ledger", limit=3):``.

Which contexts a fit belongs to
-------------------------------
A fit is booked in all contexts that are open around it. Pool threads and worker processes have no "around": a search
starts them at any time, also before the context was entered. A thread that is in no context itself therefore books in
all contexts of its process, and each process also in all those of the processes that it descends from. A context that
is open on behalf of another thread may thus be charged too much. A thread that enters a context itself books in this
one, and not in those of other threads.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from privet.privacy.budget import BudgetLike
from privet.privacy.guarantees.guarantee import Guarantee
from privet.privacy.ledger import open_contexts
from privet.privacy.ledger.ledger import Ledger
from privet.privacy.noise.source import NoiseSource

LedgerLike = str | os.PathLike[str] | Ledger

_around: ContextVar[tuple[Ledger, ...]] = ContextVar("privet_spending", default=())
_in_process: list[Ledger] = []


def _forget() -> None:
    """Forget the contexts of the parent in a forked process, which looks for them as any other child does."""
    _around.set(())
    _in_process.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


@contextmanager
def spending(ledger: LedgerLike, limit: BudgetLike | None = None) -> Iterator[Ledger]:
    """Book all private fits and trainings of a block in a ledger, and yield the ledger.

    Each is booked before its noise is drawn, and stays booked if it fails later. One that would exceed the limit raises
    :class:`~privet.privacy.BudgetExceededError` and draws no noise.

    Parameters
    ----------
    ledger : path or Ledger
        The ledger of the data set.
    limit : Budget, float, pair (epsilon, delta), or None
        As for :class:`~privet.privacy.Ledger`. It is stored when the block begins.

    Notes
    -----
    Booked are fits of estimators, scalers and table models, searches and pipelines of them, runs of solvers, trainings
    of :func:`~privet.deep.make_private`, the rounds of :mod:`privet.federated`, and drafts of schemas from private
    rows. This includes those in threads, and in processes on the same machine that descend from this one, such as the
    workers of scikit-learn with ``n_jobs=2``. It does not include workers on other machines: give their estimators
    ``ledger=``. Noise that is drawn from a plan or a :class:`~privet.privacy.NoiseSource` directly is not booked
    either: use :meth:`Ledger.spend`.

    Nested blocks book in the ledgers of all of them, and so does an estimator with ``ledger=`` of its own. A ledger
    that is named twice is charged once.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from privet import PrivateRidge, spending
    >>> X = np.random.default_rng(0).uniform(-0.5, 0.5, (500, 3))
    >>> with TemporaryDirectory() as folder, spending(f"{folder}/patients.ledger", limit=3) as ledger:
    ...     model = PrivateRidge(1.0, 1e-6).fit(X, X[:, 0])
    ...     model = PrivateRidge(1.0, 1e-6, alpha=0.1).fit(X, X[:, 0])
    ...     len(ledger.entries()), 1 < ledger.total(1e-6).epsilon < 2
    (2, True)
    """
    book = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
    book.begin()
    if limit is not None:
        book = Ledger(book.path, limit)
        book.begin()
    token = _around.set((*_around.get(), book))
    _in_process.append(book)
    try:
        with open_contexts.announced(book.path):
            yield book
    finally:
        if book in _in_process:  # not in a forked process
            _in_process.remove(book)
        _around.reset(token)


def open_ledgers() -> list[Ledger]:
    """Return the ledgers of all contexts that a fit at this point belongs to."""
    return [*(_around.get() or _in_process), *map(Ledger, open_contexts.inherited())]


def book_spending(guarantee: Guarantee, label: str = "", *, ledgers: Iterable[LedgerLike | None] = ()) -> None:
    """Book a guarantee in the given ledgers and in those of all open contexts, each of them once.

    All are asked first, so that a ledger that refuses leaves no entry in the others.
    """
    _book(guarantee, label, _by_path([*ledgers, *open_ledgers()]).values())


class RunBooking:
    """The booking of a run of many steps: the whole run, before its first noise, and once per ledger.

    A run that is resumed has the name under which it was booked, so that it is not booked again.

    Parameters
    ----------
    label : str
        What is run, for the time line.
    ledger : path, Ledger or None
        Where to book it, besides the contexts that are open when the run is made and when it takes its steps.

    Attributes
    ----------
    run : str or None
        The name of the run, which is saved with its state. None as long as there is no ledger.
    """

    def __init__(self, label: str, ledger: LedgerLike | None) -> None:
        self._label, self._given = label, _by_path([ledger, *open_ledgers()])
        self.run = _new_name() if self._given else None
        self._booked: set[Path] = set()

    def ensure(self, whole: Callable[[], Guarantee]) -> None:
        """Book the guarantee that ``whole`` returns in all ledgers in which it is not booked yet."""
        found = self._given | _by_path(open_ledgers())
        missing = [ledger for path, ledger in found.items() if path not in self._booked]
        if missing:
            self.run = self.run or _new_name()
            _book(whole(), self._label, missing, self.run)
            self._booked |= found.keys()

    def resume(self, run: str | None) -> None:
        """Take over the name of a run that is continued, if it had one."""
        if run is not None:
            self.run = str(run)

    @property
    def references(self) -> dict[str, str]:
        """What the saved state of the run must contain, so that it is not booked again."""
        return {} if self.run is None else {"booked": self.run}


def _new_name() -> str:
    source = NoiseSource()
    return "".join(f"{source.below(1 << 32):08x}" for _ in range(4))


def _by_path(ledgers: Iterable[LedgerLike | None]) -> dict[Path, Ledger]:
    """Return ledgers by their files, each once."""
    found: dict[Path, Ledger] = {}
    for each in ledgers:
        if each is not None:
            one = each if isinstance(each, Ledger) else Ledger(each)
            found.setdefault(one.path, one)
    return found


def _book(guarantee: Guarantee, label: str, ledgers: Collection[Ledger], run: str | None = None) -> None:
    if len(ledgers) > 1:
        for each in ledgers:
            each.check(guarantee, run=run)
    for each in ledgers:
        each.spend(guarantee, label, run=run)
