"""Per-example clipping without per-example gradients: a rule for each layer type, one file each."""

from privet.deep.clipping import attention, convolution, embedding, linear, normalisation, recurrent
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
    "recurrent",
]
