"""A federated run in files: the server's state, and the journal of the rounds it may have released."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.files import Journal, reading_state, write_state
from privet.privacy import NoiseSource

_FORMAT = "privet federated run 1"


@dataclass(frozen=True)
class Saved:
    """What a file holds."""

    run: str
    journal: str
    state: dict[str, Any]
    arrays: dict[str, NDArray[np.float64]]


def read(path: str | os.PathLike[str]) -> Saved:
    """Read a file of :meth:`Record.write`."""
    with reading_state(path, _FORMAT, "Server.save") as (header, arrays):
        found = {name: np.array(arrays[name], dtype=np.float64) for name in header["arrays"]}
        return Saved(str(header["run"]), str(header["journal"]), dict(header["state"]), found)


class Record:
    """The files of one run: any number of states, and one journal beside the first of them."""

    def __init__(self, run: str, journal: Journal) -> None:
        self._run, self._journal = run, journal

    @classmethod
    def begun(cls, path: str | os.PathLike[str]) -> "Record":
        """Begin a journal beside the first file of a run."""
        run = f"{NoiseSource().below(1 << 32):08x}"
        return cls(run, Journal(Journal.beside(path, run)))

    @classmethod
    def resumed(cls, path: str | os.PathLike[str], saved: Saved) -> tuple["Record", int]:
        """Take over the journal of a file; return with it how many rounds it counts."""
        journal = Journal.taken_over(path, saved.run, saved.journal, int(saved.state["rounds_spent"]))
        return cls(saved.run, journal), journal.steps

    def write(
        self, path: str | os.PathLike[str], spent: int, state: dict[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> None:
        """Write a state, once the journal counts what it has spent."""
        self.book(spent)
        header = {
            "run": self._run,
            "journal": self._journal.way_from(path),
            "arrays": list(arrays),
            "state": state,
        }
        write_state(path, _FORMAT, header, arrays)

    def book(self, rounds: int) -> None:
        """Have so many rounds, counted from the beginning of the run, on disk."""
        self._journal.book(rounds)

    def close(self) -> None:
        """Let another process have the journal."""
        self._journal.close()
