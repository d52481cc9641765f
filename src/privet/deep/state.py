"""The state of a model: its parameters, buffers and plain attributes, to be compared, and restored after trial runs.

Modules are entered even if they are hidden in a plain attribute, and so are containers and plain objects. Functions,
datasets and optimizers are not.
"""

import hashlib
import types
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils.data import Dataset

from privet.deep.fingerprint import checksum, raw_bytes

_INTERNAL = vars(nn.Module()).keys() - {"training"}
"""Attributes of every module that torch itself manages, among them the hooks."""

_PLAIN = (type(None), bool, int, float, complex, str, bytes, np.generic, torch.dtype, torch.device)

_OPAQUE = (
    *_PLAIN,
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.ModuleType,
    torch.Generator,
    torch.optim.Optimizer,
    Dataset,
)
"""Objects that are not entered."""


@dataclass(frozen=True)
class Entry:
    """One value in the state of a model: what holds it, and a digest of its bits.

    Parameters
    ----------
    kind : {"parameter", "buffer", "attribute"}
        What holds the value.
    digest : hashable
        Equal for equal values.
    """

    kind: str
    digest: Hashable


def digests(**roots: object) -> dict[str, Entry]:
    """Return the state of named objects, usually a model and its loss, by the path of each value."""
    return {
        path: Entry("parameter" if isinstance(value, nn.Parameter) else kind, _digest(value))
        for path, kind, value in _reachable(roots)
        if not isinstance(value, nn.Module)
    }


def hidden_modules(model: nn.Module, loss: object) -> list[tuple[str, nn.Module]]:
    """Return modules that a model or its loss holds, but that are not registered in the model, with their paths.

    Of modules that are registered in one another, only the outermost is returned.
    """
    known, found = set(model.modules()), []
    for path, _, value in _reachable({"model": model, "loss": loss}):
        if isinstance(value, nn.Module) and value not in known:
            known |= set(value.modules())
            found.append((path.removeprefix("model."), value))
    return found


def _reachable(roots: Mapping[str, object]) -> Iterator[tuple[str, str, Any]]:
    """Yield the path of each value that can be reached from named objects, what holds it, and the value itself."""
    entered: dict[int, object] = {}  # Holds the objects, so that no other object gets the same id.
    waiting = deque((name, "attribute", root) for name, root in roots.items())
    while waiting:
        path, kind, value = waiting.popleft()
        if id(value) in entered:
            continue
        if not isinstance(value, _PLAIN):
            entered[id(value)] = value
        yield path, kind, value
        waiting += [(path + step, of_part, part) for step, of_part, part in _parts(value, kind)]


def _parts(value: Any, kind: str) -> Iterator[tuple[str, str, object]]:
    """Yield what an object consists of: how it is reached, what holds it, and the part itself."""
    if isinstance(value, nn.Module):
        yield from ((f".{name}", "parameter", each) for name, each in value._parameters.items())
        yield from ((f".{name}", "buffer", each) for name, each in value._buffers.items())
        yield from ((f".{name}", "attribute", each) for name, each in value._modules.items())
        yield from ((f".{name}", "attribute", each) for name, each in vars(value).items() if name not in _INTERNAL)
    elif isinstance(value, dict):
        yield from ((f"[{key!r}]", kind, each) for key, each in value.items())
    elif isinstance(value, list | tuple | deque):
        yield from ((f"[{place}]", kind, each) for place, each in enumerate(value))
    else:
        yield from ((step, kind, each) for step, each in _bound(value))
        if _has_attributes(value):
            yield from ((f".{name}", kind, each) for name, each in vars(value).items())


def _bound(value: Any) -> Iterator[tuple[str, object]]:
    """Yield what a method or a partial function is bound to. Variables of functions are not entered."""
    if isinstance(value, types.MethodType):
        yield ".__self__", value.__self__
    elif isinstance(value, partial):
        yield from ((f".{name}", getattr(value, name)) for name in ("func", "args", "keywords"))


def _has_attributes(value: object) -> bool:
    return hasattr(value, "__dict__") and not isinstance(value, (*_OPAQUE, types.MethodType, Tensor, np.ndarray))


def _digest(value: Any) -> Hashable:
    contents: Hashable = ()
    if isinstance(value, _PLAIN):
        contents = repr(value)  # Two values that are not a number are equal here, and 0.0 differs from -0.0.
    elif isinstance(value, set | frozenset):
        contents = tuple(sorted(map(repr, value)))
    elif isinstance(value, dict | list | tuple | deque):
        contents = len(value)
    elif isinstance(value, nn.Parameter) and _is_readable(value):
        contents = value.dtype, value.shape, checksum(value)
    elif isinstance(value, Tensor) and _is_readable(value):
        contents = value.dtype, value.shape, hashlib.sha256(raw_bytes(value).tobytes()).digest()
    elif isinstance(value, np.ndarray) and value.dtype != object:
        contents = str(value.dtype), value.shape, hashlib.sha256(np.ascontiguousarray(value).tobytes()).digest()
    return type(value).__qualname__, contents


def _is_readable(value: Tensor) -> bool:
    return not is_lazy(value) and value.layout is torch.strided and not value.is_meta


class SavedState:
    """A copy of the state of some objects, which can be restored any number of times.

    Tensors, arrays and containers get their former contents back in place, so that references to them stay valid.
    """

    def __init__(self, *roots: object) -> None:
        self._put_back: list[Callable[[], None]] = []
        self._entered: dict[int, object] = {}
        waiting = list(roots)
        while waiting:
            value = waiting.pop()
            if id(value) not in self._entered and not isinstance(value, _OPAQUE):
                self._entered[id(value)] = value
                waiting += self._save(value)

    def _save(self, value: Any) -> list[Any]:
        """Remember the contents of one object, and return what else must be remembered."""
        inside: list[Any] = []
        if isinstance(value, Tensor):
            if _is_readable(value):
                self._put_back.append(_restorer_of_tensor(value))
        elif isinstance(value, np.ndarray):
            self._put_back.append(partial(np.copyto, value, value.copy()))
        elif isinstance(value, dict):
            self._put_back.append(partial(_refill, value, dict(value), value.update))
            inside = list(value.values())
        elif isinstance(value, list | deque):
            self._put_back.append(partial(_refill, value, list(value), value.extend))
            inside = list(value)
        elif isinstance(value, set):
            self._put_back.append(partial(_refill, value, set(value), value.update))
        elif isinstance(value, tuple):
            inside = list(value)
        else:
            inside = [each for _, each in _bound(value)]
            if _has_attributes(value):
                inside.append(vars(value))
        return inside

    def restore(self) -> None:
        """Give the objects the state back that they had when this copy was made."""
        with torch.no_grad():
            for put_back in self._put_back:
                put_back()


def _refill(container: Any, contents: Any, fill: Callable[[Any], None]) -> None:
    if _identities(container) != _identities(contents):
        container.clear()
        fill(contents)


def _identities(container: Any) -> list[Any]:
    """Return what a container holds, by identity. Its members may not be comparable."""
    if isinstance(container, dict):
        return [(key, id(value)) for key, value in container.items()]
    return [id(each) for each in container]


def _restorer_of_tensor(tensor: Tensor) -> Callable[[], None]:
    """Return a function that restores the memory of a tensor, and the values in it."""
    memory = tensor.detach()
    values = memory.clone()

    def put_back() -> None:
        if tensor.data_ptr() != memory.data_ptr() or tensor.shape != memory.shape:
            tensor.data = memory
        if not np.array_equal(raw_bytes(memory), raw_bytes(values)):
            memory.copy_(values)

    return put_back
