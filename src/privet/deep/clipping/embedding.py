"""nn.Embedding: one row of the table per position."""

import torch
from torch import Tensor, nn

from privet.deep.clipping.gradients import PerExample, RowSum
from privet.deep.clipping.rules import rule


@rule(nn.Embedding)
def embedding(layer: nn.Embedding, inputs: Tensor, output_grads: Tensor) -> dict[str, PerExample]:
    """Return the per-example gradients of the table, which are zero in the padding row."""
    if layer.scale_grad_by_freq:
        raise ValueError("An nn.Embedding with scale_grad_by_freq uses all examples at once. Leave this option out.")
    indices = inputs.reshape(len(inputs), -1)
    right = output_grads.reshape(len(inputs), indices.shape[1], -1)
    if layer.padding_idx is not None:
        right = torch.where((indices == layer.padding_idx)[:, :, None], 0.0, right)
    return {"weight": RowSum(indices, right, layer.weight.shape)}
