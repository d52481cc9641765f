"""Solvers: one algorithm a file. A plan, an objective and data in; a :class:`Release` out."""

from privet.solvers.noisy_gradient import noisy_gradient_descent
from privet.solvers.output_perturbation import output_perturbation
from privet.solvers.problem import Problem
from privet.solvers.release import Progress, Release

__all__ = ["Problem", "Progress", "Release", "noisy_gradient_descent", "output_perturbation"]
