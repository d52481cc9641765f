"""The names of a table's columns, which are public. No cell is read, let alone used."""

from __future__ import annotations

from pathlib import Path

from privet.drafts.draft import check_different
from privet.tables import RECOGNISED, FileForm, TableError, read_header


def header_of(path: str | Path, form: FileForm = RECOGNISED) -> list[str]:
    """Return the names in the header of a text file, or in the metadata of a Parquet file. They must be different."""
    names = list(read_header(path, form=form))
    if not any(names):
        raise TableError(f"The file {path} has no header: its first line must have the names of the columns.")
    check_different(names)
    return names
