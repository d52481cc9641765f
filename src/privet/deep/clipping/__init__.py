"""Per-example clipping without per-example gradients: one rule per layer type, in one file per kind of layer."""

from privet.deep.clipping import attention, convolution, embedding, linear, normalisation, operations, recurrent
from privet.deep.clipping.batch import BatchGradients, batch_gradients, layers_of

__all__ = [
    "BatchGradients",
    "attention",
    "batch_gradients",
    "convolution",
    "embedding",
    "layers_of",
    "linear",
    "normalisation",
    "operations",
    "recurrent",
]
