"""Reading tables from files: only the declared columns, in a compact form."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from privet.tables.cells import positions_of
from privet.tables.delimited import Header, Remarks, TextFile, gather
from privet.tables.errors import FileError, TableError, cut
from privet.tables.form import RECOGNISED, FileForm
from privet.tables.gathering import Gathering, Levels, Numbers, Texts
from privet.tables.numbers import BoundedNumber
from privet.tables.numerals import EITHER
from privet.tables.parquet import parquet_names, read_parquet, to_frame

if TYPE_CHECKING:
    import pandas as pd

    from privet.tables.schema import TableSchema

_SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t", ".txt": ","}
_ENDINGS = {f"{ending}{packed}": mark for ending, mark in _SEPARATORS.items() for packed in ("", ".gz")}
_PARQUET = (".parquet", ".pq")


def read_table(
    path: str | Path, schema: TableSchema | None = None, *, form: FileForm = RECOGNISED, with_targets: bool = True
) -> pd.DataFrame:
    """Read a text file (.csv, .tsv, .tab or .txt, optionally followed by .gz) or a Parquet file (.parquet or .pq).

    Nothing about the form of a text file is concluded from its rows, and each line is read independently of the others.

    Parameters
    ----------
    path : str or Path
    schema : TableSchema or None
        The columns to read. Numbers are then read as floats, and a cell that is not a number stays text. Without a
        schema, all columns are read, and those of a text file stay text, so that a level "01" is not read as 1.
    form : FileForm
        What is known about the form of a text file. It overrides the form in the schema.
    with_targets : bool
        Whether to read the targets of the schema too.
    """
    path = Path(path)
    with _readable(path) as usual:
        if usual is None:
            return read_parquet(path, None if schema is None else _names(schema, with_targets))
        return _read_text(_text_file(path, schema, form, usual), schema, with_targets)


def read_header(path: str | Path, schema: TableSchema | None = None, *, form: FileForm = RECOGNISED) -> tuple[str, ...]:
    """Return the names of all columns of a file, whose separator is recognised by the columns of the schema."""
    path = Path(path)
    with _readable(path) as usual:
        if usual is not None:
            return _text_file(path, schema, form, usual).header().names
        return parquet_names(path)


def check_header(path: str | Path, schema: TableSchema) -> None:
    """Raise TableError if a file has no header, or not each declared column exactly once. Read no row."""
    positions_of(read_header(path, schema), _names(schema))


def decimal_mark(path: str | Path, *, form: FileForm = RECOGNISED) -> str | None:
    """Return the mark before the decimals in the texts of a file, as :func:`privet.drafts.from_rows` expects it.

    It is the given one. Otherwise it is "," or "." in each cell by itself, written ",.", or if commas separate the
    cells, and in a Parquet file, a point, for which None stands.
    """
    path = Path(path)
    with _readable(path) as usual:
        if usual is None or form.decimal is not None:
            return form.decimal
        return None if _text_file(path, None, form, usual).header().separator == "," else EITHER


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[str | None]:
    """Raise TableError for everything that fails, and give the usual separator, or None for a Parquet file."""
    name = path.name.lower()
    usual = next((mark for ending, mark in _ENDINGS.items() if name.endswith(ending)), None)
    if usual is None and not name.endswith(_PARQUET):
        endings = ", ".join((*_ENDINGS, *_PARQUET))
        raise TableError(f"The ending of {path} is not that of a known format. Rename it to end in one of {endings}.")
    if path.is_dir():
        raise TableError(f"{path} is a folder. Give the path of a file in it.")
    try:
        if not path.exists():
            raise TableError(f"There is no file {path}. Check the path.")
        yield usual
    except FileError as error:
        raise TableError(f"privet cannot read {path}: {error}") from error
    except TableError:
        raise
    except (OSError, EOFError, ValueError, NotImplementedError, zlib.error) as error:
        reason = " ".join(str(error).split())
        raise TableError(f"privet cannot read {path}: {cut(reason, 200)}") from error


def _text_file(path: Path, schema: TableSchema | None, form: FileForm, usual: str) -> TextFile:
    if schema is None:
        return TextFile(path, form, usual)
    return TextFile(path, schema.form.overridden_by(form), usual, _names(schema))


def _names(schema: TableSchema, with_targets: bool = True) -> tuple[str, ...]:
    """Return the names of the columns to read: IDs, features and targets."""
    targets = schema.targets if with_targets else ()
    return (*schema.ids, *(column.name for column in (*schema.features, *targets)))


def _read_text(file: TextFile, schema: TableSchema | None, with_targets: bool) -> pd.DataFrame:
    header = file.header()
    wanted = header.names if schema is None else _names(schema, with_targets)
    frame, _ = _gathered(file, header, schema, wanted, None)
    return frame


def read_sound_rows(
    path: str | Path, schema: TableSchema | None, wanted: Collection[str]
) -> tuple[pd.DataFrame, int, Remarks]:
    """Read the columns of these names, for a check of the table. Lines that are not rows are left out.

    Returns
    -------
    frame : DataFrame
    n_rows : int
        The number of rows, with those that are left out.
    remarks : Remarks
    """
    path, remarks = Path(path), Remarks()
    with _readable(path) as usual:
        if usual is None:
            frame = read_parquet(path, list(wanted))
            return frame, len(frame), remarks
        file = _text_file(path, schema, RECOGNISED, usual)
        return *_gathered(file, file.header(), schema, wanted, remarks), remarks


def _gathered(
    file: TextFile, header: Header, schema: TableSchema | None, wanted: Iterable[str], remarks: Remarks | None
) -> tuple[pd.DataFrame, int]:
    """Return the wanted columns, and the number of rows."""
    names = header.names
    columns: dict[int, Gathering]
    if schema is None:
        columns = {position: Texts() for position in range(len(names))}
    else:
        positions = positions_of(names, wanted := tuple(wanted))
        declared = {column.name: column for column in (*schema.features, *schema.targets)}
        columns = {}
        for name in wanted:
            if name not in declared:
                columns[positions[name]] = Texts()
            elif isinstance(declared[name], BoundedNumber):
                columns[positions[name]] = Numbers(file.form.decimal, header.separator)
            else:
                columns[positions[name]] = Levels()
    n_rows = gather(file, columns, remarks)
    if n_rows == 0:
        raise TableError(f"The table {file.path} is empty: it has no rows.")
    return to_frame([(names[position], column.column()) for position, column in columns.items()]), n_rows
