"""The public description of a private table, and the map from the table to a bounded matrix.

Everything that shapes the matrix is declared: bounds, levels, order of columns. No scale, bound, level or default is
estimated from the rows, so encoding costs no privacy and one row's encoding never depends on another row.

Error messages name rows and values of the table. They are meant for its holder at the keyboard and are covered by no
guarantee: do not publish them. Rows are counted from 1, without the header.
"""

from __future__ import annotations

import csv
import difflib
import math
import re
import tomllib
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Categorical",
    "Numeric",
    "TableError",
    "TableSchema",
    "Target",
    "parse_bounds",
    "parse_levels",
    "read_table",
]

_SEPARATORS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t"}
_PARQUET = (".parquet", ".pq")
_MISSING = frozenset(
    {"", "na", "n/a", "nan", "nat", "<na>", "null", "none"}
)  # lower case; a declared level wins over these
_TOML_KEYS = ("target", "target_levels", "numeric", "categorical")


class TableError(ValueError):
    """A table, or the description of one, that cannot be used: one line that names the cause and the remedy."""


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
                raise TableError(f"column {self.name!r}: the {key} bound {_show(bound)} is not a finite number")
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
        unit = (np.clip(_numbers(column, self.name), self.low, self.high) / 2 - low) / half
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
        block[np.arange(len(block)), _level_codes(column, self.name, self.levels)] = scale


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
            feature.fill(matrix[:, start:stop], _column(frame, feature.name), scale)
            start = stop
        return matrix

    def encode_target(self, frame: pd.DataFrame) -> NDArray[np.int64]:
        """Encode the target as positions in its levels: the declared ones, or those of `with_target_levels(frame)`."""
        target = self.with_target_levels(frame).target
        assert target is not None and target.levels is not None
        return _level_codes(_column(frame, target.name), target.name, target.levels)

    def with_target_levels(self, frame: pd.DataFrame) -> TableSchema:
        """Return this schema if its target's levels are declared, else one with the levels read from the data."""
        if self.target is None:
            raise TableError('no target is declared: name the column to predict (target = "..." or --target)')
        if self.target.levels is not None:
            return self
        name = self.target.name
        codes, texts = _factorize(_column(frame, name))
        _refuse_missing(name, codes, texts, known=())
        if len(texts) < 2:
            raise TableError(f"the target {name!r} has only one class, {_show(texts[0])}: two or more are needed")
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
        raise TableError(f"cannot read the bounds {_show(text)}: write column=low:high, as in age=0:120") from None
    return Numeric(name.strip(), *ends)


def parse_levels(text: str) -> Categorical:
    """Read the option `sex=female,male`; the name ends at the first `=`, and a level with a comma goes in quotes."""
    name, equals, levels = text.partition("=")
    if not equals:
        raise TableError(f"cannot read the levels {_show(text)}: write column=level,level as in sex=female,male")
    return Categorical(name.strip(), tuple(next(csv.reader([levels], skipinitialspace=True), [])))


def read_table(path: str | Path) -> pd.DataFrame:
    """Read a CSV (.csv, .tsv, either also .gz) or Parquet (.parquet, .pq) file.

    The columns of a CSV stay text, so that a level "01" is not read as 1 nor a level "None" as missing; `encode`
    converts those that are declared numeric.
    """
    import pandas as pd

    path = Path(path)
    separator = next((sep for ending, sep in _SEPARATORS.items() if path.name.lower().endswith(ending)), None)
    if separator is None and not path.name.lower().endswith(_PARQUET):
        endings = ", ".join((*_SEPARATORS, *_PARQUET))
        raise TableError(f"cannot tell the format of {path} from its ending: rename it to end in one of {endings}")
    if not path.exists():
        raise TableError(f"there is no file {path}: check the path")
    try:
        if separator is None:
            frame = pd.read_parquet(path)
        else:
            # The header is read as a row: otherwise pandas renames repeated names, and takes the first column for an
            # index (so that every name moves by one) when the rows are longer than the header.
            as_text = {"header": None, "dtype": str, "na_filter": False, "skipinitialspace": True}
            frame = pd.read_csv(path, sep=separator, encoding="utf-8-sig", **as_text)
            header = [str(name).strip() for name in frame.iloc[0]]
            frame = frame.iloc[1:].reset_index(drop=True).set_axis(header, axis=1)
    except pd.errors.EmptyDataError:
        raise TableError(f"{path} is empty: give a file with a header and rows") from None
    except (OSError, EOFError, ValueError, NotImplementedError, zlib.error) as error:
        reason = " ".join(str(error).split())
        raise TableError(f"cannot read {path}: {_cut(reason, 200)}") from error
    if frame.empty:
        raise TableError(f"{path} is empty: it has no rows")
    return frame


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
            raise TableError(f"column {name!r}: bounds {_show(bounds)} are not a pair: write {name} = [low, high]")
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
        raise TableError(f"{_show(name)} is not a column name: give a text that is not empty")


def _check_levels(name: str, levels: object) -> tuple[str, ...]:
    if not isinstance(levels, list | tuple) or not all(isinstance(x, str | int | float | np.generic) for x in levels):
        raise TableError(f"column {name!r}: levels {_show(levels)} are not a list of names")
    texts = tuple(level.strip() if isinstance(level, str) else _text(level) for level in levels)
    if "" in texts:
        raise TableError(f"column {name!r} has an empty level: an empty cell is a missing value, name it in the table")
    if len(texts) < 2:
        raise TableError(f"column {name!r} needs at least two levels, not {len(texts)}")
    for position, text in enumerate(texts):
        if _text(text) in map(_text, texts[:position]):
            raise TableError(f"column {name!r} declares the level {_show(text)} more than once: keep one")
    return texts


def _text(value: object) -> str:
    """Spell a level one way: 1.0 and "1.0" as 1, "true" as True; "01" stays."""
    if isinstance(value, float | np.floating) and value.is_integer():
        return str(int(value))
    text = str(value).strip()
    if text.lower() in ("true", "false"):
        return text.capitalize()
    return match[1] if (match := re.fullmatch(r"(-?(?:0|[1-9][0-9]*))\.0+", text)) else text


def _column(frame: pd.DataFrame, name: str) -> pd.Series:
    if len(frame) == 0:
        raise TableError("the table is empty: it has no rows")
    names = [str(column) for column in frame.columns]
    if names.count(name) > 1:
        raise TableError(f"the table has {names.count(name)} columns named {name!r}: rename all but one")
    if name in names:
        return frame.iloc[:, names.index(name)]
    folded = {column.lower(): column for column in names}
    close = [folded[match] for match in difflib.get_close_matches(name.lower(), folded)]
    hint = f"did you mean {_listing(close, ' or ')}?" if close else f"it has {_listing(names)}"
    raise TableError(f"the table has no column {name!r}: {hint}")


def _numbers(column: pd.Series, name: str) -> NDArray[np.float64]:
    from pandas.api.types import is_complex_dtype, is_numeric_dtype

    if is_numeric_dtype(column) and not is_complex_dtype(column):
        values: NDArray[np.float64] = column.to_numpy(np.float64, na_value=np.nan)
    else:
        cells = column.to_numpy(object)
        try:
            values = cells.astype(np.float64)  # float() of each cell; pandas' own parser rounds by what else is there
        except (TypeError, ValueError, OverflowError):
            values = _explain_cells(name, cells)
    bad = ~np.isfinite(values)
    if bad.any():
        raise TableError(
            f"column {name!r} has {bad.sum()} missing or infinite values, the first in row {bad.argmax() + 1}: "
            "drop those rows or fill them with a public constant"
        )
    return values


def _explain_cells(name: str, cells: NDArray[np.object_]) -> NDArray[np.float64]:
    """Convert cell by cell, with NaN for a missing one, to name the first that is not a number."""
    values = np.full(len(cells), np.nan)
    for row, cell in enumerate(cells):
        try:
            values[row] = float(cell)
        except (TypeError, ValueError, OverflowError):
            if str(cell).strip().lower() not in _MISSING:
                raise TableError(
                    f"column {name!r}, row {row + 1}: {_show(cell)} is not a number: correct it, or declare the "
                    "column's levels instead of bounds"
                ) from None
    return values


def _level_codes(column: pd.Series, name: str, levels: Sequence[str]) -> NDArray[np.int64]:
    position = {_text(level): index for index, level in enumerate(levels)}
    codes, texts = _factorize(column)
    _refuse_missing(name, codes, texts, position)
    for code, text in enumerate(texts):
        if text not in position:
            raise TableError(
                f"column {name!r}, row {(codes == code).argmax() + 1}: level {_show(text)} is not declared "
                f"(declared: {_listing(levels)}): declare it or correct the table"
            )
    return np.array([position[text] for text in texts], dtype=np.int64)[codes]


def _factorize(column: pd.Series) -> tuple[NDArray[np.intp], list[str]]:
    """Return each cell's position in a list of distinct level texts, or -1 for a missing cell."""
    import pandas as pd

    if column.dtype == object and pd.api.types.infer_dtype(column) != "string":
        column = column.map(_text, na_action="ignore")  # cell by cell: to factorize, True equals 1
    codes, values = pd.factorize(column)
    spelled, texts = pd.factorize(np.array([_text(value) for value in values], dtype=object))
    return np.append(spelled, -1)[codes], list(texts)  # -1 picks the appended -1


def _refuse_missing(name: str, codes: NDArray[np.intp], texts: Sequence[str], known: Iterable[str]) -> None:
    marks = [-1, *(code for code, text in enumerate(texts) if text.lower() in _MISSING and text not in known)]
    missing = np.isin(codes, marks)
    if missing.any():
        raise TableError(
            f"column {name!r} has {missing.sum()} missing values, the first in row {missing.argmax() + 1}: "
            "drop those rows, or name the missing value in the table and declare it as a level"
        )


def _cut(text: str, width: int = 60) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _show(value: object) -> str:
    return _cut(repr(value))


def _listing(names: Sequence[str], glue: str = ", ") -> str:
    return glue.join(map(_show, names[:12])) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
