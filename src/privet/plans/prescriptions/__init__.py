"""Prescriptions of the papers' theorems: numbers of steps, step sizes and utility bounds, one file per paper.

These functions say what a paper would take, so that it can be compared with the defaults of privet, which usually do
better. Each function checks the conditions of its theorem and raises ValueError if one fails. Where a theorem hides a
constant in its O or Theta notation, the constant is a parameter with default 1. A utility bound holds in expectation
and rests on assumptions about the data, while a guarantee never does.
"""

from privet.plans.prescriptions.dissertation import HardThresholdDescent, hard_threshold_descent
from privet.plans.prescriptions.efficient_erm import OutputDescent, output_descent

__all__ = [
    "HardThresholdDescent",
    "OutputDescent",
    "hard_threshold_descent",
    "output_descent",
]
