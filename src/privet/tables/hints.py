"""What may have been meant by a cell that cannot be used, as a sentence for a check of the table.

A hint looks at one cell and at public declarations. It says what to do, and never decides how a cell is read.
"""

import difflib
import re
from collections.abc import Sequence

from privet.tables.cells import spelling
from privet.tables.errors import show

_PLACEHOLDERS = frozenset(
    {"-", "--", "---", ".", "..", "?", "??", "x", "missing", "unknown", "n.a.", "n. a.", "not known", "n/k", "nk", "nr"}
    | {"k.a.", "k. a.", "k.a", "ka", "keine angabe", "o.a.", "unbekannt", "fehlt", "n.d.", "nd", "n.b.", "inconnu"}
    | {"desconocido", "sconosciuto", "onbekend"}
)
"""Texts by which people mark a cell whose content is not known. privet does not read them as missing."""


def level_hint(cell: object, levels: Sequence[str]) -> str:
    """Return the level that is closest to a cell in any case of letters, or a remark on placeholders."""
    folded = {spelling(level).casefold(): level for level in levels}
    close = difflib.get_close_matches(spelling(cell).casefold(), folded, n=1, cutoff=0.7)
    return f"If {show(cell)} means {show(folded[close[0]])}, replace it." if close else placeholder_hint(cell)


def number_hint(cell: object) -> str:
    """Return what keeps a text from being a number, where that can be told from the text."""
    text = str(cell).strip()
    if re.fullmatch(r"[+-]?\d{1,3}(,\d{3})+", text):
        return (
            f"The comma in {show(text)} may separate thousands or decimals. Say which mark separates decimals: "
            '--decimal "." or --decimal ",", or decimal = "." in the section [file].'
        )
    if re.fullmatch(r"[+-]?[\d.]*,\d*", text):
        return 'If the comma separates decimals, declare it: --decimal ",", or decimal = "," in the section [file].'
    if re.fullmatch(r"[+-]?[\d.,]+", text):
        return (
            "Check the marks of decimals and thousands: --decimal, or decimal = in the section [file], declares them."
        )
    if re.fullmatch(r"[+-]?\d+([ '_]\d{3})+([.,]\d*)?", text):
        return "Write numbers without separators of thousands."
    if re.search(r"\d", text):
        return "Write the number alone, without a unit or a remark."
    return placeholder_hint(cell)


def date_hint(cell: object) -> str:
    """Return whether a text is a date that does not exist, or a remark on placeholders."""
    if re.fullmatch(r"\d{4}-\d{2}-\d{2}.*|\d{1,2}\.\d{1,2}\.\d{4}.*", str(cell).strip()):
        return f"Check whether the calendar has the day {show(cell)}."
    return placeholder_hint(cell)


def placeholder_hint(cell: object) -> str:
    """Return how to mark a missing cell, for a text that people use for this."""
    if str(cell).strip().lower() not in _PLACEHOLDERS:
        return ""
    return f"If {show(cell)} stands for a missing value, leave the cell empty and declare what missing cells count as."
