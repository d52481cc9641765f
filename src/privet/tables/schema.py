"""The public description of a private table, reading the table, and the map from the table to a bounded matrix.

Everything that shapes the matrix is declared: bounds, levels and the order of columns. No scale, bound, level or
default is estimated from the rows. Encoding therefore costs no privacy, and no row influences the encoding of another.
"""

from __future__ import annotations

import csv
import difflib
import math
import tomllib
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from privet.tables.columns import BoundedNumber, Categorical, Numeric, Target, by_name, level_codes
from privet.tables.errors import TableError, cut, listing, show
from privet.tables.targets import KINDS, AnyTarget, check_targets, described, pair, to_fields, toml_targets

if TYPE_CHECKING:
    import pandas as pd

_FEATURES: dict[str, type[Numeric | Categorical]] = {"numeric": Numeric, "categorical": Categorical}
_TOML_KEYS = ("target", "target_levels", "target_bounds", "numeric", "categorical")
_SEPARATORS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t"}
_PARQUET = (".parquet", ".pq")


@dataclass(frozen=True)
class TableSchema:
    """What is public about a private table: its features with bounds or levels, and its target.

    A table with several targets has the further ones as `others`. All of them are classes, or all are numbers.

    Formal guarantees
    -----------------
    `encode` maps each row to a vector of Euclidean norm at most 1, and `encode_target` maps each number to [-1, 1].
    Both use declared constants only and treat each row independently of the others.
    """

    features: tuple[Numeric | Categorical, ...]
    target: AnyTarget | None = None
    others: tuple[AnyTarget, ...] = ()

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

    def encode(self, frame: pd.DataFrame) -> NDArray[np.float64]:
        """Encode the declared features as an (n, d) matrix whose rows have norm at most 1.

        Columns of `frame` that are not declared are ignored; `columns` names those of the result.
        """
        # A few units in the last place below 1 / row_norm, so that no rounding makes a norm exceed 1.
        scale = (1 - (len(self.features) + 4) * 2.0**-52) / self.row_norm
        width = 0
        for feature in self.features:
            width += len(feature.levels) if isinstance(feature, Categorical) else 1
        matrix = np.zeros((len(frame), width))
        start = 0
        for feature in self.features:
            column = column_of(frame, feature.name)
            if isinstance(feature, Categorical):
                matrix[np.arange(len(frame)), start + level_codes(column, feature.name, feature.levels)] = scale
                start += len(feature.levels)
            else:
                matrix[:, start] = scale * feature.encode(column)
                start += 1
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
        declared = [column for column in (*self.features, *self.targets) if isinstance(column, BoundedNumber)]
        clipped = {column.name: column.n_clipped(column_of(frame, column.name)) for column in declared}
        return {name: number for name, number in clipped.items() if number}

    def undeclared(self, frame: pd.DataFrame) -> tuple[str, ...]:
        """Return the names of the columns that are neither a feature nor the target, and are therefore ignored."""
        names = dict.fromkeys(map(str, frame.columns))
        for column in (*self.features, *self.targets):
            names.pop(column.name, None)
        return tuple(names)

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as plain values that JSON can hold."""
        features = []
        for feature in self.features:
            features.append({"kind": type(feature).__name__.lower(), **asdict(feature)})
        others = {"others": [to_fields(each) for each in self.others]} if self.others else {}
        return {"features": features, "target": self.target and to_fields(self.target), **others}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TableSchema:
        """Restore a schema from the result of `to_dict`, also after it was written as JSON."""

        def build(kinds: Mapping[str, Any], part: Mapping[str, Any]) -> Any:
            return kinds[part["kind"]](**{key: value for key, value in part.items() if key != "kind"})

        try:
            features = tuple(build(_FEATURES, feature) for feature in values["features"])
            others = tuple(build(KINDS, other) for other in values.get("others", ()))
            return cls(features, values["target"] and build(KINDS, values["target"]), others)
        except (KeyError, TypeError, AttributeError) as error:
            raise TableError(f"These values are not a table schema: {type(error).__name__} {error}") from error

    @classmethod
    def from_toml(cls, path: str | Path) -> TableSchema:
        """Read a schema from a TOML file with `target`, its levels or bounds, `[numeric]` and `[categorical]`."""
        return cls.from_options(toml=path)

    @classmethod
    def from_values(cls, values: dict[str, Any], where: str) -> TableSchema:
        """Read a schema from a section of a TOML file. ``where`` names the section in errors."""
        features, targets = _parse_toml(values, where)
        return cls(tuple(features.values()), targets[0] if targets else None, targets[1:])

    @classmethod
    def from_options(
        cls,
        *,
        toml: str | Path | None = None,
        bounds: Iterable[str] = (),
        levels: Iterable[str] = (),
        target: str | Iterable[str] | None = None,
        target_bounds: str | None = None,
    ) -> TableSchema:
        """Combine a TOML file, if given, with texts such as ``age=0:120`` and ``sex=female,male``.

        A text overrides what the file declares for the same column. Bounds or levels of the target column describe the
        target; ``target_bounds`` are its bounds without its name, as in ``0:5000``. ``target`` can name several
        columns.
        """
        declared, chosen = ({}, ()) if toml is None else _read_toml(Path(toml))
        if target is not None:
            known = {each.name: each for each in chosen}
            names = [target] if isinstance(target, str) else list(target)
            chosen = tuple(known.get(name) or Target(name) for name in names)
        columns: list[Numeric | Categorical] = [*map(parse_bounds, bounds), *map(parse_levels, levels)]
        if target_bounds is not None:
            if not chosen:
                raise TableError("target_bounds are given, but no target. Name the column to predict as the target.")
            if len(chosen) > 1:
                raise TableError(
                    f"target_bounds = {target_bounds} has no name, but there are {len(chosen)} targets. Declare the "
                    f"bounds of each column by name, as in {chosen[0].name}={target_bounds}."
                )
            columns.append(
                Numeric(chosen[0].name, *_low_and_high(target_bounds, target_bounds, "low:high, as in 0:5000"))
            )
        options = by_name(columns)
        targets = [described(each, options.pop(each.name)) if each.name in options else each for each in chosen]
        features = tuple((declared | options).values())
        return cls(features, targets[0] if targets else None, tuple(targets[1:]))


def parse_bounds(text: str) -> Numeric:
    """Read a text such as ``age=0:120``. The name ends at the last ``=``."""
    name, _, bounds = text.rpartition("=")
    return Numeric(name.strip(), *_low_and_high(bounds, text, "column=low:high, as in age=0:120"))


def parse_levels(text: str) -> Categorical:
    """Read a text such as ``sex=female,male``. The name ends at the first ``=``; a level with a comma needs quotes."""
    name, equals, levels = text.partition("=")
    if not equals:
        raise TableError(f"The levels {show(text)} cannot be read. Write column=level,level as in sex=female,male.")
    return Categorical(name.strip(), tuple(next(csv.reader([levels], skipinitialspace=True), [])))


def _low_and_high(bounds: str, text: str, form: str) -> tuple[float, float]:
    """Read bounds such as ``0:120``, which are a part of ``text``."""
    low, _, high = bounds.partition(":")
    try:
        return float(low), float(high)
    except ValueError:
        raise TableError(f"The bounds {show(text)} cannot be read. Write {form}.") from None


def _read_toml(path: Path) -> tuple[dict[str, Numeric | Categorical], tuple[AnyTarget, ...]]:
    """Read the features, by name, and the targets, if any, from a TOML file."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TableError(f"privet cannot read the schema {path}: {error.strerror}") from error
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError
        raise TableError(f"The schema {path} is not valid TOML: {error}") from error
    return _parse_toml(values, f"The schema {path}")


def _parse_toml(values: dict[str, Any], where: str) -> tuple[dict[str, Numeric | Categorical], tuple[AnyTarget, ...]]:
    """Read the features, by name, and the targets, if any, from the values of a TOML file or of a section of one."""
    for key in values:
        if key not in _TOML_KEYS:
            raise TableError(f"{where} has an unknown key {key!r}. The keys are {', '.join(_TOML_KEYS)}.")
    numeric, categorical = values.get("numeric", {}), values.get("categorical", {})
    if not isinstance(numeric, dict) or not isinstance(categorical, dict):
        raise TableError(f"{where}: write numeric and categorical as tables, [numeric] and [categorical].")
    numbers = [Numeric(name, *pair(name, name, bounds)) for name, bounds in numeric.items()]
    columns = by_name([*numbers, *(Categorical(name, levels) for name, levels in categorical.items())])
    return columns, toml_targets(values, where)


def read_table(path: str | Path) -> pd.DataFrame:
    """Read a CSV file (.csv or .tsv, optionally followed by .gz) or a Parquet file (.parquet or .pq).

    The columns of a CSV file stay text, so that a level "01" is not read as 1 and a level "None" not as missing.
    `TableSchema.encode` converts the columns that are declared numeric.
    """
    import pandas as pd

    path = Path(path)
    separator = None
    for ending, mark in _SEPARATORS.items():
        if path.name.lower().endswith(ending):
            separator = mark
    if separator is None and not path.name.lower().endswith(_PARQUET):
        endings = ", ".join((*_SEPARATORS, *_PARQUET))
        raise TableError(f"The ending of {path} is not that of a known format. Rename it to end in one of {endings}.")
    if not path.exists():
        raise TableError(f"There is no file {path}. Check the path.")
    try:
        if separator is None:
            frame = pd.read_parquet(path)
        else:
            # The header is read as a row. Otherwise pandas would rename repeated names, and would take the first column
            # for an index if the rows are longer than the header, so that every name moves by one column.
            as_text = {"header": None, "dtype": str, "na_filter": False, "skipinitialspace": True}
            frame = pd.read_csv(path, sep=separator, encoding="utf-8-sig", **as_text)
            header = list(map(str.strip, map(str, frame.iloc[0])))
            frame = frame.iloc[1:].reset_index(drop=True).set_axis(header, axis=1)
    except pd.errors.EmptyDataError:
        raise TableError(f"The file {path} is empty. It needs a header and rows.") from None
    except (OSError, EOFError, ValueError, NotImplementedError, zlib.error) as error:
        reason = " ".join(str(error).split())
        raise TableError(f"privet cannot read {path}: {cut(reason, 200)}") from error
    if frame.empty:
        raise TableError(f"The table {path} is empty: it has no rows.")
    return frame


def column_of(frame: pd.DataFrame, name: str) -> pd.Series:
    """Return the column of that name, which must exist exactly once."""
    if len(frame) == 0:
        raise TableError("The table is empty: it has no rows.")
    names = list(map(str, frame.columns))
    if names.count(name) > 1:
        raise TableError(f"The table has {names.count(name)} columns named {name!r}. Rename all but one.")
    if name in names:
        return frame.iloc[:, names.index(name)]
    folded = {column.lower(): column for column in names}
    close = [folded[match] for match in difflib.get_close_matches(name.lower(), folded)]
    hint = f"did you mean {listing(close, ' or ')}?" if close else f"it has {listing(names)}"
    raise TableError(f"The table has no column {name!r}: {hint}")
