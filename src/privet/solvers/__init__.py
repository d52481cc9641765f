"""Solvers: one algorithm a file. A plan, an objective and data in; a :class:`Release` out."""

from privet.solvers.adaptive_gradient import adaptive_gradient_descent
from privet.solvers.centred_gradient import centred_gradient_descent
from privet.solvers.minimiser_perturbation import minimiser_perturbation
from privet.solvers.noisy_gradient import noisy_gradient_descent
from privet.solvers.objective_perturbation import objective_perturbation
from privet.solvers.output_perturbation import output_perturbation
from privet.solvers.problem import Problem
from privet.solvers.projected_sgd import descent_of, projected_sgd
from privet.solvers.random_round import random_round
from privet.solvers.recursive_momentum import recursive_momentum
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
    "adaptive_gradient_descent",
    "centred_gradient_descent",
    "descent_of",
    "minimiser_perturbation",
    "noisy_gradient_descent",
    "objective_perturbation",
    "output_perturbation",
    "projected_sgd",
    "random_round",
    "recursive_momentum",
]
