"""Batches of any structure as rows: tuples and dictionaries of tensors, taken apart and put together again.

Inside privet, a batch is a flat tuple of inputs and, last, targets, whose first dimension is that of the examples. A
batch of another structure is taken apart into such rows, and put together again where the model is called.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

Rows = tuple[Any, ...]
"""Tensors, or lists, with one row per example."""

Build = Callable[[Iterator[Any]], Any]
"""Puts a batch together from its rows."""


class RowsError(ValueError):
    """Raised for a batch that does not have one row per example. ``found`` is the number of rows of a tensor in it."""

    found: int = 0


@dataclass(frozen=True)
class Parts:
    """A batch that was taken apart.

    Parameters
    ----------
    rows : tuple
        Everything in the batch that has one row per example.
    build : callable
        Puts such rows together to a batch of the same structure.
    """

    rows: Rows
    build: Build

    @classmethod
    def of(cls, batch: Any, size: int) -> "Parts":
        """Take a batch of ``size`` examples apart. Raise unless each tensor in it has one row per example."""
        rows: list[Any] = []
        build = _taken_apart(batch, size, "", rows)
        if not rows:
            raise RowsError(
                f"A batch must hold tensors with one row per example, but it is a {type(batch).__name__} without any."
            )
        return cls(tuple(rows), build)

    def with_rows(self, rows: Sequence[Any]) -> Any:
        """Return a batch of the same structure with other rows."""
        return self.build(iter(rows))


def as_batch(given: Any) -> Any:
    """Return a batch as a dictionary, or as a tuple of inputs and, last, a target."""
    if isinstance(given, Mapping):
        return dict(given)
    if isinstance(given, list | tuple) and not hasattr(given, "_fields"):
        return tuple(given)
    raise RowsError(
        f"A batch must be a tuple of inputs and, last, a target, or a dictionary, but it is a {type(given).__name__}. "
        "Return one of the two from the dataset, or from collate_fn."
    )


def is_flat(batch: Any) -> bool:
    """Return whether a batch is a tuple of rows already."""
    return isinstance(batch, tuple) and all(
        isinstance(each, Tensor) or (isinstance(each, list | tuple) and _is_row_list(each)) for each in batch
    )


def _taken_apart(value: Any, size: int, name: str, rows: list[Any]) -> Build:
    """Append the rows in a value, and return what puts them together again."""
    if isinstance(value, Mapping):
        parts = {key: _taken_apart(each, size, f"{name}[{key!r}]", rows) for key, each in value.items()}
        return lambda given: {key: part(given) for key, part in parts.items()}
    if isinstance(value, list | tuple) and not _is_row_list(value):
        built = [_taken_apart(each, size, f"{name}[{place}]", rows) for place, each in enumerate(value)]
        kind, has_names = type(value), hasattr(value, "_fields")
        return lambda given: kind(*_all(built, given)) if has_names else kind(_all(built, given))
    if isinstance(value, list | tuple) or (isinstance(value, Tensor) and value.ndim):
        if len(value) != size:
            error = RowsError(
                f"batch{name} has {len(value)} rows, but {size} examples were drawn. Every tensor of a batch must have "
                "one row per example. Expand what all examples share, and leave out what belongs to no example."
            )
            error.found = len(value)
            raise error
        rows.append(value)
        return next
    return lambda given: value  # A number, None, or anything else that all examples share.


def _is_row_list(value: Sequence[Any]) -> bool:
    """Return whether a list has one entry per example, as a list of strings has."""
    return not any(isinstance(each, Tensor | Mapping | list | tuple) for each in value)


def _all(parts: list[Build], given: Iterator[Any]) -> list[Any]:
    return [part(given) for part in parts]


def given_batch(parts: tuple[Any, ...], entries: dict[str, Any]) -> Any:
    """Return the batch that ``step`` was given: whole, as the parts of a tuple, or as the entries of a dictionary."""
    if parts and entries:
        raise TypeError(
            "step() got both positional and named arguments. Pass the batch in one form: step(batch), step(*batch) or "
            "step(**batch)."
        )
    if entries:
        return entries
    if parts and all(isinstance(each, str) for each in parts):
        raise TypeError("step(*batch) passes only the keys of a dictionary. Use step(batch) or step(**batch).")
    return as_batch(parts[0]) if len(parts) == 1 and not isinstance(parts[0], Tensor) else parts


def moved(batch: Any, device: Any) -> Any:
    """Return a batch on another device. Its structure stays the same."""
    if isinstance(batch, Tensor):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {key: moved(each, device) for key, each in batch.items()}
    if isinstance(batch, list | tuple):
        parts = [moved(each, device) for each in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return batch
