"""Deep networks in PyTorch, trained with differential privacy."""

from privet.deep.estimates import RecursiveMomentum
from privet.deep.training import PrivateTraining, make_private

__all__ = ["PrivateTraining", "RecursiveMomentum", "make_private"]
