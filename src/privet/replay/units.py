"""Which units of two neighbouring datasets are the same, found by comparing their content."""

import pickle
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.privacy.budget import Adjacency


@dataclass(frozen=True, eq=False)
class Units:
    """The units of two datasets that differ in one unit.

    Attributes
    ----------
    place : array of int
        Place in the second dataset of each unit of the first one, or -1 if the second dataset does not have it.
    n : int
        Number of units in the second dataset.
    are_known : bool
        Whether the differing unit is known. Otherwise each sum may move.
    """

    place: NDArray[np.int64]
    n: int
    are_known: bool = True

    @classmethod
    def of(cls, first: Any, second: Any) -> "Units":
        """Match units with the same content, in their order.

        Raise ValueError if more than one unit of a dataset is not in the other one.
        """
        aligned = _aligned(_arrays(first), _arrays(second))
        if aligned is not None:
            return aligned
        waiting: dict[bytes, deque[int]] = defaultdict(deque)
        contents = list(_contents(second))
        for number, content in enumerate(contents):
            waiting[content].append(number)
        mine = list(_contents(first))
        place = np.full(len(mine), -1, dtype=np.int64)
        for unit, content in enumerate(mine):
            if unit < len(contents) and contents[unit] == content:  # do not shift runs of equal units
                waiting[content].remove(unit)
                place[unit] = unit
        for unit, content in enumerate(mine):
            if place[unit] < 0 and waiting[content]:
                place[unit] = waiting[content].popleft()
        missing, added = int((place < 0).sum()), sum(map(len, waiting.values()))
        if max(missing, added) > 1:
            raise ValueError(
                f"The datasets are not neighbours: {missing} units of the first are not in the second, and {added} the "
                "other way round. Neighbouring datasets differ in one unit, which is replaced, added or removed."
            )
        return cls(place, len(contents))

    def check_neighbours(self, adjacency: Adjacency) -> None:
        """Raise unless the datasets are neighbours under an adjacency."""
        is_replaced, is_resized = None not in (self.mine, self.other), self.n != self.place.size
        if self.are_known and (is_replaced if adjacency is Adjacency.ADD_OR_REMOVE else is_resized):
            found = "replaced" if is_replaced else "added or removed"
            raise ValueError(
                f"The guarantee is stated under {adjacency} adjacency, but a unit was {found}. Such datasets are not "
                "neighbours under it. Give a neighbour that fits the guarantee."
            )

    @classmethod
    def unknown(cls) -> "Units":
        """Return units of which nothing is known, except that every draw takes the same ones in both runs."""
        return cls(np.zeros(0, dtype=np.int64), 0, are_known=False)

    @cached_property
    def mine(self) -> int | None:
        """The place in the first dataset of the unit that only it has."""
        found = np.flatnonzero(self.place < 0)
        return int(found[0]) if found.size else None

    @cached_property
    def other(self) -> int | None:
        """The place in the second dataset of the unit that only it has."""
        is_matched = np.zeros(self.n, dtype=bool)
        is_matched[self.place[self.place >= 0]] = True
        return None if is_matched.all() else int(np.argmin(is_matched))

    @cached_property
    def counterpart(self) -> NDArray[np.int64]:
        """The places in the second dataset, where a replaced unit has the place of its replacement."""
        place, mine, other = self.place.copy(), self.mine, self.other
        if mine is not None and other is not None:
            place[mine] = other
        return place


def _arrays(data: Any) -> list[NDArray[np.uint8]] | None:
    """Return the bytes of each row of the arrays that a dataset consists of, or None if it is something else."""
    if _is_problem(data):
        data = (data.rows.matrix, data.targets)
    tables = getattr(data, "tensors", data if isinstance(data, tuple) else (data,))
    tables = [each.detach().cpu().numpy() if _is_tensor(each) else each for each in tables]
    if not all(isinstance(each, np.ndarray) and each.ndim and len(each) and each.dtype != object for each in tables):
        return None
    return [np.ascontiguousarray(each).reshape(len(each), -1).view(np.uint8) for each in tables]


def _aligned(first: list[NDArray[np.uint8]] | None, second: list[NDArray[np.uint8]] | None) -> Units | None:
    """Return the units of arrays that differ in one row, while all others keep their order; otherwise None."""
    if not first or not second or [each.shape[1:] for each in first] != [each.shape[1:] for each in second]:
        return None
    n, others = len(first[0]), len(second[0])
    if {len(each) for each in first} != {n} or {len(each) for each in second} != {others}:
        return None
    shorter = min(n, others)
    is_same = np.ones(shorter, dtype=bool)
    for mine, theirs in zip(first, second, strict=True):
        is_same &= (mine[:shorter] == theirs[:shorter]).all(axis=1)
    place = np.arange(n)
    if n == others and np.count_nonzero(~is_same) <= 1:
        place[~is_same] = -1
        return Units(place, others)
    at = shorter if is_same.all() else int(np.argmin(is_same))
    longer = (first, second) if n > others else (second, first)
    if abs(n - others) != 1 or not all(np.array_equal(a[at + 1 :], b[at:]) for a, b in zip(*longer, strict=True)):
        return None
    place[at + (n > others) :] += 1 if n < others else -1
    place[at : at + (n > others)] = -1
    return Units(place, others)


def _contents(data: Any) -> Iterator[bytes]:
    """Yield the content of each unit: a row of one or several tables, or an item of a sequence."""
    if _is_problem(data):
        yield from _rows_of(data.rows.matrix, data.targets)
    elif isinstance(data, tuple | list) and data and all(map(_is_problem, data)):  # the rows of several parties
        for party, problem in enumerate(data):
            yield from (b"%d:" % party + content for content in _contents(problem))
    elif hasattr(data, "tensors"):  # a TensorDataset of torch
        yield from _rows_of(*data.tensors)
    elif isinstance(data, tuple) and data and all(hasattr(each, "__len__") or hasattr(each, "shape") for each in data):
        yield from _rows_of(*data)
    elif isinstance(data, Mapping):
        yield from (_content((key, item)) for key, item in data.items())
    elif hasattr(data, "tocsr"):
        yield from _sparse_rows(data.tocsr())
    elif hasattr(data, "itertuples"):
        yield from (pickle.dumps(row) for row in data.itertuples(index=False, name=None))
    else:
        items = getattr(data, "iloc", data)
        if _is_tensor(data):
            items = data.detach().cpu().numpy()
        yield from (_content(items[i]) for i in range(len(data)))


def _rows_of(*tables: Any) -> Iterator[bytes]:
    """Yield the content of each row of several tables with the same number of rows."""
    columns = [list(_contents(each)) for each in tables]
    if len({len(each) for each in columns}) != 1:
        raise ValueError(f"The parts of the data have {[len(each) for each in columns]} rows. They must agree.")
    for parts in zip(*columns, strict=True):
        yield pickle.dumps(parts)


def _sparse_rows(rows: Any) -> Iterator[bytes]:
    for i in range(rows.shape[0]):
        part = slice(rows.indptr[i], rows.indptr[i + 1])
        order = np.argsort(rows.indices[part])
        yield rows.indices[part][order].tobytes() + b"|" + rows.data[part][order].tobytes()


def _is_problem(data: Any) -> bool:
    """Return whether this is the problem of a solver."""
    return hasattr(data, "rows") and hasattr(data, "targets")


def _is_tensor(data: Any) -> bool:
    """Return whether this is a tensor that numpy can hold."""
    return hasattr(data, "detach") and not data.is_sparse and data.dtype.itemsize > 2


def _content(item: Any) -> bytes:
    """Return the bytes of an item. Tensors and arrays count by their values."""
    if hasattr(item, "detach"):
        item = item.detach().cpu()
        return repr((item.dtype, tuple(item.shape))).encode() + bytes(_torch_bytes(item))
    if isinstance(item, np.ndarray | np.generic):
        array = np.asarray(item)
        return pickle.dumps(array.tolist()) if array.dtype == object else array.tobytes()
    if isinstance(item, tuple | list):
        return pickle.dumps([_content(each) for each in item])
    if hasattr(item, "_fields"):
        return pickle.dumps([_content(getattr(item, name)) for name in item._fields])
    return pickle.dumps(item)


def _torch_bytes(tensor: Any) -> bytes:
    import torch

    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
