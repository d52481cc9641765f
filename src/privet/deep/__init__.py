"""Deep networks in PyTorch, trained with differential privacy."""

from privet.deep.gradient_estimators import RecursiveMomentum
from privet.deep.planning import make_private
from privet.deep.training import PrivateTraining

__all__ = ["PrivateTraining", "RecursiveMomentum", "make_private"]
