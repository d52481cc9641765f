"""The files of a run: saved states, and the journal that counts what the run may have released.

A state is a zip archive of arrays with one JSON text (numpy's npz format), so reading it executes no code. A saved
state cannot know how many steps were made after it was written. The journal can: after a header, it has one byte for
every step that may have been released, and the byte is on disk before the noise of the step is drawn.
"""

import hashlib
import hmac
import json
import os
import re
import weakref
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.files import written_whole

FilePath = str | os.PathLike[str]

_MARK, _KEY = b"privet journal 2 ", 32
"""The first bytes of a journal, and the number of hexadecimal digits of the key that follows."""


class RunFiles:
    """The files of one run: any number of saved states, and one journal beside the first of them.

    A run has no journal before its first state is saved or another run's state is resumed. Until then, counting steps
    does nothing.

    A saved state names its journal, and may come from somebody else. Each journal therefore contains a key, and each
    state contains a code that only a run with this key can compute. A state without the right code cannot cause a
    journal to be locked, extended or shortened.

    Parameters
    ----------
    below : callable
        Takes a bound, and returns a random integer from 0 to the bound - 1. The name and the key of a new run are drawn
        with it.
    plan : str
        What the steps of the run are. A journal is continued only with the plan that it was started with.
    ahead : int
        How many steps are counted at a time. A crash loses at most this many steps, and training waits for the disk
        once per block.
    """

    def __init__(self, below: Callable[[int], int], plan: str, ahead: int = 1) -> None:
        self._below, self._plan, self._ahead = below, plan, ahead
        self._journal: Journal | None = None

    @property
    def has_journal(self) -> bool:
        """Whether steps are being counted on disk."""
        return self._journal is not None

    def begin(self, path: FilePath) -> None:
        """Start the journal beside the first saved state. Later states of the run refer to the same journal."""
        if self._journal is None:
            run, *key = (f"{self._below(1 << 32):08x}" for _ in range(1 + _KEY // 8))
            self._journal = Journal.created(Path(path).resolve().parent, run, "".join(key), self._ahead)

    def take_over(self, path: FilePath, references: Mapping[str, Any], spent: int) -> int:
        """Continue the journal of a saved state, and return how many steps it counts.

        Parameters
        ----------
        path : path
            The saved state.
        references : mapping
            What the state contains, including the fields of :meth:`references`.
        spent : int
            The number of steps spent when the state was written. The journal must count at least that many.
        """
        journal = Journal.found(path, references, self._ahead)
        try:
            code = references.get("code")
            # Journals of older versions have no key, and their states no code.
            if not (code is None if journal.key is None else _is_equal(code, self._code(journal, spent))):
                raise ValueError(
                    f"{path} does not belong to {journal.path.name}, which it names as its journal. The file was "
                    "written by another run, or it was changed. The journal is left as it is."
                )
            if journal.steps < spent:
                raise ValueError(
                    f"{journal.path.name} counts {journal.steps} steps, but the saved file has spent {spent}. The "
                    "journal is incomplete."
                )
        except BaseException:
            journal.close()
            raise
        self._journal = journal
        return journal.steps

    def references(self, path: FilePath, spent: int) -> dict[str, str]:
        """Return the fields that a state at ``path`` must contain, so that its journal can be found again."""
        assert self._journal is not None, "call begin() before a state is written"
        found = {"run": self._journal.run, "journal": self._journal.way_from(path)}
        return found if self._journal.key is None else found | {"code": self._code(self._journal, spent)}

    def _code(self, journal: "Journal", spent: int) -> str:
        """Return the code that shows that a state belongs to a journal, a plan and a number of steps."""
        text = json.dumps([journal.run, self._plan, spent])
        return hmac.new((journal.key or "").encode(), text.encode(), hashlib.sha256).hexdigest()

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
    """The number of steps of one run that may have been released: a header, then one byte per step.

    Only one process at a time can hold a journal. Use :meth:`created` and :meth:`found` to make one.

    Attributes
    ----------
    path : path
        The file.
    run : str
        The name of the run: eight hexadecimal digits.
    key : str or None
        The key of the run. None if the file was written by an older version and has no header.
    """

    def __init__(self, path: Path, run: str, ahead: int, flags: int = 0, key: str | None = None) -> None:
        self.path, self.run, self._ahead = path, run, ahead
        self._handle = os.open(path, os.O_RDWR | flags, 0o600)
        if not _locked(self._handle):
            os.close(self._handle)
            raise RuntimeError(
                f"{path.name} is in use: another process, or another object in this process, is continuing this run. "
                "After a process was killed, the workers of its DataLoader may hold the file for a few more seconds."
            )
        self._closing = weakref.finalize(self, os.close, self._handle)
        if key is not None:
            self._append(_MARK + key.encode())
        header = os.pread(self._handle, len(_MARK) + _KEY, 0)
        self.key = header[len(_MARK) :].decode("ascii", "replace") if header.startswith(_MARK) else None
        self._start = 0 if self.key is None else len(header)
        self._others = self.steps

    @classmethod
    def created(cls, folder: Path, run: str, key: str, ahead: int = 1) -> "Journal":
        """Return the new journal of a run."""
        return cls(folder / f"privet-{run}.journal", run, ahead, os.O_CREAT | os.O_EXCL, key)

    @classmethod
    def found(cls, path: FilePath, references: Mapping[str, Any], ahead: int = 1) -> "Journal":
        """Return the journal that the saved state at ``path`` refers to."""
        run, way = str(references.get("run")), str(references.get("journal"))
        if not re.fullmatch("[0-9a-f]{8}", run):
            raise ValueError(f"{path} does not name its run. It was not written by this package, or it is damaged.")
        # Without a code, nothing shows that the state belongs to a journal in another folder.
        folder = Path(path).resolve().parent / ("." if references.get("code") is None else way)
        place = folder.resolve() / f"privet-{run}.journal"
        if not place.is_file():
            # This is not a FileNotFoundError, which a caller could mistake for a run that has not begun.
            raise ValueError(
                f"{place.name}, the journal of this run, is missing from {place.parent}. Without it, nobody knows what "
                "was released after the file was written. Move the journal and the files of the run together."
            )
        return cls(place, run, ahead)

    def way_from(self, path: FilePath) -> str:
        """Return the relative path from the folder of a saved state to the folder of the journal."""
        return os.path.relpath(self.path.parent, Path(path).resolve().parent)

    @property
    def steps(self) -> int:
        """How many steps the journal counts."""
        return os.fstat(self._handle).st_size - self._start

    def count(self, steps: int) -> None:
        """Make sure that ``steps`` steps, counted from the beginning of the run, are on disk."""
        missing = steps - self.steps
        if missing > 0:
            self._append(b"." * (missing + self._ahead - 1))

    def settle(self, steps: int) -> None:
        """Make the journal count exactly ``steps`` steps, without steps that were counted ahead but not made.

        What the journal counted when it was opened stays, because this process does not know which of these steps were
        made.
        """
        self.count(steps)
        os.ftruncate(self._handle, self._start + max(steps, self._others))
        os.fsync(self._handle)

    def close(self) -> None:
        """Release the file, so that another process can hold it."""
        self._closing()

    def _append(self, text: bytes) -> None:
        """Write to the end of the file, and wait until all is on disk. A full disk raises an error."""
        os.lseek(self._handle, 0, os.SEEK_END)
        while text:
            text = text[os.write(self._handle, text) :]
        os.fsync(self._handle)


def _is_equal(given: object, expected: str) -> bool:
    return isinstance(given, str) and hmac.compare_digest(given.encode(), expected.encode())


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
    written = form
    with _archive(path, writer) as arrays:
        header = json.loads(str(arrays["header"]))
        written = header["format"]
        if written == form:
            yield header["state"], arrays
            return
    raise ValueError(f"{path} has the format {written!r}, but this version reads {form!r}.")


def read_header(path: FilePath) -> tuple[str, Any, dict[str, int]]:
    """Return the format of a saved state, its JSON state as it is stored, and the number of entries of each array."""
    with _archive(path, "privet") as arrays:
        header = json.loads(str(arrays["header"]))
        sizes = {name: int(arrays[name].size) for name in arrays.files if name != "header"}
        return str(header["format"]), header["state"], sizes


@contextmanager
def _archive(path: FilePath, writer: str) -> Iterator[Any]:
    """Yield the arrays of a file. Errors that occur while it is read become one ``ValueError``."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            yield arrays
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError, TypeError, AttributeError) as error:
        # numpy's own message is left out, because it explains how to make numpy execute a pickle.
        raise ValueError(f"{path} was not written by {writer}, or it is damaged ({type(error).__name__}).") from error


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
