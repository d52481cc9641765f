"""Losses and regularisers that know their own Lipschitz, smoothness and convexity constants."""

from privet.objectives.classification import Logistic, Multinomial, SmoothedHinge, TamedLogistic
from privet.objectives.convolved import GaussianAbsolute, GaussianHinge
from privet.objectives.glm import GeneralisedLinear
from privet.objectives.regression import Huber, Squared
from privet.objectives.regularisers import L2, Regulariser, SaturatingPenalty
from privet.objectives.rows import BoundedRows
from privet.objectives.shifted import Shifted

__all__ = [
    "L2",
    "BoundedRows",
    "GaussianAbsolute",
    "GaussianHinge",
    "GeneralisedLinear",
    "Huber",
    "Logistic",
    "Multinomial",
    "Regulariser",
    "SaturatingPenalty",
    "Shifted",
    "SmoothedHinge",
    "Squared",
    "TamedLogistic",
]
