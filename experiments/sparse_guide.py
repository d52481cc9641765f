"""Which sparse method to take when: the methods of the sparse estimators with their defaults, on several kinds of data.

python experiments/sparse_guide.py [--runs 5 | --quick]

The settings named after figures are the small ones of "Towards Efficient and Effective Privacy-Preserving Machine
Learning". Their rows are drawn as in sparse_synthetic.py, and here all nonzero weights are between 0.5 and 1 in size.
Unlike there, nothing is tuned to the design: every method has the defaults of its estimator, which knows n, d, s, the
budget and three bounds that stand for public knowledge (the largest norm and entry of the rows, and three standard
deviations of the scores as the bound on targets). Public rows are drawn like the private ones. A cell has the
coefficient of determination (numbers) or the area under the curve (classes) on fresh rows, and the share of the s
features that have a weight.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import r2_score, roc_auc_score
from sparse_synthetic import PAPER
from support import console, print_table, write_results

from privet import PrivateSparseLogisticRegression, PrivateSparseRegression

Rows = Callable[[np.random.Generator, int, int], NDArray[Any]]
METHODS = ("peeling", "hard_threshold", "frank_wolfe", "two_stage")
TEACHERS = ("auto", "selected", "convex", "disjoint", "hard_threshold")
N_TEST = 2000
NOISE = 0.3


def uniform(rng: np.random.Generator, n: int, d: int) -> NDArray[Any]:
    """Independent columns, uniform in [-1, 1]."""
    return rng.uniform(-1, 1, (n, d))


def correlated(rng: np.random.Generator, n: int, d: int) -> NDArray[Any]:
    """Neighbouring columns have correlation 1/2."""
    X = rng.standard_normal((n, d))
    for column in range(1, d):
        X[:, column] = 0.5 * X[:, column - 1] + np.sqrt(0.75) * X[:, column]
    return np.clip(X / 2, -1, 1)


def words(rng: np.random.Generator, n: int, d: int) -> NDArray[Any]:
    """Words of a text, frequent and rare, in rows of norm 1 with entries of at most 0.3."""
    X = (rng.random((n, d)) < np.minimum(0.3, 3 / np.arange(1, d + 1) ** 0.8)).astype(float)
    return np.minimum(X / np.sqrt(np.maximum(X.sum(axis=1, keepdims=True), 1)), 0.3)


@dataclass(frozen=True)
class Setting:
    """Sizes, design and budget of a row of the table. ``weight`` is the size of the nonzero weights."""

    name: str
    n: int
    d: int
    s: int
    epsilon: float
    delta: float
    rows: Rows = uniform
    is_logistic: bool = False
    weight: float = 1.0

    def draw(self, seed: int) -> tuple[Any, Any, Any, Any, NDArray[Any], dict[str, float]]:
        """Return private rows and targets, fresh rows and targets, weights, and public bounds."""
        rng, theta = np.random.default_rng(seed), np.zeros(self.d)
        first = 200 if self.rows is words else self.d  # words that hardly occur cannot be found
        theta[rng.choice(first, self.s, replace=False)] = (
            rng.choice([-1, 1], self.s) * rng.uniform(0.5, 1, self.s) * self.weight
        )
        X = self.rows(rng, self.n + N_TEST, self.d)
        scores = X @ theta
        scores -= scores.mean()
        bounds = {"feature_norm": float(np.linalg.norm(X, axis=1).max()), "entry_bound": float(np.abs(X).max())}
        if self.is_logistic:
            y = (rng.random(len(X)) < 1 / (1 + np.exp(-scores))).astype(int)
        else:
            y = scores + NOISE * rng.standard_normal(len(X))
            bounds["target_bound"] = 3 * float(scores.std())
        return X[: self.n], y[: self.n], X[self.n :], y[self.n :], theta, bounds


def _of_paper(panel: str, epsilon: float) -> Setting:
    found = next(each for each in PAPER if each.panel == panel)

    def rows(rng: np.random.Generator, n: int, d: int) -> NDArray[Any]:
        return np.concatenate([found.rows(rng) for _ in range(-(-n // found.n))])[:n]

    title = f"Figure {panel}"
    return Setting(title, found.n, found.d, found.n_nonzero, epsilon, 0.01, rows, found.is_logistic)


SETTINGS = (
    _of_paper("2.1(a)", 4.0),
    _of_paper("2.1(c)", 4.0),
    _of_paper("3.2(a)", 5.0),
    _of_paper("3.2(c)", 10.0),
    Setting("independent columns", 5000, 2000, 20, 4.0, 0.01),
    Setting("many records", 20_000, 300, 10, 2.0, 1e-5),
    Setting("many records, classes", 20_000, 300, 10, 2.0, 1e-5, is_logistic=True, weight=2.5),
    Setting("correlated columns", 8000, 300, 10, 3.0, 1e-4, correlated),
    Setting("correlated columns, classes", 8000, 300, 10, 3.0, 1e-4, correlated, is_logistic=True, weight=3.0),
    Setting("words", 10_000, 2000, 10, 3.0, 1e-4, words, weight=3.0),
    Setting("words, classes", 10_000, 2000, 10, 3.0, 1e-4, words, is_logistic=True, weight=12.0),
    Setting("two features", 10_000, 500, 2, 1.0, 1e-5),
)


def study(setting: Setting, runs: int, n_public: int) -> list[dict[str, Any]]:
    """Return the mean result of every method in a setting."""
    found: dict[str, list[tuple[float, float]]] = {}
    public = setting.rows(np.random.default_rng(2021), n_public, setting.d)
    for seed in range(runs):
        X, y, X_test, y_test, theta, bounds = setting.draw(seed)
        kind = PrivateSparseLogisticRegression if setting.is_logistic else PrivateSparseRegression
        options: dict[str, Any] = bounds | ({"classes": [0, 1]} if setting.is_logistic else {})
        choices: list[tuple[str, dict[str, str]]] = [(method, {}) for method in METHODS]
        choices += [("knowledge_transfer", {"teacher": name}) for name in TEACHERS]
        for method, teacher in choices:
            model = kind(
                setting.epsilon,
                setting.delta,
                n_nonzero=setting.s,
                method=method,
                random_state=seed,
                **options,
                **teacher,
            )
            model.fit(X, y, **({"X_public": public} if teacher else {}))
            if setting.is_logistic:
                quality = roc_auc_score(y_test, model.decision_function(X_test))
            else:
                quality = r2_score(y_test, model.predict(X_test))
            share = np.mean(model.get_support()[theta != 0])
            found.setdefault(" ".join([method, *teacher.values()]), []).append((float(quality), float(share)))
    return [
        {"setting": setting.name, "method": name, "quality": float(np.mean([q for q, _ in values])),
         "spread": float(np.std([q for q, _ in values])), "found": float(np.mean([share for _, share in values]))}
        for name, values in found.items()
    ]  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description="The sparse methods with their defaults, on several kinds of data")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one run of three settings, in seconds")
    options = parser.parse_args(arguments)
    settings = [SETTINGS[0], SETTINGS[2], SETTINGS[11]] if options.quick else SETTINGS
    runs, n_public = (1, 500) if options.quick else (options.runs, 3000)
    rows: list[dict[str, Any]] = []
    for setting in settings:
        mine = study(setting, runs, n_public)
        rows += mine
        sizes = f"n = {setting.n}, d = {setting.d}, s = {setting.s}, ({setting.epsilon:g}, {setting.delta:g})"
        lines = [[row["method"], f"{row['quality']:.3f}", f"{100 * row['found']:.0f} %"] for row in mine]
        print_table(f"{setting.name}: {sizes}", ["method", "AUC" if setting.is_logistic else "R2", "found"], lines)
    console.print(f"{runs} runs, {n_public} public rows")
    content = {"runs": runs, "n_public": n_public, "rows": rows}
    write_results("sparse_guide_quick" if options.quick else "sparse_guide", content)
    return content


if __name__ == "__main__":
    main()
