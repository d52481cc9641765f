"""Solvers: one algorithm per file. ``solver(problem, run, ...)`` returns a :class:`Release`."""

from privet.solvers.adaptive_gradient import adaptive_gradient_descent
from privet.solvers.additive_descent import AdditiveProblem, additive_descent
from privet.solvers.base.interface import (
    AlignedStep,
    ConstantStep,
    DecayingStep,
    Problem,
    Progress,
    Release,
    Run,
    ShortestStep,
    StepSize,
)
from privet.solvers.disjoint_teachers import disjoint_stability, disjoint_teachers
from privet.solvers.frank_wolfe import frank_wolfe
from privet.solvers.hard_threshold import hard_threshold, peeled_threshold
from privet.solvers.ight import ight
from privet.solvers.knowledge_transfer import PublicFeatures, knowledge_transfer, student_of, transfer_stability
from privet.solvers.minimiser_perturbation import minimiser_perturbation
from privet.solvers.noisy_gradient import centred_gradient_descent, noisy_gradient_descent
from privet.solvers.objective_perturbation import objective_perturbation
from privet.solvers.output_perturbation import centred_output_perturbation, output_perturbation
from privet.solvers.projected_sgd import descent_of, projected_sgd
from privet.solvers.random_round import random_round
from privet.solvers.recursive_momentum import recursive_momentum
from privet.solvers.selected_teacher import selected_teacher
from privet.solvers.sufficient_statistics import moment_stability, sufficient_statistics
from privet.solvers.two_stage import two_stage, two_stage_plan

__all__ = [
    "AdditiveProblem",
    "AlignedStep",
    "ConstantStep",
    "DecayingStep",
    "Problem",
    "Progress",
    "PublicFeatures",
    "Release",
    "Run",
    "ShortestStep",
    "StepSize",
    "adaptive_gradient_descent",
    "additive_descent",
    "centred_gradient_descent",
    "centred_output_perturbation",
    "descent_of",
    "disjoint_stability",
    "disjoint_teachers",
    "frank_wolfe",
    "hard_threshold",
    "ight",
    "knowledge_transfer",
    "minimiser_perturbation",
    "moment_stability",
    "noisy_gradient_descent",
    "objective_perturbation",
    "output_perturbation",
    "peeled_threshold",
    "projected_sgd",
    "random_round",
    "recursive_momentum",
    "selected_teacher",
    "student_of",
    "sufficient_statistics",
    "transfer_stability",
    "two_stage",
    "two_stage_plan",
]
