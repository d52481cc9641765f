"""The file of a federated run, which holds the server's state."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from privet.plans import PlanError
from privet.privacy import assumed
from privet.run_files import reading_state, write_state

if TYPE_CHECKING:
    from privet.federated.server import Server

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


def save(server: "Server", path: str | os.PathLike[str], extra: Any) -> None:
    """Write the state of a server to a file. See :meth:`Server.save`."""
    server._files.begin(path)
    server._files.count(server.rounds_spent)
    average = server._average
    state = {
        "plan": repr(server.plan),
        "n_clients": server._public_n,
        "shapes": {name: list(shape) for name, shape in server._layers.shapes.items()},
        "rounds_done": server.rounds_done,
        "rounds_spent": server.rounds_spent,
        "average": None if average is None else average.total,
        "assumed": [each.text for each in server.guarantee.assumptions if not each.is_enforced],
        "guarantee": server.guarantee.to_dict(),
        "extra": extra,
        **server._booking.references,
    }
    arrays = {"model": server._vector}
    if average is not None and average.mean is not None:
        arrays["average"] = average.mean
    write(path, server._files.references(path, server.rounds_spent), state, arrays)


def resume(server: "Server", path: str | os.PathLike[str]) -> Any:
    """Continue the run in a file. See :meth:`Server.resume`."""
    if server.rounds_spent or server._step is not None:
        raise PlanError("resume() must be called before the first round of the server.")
    saved = read(path)
    state = saved.state
    shapes = {name: tuple(shape) for name, shape in state["shapes"].items()}
    for what, there, here in (
        ("plan", state["plan"], repr(server.plan)),
        ("number of clients", state["n_clients"] if server._public_n else None, server._public_n),
        ("model", shapes, server._layers.shapes),
        ("output rule", state["average"] is not None, server._average is not None),
    ):
        if there != here:
            raise ValueError(f"The saved run has a different {what}: {there} in the file, {here} in this server.")
    if any(array.shape != server._vector.shape for array in saved.arrays.values()):
        raise ValueError(f"{path} is damaged: the number of its parameters does not match its layers.")
    counted = server._files.take_over(path, saved.references, int(state["rounds_spent"]))
    server.rounds_spent = min(counted, server.plan.steps)
    server.rounds_done = state["rounds_done"]
    server._booking.resume(state.get("booked"))
    server._vector = saved.arrays["model"]
    if server._average is not None:
        server._average.total, server._average.mean = state["average"], saved.arrays["average"]
    server._begin(f"federated rounds, resumed after {server.rounds_spent}")
    known = {each.text for each in server.guarantee.assumptions}
    server._assumptions += tuple(assumed(text) for text in state["assumed"] if text not in known)
    return state["extra"]
