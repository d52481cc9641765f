"""diffprivlib under the audit by replay: an adapter for ``randomise`` of its mechanisms, and the scenarios.

Each mechanism gets the values before their noise, and the sensitivity that the caller declared. Every other random
number (splits of trees, first centres) comes from one generator, which is the same in both runs.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
from diffprivlib import BudgetAccountant, mechanisms, models, tools
from diffprivlib.models import logistic_regression
from replay_peers import REMOVED, REPLACED, Scenario

from privet.privacy.noise import watch
from privet.privacy.noise.watch import Claim

EPSILON = 1.0
FREE = 1e30  # noise so large that what is released with it costs nothing
CHOICES = (mechanisms.Exponential, mechanisms.PermuteAndFlip)
NUMBERS = (
    mechanisms.Laplace,
    mechanisms.LaplaceTruncated,
    mechanisms.LaplaceFolded,
    mechanisms.LaplaceBoundedDomain,
    mechanisms.Geometric,
    mechanisms.GeometricTruncated,
    mechanisms.GeometricFolded,
)


# -------------------------------------------------------------------------------------------------------- the adapter


@contextmanager
def watched() -> Iterator[None]:
    """Show what the mechanisms of diffprivlib randomise to the watcher of a replay."""
    source = SimpleNamespace(purpose="diffprivlib")
    noise = np.random.RandomState(0)
    depth = [0]
    originals = {kind: kind.randomise for kind in (*NUMBERS, *CHOICES, mechanisms.Bingham, mechanisms.Vector)}

    def patched(kind: type, watching: Callable[..., Any]) -> Callable[..., Any]:
        def randomise(mechanism: Any, value: Any = None) -> Any:
            if depth[0]:  # called by the mechanism of a subclass
                return originals[kind](mechanism, value)
            mechanism._rng = noise  # so that the number of draws does not affect anything else
            depth[0] += 1
            try:
                return watching(mechanism, value, lambda: originals[kind](mechanism, value))
            finally:
                depth[0] -= 1

        return randomise

    def number(mechanism: Any, value: Any, draw: Callable[[], Any]) -> Any:
        limits = [getattr(mechanism, name) for name in ("lower", "upper") if hasattr(mechanism, name)]
        kind = f"{type(mechanism).__name__} within {[float(limit) for limit in limits]}"
        bound = float(mechanism.sensitivity)
        values = np.array([float(value)])
        drawn = watch.release(source, kind, values, bound / mechanism.epsilon, Claim(bound), lambda: np.array([draw()]))
        return drawn[0]

    def choice(mechanism: Any, _: Any, draw: Callable[[], Any]) -> Any:
        bound = float(mechanism.sensitivity) * (1 if mechanism.monotonic else 2)
        scores = np.array(mechanism.utility, dtype=np.float64)
        return watch.release(source, "choice", scores, bound / mechanism.epsilon, Claim(bound), draw)

    def bingham(mechanism: Any, value: Any, draw: Callable[[], Any]) -> Any:
        bound = float(mechanism.sensitivity)
        return watch.release(source, "Bingham", np.array(value), bound / mechanism.epsilon, Claim(bound), draw)

    def vector(mechanism: Any, value: Any, draw: Callable[[], Any]) -> Any:
        return Perturbed(mechanism, value, source, originals[mechanisms.Vector])

    watchers: dict[type, Callable[..., Any]] = dict.fromkeys(NUMBERS, number)
    watchers |= dict.fromkeys(CHOICES, choice)
    watchers |= {mechanisms.Bingham: bingham, mechanisms.Vector: vector}
    minimise = logistic_regression.optimize.fmin_l_bfgs_b

    def minimised(function: Any, *args: Any, **options: Any) -> Any:
        weights, value, info = minimise(function, *args, **options)
        claim = Claim(1e-4)  # the precision of the minimiser
        released = watch.release(source, "minimiser", weights, FREE, claim, weights.copy)
        return released, value, info

    for kind, watching in watchers.items():
        kind.randomise = patched(kind, watching)
    logistic_regression.optimize.fmin_l_bfgs_b = minimised
    BudgetAccountant._default = None
    try:
        yield
    finally:
        for kind, original in originals.items():
            kind.randomise = original
        logistic_regression.optimize.fmin_l_bfgs_b = minimise


class Perturbed:
    """An objective with a random linear term, which is drawn when the arguments of the objective are known."""

    def __init__(self, mechanism: Any, value: Callable[..., Any], source: Any, randomise: Callable[..., Any]) -> None:
        self._mechanism, self._value, self._source = mechanism, value, source
        zero = np.zeros(mechanism.dimension)
        flat = randomise(mechanism, lambda weights: (0.0, 0.0 * weights))
        term = flat(zero)[1] * mechanism.n
        self._ridge = float((flat(np.ones_like(zero))[1] - flat(zero)[1])[0])
        self._drawn, self._term = term, None

    def __call__(self, weights: Any, *args: Any) -> Any:
        """Return the value and the gradient."""
        n = self._mechanism.n
        if self._term is None:
            self._term = self._tilted(args)
        value, gradient = self._value(weights, *args)
        value = value + weights @ self._term / n + self._ridge / 2 * weights @ weights
        return value, gradient + self._term / n + self._ridge * weights

    def _tilted(self, args: Any) -> Any:
        mechanism = self._mechanism
        objective = SimpleNamespace(
            gradient=lambda weights: mechanism.n * (self._value(weights, *args)[1] + self._ridge * weights)
        )
        log = 2 * np.log(1 + mechanism.function_sensitivity * mechanism.data_sensitivity / mechanism.alpha)
        pure = mechanism.epsilon - log if mechanism.epsilon > log else mechanism.epsilon / 2
        bound = 2 * mechanism.data_sensitivity
        claim = Claim(bound, volume=mechanism.epsilon - pure)
        term, _ = watch.tilt(self._source, "Vector", bound / pure, claim, objective, lambda: (self._drawn, 0.0))
        return term


# ---------------------------------------------------------------------------------------------------------- scenarios


def scenarios() -> list[Scenario]:
    """Return all scenarios."""
    generator = np.random.default_rng(0)
    X = generator.uniform(-1, 1, (12, 2))
    y = np.array([0, 1] * 6)
    rare = np.array([0, 1] * 5 + [0, 2])
    long = np.vstack([X[:-1], [[7.0, -7.0]]])
    ones = np.vstack([np.abs(X[:-1]), [[1.0, 1.0]]])
    target = np.clip(X @ [0.5, -0.5], -1, 1)
    bounds = (-1.0, 1.0)

    def neighbours(*columns: Any, record: tuple[Any, ...] | None = None) -> dict[str, Any]:
        """Return the columns with the last record replaced by an extreme one, and without it."""
        record = record or (np.array([1.0, -1.0]), *(1 for _ in columns[1:]))
        changed = tuple(np.concatenate([each[:-1], [new]]) for each, new in zip(columns, record, strict=True))
        removed = tuple(each[:-1] for each in columns)
        return {REPLACED: changed, REMOVED: removed}

    def fitted(make: Callable[[], Any]) -> Callable[[Any], Any]:
        def train(data: Any) -> Any:
            with watched():
                return make().fit(*(np.array(each) for each in data))

        return train

    def tool(function: Callable[..., Any], **options: Any) -> Callable[[Any], Any]:
        def run(data: Any) -> Any:
            with watched():
                return function(np.array(data[0]), epsilon=EPSILON, random_state=0, **options)

        return run

    def logistic(**options: Any) -> Callable[[Any], Any]:
        return fitted(lambda: models.LogisticRegression(tol=1e-10, max_iter=1000, **options, **common))

    common = {"epsilon": EPSILON, "random_state": 0}
    return [
        Scenario(
            "LogisticRegression without intercept",
            logistic(data_norm=1.5, fit_intercept=False),
            (X, y),
            neighbours(X, y, record=(np.array([1.0, -1.0]), 0)),
        ),
        Scenario(
            "LogisticRegression with intercept",
            logistic(data_norm=1.5),
            (X, y),
            neighbours(X, y, record=(np.array([1.0, -1.0]), 0)),
            "The intercept is not regularised, so the objective is not strongly convex, as `mechanisms.Vector` "
            "requires. Here the linear term exceeds the slope of all losses together, so that there is no minimum, and "
            "where the optimiser stops depends on the records.",
        ),
        Scenario(
            "LogisticRegression, last record of a class",
            logistic(data_norm=1.5, fit_intercept=False),
            (X, rare),
            neighbours(X, rare, record=(X[-1], 0)),
            "`classes_` is read from the labels, so a single record decides about the number of classes and of models.",
        ),
        Scenario(
            "LogisticRegression without data_norm",
            logistic(fit_intercept=False),
            (long, y),
            neighbours(long, y, record=(X[-1], 1)),
            "`data_norm` is the largest norm of the records. The library warns about it.",
        ),
        Scenario(
            "LinearRegression, bounds -1 and 1",
            fitted(lambda: models.LinearRegression(bounds_X=bounds, bounds_y=bounds, **common)),
            (X, target),
            neighbours(X, target),
            "The sensitivity of the sum of squares uses the lower bound twice, "
            "`np.abs([bounds_X[0][i], bounds_X[0][i]])`, so it is too small if the mean lies below the middle.",
            epsilon=EPSILON,
        ),
        Scenario(
            "LinearRegression, bounds 0 and 1, no intercept",
            fitted(
                lambda: models.LinearRegression(bounds_X=(0.0, 1.0), bounds_y=bounds, fit_intercept=False, **common)
            ),
            (np.abs(X), target),
            neighbours(np.abs(X), target, record=(np.array([1.0, 1.0]), 1.0)),
            "The sensitivity of the sum of squares uses the lower bound twice, "
            "`np.abs([bounds_X[0][i], bounds_X[0][i]])`, which is 0 here: the sums of squares get no noise.",
        ),
        Scenario(
            "GaussianNB",
            fitted(lambda: models.GaussianNB(bounds=bounds, **common)),
            (X, y),
            neighbours(X, y),
            epsilon=EPSILON,
        ),
        Scenario(
            "GaussianNB, a record changes its class",
            fitted(lambda: models.GaussianNB(bounds=(0.0, 1.0), **common)),
            (ones, y),
            neighbours(ones, y, record=(ones[-1], 0)),
            "A record that changes its class moves the counts and sums of both classes, each by its sensitivity, but "
            "is charged once. If it is removed instead, the limits of the counts show the number of records.",
            epsilon=EPSILON,
        ),
        Scenario(
            "GaussianNB, last record of a class",
            fitted(lambda: models.GaussianNB(bounds=bounds, **common)),
            (X, rare),
            neighbours(X, rare, record=(X[-1], 0)),
            "`classes_` is read from the labels, so a single record decides about the number of classes and releases.",
        ),
        Scenario(
            "GaussianNB without bounds",
            fitted(lambda: models.GaussianNB(**common)),
            (X, y),
            neighbours(X, y, record=(np.array([7.0, -7.0]), 1)),
            "Bounds are taken from the data. The library warns about it.",
        ),
        Scenario(
            "StandardScaler",
            fitted(lambda: models.StandardScaler(bounds=bounds, **common)),
            (X,),
            neighbours(X),
            epsilon=EPSILON,
        ),
        Scenario(
            "PCA",
            fitted(lambda: models.PCA(n_components=1, bounds=bounds, data_norm=1.5, **common)),
            (X,),
            neighbours(X),
        ),
        Scenario(
            "KMeans",
            fitted(lambda: models.KMeans(n_clusters=2, bounds=bounds, **common)),
            (X,),
            neighbours(X),
            "`labels_` and `inertia_` of the records are kept without noise.",
            epsilon=EPSILON,
        ),
        Scenario(
            "RandomForestClassifier",
            fitted(
                lambda: models.RandomForestClassifier(
                    n_estimators=2, max_depth=2, bounds=bounds, classes=[0, 1], **common
                )
            ),
            (X, y),
            neighbours(X, y),
        ),
        Scenario("mean", tool(tools.mean, bounds=bounds), (X[:, 0],), neighbours(X[:, 0], record=(1.0,))),
        Scenario("var", tool(tools.var, bounds=bounds), (X[:, 0],), neighbours(X[:, 0], record=(1.0,))),
        Scenario("sum", tool(tools.sum, bounds=bounds), (X[:, 0],), neighbours(X[:, 0], record=(1.0,))),
        Scenario(
            "mean without bounds",
            tool(tools.mean),
            (X[:, 0],),
            neighbours(X[:, 0], record=(7.0,)),
            "Bounds are taken from the data. The library warns about it.",
        ),
        Scenario(
            "nanmean, one missing value",
            tool(tools.nanmean, bounds=bounds),
            (X[:, 0],),
            {REPLACED: (np.append(X[:-1, 0], np.nan),)},
        ),
        Scenario(
            "histogram",
            tool(tools.histogram, bins=3, range=bounds),
            (X[:, 0],),
            neighbours(X[:, 0], record=(1.0,)),
            epsilon=EPSILON,
        ),
        Scenario(
            "histogram without a range",
            tool(tools.histogram, bins=3),
            (np.append(X[:-1, 0], 7.0),),
            neighbours(np.append(X[:-1, 0], 7.0), record=(0.0,)),
            "The range is taken from the data. The library warns about it.",
        ),
    ]
