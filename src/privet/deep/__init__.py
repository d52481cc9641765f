"""Deep networks in PyTorch, trained with differential privacy."""

from typing import TYPE_CHECKING, Any

from privet.extras import remedy

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(remedy("torch"), name="torch") from error

from privet.deep.features import frozen_features
from privet.deep.gradient_estimators import RecursiveMomentum
from privet.deep.planning import make_private
from privet.deep.training import PrivateTraining

if TYPE_CHECKING:
    from privet.deep.trainer import PrivateTrainer

__all__ = ["PrivateTrainer", "PrivateTraining", "RecursiveMomentum", "frozen_features", "make_private"]


def __getattr__(name: str) -> Any:
    """Import what needs transformers when it is first used."""
    if name != "PrivateTrainer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from privet.deep.trainer import PrivateTrainer
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"PrivateTrainer needs {error.name}. Run: pip install transformers accelerate", name=error.name
        ) from error
    return PrivateTrainer
