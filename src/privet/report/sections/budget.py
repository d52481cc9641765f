"""Epsilon at every delta, and the parameter of Gaussian differential privacy."""

import math
from typing import Any

from privet.privacy import Guarantee
from privet.privacy.analyses.accounting import gaussian_mu
from privet.report.numbers import delta as as_power
from privet.report.numbers import up
from privet.report.svg import Axis, Chart, power_ticks, round_ticks

TITLE = "Epsilon, delta and mu"
LEAST, MOST = 1e-12, 1e-2


def values(report: Any) -> dict[str, Any]:
    """Return the curve and the table of epsilons, and mu."""
    guarantee: Guarantee = report.guarantee
    stated = guarantee.delta
    deltas = sorted({LEAST, 1e-10, 1e-8, 1e-6, 1e-5, 1e-4, MOST, *((stated,) if stated else ())})
    points = [(delta, guarantee.epsilon_at(delta)) for delta in deltas]
    finite = [(delta, epsilon) for delta, epsilon in points if math.isfinite(epsilon)]
    shown = [LEAST, 1e-8, 1e-6, 1e-4] if stated else [0.0, LEAST, 1e-6]
    table = {delta: guarantee.epsilon_at(delta) for delta in shown} | {stated: guarantee.epsilon}
    mu = guarantee.mu
    return {
        "chart": _chart(finite, guarantee) if len(finite) > 1 else "",
        "rows": [(as_power(delta), up(table[delta], 4), delta == stated) for delta in sorted(table)],
        "mu": up(mu, 4) if math.isfinite(mu) else None,
        "is_gaussian": gaussian_mu(guarantee.event, guarantee.adjacency) is not None,
        "ends": any(math.isinf(epsilon) for epsilon in table.values()),
        "unit": guarantee.unit,
        "adjacency": guarantee.adjacency,
        "neighbours": guarantee.adjacency.in_words.format(unit=guarantee.unit),
    }


def _chart(points: list[tuple[float, float]], guarantee: Guarantee) -> str:
    most = max(epsilon for _, epsilon in points) * 1.05 or 1.0
    chart = Chart(
        Axis("delta", LEAST, MOST, power_ticks(LEAST, MOST), is_log=True),
        Axis("epsilon", 0, most, round_ticks(0, most)),
        "Epsilon at every delta",
        "The same promise, stated with other deltas: "
        + "; ".join(f"epsilon {up(epsilon)} at delta {as_power(delta)}" for delta, epsilon in points)
        + ".",
    )
    chart.line([delta for delta, _ in points], [epsilon for _, epsilon in points])
    if guarantee.delta:
        chart.point(guarantee.delta, guarantee.epsilon)
    return chart.svg()
