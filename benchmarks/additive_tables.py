"""The tables of benchmarks/additive.py, each with its public description, and their training and test rows."""

import csv
import gzip
import io
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "experiments"))
from support import arrays, data_file

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Table:
    """Rows with numbers first and the codes of levels after them, targets, and what is public about both.

    ``n_train`` is the number of training rows of an official split; None splits at random, 80 % for training.
    """

    name: str
    X: Floats
    y: Floats
    bounds: tuple[tuple[float, float], ...]
    n_levels: tuple[int, ...]
    target_bounds: tuple[float, float] | None = None
    n_train: int | None = None

    @property
    def is_number(self) -> bool:
        """Whether the target is a number rather than one of two classes."""
        return self.target_bounds is not None

    @property
    def levels(self) -> dict[int, list[int]]:
        """The levels by the positions of their columns."""
        return {len(self.bounds) + j: list(range(n)) for j, n in enumerate(self.n_levels)}

    def split(self, seed: int) -> tuple[Floats, Floats, Floats, Floats]:
        """Return training rows and targets, test rows and targets."""
        order, cut = np.arange(len(self.y)), self.n_train
        if cut is None:
            order, cut = np.random.default_rng(seed).permutation(len(self.y)), int(0.8 * len(self.y))
        train, test = order[:cut], order[cut:]
        return self.X[train], self.y[train], self.X[test], self.y[test]

    def encoded(self, X: Floats) -> Floats:
        """Return rows for linear models: numbers scaled by their bounds, levels as indicators, norm at most 1."""
        k = len(self.bounds)
        low, high = np.array(self.bounds).T
        parts = [2 * (np.clip(X[:, :k], low, high) - low) / (high - low) - 1]
        parts += [np.eye(n)[X[:, k + j].astype(int)] for j, n in enumerate(self.n_levels)]
        return np.hstack(parts) / np.sqrt(k + len(self.n_levels))


def adult() -> Table:
    """Census income, official split."""
    parts = arrays("adult.npz")
    X = np.vstack([np.hstack([parts[f"num_{part}"], parts[f"cat_{part}"]]) for part in ("train", "test")])
    bounds = ((17, 90), (0, 1.5e6), (1, 16), (0, 1e5), (0, 4400), (1, 99))
    n_levels = tuple(len(parts[f"levels_{name}"]) for name in parts["cat_names"])
    y = np.concatenate([parts["y_train"], parts["y_test"]])
    return Table("adult", X.astype(float), y.astype(float), bounds, n_levels, n_train=len(parts["y_train"]))


def bank() -> Table:
    """Bank marketing: whether a client subscribes."""
    parts = arrays("bank_full.npz")
    bounds = ((18, 95), (-8019, 102127), (1, 31), (0, 4918), (1, 63), (-1, 871), (0, 275))
    n_levels = tuple(len(parts[f"levels_{name}"]) for name in parts["cat_names"])
    return Table(
        "bank", np.hstack([parts["num"], parts["cat"]]).astype(float), parts["y"].astype(float), bounds, n_levels
    )


def credit() -> Table:
    """Default of credit card clients."""
    parts = arrays("credit_default.npz")
    names = [str(name) for name in parts["names"]]
    kinds = {"LIMIT_BAL": (0, 1e6), "AGE": (18, 80), "BILL": (-5e5, 1e6), "PAY_AMT": (0, 1e6), "PAY_": (-2, 9)}
    levels = ("SEX", "EDUCATION", "MARRIAGE")
    numbers = [name for name in names if name not in levels]
    bounds = tuple(next(kinds[kind] for kind in kinds if name.startswith(kind)) for name in numbers)
    X = parts["x"][:, [names.index(name) for name in (*numbers, *levels)]].astype(float)
    return Table("credit", X, parts["y"].astype(float), bounds, (3, 7, 4))


def german() -> Table:
    """German health panel: more than two visits to a doctor in the last three months."""
    with gzip.open(data_file("german_health_5yr.csv.gz")) as file:
        rows = list(csv.DictReader(io.TextIOWrapper(file)))
    numbers, levels = ("age", "hhninc", "educ"), ("year", "edlevel", "outwork", "female", "married", "kids", "self")
    X = np.array([[float(row[name]) for name in (*numbers, *levels)] for row in rows])
    X[:, 3] -= 1984
    y = np.array([float(row["docvis"]) > 2 for row in rows]).astype(float)
    return Table("german", X, y, ((25, 64), (0, 31), (7, 18)), (5, 5, 2, 2, 2, 2, 2))


def bike() -> Table:
    """Bike sharing: rentals in an hour."""
    parts = arrays("bike_hour.npz")
    names = [str(name) for name in parts["names"]]
    sizes = {"season": 5, "yr": 2, "mnth": 13, "hr": 24, "holiday": 2, "weekday": 7, "workingday": 2, "weathersit": 5}
    numbers = [name for name in names if name not in sizes]
    X = parts["x"][:, [names.index(name) for name in (*numbers, *sizes)]].astype(float)
    bounds = tuple((0.0, 1.0) for _ in numbers)
    return Table("bike", X, parts["cnt"].astype(float), bounds, tuple(sizes.values()), (0, 1000))


def wine() -> Table:
    """Wine quality, from 0 to 10, of red and white wines."""
    parts = arrays("wine_quality.npz")
    bounds = ((0, 20), (0, 2), (0, 2), (0, 70), (0, 1), (0, 300), (0, 450), (0.95, 1.05), (2, 5), (0, 2.5), (5, 16))
    X = np.column_stack([parts["x"], parts["is_white"]]).astype(float)
    return Table("wine", X, parts["quality"].astype(float), bounds, (2,), (0, 10))


TABLES: dict[str, Any] = {each.__name__: each for each in (adult, bank, credit, german, bike, wine)}
