"""The names of a table's columns, which are public. No cell is read, let alone used."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

from privet.drafts.draft import check_different
from privet.tables.errors import TableError

_SEPARATORS = (",", ";", "\t", "|")
_PARQUET = (".parquet", ".pq")


def header_of(path: str | Path) -> list[str]:
    """Return the names in the first line of a CSV file, or in the metadata of a Parquet file."""
    path = Path(path)
    try:
        names = _parquet_names(path) if path.name.lower().endswith(_PARQUET) else _csv_names(path)
    except FileNotFoundError:
        raise TableError(f"There is no file {path}. Check the path.") from None
    except (OSError, EOFError, ValueError) as error:
        raise TableError(f"privet cannot read the header of {path}: {error}") from error
    if not any(names):
        raise TableError(f"The file {path} has no header: its first line must have the names of the columns.")
    check_different(names)
    return names


def _parquet_names(path: Path) -> list[str]:
    from pyarrow import parquet

    return list(map(str, parquet.read_schema(path).names))


def _csv_names(path: Path) -> list[str]:
    with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
        line = file.readline()
    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = line.decode("cp1252", errors="replace")
    text = text.rstrip("\r\n")
    # The separator is the one that makes the most names. This looks at the header alone, which is public.
    separated = [next(csv.reader([text], delimiter=separator, skipinitialspace=True), []) for separator in _SEPARATORS]
    return [name.strip() for name in max(separated, key=len)]
