"""What private training of PyTorch models needs, whether one process trains or many clients do.

:mod:`privet.deep` and :mod:`privet.federated` build on this package, which knows neither of them.
"""

from privet.networks.local_sgd import Displacement, LocalSGD, TensorDisplacement
from privet.networks.losses import Loss, check_losses, per_example
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
    "Displacement",
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
    "per_example",
    "refuse_batch_norm",
    "trained_parameters",
    "trained_weights",
    "with_weights",
]
