"""A digest of everything that a run leaves behind, by the path on which it can be reached.

The walk follows attributes, slots, containers, functions with their closures and defaults, and what ``pickle`` would
store of objects that are written in C. It does not see what no reference of the result leads to: variables of modules,
the content of generators and of ``functools.lru_cache``, and objects that are only weakly referenced.
"""

import array
import enum
import gc
import hashlib
import io
import struct
import threading
import types
import weakref
from collections import deque
from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from privet.privacy.guarantees.guarantee import Guarantee
from privet.privacy.noise.orders import OrderSource
from privet.privacy.noise.source import NoiseSource
from privet.replay.array_digests import array_digest, tensor_digest

_OPAQUE = (
    NoiseSource,
    OrderSource,
    io.IOBase,
    threading.Thread,
    type(threading.Lock()),
    weakref.ReferenceType,
    types.GeneratorType,
)
_OPAQUE_NAMES = {  # sources of random numbers, and handles of hooks, whose numbers count those of all modules
    "random": ("Random",),
    "_random": ("Random",),
    "numpy": ("Generator", "RandomState", "BitGenerator"),
    "torch": ("Generator", "RemovableHandle"),
}
_PLAIN = (type(None), bool, int, float, complex, str, bytes, enum.Enum, Path, np.generic)
_BUFFERS = (bytearray, memoryview, array.array)
_SEQUENCES = (list, tuple, deque, KeysView, ValuesView, ItemsView)
_LEAST_ADDRESS = 1 << 32


class Leftovers:
    """Digests of what a run leaves behind, and the guarantees that were found there."""

    def __init__(self, *roots: Any, seen: Mapping[int, str] | None = None) -> None:
        self.digests: dict[str, bytes] = {}
        self.guarantees: list[Guarantee] = []
        self._seen: dict[int, str] = dict(seen or {})
        self._kept: list[Any] = []  # so that no two objects have the same id
        waiting = [(root, name) for root, name in zip(roots, ("result", *"23456789"), strict=False)]
        while waiting:
            thing, path = waiting.pop()
            waiting.extend(reversed(list(self._visit(thing, path))))

    def _visit(self, thing: Any, path: str) -> Iterator[tuple[Any, str]]:
        """Keep the digest of a thing, and yield its parts."""
        if isinstance(thing, types.GeneratorType) and "." not in path:
            raise ValueError(
                "The training returns a generator, so it has not finished, and its results cannot be compared. Return "
                "a list of them."
            )
        if type(thing) is float:  # Plans may have thousands.
            self.digests[path] = struct.pack("<d", thing)
            return
        content = b"address" if self._is_address(thing) else _content(thing)
        if content is not None and not _has_attributes(thing):
            self._keep(path, content)
            return
        if id(thing) in self._seen:
            self._keep(path, f"see {self._seen[id(thing)]}".encode())
            return
        self._seen[id(thing)] = path
        self._kept.append(thing)
        if isinstance(thing, Guarantee):
            self.guarantees.append(thing)
        self._keep(path, content or _name(type(thing)))
        if content is not None:
            yield from ((value, f"{path}.{name}") for name, value in _attributes(thing).items())
        elif isinstance(thing, types.FunctionType | types.BuiltinFunctionType | types.MethodType):
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
        if not isinstance(getattr(thing, "__self__", None), types.ModuleType | type(None)):
            yield thing.__self__, f"{path}.__self__"
        function = getattr(thing, "__func__", thing)
        for name in ("__defaults__", "__kwdefaults__", "__dict__", "__code__"):
            if getattr(function, name, None):
                yield getattr(function, name), f"{path}.{name}"
        for place, cell in enumerate(getattr(function, "__closure__", None) or ()):
            try:
                yield cell.cell_contents, f"{path}.__closure__[{place}]"
            except ValueError:  # an empty cell
                continue

    def _tensor(self, thing: Any, path: str) -> Iterator[tuple[Any, str]]:
        self._keep(path, tensor_digest(thing))
        if (thing.is_leaf or thing.retains_grad) and thing.grad is not None:
            yield thing.grad, f"{path}.grad"
        if vars(thing) if hasattr(thing, "__dict__") else {}:
            yield vars(thing), f"{path}.__dict__"

    def _parts(self, thing: Any, path: str) -> Iterator[tuple[Any, str]]:
        is_container = True
        if isinstance(thing, type):
            yield {name: each for name, each in vars(thing).items() if not _is_made_by_python(name)}, f"{path}.__dict__"
            return
        if isinstance(thing, Mapping):
            yield from self._entries(thing, path)
        elif isinstance(thing, set | frozenset):
            yield self._elements(thing), f"{path}.sorted"
        elif isinstance(thing, np.ndarray):
            yield thing.tolist(), f"{path}.tolist()"
        elif hasattr(thing, "itertuples"):  # a table of pandas
            yield from ((thing.iloc[:, place].array, f"{path}.iloc[:, {place}]") for place in range(thing.shape[1]))
            yield from ((thing.index, f"{path}.index"), (thing.columns, f"{path}.columns"))
        elif hasattr(thing, "iloc"):
            yield from ((thing.array, f"{path}.array"), (thing.index, f"{path}.index"))
        elif isinstance(thing, _SEQUENCES):
            yield from ((each, f"{path}[{place}]") for place, each in enumerate(thing))
        elif isinstance(thing, types.CodeType):
            yield from (
                (getattr(thing, name), f"{path}.{name}") for name in ("co_code", "co_consts", "co_names", "co_freevars")
            )
        else:
            is_container = False
        attributes = _attributes(thing)
        yield from ((value, f"{path}.{name}") for name, value in attributes.items())
        if not is_container and _has_own_reduction(thing, not attributes):
            yield _reduced(thing), f"{path}.__reduce__()"
        if "<locals>" in type(thing).__qualname__:  # the run may have made this class
            yield type(thing), f"{path}.__class__"

    def _entries(self, thing: Mapping[Any, Any], path: str) -> Iterator[tuple[Any, str]]:
        """Yield the entries of a mapping. Keys without a plain form, such as parameters, count by their place.

        torch numbers hooks in the order in which any module got them, so these numbers count by their place, too.
        """
        are_hooks = "hooks" in path.rpartition(".")[2]
        names = []
        for place, (key, value) in enumerate(thing.items()):
            is_counted = self._is_address(key) or (are_hooks and isinstance(key, int))
            if is_counted or not _is_plain(key):
                names.append(f"key {place}")
                yield (None if is_counted else key), f"{path}.keys[{place}]"
            else:
                names.append(repr(key))
            yield value, f"{path}[{names[-1]}]"
        self._keep(f"{path}.order", "\n".join(names).encode())

    def _elements(self, things: set[Any] | frozenset[Any]) -> list[Any]:
        """Return the elements of a set in an order that does not depend on their addresses."""
        if all(map(_is_plain, things)):
            return sorted("address" if self._is_address(each) else repr(each) for each in things)
        walks = [Leftovers(each, seen=self._seen) for each in things]
        self.guarantees += [guarantee for walk in walks for guarantee in walk.guarantees]
        return sorted(repr(walk.digests) for walk in walks)

    def _is_address(self, thing: Any) -> bool:
        """Return whether this is the ``id`` of an object, which is another one in each run."""
        return type(thing) is int and thing >= _LEAST_ADDRESS and thing % 8 == 0 and thing in self._addresses

    @cached_property
    def _addresses(self) -> set[int]:
        return set(map(id, gc.get_objects()))


def _content(thing: Any) -> bytes | None:
    """Return the content of a thing apart from its attributes, or None if it has parts."""
    if isinstance(thing, float | np.generic) and not isinstance(thing, str | bytes):
        return type(thing).__name__.encode() + array_digest(np.asarray(thing))
    if isinstance(thing, _PLAIN):
        return repr(thing).encode()
    if isinstance(thing, np.ndarray):
        return None if thing.dtype.hasobject else array_digest(np.asarray(thing))
    if isinstance(thing, _BUFFERS):
        return bytes(thing)
    if isinstance(thing, io.BytesIO | io.StringIO) and not thing.closed:
        return repr(thing.getvalue()).encode()
    return _name_without_content(thing)


def _name_without_content(thing: Any) -> bytes | None:
    """Return the name of a module or class, or of the class of a thing whose content is not compared; else None."""
    kinds = type(thing).__mro__
    is_opaque = any(kind.__name__ in _OPAQUE_NAMES.get(kind.__module__.partition(".")[0], ()) for kind in kinds)
    if isinstance(thing, _OPAQUE) or is_opaque:
        return _name(type(thing))
    if isinstance(thing, types.ModuleType):
        return thing.__name__.encode()
    return _name(thing) if isinstance(thing, type) and "<locals>" not in thing.__qualname__ else None


def _name(kind: type) -> bytes:
    return f"{kind.__module__}.{kind.__qualname__}".encode()


def _has_attributes(thing: Any) -> bool:
    """Return whether a thing with content also has attributes: an array or a number of a class of its own."""
    if isinstance(thing, (enum.Enum, Path, type, types.ModuleType, *_OPAQUE)):
        return False
    return isinstance(thing, (*_PLAIN, np.ndarray)) and bool(getattr(thing, "__dict__", None))


def _is_plain(key: Any) -> bool:
    """Return whether the ``repr`` of a key says everything about it, and nothing about its address."""
    if isinstance(key, tuple):
        return type(key) is tuple and all(map(_is_plain, key))
    return isinstance(key, _PLAIN)


def _is_made_by_python(name: str) -> bool:
    """Return whether an entry of a class is not part of its definition."""
    return name in ("__dict__", "__weakref__", "__doc__", "__annotations__") or name.startswith("_abc_")


def _has_own_reduction(thing: Any, is_empty: bool) -> bool:
    """Return whether an object says itself how it is stored, as those written in C do."""
    kind: Any = type(thing)
    if kind.__reduce_ex__ is not object.__reduce_ex__ or kind.__reduce__ is not object.__reduce__:
        return True
    return is_empty and kind.__getstate__ is not object.__getstate__


def _reduced(thing: Any) -> Any:
    """Return what would be stored of an object, or None if it cannot be stored."""
    try:
        return thing.__reduce_ex__(4)
    except Exception:  # whatever an object raises that cannot be pickled
        return None


def _attributes(thing: Any) -> dict[str, Any]:
    """Return the attributes of an object, except those that it says stay with the holder of the data."""
    found = dict(getattr(thing, "__dict__", {}))
    for kind in type(thing).__mro__:
        if "__slots__" in kind.__dict__:
            for name, member in kind.__dict__.items():
                if isinstance(member, types.MemberDescriptorType) and hasattr(thing, name):
                    found.setdefault(name, getattr(thing, name))
    private: frozenset[str] = getattr(type(thing), "_stays_with_holder", frozenset())
    if hasattr(thing, "iloc"):  # the tables of pandas keep their content there, in pieces
        private |= {"_mgr", "_item_cache"}
    return {name: value for name, value in found.items() if name not in private}


def files_in(folder: Path) -> dict[str, bytes]:
    """Return the digest of each file in a folder, by its path relative to the folder. Folders count as well."""
    return {
        str(path.relative_to(folder)): hashlib.blake2b(path.read_bytes()).digest()[:16] if path.is_file() else b""
        for path in sorted(folder.rglob("*"))
    }


def differences(first: Mapping[str, bytes], second: Mapping[str, bytes]) -> list[str]:
    """Return the paths whose contents differ, or that only one of the two has."""
    return [path for path in dict.fromkeys([*first, *second]) if first.get(path) != second.get(path)]
