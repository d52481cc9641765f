"""Compare the two forms of one-run audits on the Gaussian mechanism: one epsilon and delta, or the trade-off curve.

The scores are the quantiles of the scores of a Gaussian mechanism, so the table has no random part.
``python experiments/one_run_forms.py`` writes ``docs/results/one_run_forms.json`` and prints the table.
"""

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from privet.audit import one_run
from privet.privacy import Budget, gdp_mu

DELTA = 1e-5
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
CANARIES = (1000, 4000, 10_000)
RESULTS = Path(__file__).parents[1] / "docs" / "results" / "one_run_forms.json"


def typical_scores(mu: float, canaries: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return quantiles of the scores of canaries that are included or not, and which of them are."""
    half = canaries // 2
    levels = ndtri((np.arange(half) + 0.5) / half)
    return np.concatenate([levels + mu / 2, levels - mu / 2]), np.repeat([True, False], half)


def main() -> None:
    rows = []
    print("| epsilon | canaries | (epsilon, delta) | the same, a fifth guessed | Gaussian DP |\n|---|---|---|---|---|")
    for epsilon in EPSILONS:
        for canaries in CANARIES:
            scores, included = typical_scores(gdp_mu(Budget(epsilon, DELTA)), canaries)
            approximate = one_run(scores, included, delta=DELTA).lower_bound
            fifth = one_run(scores, included, delta=DELTA, guesses=canaries // 5).lower_bound
            gaussian = one_run(scores, included, delta=DELTA, form="gaussian").lower_bound
            print(f"| {epsilon:g} | {canaries:,} | {approximate:.2f} | {fifth:.2f} | {gaussian:.2f} |")
            names = ("epsilon", "canaries", "approximate", "approximate_a_fifth", "gaussian")
            rows.append(dict(zip(names, (epsilon, canaries, approximate, fifth, gaussian), strict=True)))
    RESULTS.write_text(json.dumps({"delta": DELTA, "confidence": 0.95, "rows": rows}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
