"""A training in a file, and the journal of its steps.

The file is a zip of arrays with one JSON text (numpy's npz): reading it executes nothing. It holds the weights and all
that the next step needs, except the noise generator: whoever has a generator's state can subtract the noise it gave.

A file alone cannot tell how many steps were made after it was written. The journal can: a file beside it with one byte
for every step that may have been released, on disk before the step's noise is drawn.
"""

import json
import os
import re
import weakref
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privet.files import written_whole

_FORMAT = "privet training 1"

State = Any
"""Numbers, texts, None and tensors, in any nesting of dicts, lists and tuples: what a state_dict holds."""


def write(path: str | os.PathLike[str], state: State) -> None:
    """Write a state in one piece or not at all."""
    arrays: dict[str, NDArray[Any]] = {}
    text = json.dumps({"format": _FORMAT, "state": _encoded(state, arrays)})
    with written_whole(Path(path).resolve()) as file:  # the journal lies beside the file itself, not beside a link
        np.savez(file, header=np.array(text), **arrays)  # type: ignore[arg-type]


def read(path: str | os.PathLike[str]) -> State:
    """Read a state that :func:`write` wrote."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            header = json.loads(str(arrays["header"]))
            written = header["format"]
            if written == _FORMAT:
                return _decoded(header["state"], arrays)
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError, TypeError, AttributeError) as error:
        # without numpy's words, which tell how to have a pickle executed
        raise ValueError(
            f"{path} is no file of PrivateTraining.save, or it is damaged ({type(error).__name__})"
        ) from error
    raise ValueError(f"{path} has the format {written!r}, this version reads {_FORMAT!r}")


def _encoded(value: State, arrays: dict[str, NDArray[Any]]) -> Any:
    """Return a value as JSON, its tensors put aside; containers are told apart by a tag."""
    if isinstance(value, Tensor):
        name, tensor = f"t{len(arrays)}", value.detach().cpu()
        plain = tensor.view(torch.int16) if tensor.dtype is torch.bfloat16 else tensor  # numpy has no bfloat16
        arrays[name] = plain.numpy()
        return {"tensor": name, "type": str(tensor.dtype).removeprefix("torch.")}
    if isinstance(value, dict):
        return {"dict": [[_encoded(key, arrays), _encoded(each, arrays)] for key, each in value.items()]}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"  # also of their subclasses: a torch.Size is a tuple
        return {kind: [_encoded(each, arrays) for each in value]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a {type(value).__name__} cannot be saved: a state holds numbers, texts and tensors")


def _decoded(value: Any, arrays: Any) -> State:
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        tensor = torch.from_numpy(np.array(arrays[value["tensor"]]))
        return tensor.view(torch.bfloat16) if value["type"] == "bfloat16" else tensor
    ((kind, content),) = value.items()
    if kind == "dict":
        return {_decoded(key, arrays): _decoded(each, arrays) for key, each in content}
    return {"list": list, "tuple": tuple}[kind](_decoded(each, arrays) for each in content)


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
