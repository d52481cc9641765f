"""The ROC curve of an attack, and the area under it with confidence limits."""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtri

Floats = NDArray[np.float64]


def delong(ins: Floats, outs: Floats) -> tuple[float, float]:
    """Return the area under the ROC curve and its standard error. Ties count one half.

    The method is that of DeLong, DeLong and Clarke-Pearson (1988), computed from ranks as in Sun and Xu (2014).
    """
    ranks = _midranks(np.concatenate([ins, outs]))
    beaten = (ranks[: len(ins)] - _midranks(ins)) / len(
        outs
    )  # for each member, the share of non-members that score lower
    beating = 1 - (ranks[len(ins) :] - _midranks(outs)) / len(ins)
    variance = sum(float(np.var(part, ddof=1)) / len(part) if len(part) > 1 else 0.0 for part in (beaten, beating))
    return float(beaten.mean()), math.sqrt(variance)


def _midranks(values: Floats) -> Floats:
    """Return ranks starting from 1. Equal values share the mean of their ranks."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[places])


def auc_interval(auc: float, error: float, confidence: float, fewest: int) -> tuple[float, float]:
    """Return confidence limits of the area, by a normal approximation on the logit scale, which stays within (0, 1).

    If all scores are tied, or if members and non-members do not overlap, the estimated error is 0, which no finite
    sample justifies. Hoeffding's inequality for two-sample means (1963, section 5) is used then. It is wide, but it
    holds for every distribution.
    """
    if fewest > 1 and error > 1e-12 and 0 < auc < 1:
        reach = float(ndtri((1 + confidence) / 2)) * error / (auc * (1 - auc))
        return float(expit(logit(auc) - reach)), float(expit(logit(auc) + reach))
    reach = math.sqrt(math.log(2 / (1 - confidence)) / (2 * fewest))
    return max(0.0, auc - reach), min(1.0, auc + reach)


def roc_curve(ins: Floats, outs: Floats) -> tuple[Floats, Floats]:
    """Return the false-positive and the true-positive rates at the corners of the ROC curve."""
    scores = np.concatenate([ins, outs])
    _, places = np.unique(-scores, return_inverse=True)
    tpr = np.bincount(places[: len(ins)], minlength=places.max() + 1)
    fpr = np.bincount(places[len(ins) :], minlength=places.max() + 1)
    within = ((tpr[1:] == 0) & (tpr[:-1] == 0)) | ((fpr[1:] == 0) & (fpr[:-1] == 0))
    corners = np.append(~within, True)
    curve = [np.append(0, np.cumsum(steps)[corners]) / len(part) for steps, part in ((fpr, outs), (tpr, ins))]
    return curve[0], curve[1]
