"""Collate examples of a dataset into a batch."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import TensorDataset, default_collate


def collated(dataset: Any, indices: NDArray[np.int64]) -> tuple[Any, ...]:
    """Return the examples of a batch as tensors. An empty batch gives tensors without examples."""
    if type(dataset) is TensorDataset:  # A subclass may create its examples differently.
        chosen = torch.as_tensor(indices)
        return tuple(tensor[chosen] for tensor in dataset.tensors)
    if len(indices) == 0:
        return tuple(part[:0] for part in default_collate([dataset[0]]))
    examples: Sequence[Any] = [dataset[int(index)] for index in indices]
    return tuple(default_collate(examples))
