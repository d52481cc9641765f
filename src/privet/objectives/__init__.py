"""Losses and regularisers that know their own Lipschitz, smoothness and convexity constants."""

from privet.objectives.glm import GeneralisedLinear, Logistic, Multinomial
from privet.objectives.regularisers import L2
from privet.objectives.rows import BoundedRows

__all__ = ["L2", "BoundedRows", "GeneralisedLinear", "Logistic", "Multinomial"]
