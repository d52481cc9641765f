"""Gradients that are materialised for a few examples at a time: their norms and their clipped sum, in one pass."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from privet.deep.clipping.gradients import PerExample
from privet.deep.clipping.outer_products import CHUNK
from privet.deep.clipping.summing import Summation
from privet.networks.norms import lengths

_BUFFER = 4 * CHUNK
"""Number of values that are materialised at a time. Few examples at a time would take more calls."""


@dataclass(frozen=True)
class Materialised:
    """The gradients of some parameters, side by side, one row per example.

    The rows of a few examples are in the cache when their norms are known, so they are added up at once, and neither
    kept nor computed a second time.

    Parameters
    ----------
    parts : dict of PerExample
        The gradients, all of the same format and on the same device.
    """

    parts: Mapping[nn.Parameter, PerExample]

    @classmethod
    def of(cls, parts: Mapping[nn.Parameter, PerExample]) -> "Materialised":
        """Choose among gradients that are materialised: the largest, and as many others as fit into the cache."""
        chosen: dict[nn.Parameter, PerExample] = {}
        left, kind = CHUNK, None
        for parameter, part in sorted(parts.items(), key=lambda item: item[1].row_size, reverse=True):
            like = part.like()
            if part.row_size and (not chosen or (part.row_size <= left and kind == (like.dtype, like.device))):
                chosen[parameter], kind = part, (like.dtype, like.device)
                left -= part.row_size
        return cls(chosen)

    def add_clipped(
        self,
        slots: Mapping[nn.Parameter, Tensor],
        norms: Tensor,
        summation: Summation,
        factors: Callable[[Tensor], Tensor],
    ) -> None:
        """Add the clipped gradients to flat vectors, one per parameter.

        Parameters
        ----------
        slots : dict of tensors
            The vectors.
        norms : tensor
            The norm of each example's gradient over all other parameters. It becomes that over all parameters.
        summation : Summation
            How sums over the batch are computed.
        factors : callable
            The clipping factors, given norms over all parameters. An example with the factor 0 is left out.
        """
        if not self.parts:
            return
        sizes = [part.row_size for part in self.parts.values()]
        like = next(iter(self.parts.values())).like()
        buffer = like.new_empty(max(1, min(len(norms), _BUFFER // sum(sizes))), sum(sizes))

        def add(chosen: slice, out: Tensor, beta: float) -> None:
            for start in range(chosen.start, chosen.stop, len(buffer)):
                some = slice(start, min(start + len(buffer), chosen.stop))
                rows = buffer[: some.stop - some.start]
                for part, columns in zip(self.parts.values(), rows.split(sizes, 1), strict=True):
                    part.write_rows(some, columns)
                norms[some] = torch.hypot(norms[some], lengths(rows))
                weights = factors(norms[some])
                is_added = weights > 0
                if not is_added.all():  # Zero times infinity is NaN.
                    rows, weights = rows[is_added], weights[is_added]
                out.addmv_(rows.to(out.dtype).t(), weights.to(out.dtype), beta=beta)
                beta = 1.0

        slot = next(slots[parameter] for parameter in self.parts)
        total = torch.zeros(sum(sizes), dtype=slot.dtype, device=like.device)
        summation.add_sum(total, len(norms), like, add)
        for (parameter, part), row in zip(self.parts.items(), total.split(sizes), strict=True):
            slots[parameter].add_(part.from_row(row).to(slots[parameter]))
