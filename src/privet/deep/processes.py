"""Training in several processes: each draws its share of a batch, one draws the noise for all (torch.distributed)."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, distributed


@dataclass(frozen=True)
class Processes:
    """The processes that train together: this one's rank, and how many there are.

    Formal guarantees
    -----------------
    Process r holds the examples r, r + size, r + 2 size, ... and draws each of its own with the plan's rate: together
    the shares are one Poisson batch of the whole. Sums meet in the first process, which alone adds noise, once; all
    others receive the noisy sum. So law and accounting are those of one process.
    """

    rank: int = 0
    size: int = 1

    @classmethod
    def joined(cls) -> "Processes":
        """Return the process group that the caller initialised, or this process alone."""
        if not (distributed.is_available() and distributed.is_initialized()):
            return cls()
        return cls(distributed.get_rank(), distributed.get_world_size())

    @property
    def is_first(self) -> bool:
        """Whether this process draws the noise and writes files."""
        return self.rank == 0

    def share(self, n: int) -> NDArray[np.int64]:
        """Return the examples that are this process's to draw."""
        return np.arange(self.rank, n, self.size)

    def gathered(self, total: Tensor) -> Tensor:
        """Return, in the first process, the sum of all processes' vectors; others get nothing of use."""
        if self.size > 1:
            distributed.reduce(total, dst=0)
        return total

    def from_first(self, value: Tensor) -> Tensor:
        """Return the first process's vector in all."""
        if self.size > 1:
            distributed.broadcast(value, src=0)
        return value

    def agreed(self, number: int) -> int:
        """Return the first process's number in all."""
        return int(self.from_first(torch.tensor(number)))

    def check_alike(self, *given: object) -> None:
        """Raise, in all processes, unless all were given the same: another bound in one would break the guarantee."""
        if self.size > 1:
            number = int.from_bytes(hashlib.sha256(repr(given).encode()).digest()[:7], "big")
            ends = torch.tensor([number, -number])
            distributed.all_reduce(ends, distributed.ReduceOp.MAX)
            if int(ends[0]) != -int(ends[1]):
                raise ValueError("the processes were given different plans or models: give all of them the same")

    def begin_alike(self, tensors: Iterable[Tensor]) -> None:
        """Give all processes the first one's parameters and buffers."""
        with torch.no_grad():
            for tensor in tensors if self.size > 1 else ():
                tensor.copy_(self.from_first(tensor.detach().contiguous()))
