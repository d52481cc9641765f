"""The examples of a training: a dataset, how examples become a batch, and the worker processes that read them."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, default_collate, default_convert

from privet.deep.rows import Parts, as_batch

Indices = NDArray[np.int64]

_TAKEN_OVER = (
    "num_workers",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "prefetch_factor",
    "persistent_workers",
)
"""The settings of a loader that are used. Its sampler is not among them."""


@dataclass
class Examples:
    """A dataset, and how some of its examples become a batch.

    Parameters
    ----------
    dataset : map-style dataset
        The examples.
    collate : callable or None
        Makes a batch from a list of examples. None stands for torch's ``default_collate``.
    loading : dict
        Settings for worker processes, as those of a ``DataLoader``.
    batch_size : int or None
        The batch size of the loader that was given.
    """

    dataset: Any
    collate: Callable[[list[Any]], Any] | None = None
    loading: dict[str, Any] = field(default_factory=dict)
    batch_size: int | None = None

    @classmethod
    def of(cls, given: Any, collate: Callable[[list[Any]], Any] | None = None) -> "Examples":
        """Return the examples of a dataset or of a loader, whose sampler is not used."""
        if isinstance(given, cls):
            return given
        if not isinstance(given, DataLoader):
            _check_map_style(given)
            return cls(given, collate)
        _check_map_style(given.dataset)
        own = None if given.collate_fn in (default_collate, default_convert) else given.collate_fn
        loading = {name: getattr(given, name) for name in _TAKEN_OVER}
        return cls(given.dataset, collate or own, loading, given.batch_size)

    def __len__(self) -> int:
        return len(self.dataset)

    @property
    def is_ahead(self) -> bool:
        """Whether batches are read before their steps, by worker processes, or pinned in memory."""
        return bool(self.loading.get("num_workers") or self.loading.get("pin_memory"))

    def collated(self, indices: Indices) -> Any:
        """Return the examples of a batch. An empty batch gives tensors without examples."""
        if type(self.dataset) is TensorDataset and self.collate is None:  # Subclasses may create examples differently.
            chosen = torch.as_tensor(indices)
            return tuple(tensor[chosen] for tensor in self.dataset.tensors)
        if len(indices) == 0:
            return self.without_examples()
        return self.batch_of(self.read(indices))

    def read(self, indices: Indices) -> list[Any]:
        """Return some examples, as the dataset returns them."""
        whole = getattr(self.dataset, "__getitems__", None)
        if whole is not None:
            return list(whole([int(index) for index in indices]))
        return [self.dataset[int(index)] for index in indices]

    def batch_of(self, examples: Sequence[Any]) -> Any:
        """Return a batch of examples that were read, which must have one row for each of them."""
        batch = (self.collate or default_collate)(list(examples))
        self.check_rows(batch, len(examples))
        return batch if hasattr(batch, "keys") else as_batch(batch)

    @staticmethod
    def check_rows(batch: Any, size: int) -> None:
        """Raise unless a batch has one row per example."""
        Parts.of(as_batch(batch), size)

    def without_examples(self) -> Any:
        """Return a batch without examples."""
        parts = Parts.of(as_batch(self.batch_of(self.read(np.zeros(1, np.int64)))), 1)
        return parts.with_rows([each[:0] for each in parts.rows])

    def ahead(self, batches: Iterator[Any], share: Indices) -> Iterator[tuple[Any, Any]]:
        """Yield each of the batches that a plan draws, as it was drawn and as worker processes read it.

        Only indices go to the workers. They are drawn here, a few batches ahead, from the source of the plan. The
        loader seeds the workers, for random transforms, by torch's generator.

        Parameters
        ----------
        batches : iterator
            The batches as positions in ``share``.
        share : array of int
            The examples from which this process draws.
        """
        drawn: deque[Any] = deque()
        loader = DataLoader(
            self.dataset,
            batch_sampler=_Drawn(batches, share, drawn),
            collate_fn=_OrNone(self.collate or default_collate),
            **self.loading,
        )
        for found in loader:
            batch = drawn.popleft()
            if found is None:
                yield batch, self.without_examples()
            else:
                self.check_rows(found, len(share[batch]))
                yield batch, found if hasattr(found, "keys") else as_batch(found)


class _Drawn:
    """A batch sampler that passes on the batches of a plan, and remembers them."""

    def __init__(self, batches: Iterator[Any], share: Indices, drawn: deque[Any]) -> None:
        self._batches, self._share, self._drawn = batches, share, drawn

    def __iter__(self) -> Iterator[list[int]]:
        for batch in self._batches:
            self._drawn.append(batch)
            yield self._share[batch].tolist()


@dataclass(frozen=True)
class _OrNone:
    """A collate function for batches that may be empty. It is sent to worker processes."""

    collate: Callable[[list[Any]], Any]

    def __call__(self, examples: list[Any]) -> Any:
        return self.collate(examples) if examples else None


def _check_map_style(dataset: Any) -> None:
    if isinstance(dataset, IterableDataset) or not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise TypeError(
            f"{type(dataset).__name__} can only be read in its own order, but the guarantee needs batches that are "
            "drawn at random from all examples. Give a map-style dataset, which has __len__ and __getitem__, for "
            "instance list(dataset) if the examples fit into memory."
        )
    if isinstance(dataset, list | tuple) and len(dataset) and isinstance(dataset[0], Tensor | np.ndarray):
        raise TypeError(
            f"The dataset is a {type(dataset).__name__} of arrays, but each of its entries must be an example: a "
            "tuple of inputs and, last, a target, or a dictionary. Give TensorDataset(inputs, targets) with tensors."
        )
