"""Table 6.1 of "Towards Efficient and Effective Privacy-Preserving Machine Learning": how much noise each method adds.

m = 100 parties have 500 records each, lambda = 0.01, epsilon = 0.5, G = 1, T = 100, and d = 122 columns (KDD Cup 99).
The chapter's output and objective perturbation draw Laplace noise on each coordinate at a scale that is right for one
coordinate, so they are sqrt(d) epsilon-DP. Its formula for gradients drops log(1/delta). The table shows the printed
numbers, the epsilon that such noise gives, and the noise that epsilon = 0.5 requires: l2 K-norm noise for delta = 0,
Gaussian noise for delta > 0, and the exact distribution of the protocol, including rounding, where there is one.

All numbers are standard deviations of one coordinate of the average of models or gradients, except for Local Obj-P, for
which they are those of one party's linear term.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from support import print_table

from privet.plans import FullBatch, GradientPlan, MinimiserStability, ObjectivePlan, OutputPlan
from privet.plans.aggregation import AggregationPlan
from privet.privacy import Budget, gdp_epsilon
from privet.privacy.analyses.objective_noise import volume_loss

PARTIES, ROWS, ALPHA, EPSILON, LIPSCHITZ, STEPS, COLUMNS = 100, 500, 0.01, 0.5, 1.0, 100, 122
CURVATURE = 0.25  # of the logistic loss
DELTAS = (1e-3, 1e-5)
TITLE = (
    f"Table 6.1: m = {PARTIES}, n(1) = {ROWS}, lambda = {ALPHA:g}, epsilon = {EPSILON:g}, G = 1, T = {STEPS}, "
    f"d = {COLUMNS}; standard deviation of a coordinate, in thousandths"
)
HEADINGS = (
    "method",
    "paper's scale",
    "paper's noise",
    "its true epsilon (delta)",
    "K-norm, delta 0",
    *(f"Gaussian, delta {delta:g}" for delta in DELTAS),
    *(f"protocol, delta {delta:g}" for delta in DELTAS),
)


@dataclass(frozen=True)
class Line:
    """One method: its printed noise, the epsilon that this gives, and the required noise, by delta (0: K-norm)."""

    method: str
    printed_scale: float
    printed_noise: float
    true_epsilon: dict[float, float]
    noise: dict[float, float]
    protocol_noise: dict[float, float]


def table() -> list[Line]:
    """Return Table 6.1 as printed and corrected."""
    laplace = math.sqrt(COLUMNS) * EPSILON  # attained if the result moves along (1, ..., 1)
    volume = volume_loss(CURVATURE, ROWS, ALPHA)
    share = 1 / math.sqrt(PARTIES)  # fraction of a party's noise that remains in the average
    descent = {delta: gdp_epsilon(math.sqrt(2) * EPSILON, delta) for delta in DELTAS}
    gradients = {delta: _gradient_noise(delta) for delta in DELTAS}
    joint_output = _protocol_noise(1, 2 * LIPSCHITZ / (PARTIES * ROWS * ALPHA), LIPSCHITZ / ALPHA)
    joint_gradient = _protocol_noise(STEPS, 2 * LIPSCHITZ, PARTIES * ROWS * LIPSCHITZ)
    return [
        Line("Pathak", 0.8, 1.15, {0.0: laplace / PARTIES}, _output_noise(1.0), {}),
        Line("Local Out-P", 0.08, 0.112, {0.0: laplace}, _output_noise(share), {}),
        Line("Local Obj-P", 8e-3, 11.6e-3, {0.0: laplace + volume}, _objective_noise(), {}),
        Line("Local Grad-P", 5.66e-3, 5.63e-3, descent, {k: v / ROWS * share for k, v in gradients.items()}, {}),
        Line("MPC Out-P", 8e-3, 12.2e-3, {0.0: laplace}, _output_noise(1 / PARTIES), joint_output),
        Line(
            "MPC Grad-P",
            0.57e-3,
            0.572e-3,
            descent,
            {delta: std / (PARTIES * ROWS) for delta, std in gradients.items()},
            {delta: std / (PARTIES * ROWS) for delta, std in joint_gradient.items()},
        ),
    ]


def _by_delta(scale: Callable[[Budget], float]) -> dict[float, float]:
    """Return standard deviations of a coordinate: of K-norm noise for delta = 0, and of Gaussian noise."""
    k_norm = {0.0: math.sqrt(COLUMNS + 1) * scale(Budget(EPSILON))}
    return k_norm | {delta: scale(Budget(EPSILON, delta)) for delta in DELTAS}


def _output_noise(share: float) -> dict[float, float]:
    stability = MinimiserStability(ROWS, LIPSCHITZ, ALPHA, tolerance=0.0)
    return _by_delta(lambda budget: share * OutputPlan.for_budget(budget, stability=stability).scale)


def _objective_noise() -> dict[float, float]:
    fields: dict[str, Any] = {"n": ROWS, "lipschitz": LIPSCHITZ, "smoothness": CURVATURE, "strong_convexity": ALPHA}
    return _by_delta(lambda budget: ObjectivePlan.for_budget(budget, **fields, is_one_sided=True).scale / ROWS)


def _gradient_noise(delta: float) -> float:
    plan = GradientPlan.for_budget(Budget(EPSILON, delta), sampler=FullBatch(), steps=STEPS, clip_norm=LIPSCHITZ)
    return plan.noise_std


def _protocol_noise(steps: int, sensitivity: float, largest: float) -> dict[float, float]:
    plans = {
        delta: AggregationPlan.for_budget(
            Budget(EPSILON, delta), dimension=COLUMNS, steps=steps, sensitivity=sensitivity, largest=largest
        )
        for delta in DELTAS
    }
    return {delta: plan.noise_std for delta, plan in plans.items()}


def cells(line: Line) -> list[str]:
    """Return one line of the table."""

    def thousandths(value: float | None) -> str:
        return "" if value is None else f"{1000 * value:.4g}"

    epsilons = ", ".join(f"{epsilon:.3g} ({delta:g})" for delta, epsilon in line.true_epsilon.items())
    return [
        line.method,
        thousandths(line.printed_scale),
        thousandths(line.printed_noise),
        epsilons,
        *(thousandths(line.noise.get(delta)) for delta in (0.0, *DELTAS)),
        *(thousandths(line.protocol_noise.get(delta)) for delta in DELTAS),
    ]


def show() -> list[dict[str, Any]]:
    """Print the table, and return it for the file of results."""
    lines = table()
    print_table(TITLE, HEADINGS, [cells(line) for line in lines])
    return [asdict(line) for line in lines]
