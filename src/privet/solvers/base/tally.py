"""What the runs of one plan have in common: how many have begun, and what they share."""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from privet.plans.gradient import PlanError

T = TypeVar("T")


class Tally:
    """Counts the runs of a plan, and keeps what the first run released for all of them.

    A plan for k tasks covers k runs. A further run would be an additional release, which its guarantee does not cover.
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._shared: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._release_lock = threading.Lock()

    def count(self, what: str, tasks: int) -> int:
        """Count a run, and return its number, from 1. Raise PlanError if the plan covers no further run."""
        with self._lock:
            number = self._counts.get(what, 0) + 1
            if number > tasks:
                covered = "one run" if tasks == 1 else f"{tasks} runs, one per task"
                raise PlanError(
                    f"this plan covers {covered}, and run {number} would be an additional release. Make the plan with "
                    f"tasks={number}, so that its guarantee covers all runs, or make a new Run, whose guarantee is "
                    "composed with that of the first."
                )
            self._counts[what] = number
        return number

    def shared(self, name: str, release: Callable[[], T]) -> T:
        """Return what the first run released under a name. Only the first call calls ``release``, in any thread."""
        with self._release_lock:
            if name not in self._shared:
                self._shared[name] = release()
            value: T = self._shared[name]
        return value
