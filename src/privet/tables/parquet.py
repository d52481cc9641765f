"""Reading Parquet files with Arrow. Their columns have types, which are kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from privet.tables.cells import positions_of
from privet.tables.errors import TableError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_AT_ONCE = 16
"""How many columns are read at once, so that a table is not in memory twice."""


def parquet_names(path: Path) -> tuple[str, ...]:
    """Return the names of all columns."""
    from pyarrow import parquet

    return tuple(parquet.read_schema(path).names)


def read_parquet(path: Path, wanted: Sequence[str] | None) -> pd.DataFrame:
    """Read the columns of these names, or all columns."""
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        names = tuple(file.schema_arrow.names)
        if file.metadata.num_rows == 0:
            raise TableError(f"The table {path} is empty: it has no rows.")
        if wanted is None and len(set(names)) == len(names):
            wanted = names
        if wanted is None:
            raise TableError(f"The table {path} has several columns of one name. Rename all but one of each name.")
        positions_of(names, wanted)  # each must exist exactly once
        columns: list[tuple[str, pd.Series]] = []
        for start in range(0, len(wanted), _AT_ONCE):
            part = list(wanted[start : start + _AT_ONCE])
            table = file.read(columns=part, use_threads=False)
            columns.extend([(name, _series(table.column(name))) for name in part])
    return to_frame(columns)


def to_frame(columns: Iterable[tuple[str, pd.Series]]) -> pd.DataFrame:
    """Return a frame of columns, which keep their memory. Names can be repeated."""
    import pandas as pd

    named = list(columns)
    frame = pd.DataFrame({position: column for position, (_, column) in enumerate(named)}, copy=False)
    return frame.set_axis([name for name, _ in named], axis=1)


def _series(column: pa.ChunkedArray) -> pd.Series:
    """Return a column for pandas. Each cell is converted on its own, whether or not others are missing."""
    import pandas as pd
    import pyarrow as pa

    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return column.dictionary_encode().to_pandas()  # so that each distinct text is read once
    if pa.types.is_nested(column.type):
        return pd.Series(column.to_pylist(), dtype=object)
    # By default, a missing cell turns integers into floats, which are not exact beyond 2^53.
    exact = {pa.int64(): pd.Int64Dtype(), pa.uint64(): pd.UInt64Dtype()} if column.null_count else {}
    return column.to_pandas(types_mapper=exact.get)
