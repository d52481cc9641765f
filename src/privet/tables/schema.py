"""The public description of a private table, and the map from the table to a bounded matrix.

Everything that shapes the matrix is declared: bounds, levels, order of columns. No scale, bound, level or default is
estimated from the rows, so encoding costs no privacy and one row's encoding never depends on another row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from privet.tables.bounds import within_bounds
from privet.tables.cells import column_of, numbers
from privet.tables.columns import Categorical, Numeric, by_name
from privet.tables.errors import TableError
from privet.tables.options import (
    as_target,
    parse_bounds,
    parse_levels,
    parse_table,
    parse_target_bounds,
    read_toml,
)
from privet.tables.targets import NumericTarget, Target

if TYPE_CHECKING:
    import pandas as pd

_FEATURES: dict[str, type[Numeric | Categorical]] = {"numeric": Numeric, "categorical": Categorical}
_TARGETS: dict[str, type[Target | NumericTarget]] = {kind.kind: kind for kind in (Target, NumericTarget)}


@dataclass(frozen=True)
class TableSchema:
    """What is public about a private table: its features with bounds or levels, and its target.

    Formal guarantees
    -----------------
    `encode` maps each row on its own, by declared constants only, to a vector of Euclidean norm at most 1, and
    `encode_target` a number on its own to one in [-1, 1].
    """

    features: tuple[Numeric | Categorical, ...]
    target: Target | NumericTarget | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", tuple(self.features))
        if not self.features:
            raise TableError("no feature is declared: give bounds (age=0:120) or levels (sex=female,male) for a column")
        names = by_name(self.features)
        if self.target is not None and self.target.name in names:
            raise TableError(
                f"the target {self.target.name!r} is also declared as a feature: drop one of the two (what is "
                "known of a target goes into target_levels or target_bounds)"
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the encoded columns: `age` for a number, `sex=female` for a level."""
        return tuple(name for feature in self.features for name in feature.columns)

    @property
    def row_norm(self) -> float:
        """Largest norm of a row before scaling: a number adds at most 1 to its square, a categorical exactly 1."""
        return math.sqrt(len(self.features))

    def encode(self, frame: pd.DataFrame) -> NDArray[np.float64]:
        """Encode the declared features as an (n, d) matrix whose rows have norm at most 1.

        Columns of `frame` that are not declared are ignored; `columns` names those of the result.
        """
        # A few units in the last place below 1 / row_norm, so that no rounding carries a norm above 1.
        scale = (1 - (len(self.features) + 4) * 2.0**-52) / self.row_norm
        matrix = np.zeros((len(frame), len(self.columns)))
        start = 0
        for feature in self.features:
            stop = start + len(feature.columns)
            feature.fill(matrix[:, start:stop], column_of(frame, feature.name), scale)
            start = stop
        return matrix

    def encode_target(self, frame: pd.DataFrame) -> NDArray[Any]:
        """Encode the target: classes as positions in their levels, a number clipped and mapped to [-1, 1].

        Levels are the declared ones, or those of `with_target_levels(frame)`.
        """
        target, column = self._target_in(frame)
        return target.encode(column)

    def true_target(self, frame: pd.DataFrame) -> NDArray[Any]:
        """Return the target as predictions have it: the levels of classes, or numbers as they stand in the table."""
        target, column = self._target_in(frame)
        return target.truth(column)

    def with_target_levels(self, frame: pd.DataFrame) -> TableSchema:
        """Return this schema, or if its target's levels are not declared one with the levels read from the data."""
        target, column = self._target_in(frame)
        complete = target.completed(column)
        return self if complete is target else replace(self, target=complete)

    def _target_in(self, frame: pd.DataFrame) -> tuple[Target | NumericTarget, pd.Series]:
        if self.target is None:
            raise TableError('no target is declared: name the column to predict (target = "..." or --target)')
        return self.target, column_of(frame, self.target.name)

    def beyond_bounds(self, frame: pd.DataFrame) -> tuple[str, ...]:
        """Names of the declared numbers of which some lie outside their bounds: encoding would clip them."""
        declared = [column for column in (*self.features, self.target) if isinstance(column, Numeric | NumericTarget)]
        return tuple(
            column.name
            for column in declared
            if not within_bounds(numbers(column_of(frame, column.name), column.name), column.low, column.high)
        )

    def undeclared(self, frame: pd.DataFrame) -> tuple[str, ...]:
        """Names of the columns of `frame` that are neither a feature nor the target, and so are ignored."""
        declared = {column.name for column in (*self.features, self.target) if column is not None}
        return tuple(str(name) for name in frame.columns if str(name) not in declared)

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as plain values that JSON can hold."""
        features = [{"kind": type(feature).__name__.lower(), **asdict(feature)} for feature in self.features]
        return {"features": features, "target": self.target and {"kind": self.target.kind, **asdict(self.target)}}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TableSchema:
        """Rebuild a schema from `to_dict`, also after a trip through JSON."""

        def build(kinds: Mapping[str, Any], part: Mapping[str, Any]) -> Any:
            return kinds[part["kind"]](**{key: value for key, value in part.items() if key != "kind"})

        try:
            features = tuple(build(_FEATURES, feature) for feature in values["features"])
            return cls(features, values["target"] and build(_TARGETS, values["target"]))
        except (KeyError, TypeError, AttributeError) as error:
            raise TableError(f"not a table schema: {type(error).__name__} {error}") from error

    @classmethod
    def from_toml(cls, path: str | Path) -> TableSchema:
        """Read a schema from a TOML file with `target`, its levels or bounds, `[numeric]` and `[categorical]`."""
        return cls.from_options(toml=path)

    @classmethod
    def from_values(cls, values: dict[str, Any], where: str) -> TableSchema:
        """Read a schema from what a part of a TOML file holds; ``where`` names that part in errors."""
        features, target = parse_table(values, where)
        return cls(tuple(features.values()), target)

    @classmethod
    def from_options(
        cls,
        *,
        toml: str | Path | None = None,
        bounds: Iterable[str] = (),
        levels: Iterable[str] = (),
        target: str | None = None,
        target_bounds: str | None = None,
    ) -> TableSchema:
        """Merge a TOML file, if any, with options such as `age=0:120` and `sex=female,male`.

        An option overrides what the file says of the same column. Bounds or levels given for the target are the
        target's; `target_bounds` are its bounds without its name, `0:5000`.
        """
        declared, from_file = ({}, None) if toml is None else read_toml(Path(toml))
        chosen = from_file if target is None or (from_file and from_file.name == target) else Target(target)
        described: list[Numeric | Categorical] = [*map(parse_bounds, bounds), *map(parse_levels, levels)]
        if target_bounds is not None:
            if chosen is None:
                raise TableError('bounds of the target are given, but no target: name it (target = "..." or --target)')
            described.append(parse_target_bounds(chosen.name, target_bounds))
        options = by_name(described)
        if chosen and chosen.name in options:
            chosen = as_target(options.pop(chosen.name))
        return cls(tuple((declared | options).values()), chosen)
