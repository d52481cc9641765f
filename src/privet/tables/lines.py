"""A text file as blocks of whole lines, and what is wrong with lines that are not rows.

Each line is a row: a line break ends a row even between quotes. Otherwise, a quotation mark that is forgotten in one
row would swallow the rows after it. A line break is LF, CR or both. Lines that are empty or have only spaces are not
rows.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import gzip
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from privet.tables.errors import FileError, cut

BLOCK = 1 << 22
"""How many bytes are read at once."""

LONGEST_LINE = 1 << 26

_MARKS = (
    (codecs.BOM_UTF8, None),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file, and decompress it if its name ends in .gz."""
    with path.open("rb") as file:
        if path.name.lower().endswith(".gz"):
            with gzip.open(file) as unpacked:
                yield unpacked  # type: ignore[misc]
        else:
            yield file


def blocks(file: BinaryIO, encoding: str | None) -> Iterator[bytes]:
    """Yield whole lines, about ``BLOCK`` bytes at a time.

    They are UTF-8 if the encoding is given or the file has a byte-order mark, and otherwise the bytes of the file.
    """
    parts: list[bytes] = []
    for piece in _pieces(file, encoding):
        # A CR at the very end may be the first half of a CR LF.
        end = max(piece.rfind(b"\n"), piece.rfind(b"\r", 0, -1)) + 1
        if end == 0:
            parts.append(piece)
            if sum(map(len, parts)) > LONGEST_LINE:
                raise FileError(
                    f"it has a line of more than {LONGEST_LINE >> 20} MiB. Check that it is a table with one row per "
                    "line."
                )
            continue
        yield b"".join([*parts, piece[:end]])
        parts = [piece[end:]]
    if rest := b"".join(parts):
        yield rest


def _pieces(file: BinaryIO, encoding: str | None) -> Iterator[bytes]:
    """Yield the bytes of a file without its byte-order mark, as UTF-8 if its encoding is known."""
    piece = file.read(BLOCK)
    skipped = 0
    if encoding is None:
        mark, encoding = next((each for each in _MARKS if piece.startswith(each[0])), (b"", None))
        skipped = 0 if encoding else len(mark)
    decoder = None if encoding is None else codecs.getincrementaldecoder(encoding)()
    is_first = True
    while piece:
        following = file.read(BLOCK)
        if decoder is None:
            yield piece[skipped:]
            skipped = 0
        else:
            text = decoder.decode(piece, final=not following)
            yield (text.removeprefix("\ufeff") if is_first else text).encode()
            is_first = False
        piece = following


def split_header(block: bytes) -> tuple[bytes, bytes]:
    """Return the first line that is not blank, without its end, and the lines after it."""
    found = re.compile(rb"[^\r\n]*[^\r\n ][^\r\n]*").search(block)
    if found is None:
        return b"", b""
    return found[0], block[found.end() :]  # What remains begins with the end of the header, an empty line.


def n_rows(block: bytes) -> int:
    """Return the number of lines that are not empty."""
    characters = np.frombuffer(block, np.uint8)
    is_end = (characters == ord("\n")) | (characters == ord("\r"))
    is_start = np.empty(len(is_end), dtype=bool)
    is_start[:1] = True
    is_start[1:] = is_end[:-1]
    return int((is_start & ~is_end).sum())


def tidied(block: bytes, separator: str) -> bytes:
    """Return the lines without spaces before opening quotation marks, for a parser that does not skip them."""
    padded = re.compile(rb"(?:^|[\r\n]|" + re.escape(separator.encode()) + rb') +"')
    if padded.search(block) is None:
        return block
    return b"\n".join([_tidied_line(line, separator) if padded.search(line) else line for line in block.splitlines()])


def _tidied_line(line: bytes, separator: str) -> bytes:
    cells = [(cell, cell.lstrip(b" ")) for cell in split_cells(line, separator)]
    return separator.encode().join([bare if bare.startswith(b'"') else cell for cell, bare in cells])


def split_cells(line: bytes, separator: str) -> list[bytes]:
    """Return the cells of a line, with their quotation marks. A separator between quotation marks does not split."""
    mark = re.escape(separator.encode())
    cell = re.compile(rb' *"(?:[^"]|"")*(?:"|\Z)[^' + mark + rb"]*|[^" + mark + rb"]*")
    cells, start = [], 0
    while True:
        found = cell.match(line, start)
        assert found is not None
        cells.append(found[0])
        if found.end() >= len(line):
            return cells
        start = found.end() + 1


def is_open(line: bytes, separator: str) -> bool:
    """Return whether a cell begins with a quotation mark and does not end with one."""
    last = split_cells(line, separator)[-1].lstrip(b" ")
    return last.startswith(b'"') and re.fullmatch(rb'"(?:[^"]|"")*', last) is not None


def without_blank_lines(block: bytes) -> bytes:
    """Return the lines that have characters other than spaces."""
    return b"\n".join([line for line in block.splitlines() if line.strip(b" ")])


def header_cells(line: bytes, separator: str) -> list[bytes]:
    """Return the cells of the header without spaces and quotation marks around them."""
    text = line.decode("latin-1")
    cells = next(csv.reader([text], delimiter=separator, skipinitialspace=True))
    return [cell.strip(" \t").encode("latin-1") for cell in cells]


@dataclass(frozen=True)
class WrongLine:
    """A line that is not a row of the table: its row, counted from 1, what is wrong, and its beginning."""

    row: int
    cause: str
    text: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"row {self.row} has {self.cause}: {self.text}" + (f". {self.remedy}" if self.remedy else "")


def problems(block: bytes, separator: str, width: int, first: int) -> list[WrongLine]:
    """Return the lines of a block that have open quotes or a wrong number of cells.

    ``first`` is the number of the first row in the block.
    """
    found = []
    row = first - 1
    for line in block.splitlines():
        if not line.strip(b" "):
            continue
        row += 1
        n_cells = len(split_cells(line, separator))
        if is_open(line, separator):
            remedy = "Write each row in one line, and double quotation marks within quotes"
            found.append(WrongLine(row, "a quotation mark that is not closed in the same line", _shown(line), remedy))
        elif n_cells != width:
            found.append(WrongLine(row, f"{n_cells} cells, but the header has {width}", _shown(line)))
    return found


def without(block: bytes, wrong: Collection[int]) -> bytes:
    """Return the lines that are not blank, without those at these positions among them."""
    rows = [line for line in block.splitlines() if line.strip(b" ")]
    return b"\n".join([line for position, line in enumerate(rows) if position not in wrong])


def not_utf8(block: bytes, first: int) -> list[int]:
    """Return the numbers of the rows with bytes that are not UTF-8."""
    try:
        block.decode()
    except UnicodeDecodeError:
        rows = [line for line in block.splitlines() if line.strip(b" ")]
        return [row for row, line in enumerate(rows, first) if not line.isascii() and not _is_utf8(line)]
    return []


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _shown(line: bytes) -> str:
    return repr(cut(line[:400].decode("utf-8", "replace")))
