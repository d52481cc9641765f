"""Several contributions to one parameter, from a layer that is used twice or from tied weights."""

from collections.abc import Sequence

import torch

from privet.deep.clipping.gradients import Direct, OuterSum, PerExample, RowSum


def together(parts: Sequence[PerExample]) -> PerExample:
    """Return the sum of several contributions to one parameter, from a layer that is used twice or tied weights."""
    if len(parts) == 1:
        return parts[0]
    outers = [outer for part in parts if (outer := part.as_outer_sum()) is not None]
    if len(outers) == len(parts) and len({(outer.left.shape[1], outer.left.shape[3]) for outer in outers}) == 1:
        left = torch.cat([outer.left for outer in outers], dim=2)
        return OuterSum(left, torch.cat([outer.right for outer in outers], dim=2), outers[0].shape)
    rows = [part for part in parts if isinstance(part, RowSum)]
    if len(rows) == len(parts):
        indices = torch.cat([part.indices for part in rows], dim=1)
        return RowSum(indices, torch.cat([part.right for part in rows], dim=1), rows[0].shape)
    return Direct(torch.stack([part.written_out() for part in parts]).sum(0))
