"""Several augmented views of an example, whose gradients are averaged before the average is clipped.

See S. De et al., "Unlocking High-Accuracy Differentially Private Image Classification through Scale" (2022). The
contribution of an example is still one vector of the clipping norm, so the views change nothing in the guarantee.
"""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import default_collate

from privet.deep.fingerprint import raw_bytes
from privet.deep.rows import Build, Parts, Rows
from privet.global_generators import seeded_alike


@dataclass(frozen=True)
class Views:
    """Makes views of examples, of each one alone.

    Parameters
    ----------
    augment : callable
        Returns a view of an example, given its inputs as the dataset returns them: ``augment(*inputs)`` returns an
        input or a tuple of inputs, and for dictionaries ``augment(**example)`` returns a dictionary.
    number : int
        Number of views per example.
    """

    augment: Callable[..., Any]
    number: int = 1

    def of(self, rows: Rows, build: Build | None, seed: int) -> Rows:
        """Return the rows of the views of all examples, those of one example next to each other.

        The random numbers of a view follow from the seed, the example and the number of the view. So they do not depend
        on the other examples of the batch.
        """
        views = [
            self._view(tuple(each[place] for each in rows), build, seed + number)
            for place in range(len(rows[-1]))
            for number in range(self.number)
        ]
        if not views:
            return rows
        batch = default_collate(views)
        if build is None:
            return (*batch, rows[-1].repeat_interleave(self.number, 0))
        return (*Parts.of(batch, len(views)).rows, rows[-1].repeat_interleave(self.number, 0))

    def _view(self, example: Rows, build: Build | None, seed: int) -> Any:
        with seeded_alike(seed ^ _checksum(example)):
            if build is None:
                return _as_tuple(self.augment(*example[:-1]))
            whole = build(iter(example))
            if isinstance(whole, Mapping):
                return _same_entries(self.augment(**whole), whole)
            return (*_as_tuple(self.augment(*whole[:-1])), whole[-1])


def _same_entries(view: Any, example: Mapping[str, Any]) -> dict[str, Any]:
    """Return a view with its entries in the order of the example's."""
    if not isinstance(view, Mapping) or view.keys() != example.keys():
        raise ValueError(
            f"augment() must return a dictionary with the entries of the example, {list(example)}. It returned "
            f"{list(view) if isinstance(view, Mapping) else type(view).__name__}."
        )
    return {key: view[key] for key in example}


def _as_tuple(inputs: Any) -> tuple[Any, ...]:
    return inputs if isinstance(inputs, tuple) else (inputs,)


def _checksum(example: Rows) -> int:
    found = 0
    for each in example:
        found = zlib.crc32(raw_bytes(each).tobytes() if isinstance(each, Tensor) else repr(each).encode(), found)
    return found


def averaged(loss: Callable[[Any, Any], Tensor], views: int) -> Callable[[Any, Any], Tensor]:
    """Return a loss whose sum over the views of an example is their mean."""

    def share(outputs: Any, targets: Any) -> Tensor:
        return loss(outputs, targets) / views

    return share


def step_seed(step: int) -> int:
    """Return the seed of the views of a step, which follows from the seed of torch's generator."""
    return int(torch.initial_seed() + (step << 20)) % 2**40
