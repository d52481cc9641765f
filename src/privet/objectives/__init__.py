"""Bounded rows, losses and regularisers that know their own Lipschitz, smoothness and convexity constants."""

from privet.objectives import losses
from privet.objectives.class_weighted import BalancedClasses, ClassWeighted
from privet.objectives.glm import BinaryLoss, GeneralisedLinear
from privet.objectives.losses import *  # noqa: F403
from privet.objectives.regularisers import L2, Regulariser, SaturatingPenalty
from privet.objectives.rows import BoundedRows
from privet.objectives.shifted import Shifted

__all__ = [
    "L2",
    "BalancedClasses",
    "BinaryLoss",
    "BoundedRows",
    "ClassWeighted",
    "GeneralisedLinear",
    "Regulariser",
    "SaturatingPenalty",
    "Shifted",
]
__all__ += losses.__all__
