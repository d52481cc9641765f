"""Linear layers: one outer product per example, or one per position of a sequence."""

from torch import Tensor, nn

from privet.deep.clipping.gradients import Direct, OuterSum, PerExample
from privet.deep.clipping.rules import rule


@rule(nn.Linear)
def linear(layer: nn.Linear, inputs: Tensor, output_grads: Tensor) -> dict[str, PerExample]:
    """Return the per-example gradients of weight and bias. Dimensions between the first and the last are positions."""
    left = inputs.reshape(len(inputs), 1, -1, inputs.shape[-1])
    right = output_grads.reshape(len(output_grads), 1, -1, output_grads.shape[-1])
    found: dict[str, PerExample] = {"weight": OuterSum(left, right, layer.weight.shape)}
    if layer.bias is not None:
        found["bias"] = Direct(
            right[:, 0, 0] if right.shape[2] == 1 else right.sum((1, 2))
        )  # A single position needs no copy.
    return found


@rule("transformers.pytorch_utils.Conv1D")
def transposed_linear(layer: nn.Module, inputs: Tensor, output_grads: Tensor) -> dict[str, PerExample]:
    """Return the per-example gradients of a linear layer whose weight has one row per input, as in GPT-2."""
    left = inputs.reshape(len(inputs), 1, -1, inputs.shape[-1])
    right = output_grads.reshape(len(output_grads), 1, -1, output_grads.shape[-1])
    shape = (left.shape[3], right.shape[3])
    return {"weight": OuterSum(right, left, shape), "bias": Direct(right.sum((1, 2)))}
