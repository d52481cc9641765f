"""Parts of PyTorch training that deep networks and federated learning share: losses, parameters and local SGD.

:mod:`privet.deep` and :mod:`privet.federated` import this package. It imports neither of them.
"""

from privet.networks.denoising import ORDERS, LayerDenoiser, layer_denoiser
from privet.networks.local_sgd import Displacement, LocalSGD, TensorDisplacement
from privet.networks.losses import Loss, check_losses, per_example, underlying
from privet.networks.parameters import (
    ParameterShapes,
    TensorDict,
    UpdateError,
    Vector,
    Weights,
    check_trainable,
    refuse_batch_norm,
    trained_parameters,
    trained_weights,
    with_weights,
)

__all__ = [
    "ORDERS",
    "Displacement",
    "LayerDenoiser",
    "LocalSGD",
    "Loss",
    "ParameterShapes",
    "TensorDict",
    "TensorDisplacement",
    "UpdateError",
    "Vector",
    "Weights",
    "check_losses",
    "check_trainable",
    "layer_denoiser",
    "per_example",
    "refuse_batch_norm",
    "trained_parameters",
    "trained_weights",
    "underlying",
    "with_weights",
]
