"""Several targets of the same rows: one model per column of y, and one guarantee for all of them.

Formal guarantees
-----------------
Columns with the same number of classes, and all columns of numbers, are tasks of one plan, which is calibrated for all
of its runs (*Privacy Amplification by Iteration*, Theorem 32, for several runs of projected SGD). What does not depend
on the targets, such as a noisy mean of the rows, is released once for these tasks. Columns with different numbers of
classes need different plans. Each plan gets its share of the budget, and the guarantee is that of their composition.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from privet.privacy import AttackRate, Budget, Guarantee, compose
from privet.privacy.analyses.gaussian import rate_budget, shared_budget
from privet.privacy.budget import default_delta

_CAUTION = 1 - 1e-6  # shares of different plans are rounded separately
_SMALLER, _LEAST = 0.95, 0.5  # factors of the budget that plans with other than Gaussian events may need

LEARNED = ("coef_", "intercept_", "classes_")
"""Attributes that a model with several targets holds once per target."""


def has_several_columns(y: Any) -> bool:
    """Return whether y is a table of at least two targets. A single column is treated as a list of targets."""
    try:
        shape = y.shape if hasattr(y, "shape") else np.asarray(y).shape
    except ValueError:  # a list of lists of different lengths
        return False
    return not sparse.issparse(y) and len(shape) == 2 and shape[1] > 1


def per_target(join: Callable[[list[Any]], Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Apply a method of a model to the model of each target, and join the results, if there are several targets."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def applied(self: Any, *args: Any) -> Any:
            models = self.models_by_target()
            return join([function(model, *args) for model in models]) if models else function(self, *args)

        return applied

    return decorate


def beside_each_other(columns: list[NDArray[Any]]) -> NDArray[Any]:
    """Return columns as one array. Labels of different kinds, such as text and numbers, keep their kind."""
    kinds = {column.dtype.kind for column in columns}
    mixes = len(kinds) > 1 and not kinds <= set("biuf")
    return np.column_stack([column.astype(object) for column in columns] if mixes else columns)


class SeveralTargets:
    """Mixin of the linear estimators: a fit with a two-dimensional y, and the models of its columns."""

    _purpose = ""  # tells the noise of this model from that of others with the same seed
    _asked: Budget | None = None  # the whole budget, if this model trains with a share of it

    def models_by_target(self) -> list[Any]:
        """Return one fitted estimator per column of y, or an empty list if there is only one target.

        All of them have the same guarantee, which covers them together.
        """
        n_targets = getattr(self, "n_outputs_", None)
        if n_targets is None:
            return []
        names = [name for name in LEARNED if hasattr(self, name)]
        if any(len(getattr(self, name)) != n_targets for name in names):
            raise ValueError(f"it must have the weights of {n_targets} targets")
        if len(getattr(self, "target_names_", range(n_targets))) != n_targets:
            raise ValueError(f"it must have the names of {n_targets} targets")
        models = []
        for place in range(n_targets):
            model = copy.copy(self)
            del model.n_outputs_
            for name in names:
                setattr(model, name, np.atleast_1d(getattr(self, name)[place]))
            models.append(model)
        return models

    def _fit_columns(self: Any, X: Any, y: Any, X_public: Any, y_public: Any) -> None:
        """Fit one model per column of y."""
        if self._is_sparse:
            raise ValueError(
                f"{type(self).__name__} fits one target at a time, got y of shape {np.shape(y)}. Fit one model per "
                "column, and add up what they cost with a Ledger."
            )
        if getattr(self, "class_weight", None) is not None:
            raise ValueError(
                "class_weight is supported for one target only, because all columns of y share one loss. Leave it out, "
                "or fit one model per column, and add up what they cost with a Ledger."
            )
        names = getattr(y, "columns", None)
        X, y = self._validated(X, y, reset=True, multi_output=True)
        if y_public is not None and np.shape(y_public)[1:] != y.shape[1:]:
            raise ValueError(f"y_public must have the columns of y, {y.shape[1]}, got shape {np.shape(y_public)}.")
        models = []
        groups: dict[int, _Group] = {}
        for place, column in enumerate(_columns(y)):
            model = copy.copy(self)
            models.append(model)
            try:
                if hasattr(self, "classes"):
                    model.classes = classes_of(self.classes, place, y.shape[1])
                targets = model._targets(column)
                known = None if y_public is None else list(_columns(np.asarray(y_public)))[place]
                public = model._checked_public(X_public, known)
            except ValueError as error:
                name = repr(place if names is None else names[place])
                raise ValueError(f"Column {name} of y: {error}") from error
            group = groups.setdefault(len(getattr(model, "classes_", ())), _Group(model, [], targets, public))
            group.add(place, targets, public)
        self._train_groups(X, list(groups.values()), models)
        if names is not None:
            self.target_names_ = np.asarray([str(name) for name in names], dtype=object)
        self.n_outputs_ = len(models)
        for name in LEARNED:
            if hasattr(models[0], name):
                found = [getattr(model, name) for model in models]
                is_list = hasattr(self, "classes")
                setattr(self, name, found if is_list else np.vstack(found) if name == "coef_" else np.hstack(found))

    def _train_groups(self: Any, X: Any, groups: list["_Group"], models: list[Any]) -> None:
        """Train each group of columns with its share of the budget, and keep the guarantee of all."""
        delta = default_delta(X.shape[0]) if self.delta is None else self.delta
        if len(groups) > 1:
            if self._is_set("noise_multiplier"):
                raise ValueError(
                    f"noise_multiplier={self.noise_multiplier:g} cannot be given for columns with different numbers of "
                    "classes, which share a budget. Give epsilon instead, or fit these columns separately."
                )
            asked = Budget(self.epsilon, delta) if self.tpr is None else AttackRate(self.tpr[0], self.tpr[1], delta)
            planned = _share_budget(asked, X, groups, len(models))
            self._book(planned)
        for number, group in enumerate(groups):
            group.model._purpose = f" {len(models)} targets, group {number}"
            release = group.model._train(X, group.targets, group.public, self._book if len(groups) == 1 else None)
            for task, place in enumerate(group.places):
                weights = release.weights[..., task] if len(group.places) > 1 else release.weights
                models[place]._keep_weights(weights.astype(X.dtype))
        trained = [group.model for group in groups]
        self.guarantee_ = trained[0].guarantee_
        if len(groups) > 1:
            total = compose([model.guarantee_ for model in trained], delta=delta)
            words = f"of {len(models)} tasks, in {len(groups)} groups with different numbers of classes"
            self.guarantee_ = replace(total, released=f"{words}: {total.released}")
        self.method_ = ", ".join(dict.fromkeys(model.method_ for model in trained))
        self.method_reason_ = "; ".join(dict.fromkeys(model.method_reason_ for model in trained))
        self.n_iter_ = max(model.n_iter_ for model in trained)
        self.noise_std_ = trained[0].noise_std_ if len(trained) == 1 else None
        if hasattr(trained[0], "n_records_"):
            self.n_records_ = trained[0].n_records_


@dataclass
class _Group:
    """Columns that are tasks of one plan, and a copy of the estimator that trains them."""

    model: Any
    places: list[int]
    targets: Any
    public: Any

    def add(self, place: int, targets: Any, public: Any) -> None:
        """Add the targets of a column."""
        if self.places:
            conditions = tuple(dict.fromkeys(self.targets.conditions + targets.conditions))
            others = (*self.targets.others, targets.values)
            self.targets = replace(self.targets, conditions=conditions, others=others)
            self.public = public and (*self.public, public[1])
        self.places.append(place)


def _share_budget(budget: Budget | AttackRate, X: Any, groups: list[_Group], tasks: int) -> Guarantee:
    """Give each group its share of the budget, and return the guarantee of all before anything is trained.

    The shares of Gaussian releases compose to the budget. For other releases the shares may have to be smaller.
    """
    factor = _CAUTION
    while factor > _LEAST:
        for group in groups:
            part = factor * len(group.places) / tasks
            if isinstance(budget, AttackRate):
                share = budget.shared(part)
                group.model._asked, group.model.tpr = rate_budget(budget), (share.fpr, share.tpr)
                group.model.delta = share.delta
            else:
                share_of_budget = shared_budget(budget, part)
                group.model._asked = budget
                group.model.epsilon, group.model.delta = share_of_budget.epsilon, share_of_budget.delta
        planned = compose([_planned(X, group) for group in groups], delta=budget.delta)
        if isinstance(budget, AttackRate):
            is_enough = planned.tpr(budget.fpr) <= budget.tpr
        else:
            is_enough = planned.epsilon <= budget.epsilon
        if is_enough:
            return planned
        factor *= _SMALLER
    raise ValueError(
        f"method={groups[0].model.method!r} cannot fit columns with different numbers of classes under one budget. Fit "
        "such columns separately, each with its own epsilon, or use method='gradient'."
    )


class _PlannedError(Exception):
    """Stops a run before any noise is drawn, with the guarantee that it would have."""

    def __init__(self, guarantee: Guarantee) -> None:
        super().__init__()
        self.guarantee = guarantee


def _planned(X: Any, group: _Group) -> Guarantee:
    """Return the guarantee that training a group will have."""

    def stop(guarantee: Guarantee) -> None:
        raise _PlannedError(guarantee)

    model = copy.copy(group.model)
    model.verbose = 0
    try:
        model._train(X, group.targets, group.public, stop)
    except _PlannedError as planned:
        return planned.guarantee
    raise AssertionError("a solver must ask for its guarantee before it draws noise")


def _columns(y: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yield the columns of y, each with the type of its values, where y itself mixes types."""
    for column in y.T:
        same = column.dtype == object and len({type(value) for value in column}) == 1
        yield np.array(column.tolist()) if same else column


def classes_of(classes: Sequence[Any] | None, place: int, n_targets: int) -> Any:
    """Return the declared labels of a column: those of all columns, or its own if there is one sequence per column.

    None in place of a sequence reads the labels of that column from y.
    """
    if classes is None or not all(each is None or _is_sequence(each) for each in classes):
        return classes
    if len(classes) != n_targets:
        raise ValueError(f"classes has the labels of {len(classes)} columns, but y has {n_targets} columns")
    return classes[place]


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str)
