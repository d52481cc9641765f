"""Private additive models: a sum of one curve per column of numbers, and one effect per level of a category."""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from privet import cautions, names
from privet.estimators import EstimatorChecks, SavedEstimator, ShownEstimator
from privet.linear.additive_columns import AdditiveColumn, described, group_names, position
from privet.linear.base import Targets, _calibrated_to, _check_rate
from privet.linear.methods import Method, usual_budget
from privet.linear.shapes import Shape, monotone, shape_of
from privet.linear.usefulness import warn_of_short_steps
from privet.objectives.binned import bins_of
from privet.objectives.curves import Curve, Pair
from privet.plans.additive import AdditivePlan
from privet.privacy import AttackRate, Budget, Guarantee, NoiseMultiplier, NoiseSource, enforced, gdp_mu
from privet.privacy.analyses.gaussian import rate_budget
from privet.privacy.budget import default_delta
from privet.privacy.ledger.spending import LedgerLike, book_spending
from privet.progress import progress_bar
from privet.showing import plot
from privet.solvers import Release, Run
from privet.solvers.additive_descent import AdditiveProblem, additive_descent, share_of_step

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STEPS = 120
COUNTS_SHARE = 0.05
"""Of the squared Gaussian-DP parameter, for the noisy counts."""
ALPHA = 2e-5
_CLIP, _CLIP_AT, _CLIP_POWER = 0.25, 1000.0, 0.2  # the clip is 0.25 where n times mu is 1000, and grows slowly

Floats = NDArray[np.float64]


class PrivateAdditiveModel(EstimatorChecks, SavedEstimator, ShownEstimator, BaseEstimator):
    """Base of the additive estimators. Subclasses declare their parameters and encode targets."""

    before_training: Callable[[Guarantee], object] | None = None
    """Called by ``fit`` with the guarantee before it is booked. It is not a parameter and is not saved."""
    epsilon: Any
    delta: Any
    bounds: Any
    levels: Any
    pairs: Any
    monotone: Any
    clip_norm: float | None
    max_iter: int | None
    noise_multiplier: float | None
    tpr: tuple[float, float] | None
    random_state: int | None
    ledger: LedgerLike | None
    verbose: int

    @classmethod
    def offered_methods(cls) -> dict[str, Method]:
        """Return an empty dictionary: additive models are trained in one way."""
        return {}

    def models_by_target(self) -> list[Any]:
        """Return an empty list: additive models have one target."""
        return []

    @abstractmethod
    def _targets(self, y: NDArray[Any]) -> Targets:
        """Return the targets encoded for training. Raise ValueError if they cannot be."""

    def _standardises(self) -> bool:
        """Return whether targets are numbers in [-1, 1] that are measured in their noisy standard deviation."""
        return False

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the model. Each call spends the budget once.

        Parameters
        ----------
        X : array or DataFrame of shape (n, n_features)
            Numbers, and levels in the columns that ``levels`` names.
        y : array of shape (n,)
        """
        with self._fitting(), cautions.once():
            self._check_settings()
            cells, y = self._cells(X, y, reset=True)
            targets = self._targets(y)
            release = self._train(cells, targets)
            self._keep(release, targets)
        return self

    def _check_settings(self) -> None:
        """Raise ValueError for an impossible setting, before the data is touched."""
        given = [name for name in ("noise_multiplier", "tpr") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError("noise_multiplier and tpr cannot be given together, because each determines the noise.")
        if self.epsilon is None and not given:
            raise ValueError("epsilon is None, but neither noise_multiplier nor tpr is given. Give one of them.")
        for name, check in names.PARAMETERS.items():
            value = getattr(self, name, None)
            if value is not None:
                check(name, value)
        if self.delta == 0:
            raise ValueError("Additive models add Gaussian noise, which gives no pure epsilon: leave delta out.")

    # ------------------------------------------------------------------------------------------------ training

    def _cells(self, X: Any, *targets: Any, reset: bool = False) -> Any:
        """Return the cell of each record in each column. With ``reset``, also the targets, which are then given."""
        if not self.levels:
            checked = self._validated(X, *targets, reset=reset, accept_sparse=False)
            X, *y = checked if reset else [checked]
            given = X.T
        else:
            validate_data(self, X, *targets, reset=reset, skip_check_array=True)
            given = [X.iloc[:, j].array for j in range(X.shape[1])] if hasattr(X, "iloc") else np.asarray(X).T
            y = [np.asarray(each).ravel() for each in targets]
            if y and len(y[0]) != len(given[0]):
                raise ValueError(f"X has {len(given[0])} rows, and y has {len(y[0])}.")
        columns = self._columns()
        cells = np.column_stack([column.cells(values) for column, values in zip(columns, given, strict=True)])
        return (cells, y[0]) if y else cells

    def _columns(self) -> list[AdditiveColumn]:
        """Return the public description of the columns."""
        known = getattr(self, "feature_names_in_", None)
        found = [f"column {j}" for j in range(self.n_features_in_)] if known is None else [str(name) for name in known]
        return described(found, self.bounds, self.levels)

    def _train(self, cells: NDArray[Any], targets: Targets) -> Release:
        n = len(cells)
        delta = default_delta(n) if self.delta is None else self.delta
        noise = None if self.noise_multiplier is None else NoiseMultiplier(self.noise_multiplier, delta)
        rate = None if self.tpr is None else AttackRate(self.tpr[0], self.tpr[1], delta)
        usual = usual_budget(noise) if noise else rate_budget(rate) if rate else Budget(self.epsilon, delta)
        columns = self._columns()
        if self._directions(columns) and targets.objective.start(1).ndim > 1:  # before any budget is spent
            raise ValueError(
                "monotone needs two classes or a number as the target. With several classes, a curve that rises for "
                "each class says nothing about the probabilities. Leave monotone out."
            )
        problem = AdditiveProblem(
            cells,
            [column.n_cells for column in columns],
            targets.objective,
            targets.values,
            worth=targets.worth,
            alpha=ALPHA,
            pairs=self._pairs(columns),
            standardises=self._standardises(),
        )
        plan = AdditivePlan.for_columns(
            noise or rate or usual,
            n_columns=problem.n_counted,
            steps=self.max_iter or STEPS,
            clip_norm=self.clip_norm or default_clip(n, usual),
            share=COUNTS_SHARE,
        )
        encoded = enforced("columns are clipped to declared bounds and levels, each row independently")
        conditions = (encoded, *targets.conditions, *([_calibrated_to(rate)] if rate else []))

        def told(found: Guarantee) -> None:
            if rate is not None:
                _check_rate(rate, found)
            self._book(found.assuming(*conditions))

        purpose = f"{type(self).__name__} {self.epsilon!r} {self.delta!r} {self.noise_multiplier!r} {self.tpr!r}"
        if noise is None:
            cautions.about_budget(usual.epsilon, delta, n)
            self._warn_of_noise(targets, n, usual)
        with progress_bar(type(self).__name__) if self.verbose else nullcontext() as progress:
            source = NoiseSource(self.random_state, purpose=purpose)
            release = additive_descent(problem, Run(plan, source, progress, told))
        self.guarantee_: Guarantee = release.guarantee.assuming(*conditions)
        if noise is not None:
            cautions.about_budget(self.guarantee_.epsilon, delta, n)
        self.n_records_, self.n_iter_ = n, plan.gradients.steps
        self.method_, self.method_reason_ = "additive", "noisy counts, then noisy gradients of all curves together"
        self.clip_norm_ = plan.gradients.clip_norm
        return release

    def _warn_of_noise(self, targets: Targets, n: int, budget: Budget) -> None:
        """Warn if so few records cannot be expected to teach anything at this budget, by public numbers alone."""
        objective, steps = targets.objective, self.max_iter or STEPS

        def share(n: float, budget: Budget) -> float:
            clip = self.clip_norm or default_clip(n, budget)
            noise = 2 * clip * steps / (n * gdp_mu(budget) * math.sqrt(1 - COUNTS_SHARE))
            return share_of_step(objective, targets.worth, noise)

        if objective.predicts_classes or self._standardises():  # the rule was not tried for counts
            warn_of_short_steps(share, n, budget, predicts_classes=objective.predicts_classes)

    def _book(self, guarantee: Guarantee) -> None:
        """Book a fit, just before any noise is drawn for it."""
        if self.before_training is not None:
            self.before_training(guarantee)
        book_spending(guarantee, f"fit of {type(self).__name__}", ledgers=[self.ledger])

    def _pairs(self, columns: list[AdditiveColumn]) -> tuple[tuple[int, int], ...]:
        known = [column.name for column in columns]
        found: list[tuple[int, int]] = []
        if self.pairs is not None and not isinstance(self.pairs, list | tuple):
            raise ValueError(f"pairs must be a list of pairs of columns, got {self.pairs!r}.")
        for pair in self.pairs or ():
            if not isinstance(pair, list | tuple) or len(pair) != 2:
                raise ValueError(f"pairs must be a list of pairs of columns, got {pair!r} in it.")
            one, other = sorted(position(known, key, "pairs") for key in pair)
            if one == other or (one, other) in found:
                raise ValueError(f"pairs has the entry {pair!r}, which repeats a column or a pair.")
            found.append((one, other))
        return tuple(found)

    def _directions(self, columns: list[AdditiveColumn]) -> dict[int, int]:
        """Return the directions of monotone curves by the positions of their columns."""
        known, given = [column.name for column in columns], self.monotone or {}
        is_mapping = isinstance(given, Mapping)
        found = {position(known, key, "monotone"): sign for key, sign in given.items()} if is_mapping else {}
        if not is_mapping or any(columns[j].bounds is None or sign not in (-1, 1) for j, sign in found.items()):
            raise ValueError(f"monotone must map columns of numbers to +1 or -1, got {self.monotone!r}.")
        joint = [known[j] for pair in self._pairs(columns) for j in pair if j in found]
        if joint:
            raise ValueError(
                f"The column {joint[0]!r} is in monotone and in pairs. With a joint term, predictions need not be "
                "monotone in it. Leave it out of one of them."
            )
        return found

    def _keep(self, release: Release, targets: Targets) -> None:
        """Store the curves, as plain values that can be saved."""
        columns, scale = self._columns(), targets.scale
        curves, pairs = release.trace["curves"], release.trace["pairs"]
        known = [column.name for column in columns]
        directions = self._directions(columns)
        ends = np.cumsum([term.n_bins for term in (*curves, *(pair.curve for pair in pairs))])
        values = np.split(release.weights[:-1] * scale, ends)[:-1]
        noise = np.split(np.asarray(release.trace["bin_noise"]) * scale, ends)[:-1]
        self.curves_: list[dict[str, Any]] = []
        for j, curve in enumerate(curves):
            if j in directions:
                values[j] = monotone(values[j], curve.shares, directions[j])
            fields = _stored(columns[j].name, curve, values[j], noise[j])
            if curve.is_ordered:
                first = np.searchsorted(curve.bin_of_cell, np.arange(curve.n_bins))
                fields["edges"] = columns[j].edges()[np.append(first, len(curve.bin_of_cell))]
            else:
                fields["levels"] = [str(level) for level in columns[j].levels or ()]
            self.curves_.append(fields)
        for place, pair in enumerate(pairs, start=len(curves)):
            one, other = pair.columns
            fields = _stored(f"{known[one]} x {known[other]}", pair.curve, values[place], noise[place])
            fields |= {"columns": [one, other], "groups": [np.asarray(each) for each in pair.groups]}
            names_of = [group_names(self.curves_[j], each) for j, each in zip(pair.columns, pair.groups, strict=True)]
            fields["levels"] = [f"{first}, {second}" for first in names_of[0] for second in names_of[1]]
            self.curves_.append(fields)
        self.intercept_ = np.atleast_1d(np.asarray(release.weights[-1] * scale))

    def plot(self, ax: "Axes | None" = None, column: str | None = None) -> "Axes":
        """Draw the curve of a column, by default the most important one, with a band for the noise that privacy added.

        ``privet plot`` draws all curves. This requires matplotlib.
        """
        check_is_fitted(self)
        if column is not None and column not in self.shapes_:
            raise ValueError(f"There is no curve {column!r}. The curves are {', '.join(self.shapes_)}.")
        return plot(self, ax, column)

    # ---------------------------------------------------------------------------------------------- prediction

    @property
    def shapes_(self) -> dict[str, Shape]:
        """The curve of each column, and the joint terms of pairs, by name: see :class:`~privet.linear.Shape`."""
        check_is_fitted(self)
        return {fields["name"]: shape_of(fields) for fields in self.curves_}

    def _scores(self, X: Any) -> Floats:
        """Return the sum of all terms, of shape (n,) or (n, classes)."""
        check_is_fitted(self)
        cells = self._cells(X)
        single = [fields for fields in self.curves_ if "columns" not in fields]
        joint = [fields for fields in self.curves_ if "columns" in fields]
        curves = [_curve(fields) for fields in single]
        pairs = [Pair(tuple(each["columns"]), tuple(each["groups"]), _curve(each)) for each in joint]
        scores = np.zeros((len(cells), len(self.intercept_))) + self.intercept_
        for fields, bins in zip([*single, *joint], bins_of(cells, curves, pairs), strict=True):
            scores += fields["values"].reshape(len(fields["values"]), -1)[bins]
        return np.asarray(scores[:, 0] if scores.shape[1] == 1 else scores)

    def _check_learned(self) -> None:
        super()._check_learned()
        if not isinstance(self.guarantee_, Guarantee):
            raise ValueError(f"a {type(self).__name__} must have a guarantee")
        outputs = len(self.intercept_)
        for fields in self.curves_:
            values, bins = fields["values"], len(fields["shares"])
            if values.size != bins * outputs or not np.isfinite(values).all() or fields["bin_of_cell"].max() >= bins:
                raise ValueError(f"the curve of {fields['name']!r} is damaged")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True  # privacy noise, unless random_state is set
        tags.input_tags.categorical = bool(self.levels)
        return tags


def default_clip(n: float, budget: Budget) -> float:
    """Return the bound to which gradients are clipped, for rows of typical norm 1, from public numbers alone.

    Noise grows with the clip, and a clip moves the minimum, so the clip grows with the precision that is available.
    """
    return float(np.clip(_CLIP * (n * gdp_mu(budget) / _CLIP_AT) ** _CLIP_POWER, 0.1, 1.0))


def _stored(name: str, curve: Curve, values: Floats, noise: Floats) -> dict[str, Any]:
    return {
        "name": name,
        "values": values,
        "noise": noise,
        "shares": curve.shares,
        "bin_of_cell": np.asarray(curve.bin_of_cell),
    }


def _curve(fields: dict[str, Any]) -> Curve:
    shares = fields["shares"]
    return Curve(fields["bin_of_cell"], shares, np.zeros(len(shares), dtype=bool), "edges" in fields)
