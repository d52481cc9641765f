"""Reading delimited text files, such as CSV files, block by block with Arrow."""

from __future__ import annotations

import codecs
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from privet.tables import lines
from privet.tables.errors import FileError, TableError
from privet.tables.form import SEPARATORS, FileForm
from privet.tables.gathering import Gathering, Numbers, decoded
from privet.tables.numerals import NULLS

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_PROBLEMS = 12


@dataclass(frozen=True)
class Header:
    """The names of a file's columns, and the separator between them."""

    names: tuple[str, ...]
    separator: str


@dataclass(frozen=True)
class TextFile:
    """A delimited text file.

    Parameters
    ----------
    path : Path
    form : FileForm
    usual : str
        The usual separator for the ending of its name.
    declared : collection of str
        Names that the header should have, by which its separator is recognised.
    """

    path: Path
    form: FileForm
    usual: str
    declared: Collection[str] = ()

    def header(self) -> Header:
        """Read the header only."""
        return next(self._parts())[0]

    def rows(self) -> Iterator[tuple[Header, bytes]]:
        """Yield the header together with the lines of the rows, block by block."""
        yield from self._parts()

    def _parts(self) -> Iterator[tuple[Header, bytes]]:
        header = None
        with lines.opened(self.path) as file:
            for block in lines.blocks(file, self.form.encoding):
                rest = block
                if header is None:
                    line, rest = lines.split_header(block)
                    if not line:
                        continue
                    header = self._header(line)
                yield header, rest
        if header is None:
            raise TableError(f"The file {self.path} is empty. It needs a header and rows.")

    def _header(self, line: bytes) -> Header:
        if b"\0" in line:
            raise FileError(
                "its header has NUL bytes, so it is not a text file, or one in an encoding such as UTF-16 without a "
                "byte-order mark. Check that it is a CSV file, and give its encoding."
            )
        by_separator = [tuple(map(decoded, lines.header_cells(line, separator))) for separator in SEPARATORS]
        separator = self.form.separator_of(by_separator, self.declared, self.usual)
        if lines.is_open(line, separator):
            raise FileError("its header has a quotation mark that is not closed in the same line. Correct the header.")
        return Header(by_separator[SEPARATORS.index(separator)], separator)


@dataclass
class Remarks:
    """What a check of a file finds in its lines: those that are left out, and the rows that are not UTF-8."""

    wrong: list[lines.WrongLine] = field(default_factory=list)
    not_utf8: list[int] = field(default_factory=list)


def gather(file: TextFile, columns: Mapping[int, Gathering], remarks: Remarks | None = None) -> int:
    """Read the columns at the given positions, and return the number of rows.

    A line that is not a row is an error or, with ``remarks``, is added to them and left out of the columns.
    """
    n_rows = 0
    for header, block in file.rows():
        wrong_before = len(remarks.wrong) if remarks else 0
        table = _Block(header, block, n_rows).table(columns, remarks)
        for position, column in columns.items():
            column.add(_chunk(table, str(position)))
        if remarks is not None:
            remarks.not_utf8.extend(lines.not_utf8(block, n_rows + 1))
            n_rows += len(remarks.wrong) - wrong_before
        n_rows += table.num_rows
    return n_rows


@dataclass(frozen=True)
class _Block:
    """Lines of a file, after ``n_before`` rows."""

    header: Header
    lines: bytes
    n_before: int

    def table(self, columns: Mapping[int, Gathering], remarks: Remarks | None = None) -> pa.Table:
        """Return the cells. The columns are named by their positions."""
        import pyarrow as pa

        block = self.lines
        if b'"' in block:
            block = lines.tidied(block, self.header.separator)
        if len(self.header.names) == 1:
            block = lines.without_blank_lines(block)
        try:
            return self._checked(block, columns)
        except pa.ArrowInvalid:
            block = lines.without_blank_lines(block)
        try:
            return self._checked(block, columns)
        except pa.ArrowInvalid as error:
            wrong = lines.problems(block, self.header.separator, len(self.header.names), self.n_before + 1)
            if remarks is None or not wrong:
                raise _line_error(wrong, str(error)) from error
        remarks.wrong.extend(wrong)
        return self._checked(lines.without(block, {line.row - self.n_before - 1 for line in wrong}), columns)

    def _checked(self, block: bytes, columns: Mapping[int, Gathering]) -> pa.Table:
        """Return the cells if each line is one row, and raise ArrowInvalid otherwise."""
        import pyarrow as pa

        table = self._parsed(block, columns)
        if b'"' in block:
            ending = block.rstrip(b"\r\n")
            last = ending[max(ending.rfind(b"\n"), ending.rfind(b"\r")) + 1 :]
            if table.num_rows != lines.n_rows(block) or lines.is_open(last, self.header.separator):
                raise pa.ArrowInvalid("a quotation mark is not closed in the same line")
        return table

    def _parsed(self, block: bytes, columns: Mapping[int, Gathering]) -> pa.Table:
        """Return the cells, reading numbers as texts if Arrow does not accept all of them."""
        import pyarrow as pa

        numbers = {position: column for position, column in columns.items() if isinstance(column, Numbers)}
        for attempt in range(4):
            try:
                table = self._read(block, columns)
            except pa.ArrowInvalid as error:
                at = re.match(r"In CSV column #(\d+):", str(error))
                if at is None:
                    raise
                refused = [int(at[1])] if attempt < 2 else list(numbers)
            else:
                refused = [at for at, each in numbers.items() if not each.accepts(_chunk(table, str(at)))]
                if not refused:
                    break
            for position in refused:
                numbers[position].as_text = True
        return table

    def _read(self, block: bytes, columns: Mapping[int, Gathering]) -> pa.Table:
        import pyarrow as pa
        from pyarrow import csv

        names = [str(position) for position in range(len(self.header.names))]
        if not block.strip(b"\r\n"):
            return pa.table({str(at): pa.array([], column.type) for at, column in columns.items()})
        if block.startswith(codecs.BOM_UTF8[:1]):
            # Arrow would skip a byte-order mark here, but it is a part of the first cell. Empty lines are not rows.
            block = b"\n" + block
        return csv.read_csv(
            pa.py_buffer(block),
            read_options=csv.ReadOptions(column_names=names, use_threads=False, block_size=len(block) + 1),
            parse_options=csv.ParseOptions(delimiter=self.header.separator),
            convert_options=csv.ConvertOptions(
                include_columns=[str(position) for position in columns],
                column_types={str(position): column.type for position, column in columns.items()},
                null_values=NULLS,
                strings_can_be_null=False,
            ),
        )


def _line_error(wrong: Sequence[lines.WrongLine], reason: str) -> FileError:
    if not wrong:
        return FileError(reason)
    more = f"; and {len(wrong) - _MOST_PROBLEMS:,} more rows like these" if len(wrong) > _MOST_PROBLEMS else ""
    return FileError(f"{'; '.join(map(str, wrong[:_MOST_PROBLEMS]))}{more}. Correct these rows.")


def _chunk(table: pa.Table, name: str) -> pa.Array:
    """Return a column of a block as one array."""
    return table.column(name).combine_chunks() if table.column(name).num_chunks != 1 else table.column(name).chunk(0)
