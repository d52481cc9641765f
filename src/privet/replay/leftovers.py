"""A digest of everything that a run leaves behind, by the path on which it can be reached."""

import enum
import functools
import hashlib
import io
import threading
import types
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from privet.privacy.guarantees.guarantee import Guarantee
from privet.privacy.noise.orders import OrderSource
from privet.privacy.noise.source import NoiseSource

_OPAQUE = (
    NoiseSource,
    OrderSource,
    io.IOBase,
    threading.Thread,
    type(threading.Lock()),
    weakref.ReferenceType,
    types.ModuleType,
    types.GeneratorType,
    type,
)
_GENERATORS = ("Generator", "RandomState", "Random")  # of numpy, torch and Python
_PLAIN = (type(None), bool, int, str, bytes, complex, enum.Enum, Path)


class Leftovers:
    """Digests of what a run leaves behind, and the guarantees that were found there."""

    def __init__(self, *roots: Any) -> None:
        self.digests: dict[str, bytes] = {}
        self.guarantees: list[Guarantee] = []
        self._seen: dict[int, str] = {}
        self._kept: list[Any] = []  # so that no two objects have the same id
        waiting = [(root, name) for root, name in zip(roots, ("result", *"23456789"), strict=False)]
        while waiting:
            thing, path = waiting.pop()
            waiting.extend(reversed(list(self._visit(thing, path))))

    def _visit(self, thing: Any, path: str) -> Iterator[tuple[Any, str]]:
        """Keep the digest of a thing, and yield its parts."""
        content = _content(thing)
        if content is None and id(thing) in self._seen:
            content = f"see {self._seen[id(thing)]}".encode()
        if content is not None:
            self._keep(path, content)
            return
        self._seen[id(thing)] = path
        self._kept.append(thing)
        if isinstance(thing, Guarantee) and thing not in self.guarantees:
            self.guarantees.append(thing)
        if isinstance(thing, types.FunctionType | types.BuiltinFunctionType | types.MethodType):
            yield from self._function(thing, path)
        elif hasattr(thing, "detach") and hasattr(thing, "is_sparse"):
            yield from self._tensor(thing, path)
        else:
            yield from self._parts(thing, path)

    def _keep(self, path: str, content: bytes) -> None:
        self.digests[path] = content if len(content) <= 64 else hashlib.blake2b(content, digest_size=16).digest()

    def _function(self, thing: Any, path: str) -> Iterator[tuple[Any, str]]:
        """Keep the name of a function. What it refers to can be reached from it."""
        self._keep(path, getattr(thing, "__qualname__", repr(type(thing))).encode())
        if isinstance(thing, types.MethodType):
            yield thing.__self__, f"{path}.__self__"
        elif isinstance(thing, types.FunctionType):
            yield thing.__defaults__, f"{path}.__defaults__"
            yield thing.__dict__, f"{path}.__dict__"
        for place, cell in enumerate(getattr(thing, "__closure__", None) or ()):
            try:
                yield cell.cell_contents, f"{path}.__closure__[{place}]"
            except ValueError:  # an empty cell
                continue

    def _tensor(self, thing: Any, path: str) -> Iterator[tuple[Any, str]]:
        import torch

        flat = thing.detach().to_dense() if thing.is_sparse else thing.detach()
        flat = flat.cpu().contiguous().reshape(-1)
        raw = flat.view(torch.uint8).numpy() if flat.numel() else np.zeros(0, np.uint8)
        self._keep(path, _numbers(str(thing.dtype), tuple(thing.shape), raw))
        if thing.is_leaf and thing.grad is not None:
            yield thing.grad, f"{path}.grad"
        if vars(thing) if hasattr(thing, "__dict__") else {}:
            yield vars(thing), f"{path}.__dict__"

    def _parts(self, thing: Any, path: str) -> Iterator[tuple[Any, str]]:
        self._keep(path, f"{type(thing).__module__}.{type(thing).__qualname__}".encode())
        if isinstance(thing, Mapping):
            yield from _entries(thing, path)
        elif isinstance(thing, set | frozenset):
            yield sorted(map(repr, thing)), f"{path}.sorted"
        elif isinstance(thing, np.ndarray):
            yield thing.tolist(), f"{path}.tolist()"
        elif hasattr(thing, "itertuples") or hasattr(thing, "iloc"):  # pandas
            yield thing.to_numpy(), f"{path}.values"
            yield list(thing.index), f"{path}.index"
        elif isinstance(thing, functools.partial):
            yield from ((getattr(thing, name), f"{path}.{name}") for name in ("func", "args", "keywords"))
        elif isinstance(thing, list | tuple) or type(thing).__name__ == "deque":
            yield from ((each, f"{path}[{place}]") for place, each in enumerate(thing))
        for name, value in _attributes(thing).items():
            yield value, f"{path}.{name}"


def _content(thing: Any) -> bytes | None:
    """Return the content of a thing without parts, or None if it has parts. Random generators have no content."""
    if isinstance(thing, _PLAIN):
        return repr(thing).encode()
    if isinstance(thing, float | np.generic):
        return type(thing).__name__.encode() + np.asarray(thing).tobytes()
    if isinstance(thing, np.ndarray) and thing.dtype != object:
        return _numbers(str(thing.dtype), thing.shape, np.ascontiguousarray(thing))
    if isinstance(thing, _OPAQUE) or type(thing).__name__ in _GENERATORS:
        return type(thing).__qualname__.encode()
    return None


def _entries(thing: Mapping[Any, Any], path: str) -> Iterator[tuple[Any, str]]:
    """Yield the values of a mapping. Keys that have no plain form, such as parameters, count by their place."""
    for place, (key, value) in enumerate(thing.items()):
        yield value, f"{path}[{key!r}]" if isinstance(key, str | int | tuple) else f"{path}[key {place}]"


def _attributes(thing: Any) -> dict[str, Any]:
    """Return the attributes of an object, except those that it says stay with the holder of the data."""
    found = dict(getattr(thing, "__dict__", {}))
    for kind in type(thing).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(thing, name):
                found.setdefault(name, getattr(thing, name))
    private: frozenset[str] = getattr(type(thing), "_stays_with_holder", frozenset())
    return {name: value for name, value in found.items() if name not in private}


def _numbers(dtype: str, shape: tuple[int, ...], raw: Any) -> bytes:
    return f"{dtype}{shape}".encode() + hashlib.blake2b(memoryview(raw).cast("B") if raw.size else b"").digest()[:16]


def files_in(folder: Path) -> dict[str, bytes]:
    """Return the digest of each file in a folder, by its path relative to the folder."""
    return {
        str(path.relative_to(folder)): hashlib.blake2b(path.read_bytes()).digest()[:16]
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def differences(first: Mapping[str, bytes], second: Mapping[str, bytes]) -> list[str]:
    """Return the paths whose contents differ, or that only one of the two has."""
    only: Callable[[str], bool] = lambda path: first.get(path) != second.get(path)  # noqa: E731
    return [path for path in dict.fromkeys([*first, *second]) if only(path)]
