"""Prescriptions of the papers' theorems: numbers of steps, step sizes and utility bounds, one file per paper.

These functions say what a paper would take, so that it can be compared with the defaults of privet, which usually do
better. Each function checks the conditions of its theorem and raises ValueError if one fails. Where a theorem hides a
constant in its O or Theta notation, the constant is a parameter with default 1. A utility bound holds in expectation
and rests on assumptions about the data, while a guarantee never does.
"""

from privet.plans.prescriptions.corollaries import (
    PlainTransfer,
    RecursiveBatches,
    recursive_batches,
    transfer_without_penalty,
)
from privet.plans.prescriptions.dissertation import (
    HardThresholdDescent,
    RecursiveMomentum,
    hard_threshold_descent,
    recursive_momentum,
    transfer_penalty,
)
from privet.plans.prescriptions.dp_fed_ls import (
    FederatedProblem,
    FederatedSteps,
    federated_nonconvex_steps,
    federated_steps,
    largest_useful_rounds,
    rounds_within,
    smoothing_risk,
)
from privet.plans.prescriptions.dp_lssgd import SmoothedDescent, smoothed_descent, smoothed_nonconvex_descent
from privet.plans.prescriptions.efficient_erm import (
    OutputDescent,
    RandomRound,
    generalisation_penalty,
    output_descent,
    random_round,
    stopping_law,
)
from privet.plans.prescriptions.iteration import (
    NoisyPass,
    local_pass,
    many_passes_noise,
    noisy_pass_plan,
    several_tasks,
    skipping_pass,
    smoothing_width,
)
from privet.plans.prescriptions.parties import JointDescent, joint_descent, joint_output_excess

__all__ = [
    "FederatedProblem",
    "FederatedSteps",
    "HardThresholdDescent",
    "JointDescent",
    "NoisyPass",
    "OutputDescent",
    "PlainTransfer",
    "RandomRound",
    "RecursiveBatches",
    "RecursiveMomentum",
    "SmoothedDescent",
    "federated_nonconvex_steps",
    "federated_steps",
    "generalisation_penalty",
    "hard_threshold_descent",
    "joint_descent",
    "joint_output_excess",
    "largest_useful_rounds",
    "local_pass",
    "many_passes_noise",
    "noisy_pass_plan",
    "output_descent",
    "random_round",
    "recursive_batches",
    "recursive_momentum",
    "rounds_within",
    "several_tasks",
    "skipping_pass",
    "smoothed_descent",
    "smoothed_nonconvex_descent",
    "smoothing_risk",
    "smoothing_width",
    "stopping_law",
    "transfer_penalty",
    "transfer_without_penalty",
]
