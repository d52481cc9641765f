"""Training in several processes: each draws its share of a batch, and one draws the noise (torch.distributed)."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, distributed

from privet.deep.dataset_digest import DatasetDigest, compared
from privet.privacy import Assumption, assumed

SAME_DATASET = assumed("all processes hold the same examples in the same order, of which privet compared a sample")


@dataclass(frozen=True)
class Processes:
    """The processes that train together: the rank of this one, and their number.

    Formal guarantees
    -----------------
    Process r holds the examples r, r + size, r + 2 size, ... and draws each of them with the plan's rate, so that the
    shares together are one Poisson batch of the whole dataset. This requires the same dataset in the same order in all
    processes, which :meth:`check_datasets` compares. The sums are gathered in the first process, which adds
    noise once and sends the noisy sum to all others. The distribution of the result, and therefore the accounting, is
    that of a single process.
    """

    rank: int = 0
    size: int = 1

    @classmethod
    def joined(cls) -> "Processes":
        """Return the process group that the caller initialised, or this process alone if there is none."""
        if not (distributed.is_available() and distributed.is_initialized()):
            return cls()
        return cls(distributed.get_rank(), distributed.get_world_size())

    @property
    def is_first(self) -> bool:
        """Whether this process draws the noise and writes files."""
        return self.rank == 0

    def share(self, n: int) -> NDArray[np.int64]:
        """Return the indices of the examples that this process draws from."""
        return np.arange(self.rank, n, self.size)

    def gathered(self, total: Tensor) -> Tensor:
        """Return the sum of all processes' vectors in the first process. The result in the others is undefined.

        Vectors of several processes are added in double precision, whatever format each of them has.
        """
        if self.size > 1:
            total = total.double()
            distributed.reduce(total, dst=0)
        return total

    def from_first(self, value: Tensor) -> Tensor:
        """Return, in every process, the vector that the first process passed."""
        if self.size > 1:
            distributed.broadcast(value, src=0)
        return value

    def agreed(self, number: int) -> int:
        """Return, in every process, the number that the first process passed."""
        return int(self.from_first(torch.tensor(number)))

    def check_alike(self, *given: object) -> None:
        """Raise in all processes unless all were given equal values. A different bound in one breaks the guarantee."""
        if self.size > 1:
            number = int.from_bytes(hashlib.sha256(repr(given).encode()).digest()[:7], "big")
            ends = torch.tensor([number, -number])
            distributed.all_reduce(ends, distributed.ReduceOp.MAX)
            if int(ends[0]) != -int(ends[1]):
                raise ValueError(
                    "The processes were given different plans or models. Call make_private() with the same arguments "
                    "in all of them."
                )

    def check_datasets(self, dataset: Any) -> list[Assumption]:
        """Raise in all processes unless all hold the same dataset, and return what the guarantee has to assume.

        The result is empty if every example was compared (:mod:`privet.deep.dataset_digest`).
        """
        if self.size == 1:
            return []
        found: DatasetDigest | Exception
        try:
            found = DatasetDigest.of(dataset)
        except Exception as error:  # The other processes wait for this one, so they must hear of the error.
            found = error
        told: list[Any] = [None] * self.size
        distributed.all_gather_object(told, None if isinstance(found, Exception) else found)
        if isinstance(found, Exception):
            raise found
        failed = [rank for rank, digest in enumerate(told) if digest is None]
        if failed:
            raise ValueError(f"Process {failed[0]} cannot read its dataset. See its error message for the cause.")
        return [] if compared(told) else [SAME_DATASET]

    def begin_alike(self, tensors: Iterable[Tensor]) -> None:
        """Copy the parameters and buffers of the first process to all others."""
        with torch.no_grad():
            for tensor in tensors if self.size > 1 else ():
                tensor.copy_(self.from_first(tensor.detach().contiguous()))
