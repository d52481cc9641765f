"""Tables 3 and 4 of "DP-LSSGD: A Stochastic Optimization Method to Lift the Utility in ... ERM": gamma and beta.

python experiments/smoothing_constants.py

gamma is the mean eigenvalue of the smoothing operator on a cycle of d coordinates, and beta the mean of the squared
eigenvalues. The closed forms of privet.denoise are compared with the sums over all eigenvalues, and both with the
paper, which prints three digits that are the same for all d.
"""

from typing import Any

import numpy as np
from support import print_table, write_results

from privet.denoise import beta, gamma

DIMENSIONS = (1000, 10_000, 100_000)
PAPER = {  # by sigma
    "gamma": {1: 0.447, 2: 0.333, 3: 0.277, 4: 0.243, 5: 0.218},
    "beta": {1: 0.268, 2: 0.185, 3: 0.149, 4: 0.128, 5: 0.114},
}


def row(name: str, sigma: int, d: int, paper: float) -> dict[str, Any]:
    """Return a constant in closed form, as a sum, and as printed in the paper."""
    eigenvalues = 1.0 / (1.0 + 2.0 * sigma * (1.0 - np.cos(2.0 * np.pi * np.arange(d) / d)))
    power, closed = (1, gamma(d, sigma)) if name == "gamma" else (2, beta(d, sigma))
    total = float(np.mean(eigenvalues**power))
    return {
        "constant": name,
        "sigma": sigma,
        "d": d,
        "paper": paper,
        "closed_form": closed,
        "sum": total,
        "off_paper": abs(closed - paper),
        "off_sum": abs(closed - total),
    }


def main() -> dict[str, Any]:
    """Compute both tables, print them, and write them to docs/results."""
    rows = [row(name, sigma, d, paper) for name in PAPER for sigma, paper in PAPER[name].items() for d in DIMENSIONS]
    print_table(
        "Tables 3 and 4: constants of the smoothing operator",
        ["constant", "sigma", "d", "paper", "privet", "sum"],
        [
            [each["constant"], str(each["sigma"]), str(each["d"])]
            + [f"{each[key]:.6f}" for key in ("paper", "closed_form", "sum")]
            for each in rows
        ],
    )
    results = {"rows": rows}
    write_results("smoothing_constants", results)
    return results


if __name__ == "__main__":
    main()
