"""A training in a file: the weights and all that the next step needs.

It does not hold the noise generator: whoever has a generator's state can subtract the noise it gave. How many steps
were made after the file was written, its journal knows (:mod:`privet.files`).
"""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privet.files import Journal, reading_state, write_state

__all__ = ["Journal", "State", "read", "write"]

_FORMAT = "privet training 1"

State = Any
"""Numbers, texts, None and tensors, in any nesting of dicts, lists and tuples: what a state_dict holds."""


def write(path: str | os.PathLike[str], state: State) -> None:
    """Write a state in one piece or not at all."""
    arrays: dict[str, NDArray[Any]] = {}
    write_state(path, _FORMAT, _encoded(state, arrays), arrays)


def read(path: str | os.PathLike[str]) -> State:
    """Read a state that :func:`write` wrote."""
    with reading_state(path, _FORMAT, "PrivateTraining.save") as (state, arrays):
        return _decoded(state, arrays)


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


def _decoded(value: Any, arrays: Mapping[str, Any]) -> State:
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        tensor = torch.from_numpy(np.array(arrays[value["tensor"]]))
        return tensor.view(torch.bfloat16) if value["type"] == "bfloat16" else tensor
    ((kind, content),) = value.items()
    if kind == "dict":
        return {_decoded(key, arrays): _decoded(each, arrays) for key, each in content}
    return {"list": list, "tuple": tuple}[kind](_decoded(each, arrays) for each in content)
