"""A model of a table: the public description of its columns, and an estimator trained on its rows."""

import math
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.utils.validation import check_is_fitted

from privet import cautions, saving
from privet.linear.additive import PrivateAdditiveModel
from privet.linear.additive_tables import additive_rows, additive_settings
from privet.linear.base import PrivateLinearModel
from privet.linear.regression import PrivateRegressor
from privet.privacy import Guarantee, enforced
from privet.privacy.ledger.spending import LedgerLike
from privet.showing import Reported, plot, to_html
from privet.solvers import Release
from privet.tables import NumericTarget, TableError, TableSchema, Target

if TYPE_CHECKING:
    from matplotlib.axes import Axes


TableEstimator: TypeAlias = PrivateLinearModel | PrivateAdditiveModel


class TableModel(Reported):
    """A :class:`~privet.tables.TableSchema` and an estimator, fitted, saved and loaded together.

    A classifier predicts a :class:`~privet.tables.Target`, a regressor a :class:`~privet.tables.NumericTarget`. Numbers
    are clipped to the bounds of the target and mapped to [-1, 1] for training, and predictions are mapped back.

    Parameters
    ----------
    schema : TableSchema
        Columns with their public bounds and levels, and the target.
    estimator : PrivateLinearModel or PrivateAdditiveModel
        The settings of the estimator; a copy of it is trained. The ``bounds``, ``levels`` and ``target_bounds`` of an
        additive model are those of the schema. For the other models, settings are in the units of the mapped table:
        ``feature_norm`` must be 1, the norm to which the schema scales rows, and the ``target_bound`` of a regressor
        must be 1. The ``entry_bound`` of a sparse model may be None for the largest entry that an encoded row can
        have. The ``threshold`` of :class:`~privet.PrivateHuberRegressor` and the ``corner_width`` of
        :class:`~privet.PrivateAbsoluteRegressor` refer to a target in [-1, 1]: use
        ``NumericTarget.encode_distance``.
    ledger : path, Ledger or None
        Where each fit is booked before its noise is drawn. It replaces the ``ledger`` of the estimator.

    Attributes
    ----------
    schema : TableSchema
        After :meth:`fit`, with the target's levels.
    estimator : PrivateLinearModel or PrivateAdditiveModel
        After :meth:`fit`, the trained copy.
    guarantee, guarantee_ : Guarantee
        The guarantee of the fit, under both names.
    study : dict or None
        The study of ``privet party`` in whose result file the model was, with its name, its digest and its parties.
    """

    def __init__(self, schema: TableSchema, estimator: TableEstimator, *, ledger: LedgerLike | None = None) -> None:
        if isinstance(estimator, PrivateAdditiveModel):
            if schema.others:
                raise TableError("An additive model has one target. Train one model per target.")
        elif estimator.feature_norm != 1.0:
            raise ValueError(
                f"feature_norm={estimator.feature_norm!r} does not fit a TableModel, which scales rows to norm 1. "
                "Leave feature_norm at 1.0."
            )
        if isinstance(estimator, PrivateRegressor) and estimator.target_bound != 1.0:
            raise ValueError(
                f"target_bound={estimator.target_bound!r} does not fit a TableModel, which maps the target to [-1, 1] "
                "by its bounds. Leave target_bound at 1.0."
            )
        name = type(estimator).__name__
        if isinstance(schema.target, NumericTarget) and not is_regressor(estimator):
            raise TableError(
                f"{name} predicts classes, but the target {schema.target.name!r} is a number with bounds. Use "
                "PrivateRidge or PrivateHuberRegressor, or declare the levels of the target instead."
            )
        if isinstance(schema.target, Target) and not is_classifier(estimator):
            raise TableError(
                f"{name} predicts numbers, but the target {schema.target.name!r} has no bounds. Declare "
                "target_bounds, or use PrivateLogisticRegression or PrivateLinearSVC for classes."
            )
        self._declared = schema
        self.schema = schema
        self.study: dict[str, Any] | None = None
        self.estimator: TableEstimator = clone(estimator)
        if isinstance(estimator, PrivateAdditiveModel):
            self.estimator.set_params(**additive_settings(schema))
        if ledger is not None:
            self.estimator.set_params(ledger=ledger)

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the fitted estimator."""
        check_is_fitted(self.estimator)
        guarantee: Guarantee = self.estimator.guarantee_
        return guarantee

    @property
    def guarantee_(self) -> Guarantee:
        """The same as :attr:`guarantee`, under the name that estimators use."""
        return self.guarantee

    @property
    def target(self) -> Target | NumericTarget:
        """The target of the fitted model, which is a category or a number."""
        check_is_fitted(self.estimator)
        assert self.schema.target is not None
        return self.schema.target

    @property
    def levels(self) -> tuple[str, ...]:
        """The levels of a categorical target, in the order of the probabilities.

        Of several targets, those of the first: ``schema.targets`` has the levels of each.
        """
        levels = self.target.levels
        if levels is None:
            raise ValueError(f"The target {self.target.name!r} is a number, so it has bounds instead of levels.")
        return levels

    def fit(
        self, frame: Any, before_training: Callable[[Guarantee], object] | None = None, public: Any = None
    ) -> "TableModel":
        """Train on a DataFrame with the schema's columns and target.

        Parameters
        ----------
        frame : DataFrame
        before_training : callable or None
            Called with the guarantee of the estimator before any noise is drawn, for instance ``ledger.spend``. If it
            raises an error, nothing is trained.
        public : DataFrame or None
            Records that need no protection, with the same columns, for methods that learn from them. A sparse model
            labels them itself, and does not use their target.
        """
        self.study = None
        schema = self._declared.with_target_levels(frame)
        rows, encoded = self._rows(schema, frame), schema.encode_target(frame)
        sample = frame.iloc[:: -(-len(frame) // cautions.SAMPLED_ROWS)]
        cautions.about_clipped_cells(schema.n_clipped(sample), len(sample))
        public_records = self._public_records(schema, public)
        estimator = clone(self.estimator)
        if isinstance(estimator, PrivateAdditiveModel) and isinstance(schema.target, NumericTarget):
            encoded = schema.target.decode(encoded)
        if getattr(estimator, "entry_bound", math.nan) is None:
            estimator.set_params(entry_bound=1 / schema.row_norm)  # no entry of an encoded row is larger
        encoded_rows = enforced("columns are clipped to declared bounds and levels, each row independently")
        conditions = [] if isinstance(estimator, PrivateAdditiveModel) else [encoded_rows]  # which states it itself
        classes: list[range | None] = []
        for target, column in zip(schema.targets, np.atleast_2d(encoded.T), strict=True):
            if isinstance(target, NumericTarget):
                name = f"target {target.name!r}" if schema.others else "target"
                bounds = f"[{target.low:.12g}, {target.high:.12g}]"
                mapped = f"the {name} is clipped to declared bounds {bounds} and mapped to [-1, 1]"
                conditions.append(enforced(f"{mapped}, each row independently"))
            else:
                classes.append(_declared_classes(target, column))
        if classes:
            # Levels that were read from the table all occur in it. The estimator reads them again and states that
            # assumption.
            estimator.set_params(classes=classes if schema.others else classes[0])
        estimator.before_training = before_training
        try:
            estimator.fit(rows, encoded, **public_records)
        finally:
            del estimator.before_training
        estimator.guarantee_ = estimator.guarantee_.assuming(*conditions)
        self.schema, self.estimator = schema, estimator
        return self

    def _public_records(self, schema: TableSchema, public: Any) -> dict[str, Any]:
        """Return the arguments for ``fit`` that hold public records, if there are any."""
        if public is None:
            return {}
        if isinstance(self.estimator, PrivateAdditiveModel):
            raise ValueError("Additive models do not learn from public records. Leave them out.")
        try:
            rows = {"X_public": schema.encode(public)}
            return rows if self.estimator._is_sparse else rows | {"y_public": schema.encode_target(public)}
        except TableError as error:
            raise TableError(f"The table of public records does not fit: {error}") from error

    def adopt(self, release: Release, *, method: str, reason: str) -> "TableModel":
        """Take over weights that were trained elsewhere on tables of this schema, together with their guarantee.

        ``release`` has the weights of the encoded columns, followed by the weight of the constant column that the
        settings of the estimator define.
        """
        target = self._declared.target
        if self._declared.others:
            raise TableError("Weights can be adopted for one target only. Use a schema with one target.")
        if target is None or (isinstance(target, Target) and target.levels is None):
            raise TableError("Weights can be adopted only if the schema declares the levels or bounds of its target.")
        n_classes = None if isinstance(target, NumericTarget) else len(target.levels or ())
        self.estimator = clone(self.estimator)
        if isinstance(self.estimator, PrivateAdditiveModel):
            raise TypeError("Additive models cannot adopt weights that were trained elsewhere.")
        self.estimator.adopt(release, len(self._declared.columns), n_classes)
        self.estimator.method_, self.estimator.method_reason_ = method, reason
        return self

    def predict(self, frame: Any) -> NDArray[Any]:
        """Return the prediction for each row: a level, or a number in the units of the target.

        Several targets are columns, in the order of the schema.
        """
        return self.predict_encoded(self.encode(frame))

    def encode(self, frame: Any) -> Any:
        """Return the rows of a table in the form that the estimator takes."""
        return self._rows(self.schema, frame)

    def _rows(self, schema: TableSchema, frame: Any) -> Any:
        is_additive = isinstance(self.estimator, PrivateAdditiveModel)
        return additive_rows(schema, frame) if is_additive else schema.encode(frame)

    def predict_encoded(self, rows: Any) -> NDArray[Any]:
        """Do the same for rows that :meth:`encode` returned."""
        check_is_fitted(self.estimator)
        found = self.estimator.predict(rows)
        if isinstance(self.estimator, PrivateAdditiveModel) and isinstance(self.target, NumericTarget):
            return np.asarray(found)  # in the units of the target already
        if not self.schema.others:
            return self.target.decode(found)
        return np.column_stack([each.decode(found[:, k]) for k, each in enumerate(self.schema.targets)])

    def predict_proba(self, frame: Any) -> Any:
        """Return the probabilities of the target's levels, in their order, or a list with those of each target."""
        return self.predict_proba_encoded(self.encode(frame))

    def predict_proba_encoded(self, rows: Any) -> Any:
        """Do the same for rows that :meth:`encode` returned."""
        if isinstance(self.target, NumericTarget):
            raise ValueError(f"The target {self.target.name!r} is a number, which is predicted without probabilities.")
        if not hasattr(self.estimator, "predict_proba"):
            raise ValueError(
                f"{type(self.estimator).__name__} predicts no probabilities, because its loss does not estimate them. "
                "Use PrivateLogisticRegression."
            )
        return self.estimator.predict_proba(rows)

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the effects of the columns, with the noise in them where it is known. This requires matplotlib."""
        return plot(self, ax)

    def _repr_html_(self) -> str:
        return to_html(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write schema, weights and guarantee to one JSON file, completely or not at all."""
        saving.write(path, self.to_dict())

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
        if not isinstance(fields.get("schema"), dict) or not isinstance(fields.get("model"), dict):
            raise ValueError("It is not a privet table model: its schema or its model is missing.")
        estimator = saving.from_dict(fields["model"])
        if not isinstance(estimator, TableEstimator):
            raise ValueError(f"It is not a privet table model: {type(estimator).__name__} is no model of tables.")
        model = cls(TableSchema.from_dict(fields["schema"]), estimator)
        model.estimator = estimator
        study = fields.get("study")
        model.study = study if isinstance(study, dict) else None
        is_additive = isinstance(estimator, PrivateAdditiveModel)
        settings = additive_settings(model.schema)
        n_columns = len(settings["bounds"]) + len(settings["levels"]) if is_additive else len(model.schema.columns)
        if n_columns != estimator.n_features_in_:
            raise ValueError("It is not a valid table model: its columns do not match its weights.")
        if not _fits(model.schema, estimator):
            raise ValueError("It is not a valid table model: its target does not match its weights.")
        return model


def _declared_classes(target: Target, encoded: NDArray[Any]) -> range | None:
    """Return the positions of declared levels, or None if the levels were read from the table."""
    levels = target.levels
    assert levels is not None
    if not target.levels_from_data:
        return range(len(levels))
    if len(np.unique(encoded)) < 2:
        raise TableError(f"The target {target.name!r} has only one class, but a classifier needs at least two.")
    return None


def _fits(schema: TableSchema, estimator: TableEstimator) -> bool:
    """Return whether a fitted estimator has the targets of a schema, and as many classes as each has levels."""
    models = estimator.models_by_target() or [estimator]
    if len(models) != len(schema.targets):
        return False
    for target, model in zip(schema.targets, models, strict=True):
        if isinstance(target, Target) and len(target.levels or ()) != len(model.classes_):
            return False
    return True


saving.register("TableModel", TableModel.from_dict)
