"""The public description of a private table, reading the table, and the map from the table to a bounded matrix.

Everything that shapes the matrix is declared: bounds, levels and the order of columns. No scale, bound, level or
default is estimated from the rows. Encoding therefore costs no privacy, and no row influences the encoding of another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from privet.tables.bounds import BoundedColumn
from privet.tables.cells import check_name, column_of, columns_of
from privet.tables.declarations import Declarations, parse_toml, read_toml
from privet.tables.errors import SchemaError, SchemaErrors, TableError
from privet.tables.features import FEATURES, Feature, by_name, feature_fields, with_rules
from privet.tables.findings import Finding
from privet.tables.form import RECOGNISED, FileForm
from privet.tables.targets import KINDS, AnyTarget, check_targets, to_fields

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class TableSchema:
    """What is public about a private table: its features with bounds or levels, and its target.

    A table with several targets has the further ones as `others`. All of them are classes, or all are numbers. The
    columns `ids` are never used: `privet predict` copies them to its output. `form` is what was declared about the form
    of its files.

    Formal guarantees
    -----------------
    `encode` maps each row to a vector of Euclidean norm at most 1, and `encode_target` maps each number to [-1, 1].
    Both use declared constants only and treat each row independently of the others.
    """

    features: tuple[Feature, ...]
    target: AnyTarget | None = None
    others: tuple[AnyTarget, ...] = ()
    ids: tuple[str, ...] = ()
    form: FileForm = RECOGNISED

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", tuple(self.features))
        object.__setattr__(self, "others", tuple(self.others))
        if not self.features:
            raise TableError(
                "no feature is declared. Declare bounds (as in age=0:120) or levels (as in sex=female,male) for at "
                "least one column."
            )
        if self.others and self.target is None:
            raise TableError("others are further targets, but the first one is missing. Declare it as the target.")
        check_targets(self.targets, by_name(self.features))
        object.__setattr__(self, "ids", self._checked_ids())

    def _checked_ids(self) -> tuple[str, ...]:
        """Return the columns of IDs, which must be different, and neither features nor targets."""
        for name in self.ids:
            check_name(name)
        names = [column.name for column in (*self.features, *self.targets)]
        for name in self.ids:
            if name in names:
                raise TableError(
                    f"The column {name!r} is declared both as an ID and as a feature or target. Keep one of the two "
                    "declarations: an ID is not used for predictions."
                )
        return tuple(dict.fromkeys(self.ids))

    @property
    def targets(self) -> tuple[AnyTarget, ...]:
        """All targets, in the order of predictions."""
        return () if self.target is None else (self.target, *self.others)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the encoded columns: `age` for a number, `sex=female` for a level."""
        names: list[str] = []
        for feature in self.features:
            names.extend(feature.columns)
        return tuple(names)

    @property
    def row_norm(self) -> float:
        """Largest norm of a row before scaling: a number adds at most 1 to its square, a categorical exactly 1."""
        return math.sqrt(len(self.features))

    @property
    def column_scale(self) -> float:
        """Factor by which encoded columns are multiplied. It depends on the number of features alone."""
        # A few units in the last place below 1 / row_norm, so that no rounding makes a norm exceed 1.
        return (1 - (len(self.features) + 4) * 2.0**-52) / self.row_norm

    def encode(self, frame: pd.DataFrame) -> NDArray[np.float64]:
        """Encode the declared features as an (n, d) matrix whose rows have norm at most 1.

        Columns of `frame` that are not declared are ignored; `columns` names those of the result.
        """
        scale = self.column_scale
        matrix = np.zeros((len(frame), len(self.columns)))
        start = 0
        for feature, column in zip(self.features, columns_of(frame, list(by_name(self.features))), strict=True):
            end = start + len(feature.columns)
            matrix[:, start:end] = scale * feature.encode(column)
            start = end
        return matrix

    def encode_target(self, frame: pd.DataFrame) -> NDArray[Any]:
        """Encode the target: classes as positions among their levels, a number clipped and mapped to [-1, 1].

        The levels are the declared ones, or those of `with_target_levels(frame)`. Several targets are columns.
        """
        return self._each_target(lambda target, column: target.encode(column), frame)

    def true_target(self, frame: pd.DataFrame) -> NDArray[Any]:
        """Return the target as predictions spell it: the levels of classes, or the numbers in the table."""
        return self._each_target(lambda target, column: target.truth(column), frame)

    def with_target_levels(self, frame: pd.DataFrame) -> TableSchema:
        """Return this schema, with the levels of the target read from the data unless they are declared."""
        self._check_target()
        target, *others = (each.completed(column_of(frame, each.name)) for each in self.targets)
        complete = replace(self, target=target, others=tuple(others))
        return self if complete == self else complete

    def _each_target(
        self, compute: Callable[[AnyTarget, pd.Series], NDArray[Any]], frame: pd.DataFrame
    ) -> NDArray[Any]:
        """Return the result for the target, or one column per target if there are several."""
        self._check_target()
        found = [compute(target, column_of(frame, target.name)) for target in self.targets]
        return np.column_stack(found) if self.others else found[0]

    def _check_target(self) -> None:
        if self.target is None:
            raise TableError("no target is declared. Name the column to predict as the target of the schema.")

    def n_clipped(self, frame: pd.DataFrame) -> dict[str, int]:
        """Return how many values of each numeric column are clipped to its bounds, for columns with such values.

        These numbers are not private. They are for the owner of the table.
        """
        declared = [column for column in (*self.features, *self.targets) if isinstance(column, BoundedColumn)]
        names = [column.name for column in declared]
        clipped = zip(names, map(BoundedColumn.n_clipped, declared, columns_of(frame, names)), strict=True)
        return {name: number for name, number in clipped if number}

    def findings(self, frame: pd.DataFrame) -> list[Finding]:
        """Return everything that there is to say of a table: problems, notes, and how many cells are clipped.

        The table can be encoded, and a model trained on it, if and only if none of the findings is a problem. They
        describe rows and are not private. They are for the owner of the table.
        """
        from privet.tables.check import table_findings

        return table_findings(self, frame)

    def undeclared(self, columns: Iterable[object]) -> tuple[str, ...]:
        """Return which of a table's columns are neither a feature, a target nor an ID, and are therefore ignored.

        ``columns`` are their names, or a DataFrame.
        """
        names = dict.fromkeys(map(str, columns))
        for name in (*(column.name for column in (*self.features, *self.targets)), *self.ids):
            names.pop(name, None)
        return tuple(names)

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as plain values that JSON can hold."""
        others = {"others": [to_fields(each) for each in self.others]} if self.others else {}
        ids = {"ids": list(self.ids)} if self.ids else {}
        features = list(map(feature_fields, self.features))
        form = {"file": given} if (given := self.form.to_dict()) else {}
        return {"features": features, "target": self.target and to_fields(self.target), **others, **ids, **form}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TableSchema:
        """Restore a schema from the result of `to_dict`, also after it was written as JSON."""

        def build(kinds: Mapping[str, Any], part: Mapping[str, Any]) -> Any:
            return kinds[part["kind"]](**{key: value for key, value in part.items() if key != "kind"})

        try:
            features = tuple(build(FEATURES, feature) for feature in values["features"])
            others = tuple(build(KINDS, other) for other in values.get("others", ()))
            target = values["target"] and build(KINDS, values["target"])
            form = FileForm.from_dict(values.get("file", {}), "The schema")
            return cls(features, target, others, values.get("ids", ()), form)
        except (KeyError, TypeError, AttributeError) as error:
            raise TableError(f"These values are not a table schema: {type(error).__name__} {error}") from error

    @classmethod
    def from_toml(cls, path: str | Path) -> TableSchema:
        """Read a schema from a TOML file. docs/tables.md describes its keys."""
        return cls.from_options(toml=path)

    @classmethod
    def from_values(cls, values: dict[str, Any], where: str) -> TableSchema:
        """Read a schema from a section of a TOML file. ``where`` names the section in errors."""
        errors = SchemaErrors()
        return cls._of(parse_toml(values, where, errors), errors)

    @classmethod
    def _of(cls, declared: Declarations, errors: SchemaErrors) -> TableSchema:
        """Return the schema of the declarations, or raise SchemaError with these errors and all further ones."""
        targets = declared.targets
        names = [target.name for target in targets]
        features = with_rules(tuple(declared.features.values()), names, declared.missing, errors)
        schema = None
        if features or not errors.found:
            free = tuple(feature for feature in features if feature.name not in names)
            used = {*names, *(feature.name for feature in features)}
            ids = tuple(name for name in declared.ids if name not in used)
            # If not all fits together, leave out what the errors are about: features that are targets, IDs, targets.
            attempts = (
                (features, targets, declared.ids),
                (free, targets, declared.ids),
                (free, targets, ids),
                (free, (), ids),
            )
            for some, predicted, kept in attempts:
                if schema is None:
                    with errors.catch():
                        schema = cls(some, predicted[0] if predicted else None, predicted[1:], kept, declared.form)
        if errors.found:
            raise SchemaError(errors, schema)
        assert schema is not None
        return schema

    @classmethod
    def from_options(
        cls,
        *,
        toml: str | Path | None = None,
        bounds: Iterable[str] = (),
        levels: Iterable[str] = (),
        target: str | Iterable[str] | None = None,
        target_bounds: str | None = None,
        missing: Iterable[str] = (),
        ids: Iterable[str] = (),
        form: FileForm = RECOGNISED,
    ) -> TableSchema:
        """Combine a TOML file, if given, with texts such as ``age=0:120`` and ``sex=female,male``.

        A text overrides what the file declares for the same column. Bounds or levels of the target column describe the
        target; ``target_bounds`` are its bounds without its name, as in ``0:5000``. ``target`` can name several
        columns. ``missing`` has texts such as ``level``, for all columns, and ``age=40``; ``ids`` are names of
        columns; ``form`` is the form of files.
        """
        errors = SchemaErrors()
        declared = Declarations() if toml is None else read_toml(Path(toml), errors)
        texts = {"bounds": bounds, "levels": levels, "missing": missing, "ids": ids}
        options = declared.with_options(**texts, target=target, target_bounds=target_bounds, form=form)
        return cls._of(options, errors)
