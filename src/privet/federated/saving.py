"""The file of a federated run, which holds the server's state."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.run_files import reading_state, write_state

_FORMAT = "privet federated run 1"


@dataclass(frozen=True)
class Saved:
    """The contents of a saved run: the references to its journal, and the state and arrays of the server."""

    references: dict[str, str]
    state: dict[str, Any]
    arrays: dict[str, NDArray[np.float64]]


def read(path: str | os.PathLike[str]) -> Saved:
    """Return the contents of a file that :func:`write` wrote."""
    with reading_state(path, _FORMAT, "Server.save") as (header, arrays):
        found = {name: np.array(arrays[name], dtype=np.float64) for name in header["arrays"]}
        references = {name: str(header[name]) for name in ("run", "journal", "code") if name in header}
        return Saved(references, dict(header["state"]), found)


def write(
    path: str | os.PathLike[str],
    references: Mapping[str, str],
    state: dict[str, Any],
    arrays: Mapping[str, NDArray[Any]],
) -> None:
    """Write a state and its arrays as a file of the run. The journal must have counted what the state has spent."""
    header = {**references, "arrays": list(arrays), "state": state}
    write_state(path, _FORMAT, header, arrays)
