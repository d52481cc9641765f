"""Reading tables from files."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from privet.tables.errors import TableError, cut

if TYPE_CHECKING:
    import pandas as pd

_SEPARATORS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t"}
_PARQUET = (".parquet", ".pq")


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
