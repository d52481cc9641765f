"""Plans: one frozen object holds sampling, bounds, noise and steps, and the guarantee is computed from it."""

from privet.plans.adaptive import AdaptivePlan
from privet.plans.base import Plan
from privet.plans.centred import CentredOutputPlan, CentredPlan
from privet.plans.contraction import Descent
from privet.plans.gradient import GradientPlan, PlanError, Step
from privet.plans.objective import ObjectivePlan
from privet.plans.output import OutputPlan
from privet.plans.recursive import RecursivePlan
from privet.plans.samplers import (
    FixedOrder,
    FixedSize,
    FullBatch,
    OneUniform,
    Poisson,
    RandomSkip,
    RandomStop,
    Sampler,
    SecretOrder,
)
from privet.plans.stabilities import DescentStability, MinimiserStability, MomentStability
from privet.plans.two_stage import TwoStagePlan

__all__ = [
    "AdaptivePlan",
    "CentredOutputPlan",
    "CentredPlan",
    "Descent",
    "DescentStability",
    "FixedOrder",
    "FixedSize",
    "FullBatch",
    "GradientPlan",
    "MinimiserStability",
    "MomentStability",
    "ObjectivePlan",
    "OneUniform",
    "OutputPlan",
    "Plan",
    "PlanError",
    "Poisson",
    "RandomSkip",
    "RandomStop",
    "RecursivePlan",
    "Sampler",
    "SecretOrder",
    "Step",
    "TwoStagePlan",
]
