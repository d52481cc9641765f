"""Cells of a text file as numbers. A cell is read exactly as Python's ``float`` reads it, whatever the others say.

Arrow's parser, which is fast, rounds correctly as ``float`` does, but accepts fewer texts and a few others. So it gets
only texts in the usual notation of numbers, and ``float`` reads the rest.
"""

from __future__ import annotations

import itertools
import re
import string
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from privet.tables.cells import MARKS, is_mark

if TYPE_CHECKING:
    import pyarrow as pa

_USUAL = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"

EITHER = ",."
"""Stands for a decimal mark that may be a comma or a point, in each cell by itself."""

NULLS = sorted({"".join(letters) for mark in MARKS for letters in itertools.product(*({c, c.upper()} for c in mark))})
"""The texts that mark a missing cell, in any case."""


def numerals(texts: pa.Array, decimal: str | None, separator: str) -> tuple[NDArray[np.float64], dict[int, str]]:
    """Return texts as numbers, with NaN for missing ones, and by their positions those that are not numbers.

    Without a given decimal mark, a comma is one wherever it does not separate cells.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    trimmed = pc.ascii_trim_whitespace(texts)
    pointed = _with_points(trimmed, decimal, separator)
    is_usual = pc.match_substring_regex(pointed, _USUAL)
    usual = pc.cast(pc.if_else(is_usual, pointed, pa.scalar(None, pa.string())), pa.float64())
    values: NDArray[np.float64] = np.array(usual.to_numpy(zero_copy_only=False), dtype=np.float64)
    is_known = pc.or_(is_usual, pc.is_in(pc.ascii_lower(trimmed), pa.array(sorted(MARKS))))
    bad: dict[int, str] = {}
    for row in np.flatnonzero(~is_known.to_numpy(zero_copy_only=False)).tolist():
        text = texts[row].as_py()
        try:
            values[row] = float(pointed[row].as_py())
        except ValueError:
            if not is_mark(text):
                bad[row] = text
    return values, bad


def pointed(text: str, decimal: str | None) -> str:
    """Return a text as ``float`` expects it, given the decimal mark of numbers, or the empty text if it is not one.

    ``decimal`` is a mark (the other one then separates thousands), ``EITHER`` of the two, or None for ``float`` alone.
    """
    if decimal is None:
        return text
    if decimal == EITHER:
        return text.replace(",", ".")
    trimmed = text.strip(string.whitespace)
    if not re.search("[.,]", trimmed):
        return text
    if not re.fullmatch(_formed(decimal), trimmed, re.ASCII):
        return ""
    return trimmed.replace("," if decimal == "." else ".", "").replace(decimal, ".")


def _formed(decimal: str) -> str:
    """Return the pattern of numbers with this decimal mark, in which the other mark separates thousands."""
    mark, group = re.escape(decimal), re.escape("," if decimal == "." else ".")
    return rf"^[+-]?([0-9]{{1,3}}({group}[0-9]{{3}})+|[0-9]*)({mark}[0-9]*)?([eE][+-]?[0-9]+)?$"


def _with_points(texts: pa.Array, decimal: str | None, separator: str) -> Any:
    """Return texts as ``float`` expects them: with a decimal point, and without separators of thousands.

    What is not well-formed becomes a text that is not a number.
    """
    import pyarrow.compute as pc

    if decimal is None:
        return texts if separator == "," else pc.replace_substring(texts, ",", ".")
    thousands = "," if decimal == "." else "."
    plain = pc.replace_substring(pc.replace_substring(texts, thousands, ""), decimal, ".")
    is_formed = pc.match_substring_regex(texts, _formed(decimal))
    has_mark = pc.match_substring_regex(texts, "[.,]")
    return pc.if_else(is_formed, plain, pc.if_else(has_mark, "not a number", texts))
