"""Checkpoint files of a training: the weights, and everything else that the next step needs.

The state of the noise generator is not saved, because anyone who has it can subtract the noise. The journal of the run
counts the steps that were made after the file was written (:mod:`privet.run_files`).
"""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privet.run_files import reading_state, write_state

_FORMAT = "privet training 1"

State = Any
"""Numbers, strings, None and tensors, in any nesting of dicts, lists and tuples, as in a ``state_dict``."""


def write(path: str | os.PathLike[str], state: State) -> None:
    """Write a state to a file, in one piece or not at all."""
    arrays: dict[str, NDArray[Any]] = {}
    write_state(path, _FORMAT, _encoded(state, arrays), arrays)


def read(path: str | os.PathLike[str]) -> State:
    """Return the state in a file that :func:`write` wrote."""
    with reading_state(path, _FORMAT, "PrivateTraining.save") as (state, arrays):
        return _decoded(state, arrays)


def _encoded(value: State, arrays: dict[str, NDArray[Any]]) -> Any:
    """Return a value as JSON with tagged containers, and move its tensors to ``arrays``."""
    if isinstance(value, Tensor):
        name, tensor = f"t{len(arrays)}", value.detach().cpu()
        plain = tensor.view(torch.int16) if tensor.dtype is torch.bfloat16 else tensor  # NumPy has no bfloat16.
        arrays[name] = plain.numpy()
        return {"tensor": name, "type": str(tensor.dtype).removeprefix("torch.")}
    if isinstance(value, dict):
        return {"dict": [[_encoded(key, arrays), _encoded(each, arrays)] for key, each in value.items()]}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"  # Subclasses too: a torch.Size is a tuple.
        return {kind: [_encoded(each, arrays) for each in value]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(
        f"A {type(value).__name__} cannot be saved. A state can hold numbers, strings, None and tensors, in "
        "dicts, lists and tuples."
    )


def _decoded(value: Any, arrays: Mapping[str, Any]) -> State:
    """Return the value that :func:`_encoded` converted to JSON."""
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        tensor = torch.from_numpy(np.array(arrays[value["tensor"]]))
        return tensor.view(torch.bfloat16) if value["type"] == "bfloat16" else tensor
    ((kind, content),) = value.items()
    if kind == "dict":
        return {_decoded(key, arrays): _decoded(each, arrays) for key, each in content}
    return {"list": list, "tuple": tuple}[kind](_decoded(each, arrays) for each in content)
