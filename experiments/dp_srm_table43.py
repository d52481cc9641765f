"""Table 4.3 and Figure 4.4 of "Towards Efficient and Effective Privacy-Preserving Machine Learning": ijcnn1.

The norm of rows is bounded by 2. Some rows of the test set exceed it and are scaled down.

    python experiments/dp_srm_table43.py [--runs 30] [--quick]
"""

from dp_srm import Dataset, study
from support import ijcnn1

# Test loss and gradient norm, as printed.
PAPER = {
    (0.2, "DP-GD"): (0.3160, 0.0184),
    (0.2, "DP-AGD"): (0.2645, 0.0133),
    (0.2, "RRPSGD"): (0.3110, 0.0175),
    (0.2, "DP-SRM"): (0.2503, 0.0117),
    (0.5, "DP-GD"): (0.2717, 0.0171),
    (0.5, "DP-AGD"): (0.2416, 0.0397),
    (0.5, "RRPSGD"): (0.3033, 0.0160),
    (0.5, "DP-SRM"): (0.2341, 0.0082),
}


def dataset() -> Dataset:
    """Return ijcnn1 and the settings of DP-SRM."""
    return Dataset(
        "ijcnn1",
        ijcnn1(),
        row_norm=2.0,
        batch=1000,
        refresh=0.4,
        clip_norm=1.0,
        difference_norm=0.05,
        max_move=0.4,
    )


if __name__ == "__main__":
    study(dataset(), PAPER, "dp_srm_table43", "Table 4.3: nonconvex logistic regression on ijcnn1, delta 1e-5")
