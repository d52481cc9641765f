"""A model of a table: the public description of its columns, and the estimator trained on its rows."""

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from privet.linear.base import PrivateLinearModel, read_json, write_json
from privet.privacy import Guarantee, enforced
from privet.tables import TableError, TableSchema

MOST_UNDECLARED_LEVELS = 50  # more look like a number, or a name


class TableModel:
    """A :class:`~privet.tables.TableSchema` and an estimator, fitted, saved and loaded as one.

    Parameters
    ----------
    schema : TableSchema
        Columns with their public bounds and levels, and the target.
    estimator : PrivateLinearModel
        Its settings; a copy is trained. ``feature_norm`` must be 1, the norm to which the schema scales rows.

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
    def levels(self) -> tuple[str, ...]:
        """The levels of the target, in the order of the probabilities."""
        check_is_fitted(self.estimator)
        target = self.schema.target
        assert target is not None and target.levels is not None
        return target.levels

    def fit(self, frame: Any) -> "TableModel":
        """Train on a DataFrame with the schema's columns and target."""
        schema = self._declared.with_target_levels(frame)
        target = schema.target
        assert target is not None and target.levels is not None
        rows, codes = schema.encode(frame), schema.encode_target(frame)
        if target.levels_from_data and len(target.levels) > MOST_UNDECLARED_LEVELS:
            raise TableError(
                f"the target {target.name!r} has {len(target.levels)} different values: declare the levels of a "
                "category; numbers as targets are not supported yet"
            )
        if len(np.unique(codes)) < 2:
            raise TableError(f"the target {target.name!r} has one class only: a classifier needs at least two")
        # Levels read from the table all occur in it: the estimator finds them again, and its guarantee says so.
        classes = None if target.levels_from_data else range(len(target.levels))
        estimator = clone(self.estimator).set_params(classes=classes).fit(rows, codes)
        clipped = enforced("columns are clipped to declared bounds and levels, each row by itself")
        estimator.guarantee_ = estimator.guarantee_.assuming(clipped)
        self.schema, self.estimator = schema, estimator
        return self

    def predict(self, frame: Any) -> NDArray[Any]:
        """Return the predicted level of each row."""
        levels = np.asarray(self.levels, dtype=object)
        return np.asarray(levels[self.estimator.predict(self.schema.encode(frame))])

    def predict_proba(self, frame: Any) -> NDArray[Any]:
        """Return the probabilities of the target's levels, in their order."""
        check_is_fitted(self.estimator)
        return np.asarray(self.estimator.predict_proba(self.schema.encode(frame)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write schema, weights and guarantee to one JSON file, in one piece or not at all."""
        write_json(path, {"schema": self.schema.to_dict(), "model": self.estimator.to_dict()})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "TableModel":
        """Read a model that :meth:`save` wrote. Nothing in the file is executed."""
        fields = read_json(path)
        if not isinstance(fields.get("schema"), dict) or not isinstance(fields.get("model"), dict):
            raise ValueError(f"{path} is not a privet table model: it has no schema and model")
        estimator = PrivateLinearModel.from_dict(fields["model"])
        model = cls(TableSchema.from_dict(fields["schema"]), estimator)
        model.estimator = estimator
        if len(model.schema.columns) != estimator.n_features_in_:
            raise ValueError(f"{path} is not a privet table model: its columns are not those of its weights")
        return model
