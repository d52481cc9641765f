"""Figures on public test records, with intervals for what other records of the same kind would give."""

import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.linear import TableModel
from privet.report.facts import TestFigure
from privet.tables import NumericTarget

_Z = 1.959964  # of a 95 % interval
NOTE = "These figures describe the test records, without noise. They may be shown because these records are public."


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, by which a report names the model that it is about."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_figures(model: TableModel, frame: Any) -> tuple[TestFigure, ...]:
    """Return the accuracy or the mean absolute error for each target, on records that need no protection."""
    truths, found = np.atleast_2d(model.schema.true_target(frame).T), np.atleast_2d(model.predict(frame).T)
    figures = []
    for target, predicted, truth in zip(model.schema.targets, found, truths, strict=True):
        of = f" of {target.name}" if len(model.schema.targets) > 1 else ""
        if isinstance(target, NumericTarget):
            figures.append(_mean(f"Mean absolute error{of}", np.abs(predicted - truth)))
        else:
            figures.append(_share(f"Accuracy{of}", predicted == truth))
            _, counts = np.unique(truth, return_counts=True)
            figures.append(_share(f"Always the most frequent level{of}", np.arange(truth.size) < counts.max()))
    return tuple(figures)


def _share(name: str, hits: NDArray[Any]) -> TestFigure:
    """Return a share with Wilson's interval."""
    n, p = len(hits), float(np.mean(hits))
    centre, width = p + _Z**2 / (2 * n), _Z * math.sqrt(p * (1 - p) / n + _Z**2 / (4 * n**2))
    low, high = (centre - width) / (1 + _Z**2 / n), (centre + width) / (1 + _Z**2 / n)
    return TestFigure(name, p, max(min(low, p), 0.0), min(max(high, p), 1.0), True, n, NOTE)


def _mean(name: str, values: NDArray[Any]) -> TestFigure:
    """Return a mean with its normal interval."""
    mean, width = float(np.mean(values)), _Z * float(np.std(values)) / math.sqrt(max(len(values) - 1, 1))
    return TestFigure(name, mean, mean - width, mean + width, False, len(values), NOTE)
