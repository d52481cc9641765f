"""Plans: sampling, bound, noise, steps and event in one frozen object, from which the guarantee is computed."""

from privet.plans.centred import CentredPlan
from privet.plans.gradient import GradientPlan, PlanError, Step
from privet.plans.output import DescentStability, OutputPlan
from privet.plans.samplers import FixedOrder, FixedSize, FullBatch, OneUniform, Poisson, Sampler

__all__ = [
    "CentredPlan",
    "DescentStability",
    "FixedOrder",
    "FixedSize",
    "FullBatch",
    "GradientPlan",
    "OneUniform",
    "OutputPlan",
    "PlanError",
    "Poisson",
    "Sampler",
    "Step",
]
