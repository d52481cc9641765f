"""Tables from files."""

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
        raise TableError(f"cannot read {path}: {cut(reason, 200)}") from error
    if frame.empty:
        raise TableError(f"{path} is empty: it has no rows")
    return frame
