"""A model of a table: the public description of its columns, and the estimator trained on its rows."""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from privet import saving
from privet.files import write_json
from privet.linear.base import PrivateLinearModel
from privet.linear.classification import PrivateClassifier
from privet.linear.regression import PrivateRegressor
from privet.privacy import Assumption, Guarantee, enforced
from privet.solvers import Release
from privet.tables import NumericTarget, TableError, TableSchema, Target

MOST_UNDECLARED_LEVELS = 50  # more look like a number, or a name
_DECLARE_BOUNDS = "target_bounds = [low, high] or --target-bounds low:high"


class TableModel:
    """A :class:`~privet.tables.TableSchema` and an estimator, fitted, saved and loaded as one.

    A classifier predicts a :class:`~privet.tables.Target`, a regressor a :class:`~privet.tables.NumericTarget`: numbers
    are clipped to the target's bounds, each by itself, and mapped to [-1, 1] for training; predictions are mapped back.

    Parameters
    ----------
    schema : TableSchema
        Columns with their public bounds and levels, and the target.
    estimator : PrivateLinearModel
        Its settings; a copy is trained. They are in the units of the mapped table: ``feature_norm`` must be 1, the norm
        to which the schema scales rows, and a regressor's ``target_bound`` must be 1. The ``threshold`` of
        :class:`~privet.PrivateHuberRegressor` is one of a target in [-1, 1]: divide by ``NumericTarget.half_width``.

    Attributes
    ----------
    schema : TableSchema
        After :meth:`fit`, with the target's levels.
    estimator : PrivateLinearModel
        After :meth:`fit`, the trained copy.
    """

    def __init__(self, schema: TableSchema, estimator: PrivateLinearModel) -> None:
        if estimator.feature_norm != 1.0:
            raise ValueError("a TableModel scales rows to norm 1: leave feature_norm at 1.0")
        if isinstance(estimator, PrivateRegressor) and estimator.target_bound != 1.0:
            raise ValueError(
                "a TableModel scales a number to [-1, 1] by the bounds of its target: leave target_bound at 1.0"
            )
        if schema.target is not None:
            _check_match(schema.target, estimator)
        self._declared = schema
        self.schema = schema
        self.estimator: PrivateLinearModel = clone(estimator)

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the fitted estimator."""
        check_is_fitted(self.estimator)
        guarantee: Guarantee = self.estimator.guarantee_
        return guarantee

    @property
    def target(self) -> Target | NumericTarget:
        """The target of the fitted model: what it predicts, classes or a number."""
        check_is_fitted(self.estimator)
        assert self.schema.target is not None
        return self.schema.target

    @property
    def levels(self) -> tuple[str, ...]:
        """The levels of a target of classes, in the order of the probabilities."""
        levels = self.target.levels
        if levels is None:
            raise ValueError(f"the target {self.target.name!r} is a number: it has bounds, and no levels")
        return levels

    def fit(self, frame: Any) -> "TableModel":
        """Train on a DataFrame with the schema's columns and target."""
        schema = self._declared.with_target_levels(frame)
        rows, encoded = schema.encode(frame), schema.encode_target(frame)
        assert schema.target is not None
        settings, conditions = _prepared(schema.target, encoded)
        estimator = clone(self.estimator).set_params(**settings).fit(rows, encoded)
        clipped = enforced("columns are clipped to declared bounds and levels, each row by itself")
        estimator.guarantee_ = estimator.guarantee_.assuming(clipped, *conditions)
        self.schema, self.estimator = schema, estimator
        return self

    def adopt(self, release: Release, *, method: str, reason: str) -> "TableModel":
        """Take over weights that were trained elsewhere on tables of this schema, under the guarantee they came with.

        ``release`` has the weights of the encoded columns, then the intercept's, for the constant column that the
        estimator's settings say.
        """
        target = self._declared.target
        if target is None or (isinstance(target, Target) and target.levels is None):
            raise TableError("weights from elsewhere need a schema whose target is declared, with its levels or bounds")
        n_classes = None if isinstance(target, NumericTarget) else len(target.levels or ())
        self.estimator = clone(self.estimator)
        self.estimator.adopt(release, len(self._declared.columns), n_classes)
        self.estimator.method_, self.estimator.method_reason_ = method, reason
        return self

    def predict(self, frame: Any) -> NDArray[Any]:
        """Return the prediction for each row: a level, or a number in the target's own units."""
        return self.target.decode(self.estimator.predict(self.schema.encode(frame)))

    def predict_proba(self, frame: Any) -> NDArray[Any]:
        """Return the probabilities of the target's levels, in their order."""
        if isinstance(self.target, NumericTarget):
            raise ValueError(f"the target {self.target.name!r} is a number: it is predicted without probabilities")
        if not hasattr(self.estimator, "predict_proba"):
            raise ValueError(
                f"{type(self.estimator).__name__} has no probabilities: its loss looks for the side of a boundary, not "
                "for how likely a class is; use PrivateLogisticRegression (--model logistic)"
            )
        return np.asarray(self.estimator.predict_proba(self.schema.encode(frame)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write schema, weights and guarantee to one JSON file, completely or not at all."""
        write_json(path, self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Return schema, weights and guarantee as plain values that JSON can hold."""
        return {"schema": self.schema.to_dict(), "model": self.estimator.to_dict()}

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "TableModel":
        """Read a table model that :meth:`save`, ``privet fit`` or ``privet party`` wrote. Nothing in it is executed."""
        model = saving.load(path)
        if not isinstance(model, cls):
            raise ValueError(f"{path} is not a privet table model, but holds a {type(model).__name__}.")
        return model

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "TableModel":
        """Restore a table model from :meth:`to_dict`. Other fields, such as signatures, are ignored."""
        if not isinstance(fields["schema"], dict) or not isinstance(fields["model"], dict):
            raise ValueError("It is not a privet table model: its schema or its model is missing.")
        estimator = saving.from_dict(fields["model"])
        if not isinstance(estimator, PrivateLinearModel):
            raise ValueError(f"It is not a privet table model: {type(estimator).__name__} is not a linear model.")
        model = cls(TableSchema.from_dict(fields["schema"]), estimator)
        model.estimator = estimator
        if len(model.schema.columns) != estimator.n_features_in_:
            raise ValueError("It is not a valid table model: its columns do not match its weights.")
        target = model.schema.target
        if target is None or (isinstance(target, Target) and len(target.levels or ()) != len(estimator.classes_)):
            raise ValueError("It is not a valid table model: its target does not match its weights.")
        return model


saving.register("TableModel", TableModel.from_dict)


def _check_match(target: Target | NumericTarget, estimator: PrivateLinearModel) -> None:
    """Raise unless the estimator predicts what the target is."""
    name = type(estimator).__name__
    if isinstance(target, NumericTarget) and not isinstance(estimator, PrivateRegressor):
        raise TableError(
            f"{name} predicts classes, but the target {target.name!r} is a number with bounds: use PrivateRidge or "
            "PrivateHuberRegressor (--model ridge or huber), or declare the target's levels instead"
        )
    if isinstance(target, Target) and not isinstance(estimator, PrivateClassifier):
        raise TableError(
            f"{name} predicts numbers, but the target {target.name!r} has no bounds: declare them ({_DECLARE_BOUNDS}), "
            "or use PrivateLogisticRegression or PrivateLinearSVC (--model logistic or svm) for classes"
        )


def _prepared(target: Target | NumericTarget, encoded: NDArray[Any]) -> tuple[dict[str, Any], tuple[Assumption, ...]]:
    """Return the settings that an encoded target asks for, and what the guarantee says of it; refuse a bad one."""
    if isinstance(target, NumericTarget):
        bounds = f"[{target.low:.12g}, {target.high:.12g}]"
        return {}, (
            enforced(f"the target is clipped to declared bounds {bounds} and mapped to [-1, 1], each row by itself"),
        )
    assert target.levels is not None
    if target.levels_from_data and len(target.levels) > MOST_UNDECLARED_LEVELS:
        raise TableError(
            f"the target {target.name!r} has {len(target.levels)} different values: declare the levels of a category, "
            f"or the bounds of a number ({_DECLARE_BOUNDS})"
        )
    if target.levels_from_data and len(np.unique(encoded)) < 2:
        raise TableError(f"the target {target.name!r} has one class only: a classifier needs at least two")
    # Levels read from the table all occur in it: the estimator finds them again, and its guarantee says so.
    return {"classes": None if target.levels_from_data else range(len(target.levels))}, ()
