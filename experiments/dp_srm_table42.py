"""Table 4.2 and Figure 4.1 of "Towards Efficient and Effective Privacy-Preserving Machine Learning": a9a.

python experiments/dp_srm_table42.py [--runs 30] [--quick]
"""

from dp_srm import Dataset, study
from support import a9a

# Test loss and gradient norm, as printed.
PAPER = {
    (0.2, "DP-GD"): (0.4155, 0.0953),
    (0.2, "DP-AGD"): (0.3713, 0.0437),
    (0.2, "RRPSGD"): (0.4019, 0.2175),
    (0.2, "DP-SRM"): (0.3579, 0.0528),
    (0.5, "DP-GD"): (0.3859, 0.0866),
    (0.5, "DP-AGD"): (0.3627, 0.0402),
    (0.5, "RRPSGD"): (0.3861, 0.1454),
    (0.5, "DP-SRM"): (0.3506, 0.0502),
}


def dataset() -> Dataset:
    """Return a9a and the settings of DP-SRM."""
    return Dataset(
        "a9a",
        a9a(),
        row_norm=14**0.5,  # fourteen categorical attributes, each one-hot encoded
        batch=700,
        refresh=0.4,
        clip_norm=3.0,
        difference_norm=0.1,
        max_move=0.4,
    )


if __name__ == "__main__":
    study(dataset(), PAPER, "dp_srm_table42", "Table 4.2: nonconvex logistic regression on a9a, delta 1e-5")
