"""Solvers: one algorithm a file. A plan, an objective and data in; a :class:`Release` out."""

from privet.solvers.centred_gradient import centred_gradient_descent
from privet.solvers.noisy_gradient import noisy_gradient_descent
from privet.solvers.output_perturbation import output_perturbation
from privet.solvers.problem import Problem
from privet.solvers.release import Progress, Release
from privet.solvers.steps import AlignedStep, ConstantStep, DecayingStep, StepSize

__all__ = [
    "AlignedStep",
    "ConstantStep",
    "DecayingStep",
    "Problem",
    "Progress",
    "Release",
    "StepSize",
    "centred_gradient_descent",
    "noisy_gradient_descent",
    "output_perturbation",
]
