"""A model of a table: the public description of its columns, and the estimator trained on its rows."""

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.linear.base import PrivateLinearModel, read_json, write_json
from privet.privacy import Guarantee, assumed, enforced
from privet.tables import TableError, TableSchema


class TableModel:
    """A :class:`~privet.tables.TableSchema` and an estimator, fitted, saved and loaded as one.

    Parameters
    ----------
    schema : TableSchema
        Columns with their public bounds and levels, and the target.
    estimator : PrivateLinearModel
        Its ``feature_norm`` must be 1, the norm to which the schema scales rows.
    """

    def __init__(self, schema: TableSchema, estimator: PrivateLinearModel) -> None:
        if estimator.feature_norm != 1.0:
            raise ValueError("a TableModel scales rows to norm 1: leave feature_norm at 1.0")
        self.schema = schema
        self.estimator = estimator

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the fitted estimator."""
        guarantee: Guarantee = self.estimator.guarantee_
        return guarantee

    def fit(self, frame: Any) -> "TableModel":
        """Train on a DataFrame with the schema's columns and target."""
        if self.schema.target is None:
            raise TableError("the schema names no target column: declare one")
        self.schema = self.schema.with_target_levels(frame)
        rows, codes = self.schema.encode(frame), self.schema.encode_target(frame)
        target = self.schema.target
        assert target is not None and target.levels is not None
        if len(np.unique(codes)) < 2:
            raise TableError(f"the target {target.name!r} has one class only: a classifier needs at least two")
        self.estimator.set_params(classes=list(range(len(target.levels)))).fit(rows, codes)
        columns = enforced("columns are clipped to declared bounds and levels, each row by itself")
        guarantee = self.guarantee.assuming(columns)
        if target.levels_from_data:
            guarantee = guarantee.assuming(
                assumed(f"the set of levels of {target.name!r}, read from the table, is public")
            )
        self.estimator.guarantee_ = guarantee
        return self

    def predict(self, frame: Any) -> NDArray[Any]:
        """Return the predicted level of each row."""
        return np.asarray(self._levels()[self.estimator.predict(self.schema.encode(frame))])

    def predict_proba(self, frame: Any) -> NDArray[Any]:
        """Return the probabilities of the target's levels, in their order."""
        return np.asarray(self.estimator.predict_proba(self.schema.encode(frame)))

    def _levels(self) -> NDArray[Any]:
        target = self.schema.target
        assert target is not None and target.levels is not None
        return np.asarray(target.levels, dtype=object)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write schema, weights and guarantee to one JSON file, in one piece or not at all."""
        write_json(path, {"schema": self.schema.to_dict(), "model": self.estimator.to_dict()})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "TableModel":
        """Read a model that :meth:`save` wrote. Nothing in the file is executed."""
        fields = read_json(path)
        if "schema" not in fields or "model" not in fields:
            raise ValueError(f"{path} is not a privet table model: it has no schema and model")
        return cls(TableSchema.from_dict(fields["schema"]), PrivateLinearModel.from_dict(fields["model"]))
