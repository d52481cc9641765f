"""Columns of a text file, gathered block by block in a compact form: one class per kind of column.

Each has the type in which Arrow should read its cells, takes them block by block, and returns them as a column of a
pandas frame. A cell never changes how another one is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from privet.tables.numerals import numerals

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


class Gathering(Protocol):
    """A column that is being read."""

    @property
    def type(self) -> pa.DataType:
        """The type in which Arrow should read the cells."""

    def add(self, cells: pa.Array) -> None:
        """Take the cells of the next rows."""

    def column(self) -> pd.Series:
        """Return all cells, and forget them."""


class Numbers:
    """Numbers as floats, with NaN for missing cells. Cells that are not numbers stay texts.

    Arrow reads the cells as numbers until a block has one that it does not accept, and as texts from then on. Both ways
    give the same numbers.
    """

    def __init__(self, decimal: str | None, separator: str) -> None:
        self.as_text = decimal == ","
        self._decimal, self._separator = decimal, separator
        self._values: NDArray[np.float64] = np.empty(1)
        self._count = 0
        self._bad: dict[int, str] = {}

    @property
    def type(self) -> pa.DataType:
        """Numbers or, from the first cell that Arrow does not accept, bytes."""
        import pyarrow as pa

        return pa.binary() if self.as_text else pa.float64()

    def accepts(self, cells: pa.Array) -> bool:
        """Return whether the cells are what ``float`` reads. Arrow also accepts texts such as "nan(0)"."""
        import pyarrow.compute as pc

        return self.as_text or not pc.any(pc.is_nan(cells)).as_py()

    def add(self, cells: pa.Array) -> None:
        """Take the cells of the next rows."""
        if self.as_text:
            values, bad = numerals(texts_of(cells), self._decimal, self._separator)
            self._bad |= {self._count + row: text for row, text in bad.items()}
        else:
            values = cells.to_numpy(zero_copy_only=False)
        end = self._count + len(values)
        if end > len(self._values):
            # np.empty takes memory only as it is written to, so room for further rows costs nothing.
            values_so_far, self._values = self._values[: self._count], np.empty(2 * end)
            self._values[: self._count] = values_so_far
        self._values[self._count : end] = values
        self._count = end

    def column(self) -> pd.Series:
        """Return the numbers, as floats unless there are other texts among them."""
        import pandas as pd

        values, self._values = self._values[: self._count], np.empty(1)
        if not self._bad:
            return pd.Series(values, copy=False)
        cells = values.astype(object)
        cells[list(self._bad)] = np.array(list(self._bad.values()), dtype=object)
        return pd.Series(cells, dtype=object, copy=False)


class Levels:
    """Texts of which many are equal: each distinct one is kept once, together with its position for each row."""

    def __init__(self) -> None:
        self._codes: list[NDArray[np.int32]] = []
        self._texts: dict[str, int] = {}
        self._known: dict[bytes, int] = {}

    @property
    def type(self) -> pa.DataType:
        """Positions in a list of distinct texts, as bytes."""
        import pyarrow as pa

        return pa.dictionary(pa.int32(), pa.binary())

    def add(self, cells: pa.Array) -> None:
        """Take the cells of the next rows."""
        places = [self._place(text) for text in cells.dictionary.to_pylist()]
        self._codes.append(np.array(places, dtype=np.int32)[cells.indices.to_numpy()])

    def _place(self, text: bytes) -> int:
        if text not in self._known:
            self._known[text] = self._texts.setdefault(decoded(text), len(self._texts))
        return self._known[text]

    def column(self) -> pd.Series:
        """Return a categorical column of all texts."""
        import pandas as pd

        codes, self._codes = np.concatenate(self._codes), []
        categories = pd.Index(list(self._texts), dtype=object)
        return pd.Series(pd.Categorical.from_codes(codes, categories=categories), copy=False)


class Texts:
    """Texts as they are, apart from spaces at their beginning."""

    def __init__(self) -> None:
        self._chunks: list[pa.Array] = []

    @property
    def type(self) -> pa.DataType:
        """Bytes, because texts can be in different encodings."""
        import pyarrow as pa

        return pa.binary()

    def add(self, cells: pa.Array) -> None:
        """Take the cells of the next rows."""
        import pyarrow.compute as pc

        self._chunks.append(pc.utf8_ltrim(texts_of(cells), " "))

    def column(self) -> pd.Series:
        """Return a column of texts."""
        import pandas as pd
        import pyarrow as pa

        chunks, self._chunks = self._chunks, []
        array: Any = pd.arrays.ArrowExtensionArray(pa.chunked_array(chunks, pa.string()))
        return pd.Series(array, copy=False)


def texts_of(cells: pa.Array) -> pa.Array:
    """Return bytes as texts, each decoded on its own."""
    import pyarrow as pa

    try:
        return cells.cast(pa.string())
    except pa.ArrowInvalid:  # a cell is not UTF-8
        return pa.array([decoded(cell) for cell in cells.to_pylist()], pa.string())


def decoded(text: bytes) -> str:
    """Return the text of a cell: UTF-8 or, if it is none, Windows-1252, with Latin-1 where that has no character."""
    for encoding in ("utf-8", "windows-1252"):
        try:
            return text.decode(encoding)
        except UnicodeDecodeError:
            continue
    return text.decode("latin-1")
