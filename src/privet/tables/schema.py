"""The public description of a private table, and the map from the table to a bounded matrix.

Everything that shapes the matrix is declared: bounds, levels, order of columns. No scale, bound, level or default is
estimated from the rows, so encoding costs no privacy and one row's encoding never depends on another row.
"""

from __future__ import annotations

import csv
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from privet.tables.cells import column_of, factorize, level_codes, numbers, refuse_missing, spelling
from privet.tables.errors import TableError, show

if TYPE_CHECKING:
    import pandas as pd


_TOML_KEYS = ("target", "target_levels", "numeric", "categorical")


@dataclass(frozen=True)
class Numeric:
    """A number, clipped to the public bounds [low, high] and mapped linearly to [-1, 1]."""

    name: str
    low: float
    high: float

    def __post_init__(self) -> None:
        _check_name(self.name)
        for key, bound in (("low", self.low), ("high", self.high)):
            try:
                number = math.nan if isinstance(bound, bool | str) else float(bound)
            except (TypeError, ValueError, OverflowError):
                number = math.nan
            if not math.isfinite(number):
                raise TableError(f"column {self.name!r}: the {key} bound {show(bound)} is not a finite number")
            object.__setattr__(self, key, number)
        if not self.high / 2 - self.low / 2 > 0:  # halves, here and in fill: high - low can overflow
            raise TableError(f"column {self.name!r}: the low bound {self.low} must be below the high bound {self.high}")

    @property
    def columns(self) -> tuple[str, ...]:
        """Name of the one encoded column."""
        return (self.name,)

    def fill(self, block: NDArray[np.float64], column: pd.Series, scale: float) -> None:
        """Write scale times the encoded cells of `column` to `block`, (n, 1)."""
        low, half = self.low / 2, self.high / 2 - self.low / 2
        unit = (np.clip(numbers(column, self.name), self.low, self.high) / 2 - low) / half
        block[:, 0] = scale * (2 * unit - 1)  # unit is in [0, 1] exactly: every rounding above keeps order


@dataclass(frozen=True)
class Categorical:
    """One of the declared public levels, one-hot. Levels compare by text: 1, 1.0 and "1" agree, "01" differs."""

    name: str
    levels: tuple[str, ...]

    def __post_init__(self) -> None:
        _check_name(self.name)
        object.__setattr__(self, "levels", _check_levels(self.name, self.levels))

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the encoded columns, one a level."""
        return tuple(f"{self.name}={level}" for level in self.levels)

    def fill(self, block: NDArray[np.float64], column: pd.Series, scale: float) -> None:
        """Write scale at each cell's level to `block`, (n, number of levels), which holds zeros."""
        block[np.arange(len(block)), level_codes(column, self.name, self.levels)] = scale


@dataclass(frozen=True)
class Target:
    """The class to predict: its declared public levels, or None to read them from the data.

    `levels_from_data` is True unless the levels were declared; a guarantee must then list them as assumed public.
    """

    name: str
    levels: tuple[str, ...] | None = None
    levels_from_data: bool = False

    def __post_init__(self) -> None:
        _check_name(self.name)
        if self.levels is None:
            object.__setattr__(self, "levels_from_data", True)
        else:
            object.__setattr__(self, "levels", _check_levels(self.name, self.levels))


@dataclass(frozen=True)
class TableSchema:
    """What is public about a private table: its features with bounds or levels, and its target.

    Formal guarantees
    -----------------
    `encode` maps each row on its own, by declared constants only, to a vector of Euclidean norm at most 1.
    """

    features: tuple[Numeric | Categorical, ...]
    target: Target | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", tuple(self.features))
        if not self.features:
            raise TableError("no feature is declared: give bounds (age=0:120) or levels (sex=female,male) for a column")
        names = _by_name(self.features)
        if self.target is not None and self.target.name in names:
            raise TableError(f"the target {self.target.name!r} is also declared as a feature: drop one of the two")

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

    def encode_target(self, frame: pd.DataFrame) -> NDArray[np.int64]:
        """Encode the target as positions in its levels: the declared ones, or those of `with_target_levels(frame)`."""
        target = self.with_target_levels(frame).target
        assert target is not None and target.levels is not None
        return level_codes(column_of(frame, target.name), target.name, target.levels)

    def with_target_levels(self, frame: pd.DataFrame) -> TableSchema:
        """Return this schema if its target's levels are declared, else one with the levels read from the data."""
        if self.target is None:
            raise TableError('no target is declared: name the column to predict (target = "..." or --target)')
        if self.target.levels is not None:
            return self
        name = self.target.name
        codes, texts = factorize(column_of(frame, name))
        refuse_missing(name, codes, texts, known=())
        if len(texts) < 2:
            raise TableError(f"the target {name!r} has only one class, {show(texts[0])}: two or more are needed")
        return replace(self, target=Target(name, tuple(sorted(texts)), levels_from_data=True))

    def undeclared(self, frame: pd.DataFrame) -> tuple[str, ...]:
        """Names of the columns of `frame` that are neither a feature nor the target, and so are ignored."""
        declared = {column.name for column in (*self.features, self.target) if column is not None}
        return tuple(str(name) for name in frame.columns if str(name) not in declared)

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as plain values that JSON can hold."""
        features = [{"kind": type(feature).__name__.lower(), **asdict(feature)} for feature in self.features]
        # A kind for the target too: one with bounds, for regression, can stand beside classes.
        return {"features": features, "target": self.target and {"kind": "classes", **asdict(self.target)}}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TableSchema:
        """Rebuild a schema from `to_dict`, also after a trip through JSON."""
        kinds: dict[str, Any] = {"numeric": Numeric, "categorical": Categorical, "classes": Target}

        def build(part: Mapping[str, Any]) -> Any:
            return kinds[part["kind"]](**{key: value for key, value in part.items() if key != "kind"})

        try:
            return cls(tuple(map(build, values["features"])), values["target"] and build(values["target"]))
        except (KeyError, TypeError, AttributeError) as error:
            raise TableError(f"not a table schema: {type(error).__name__} {error}") from error

    @classmethod
    def from_toml(cls, path: str | Path) -> TableSchema:
        """Read a schema from a TOML file with `target`, `target_levels`, `[numeric]` and `[categorical]`."""
        return cls.from_options(toml=path)

    @classmethod
    def from_options(
        cls,
        *,
        toml: str | Path | None = None,
        bounds: Iterable[str] = (),
        levels: Iterable[str] = (),
        target: str | None = None,
    ) -> TableSchema:
        """Merge a TOML file, if any, with options such as `age=0:120` and `sex=female,male`.

        An option overrides what the file says of the same column. Levels given for the target are the target's.
        """
        declared, from_file = ({}, None) if toml is None else _read_toml(Path(toml))
        options = _by_name([*map(parse_bounds, bounds), *map(parse_levels, levels)])
        chosen = from_file if target is None or (from_file and from_file.name == target) else Target(target)
        if chosen and isinstance(option := options.get(chosen.name), Categorical):
            chosen = Target(chosen.name, option.levels)
            del options[chosen.name]
        return cls(tuple((declared | options).values()), chosen)


def parse_bounds(text: str) -> Numeric:
    """Read the option `age=0:120`; the name ends at the last `=`."""
    name, _, bounds = text.rpartition("=")
    low, _, high = bounds.partition(":")
    try:
        ends = float(low), float(high)
    except ValueError:
        raise TableError(f"cannot read the bounds {show(text)}: write column=low:high, as in age=0:120") from None
    return Numeric(name.strip(), *ends)


def parse_levels(text: str) -> Categorical:
    """Read the option `sex=female,male`; the name ends at the first `=`, and a level with a comma goes in quotes."""
    name, equals, levels = text.partition("=")
    if not equals:
        raise TableError(f"cannot read the levels {show(text)}: write column=level,level as in sex=female,male")
    return Categorical(name.strip(), tuple(next(csv.reader([levels], skipinitialspace=True), [])))


def _read_toml(path: Path) -> tuple[dict[str, Numeric | Categorical], Target | None]:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TableError(f"cannot read the schema {path}: {error.strerror}") from error
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError
        raise TableError(f"the schema {path} is not valid TOML: {error}") from error
    for key in values:
        if key not in _TOML_KEYS:
            raise TableError(f"the schema {path} has an unknown key {key!r}: the keys are {', '.join(_TOML_KEYS)}")
    numeric, categorical = values.get("numeric", {}), values.get("categorical", {})
    if not isinstance(numeric, dict) or not isinstance(categorical, dict):
        raise TableError(f"the schema {path}: write numeric and categorical as tables, [numeric] and [categorical]")
    for name, bounds in numeric.items():
        if not isinstance(bounds, list) or len(bounds) != 2:
            raise TableError(f"column {name!r}: bounds {show(bounds)} are not a pair: write {name} = [low, high]")
    numbers = [Numeric(name, low, high) for name, (low, high) in numeric.items()]
    columns = _by_name([*numbers, *(Categorical(name, levels) for name, levels in categorical.items())])
    if "target" in values:
        return columns, Target(values["target"], values.get("target_levels"))
    if "target_levels" in values:
        raise TableError(f'the schema {path} has target_levels but no target: add target = "column"')
    return columns, None


def _by_name(columns: Iterable[Numeric | Categorical]) -> dict[str, Numeric | Categorical]:
    named: dict[str, Numeric | Categorical] = {}
    for column in columns:
        if column.name in named:
            raise TableError(f"column {column.name!r} is declared more than once: keep one declaration")
        named[column.name] = column
    return named


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name.strip():
        raise TableError(f"{show(name)} is not a column name: give a text that is not empty")


def _check_levels(name: str, levels: object) -> tuple[str, ...]:
    if not isinstance(levels, list | tuple) or not all(isinstance(x, str | int | float | np.generic) for x in levels):
        raise TableError(f"column {name!r}: levels {show(levels)} are not a list of names")
    texts = tuple(level.strip() if isinstance(level, str) else spelling(level) for level in levels)
    if "" in texts:
        raise TableError(f"column {name!r} has an empty level: an empty cell is a missing value, name it in the table")
    if len(texts) < 2:
        raise TableError(f"column {name!r} needs at least two levels, not {len(texts)}")
    for position, text in enumerate(texts):
        if spelling(text) in map(spelling, texts[:position]):
            raise TableError(f"column {name!r} declares the level {show(text)} more than once: keep one")
    return texts
