"""Files that are written whole or not at all, and the journal of what a run may have released.

A run's file is a zip of arrays with one JSON text (numpy's npz): reading it executes nothing. A file alone cannot tell
how many steps were made after it was written. The journal can: a file beside it with one byte for every step that may
have been released, on disk before the step's noise is drawn.
"""

import json
import os
import re
import tempfile
import weakref
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray


@contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Yield a file to write to, which takes its place only when it is on disk: a reader sees the old one or the new."""
    target = Path(path)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_json(path: str | os.PathLike[str], fields: Mapping[str, Any]) -> None:
    """Write a JSON file atomically: a reader sees the old file or the whole new one."""
    with written_whole(path) as file:
        file.write(json.dumps(fields, indent=1, allow_nan=False).encode())


def read_json(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a JSON object; a file that is none is refused by name."""
    try:
        fields = json.loads(Path(path).read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not a privet model: it holds no JSON ({error})") from error
    if not isinstance(fields, dict):
        raise ValueError(f"{path} is not a privet model: it holds no JSON object")
    return fields


def check_writable(path: Path) -> None:
    """Raise ``ValueError`` if a file cannot be written, before any work is done or any budget is spent."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder. Give the name of a file.")
    if not path.parent.is_dir():
        raise ValueError(f"The folder {path.parent} does not exist.")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ValueError(f"{path} cannot be written. Check its permissions.")


def write_state(path: str | os.PathLike[str], form: str, state: Any, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a state that JSON can hold, and the arrays that it names, in one piece or not at all."""
    text = json.dumps({"format": form, "state": state})
    with written_whole(Path(path).resolve()) as file:  # the journal lies beside the file itself, not beside a link
        np.savez(file, header=np.array(text), **arrays)  # type: ignore[arg-type]


@contextmanager
def reading_state(path: str | os.PathLike[str], form: str, writer: str) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """Yield a state that :func:`write_state` wrote, and its arrays; what fails on reading them is told as one error."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            header = json.loads(str(arrays["header"]))
            written = header["format"]
            if written == form:
                yield header["state"], arrays
                return
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError, TypeError, AttributeError) as error:
        # without numpy's words, which tell how to have a pickle executed
        raise ValueError(f"{path} is no file of {writer}, or it is damaged ({type(error).__name__})") from error
    raise ValueError(f"{path} has the format {written!r}, this version reads {form!r}")


class Journal:
    """How many steps of one run may have been released: the length of a file that is never shorter than that.

    Parameters
    ----------
    path : path
        The file. One training at a time may hold it.
    ahead : int
        How many steps are booked at a time: a crash loses at most so many, and a disk waits only for each block.
    """

    def __init__(self, path: Path, ahead: int = 1) -> None:
        self.path, self._ahead = path, ahead
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        if not _locked(self._handle):
            os.close(self._handle)
            raise RuntimeError(
                f"{path.name} is in use: another process goes on with this training, or another object of this one"
            )
        self._closing = weakref.finalize(self, os.close, self._handle)

    @staticmethod
    def beside(path: str | os.PathLike[str], run: str, way: str = ".") -> Path:
        """Return where the journal of a run lies, given one of its files and the way from there to its folder."""
        if not re.fullmatch("[0-9a-f]{8}", run):
            raise ValueError(f"{path} has no run number")
        return (Path(path).resolve().parent / way).resolve() / f"privet-{run}.journal"

    @classmethod
    def taken_over(cls, path: str | os.PathLike[str], run: str, way: str, saved: int, ahead: int = 1) -> "Journal":
        """Return the journal of a run's file that has ``saved`` steps spent; raise if it is missing or short."""
        place = cls.beside(path, run, way)
        if not place.exists():  # no FileNotFoundError, which would be taken for a run that has not begun
            raise ValueError(
                f"{place.name}, the journal of this run, is not in {place.parent}, where its file looks for it: "
                "without it nobody knows what was released after the file was written"
            )
        counted = place.stat().st_size
        if counted < saved:
            raise ValueError(f"{place.name} counts {counted} steps, its file {saved}: it is not complete")
        return cls(place, ahead)

    def way_from(self, path: str | os.PathLike[str]) -> str:
        """Return the way from a file to the folder of the journal."""
        return os.path.relpath(self.path.parent, Path(path).resolve().parent)

    @property
    def steps(self) -> int:
        """How many steps are booked."""
        return os.fstat(self._handle).st_size

    def book(self, steps: int) -> None:
        """Make sure that so many steps, counted from the beginning of the run, are on disk."""
        missing = steps - self.steps
        if missing > 0:
            os.lseek(self._handle, 0, os.SEEK_END)
            os.write(self._handle, b"." * (missing + self._ahead - 1))
            os.fsync(self._handle)

    def settle(self, steps: int) -> None:
        """Take back what was booked ahead and not used: only the process that made the steps knows it."""
        self.book(steps)
        os.ftruncate(self._handle, steps)
        os.fsync(self._handle)

    def close(self) -> None:
        """Let another process have it."""
        self._closing()


def _locked(handle: int) -> bool:
    """Take the lock that a process holds until it ends, killed or not."""
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
