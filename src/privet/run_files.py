"""The files of a run: saved states, and the journal that counts what the run may have released.

A state is a zip archive of arrays with one JSON text (numpy's npz format), so reading it executes no code. A saved
state cannot know how many steps were made after it was written. The journal can: it has one byte for every step that
may have been released, and the byte is on disk before the noise of the step is drawn.
"""

import json
import os
import re
import weakref
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.files import written_whole

FilePath = str | os.PathLike[str]


class RunFiles:
    """The files of one run: any number of saved states, and one journal beside the first of them.

    A run has no journal before its first state is saved or another run's state is resumed. Until then, counting steps
    does nothing.

    Parameters
    ----------
    run : str
        The name of the run: eight hexadecimal digits, drawn at random.
    ahead : int
        How many steps are counted at a time. A crash loses at most this many steps, and training waits for the disk
        once per block.
    """

    def __init__(self, run: str, ahead: int = 1) -> None:
        self.run, self._ahead = run, ahead
        self._journal: Journal | None = None

    @property
    def has_journal(self) -> bool:
        """Whether steps are being counted on disk."""
        return self._journal is not None

    def begin(self, path: FilePath) -> None:
        """Start the journal beside the first saved state. Later states of the run refer to the same journal."""
        if self._journal is None:
            self._journal = Journal(Journal.beside(path, self.run), self._ahead)

    def take_over(self, path: FilePath, run: str, way: str, spent: int) -> int:
        """Continue the journal of a saved state, and return how many steps it counts.

        Parameters
        ----------
        path : path
            The saved state.
        run, way, spent : str, str, int
            What the state records: its run, the relative path to the folder of the journal, and the number of steps
            spent when it was written. The journal must count at least that many.
        """
        place = Journal.beside(path, run, way)
        if not place.exists():
            # This is not a FileNotFoundError, which a caller could mistake for a run that has not begun.
            raise ValueError(
                f"{place.name}, the journal of this run, is missing from {place.parent}. Without it, nobody knows what "
                "was released after the file was written. Move the journal and the files of the run together."
            )
        counted = place.stat().st_size
        if counted < spent:
            raise ValueError(
                f"{place.name} counts {counted} steps, but the saved file has spent {spent}. The journal is incomplete."
            )
        self._journal, self.run = Journal(place, self._ahead), run
        return self._journal.steps

    def references(self, path: FilePath) -> dict[str, str]:
        """Return the fields that a state at ``path`` must contain, so that its journal can be found again."""
        assert self._journal is not None, "call begin() before a state is written"
        return {"run": self.run, "journal": self._journal.way_from(path)}

    def count(self, steps: int) -> None:
        """Make sure that ``steps`` steps, counted from the beginning of the run, are on disk."""
        if self._journal is not None:
            self._journal.count(steps)

    def settle(self, steps: int) -> None:
        """Make the journal count exactly ``steps`` steps. Only the process that made the steps may do so."""
        if self._journal is not None:
            self._journal.settle(steps)

    def close(self) -> None:
        """Release the journal, so that another process can continue the run."""
        if self._journal is not None:
            self._journal.close()


class Journal:
    """The number of steps of one run that may have been released, as the length of a file.

    Parameters
    ----------
    path : path
        The file. Only one process at a time can hold it.
    ahead : int
        How many steps are counted at a time.
    """

    def __init__(self, path: Path, ahead: int = 1) -> None:
        self.path, self._ahead = path, ahead
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        if not _locked(self._handle):
            os.close(self._handle)
            raise RuntimeError(
                f"{path.name} is in use: another process, or another object in this process, is continuing this run."
            )
        self._closing = weakref.finalize(self, os.close, self._handle)

    @staticmethod
    def beside(path: FilePath, run: str, way: str = ".") -> Path:
        """Return the path of a run's journal. ``way`` leads from the folder of a saved state to that of the journal."""
        if not re.fullmatch("[0-9a-f]{8}", run):
            raise ValueError(f"{path} does not name its run. It was not written by this package, or it is damaged.")
        return (Path(path).resolve().parent / way).resolve() / f"privet-{run}.journal"

    def way_from(self, path: FilePath) -> str:
        """Return the relative path from the folder of a saved state to the folder of the journal."""
        return os.path.relpath(self.path.parent, Path(path).resolve().parent)

    @property
    def steps(self) -> int:
        """How many steps the journal counts."""
        return os.fstat(self._handle).st_size

    def count(self, steps: int) -> None:
        """Make sure that ``steps`` steps, counted from the beginning of the run, are on disk."""
        missing = steps - self.steps
        if missing > 0:
            os.lseek(self._handle, 0, os.SEEK_END)
            os.write(self._handle, b"." * (missing + self._ahead - 1))
            os.fsync(self._handle)

    def settle(self, steps: int) -> None:
        """Make the journal count exactly ``steps`` steps, without steps that were counted ahead but not made."""
        self.count(steps)
        os.ftruncate(self._handle, steps)
        os.fsync(self._handle)

    def close(self) -> None:
        """Release the file, so that another process can hold it."""
        self._closing()


def write_state(path: FilePath, form: str, state: Any, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a JSON state, together with the arrays that it refers to, in one piece or not at all."""
    text = json.dumps({"format": form, "state": state})
    # A link is followed, because the journal lies beside the file itself.
    with written_whole(Path(path).resolve()) as file:
        np.savez(file, header=np.array(text), **arrays)  # type: ignore[arg-type]


@contextmanager
def reading_state(path: FilePath, form: str, writer: str) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """Yield a state that :func:`write_state` wrote, and its arrays.

    Errors that occur while the state is read become one ``ValueError``, which names ``writer`` as the function that
    writes such files.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            header = json.loads(str(arrays["header"]))
            written = header["format"]
            if written == form:
                yield header["state"], arrays
                return
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError, TypeError, AttributeError) as error:
        # numpy's own message is left out, because it explains how to make numpy execute a pickle.
        raise ValueError(f"{path} was not written by {writer}, or it is damaged ({type(error).__name__}).") from error
    raise ValueError(f"{path} has the format {written!r}, but this version reads {form!r}.")


def _locked(handle: int) -> bool:
    """Try to lock the file and return whether it worked. The operating system unlocks it when the process ends."""
    try:
        import fcntl
    except ImportError:  # The system has no such locks.
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
