"""The form of a delimited text file: its separator, its decimal mark and its encoding.

Each row must be interpreted independently of all others. So what is not given is recognised from the name of the file,
its byte-order mark and its header alone, and everything else is decided cell by cell. docs/tables.md explains why.
"""

from __future__ import annotations

import codecs
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from privet.tables.errors import TableError, show

SEPARATORS = (",", ";", "\t", "|")
_NAMES = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "pipe": "|"}
_WITH_STATE = ("utf_7", "iso2022", "hz", "punycode", "idna", "unicode_escape", "raw_unicode_escape", "undefined")
_SAMPLE = '0123456789+-.,;|eE\t\r\n"'


@dataclass(frozen=True)
class FileForm:
    r"""How a CSV file is written. What is None is recognised without looking at the rows.

    Parameters
    ----------
    separator : ",", ";", "\t", "|" or None
        The character between cells, also by its name: comma, semicolon, tab or pipe. By default the one with which the
        declared columns are found in the header.
    decimal : ",", "." or None
        The decimal mark of all numbers. The other one of the two then separates thousands. By default both 1.5 and, if
        cells are not separated by commas, 1,5 are numbers, and a cell with both marks is an error.
    encoding : str or None
        A name that Python knows, such as "latin-1". By default UTF-16 or UTF-32 if the file begins with a byte-order
        mark, and otherwise UTF-8. A cell that is not UTF-8 is read as Windows-1252.
    """

    separator: str | None = None
    decimal: str | None = None
    encoding: str | None = None

    def __post_init__(self) -> None:
        for part in fields(self):
            value = getattr(self, part.name)
            if value is not None and not isinstance(value, str):
                raise TableError(f"{part.name} = {show(value)} is not possible. Write a text.")
        if self.separator is not None:
            object.__setattr__(self, "separator", _NAMES.get(self.separator.lower(), self.separator))
            if self.separator not in SEPARATORS:
                raise TableError(
                    f"separator = {show(self.separator)} is not supported. Use one of comma, semicolon, tab and pipe."
                )
        if self.decimal not in (None, ",", "."):
            raise TableError(f'decimal = {show(self.decimal)} is not supported. Use "," or ".".')
        if self.encoding is not None:
            object.__setattr__(self, "encoding", _checked_encoding(self.encoding))

    def overridden_by(self, other: FileForm) -> FileForm:
        """Return this form with everything that the other one gives."""
        return replace(self, **other.to_dict())

    def to_dict(self) -> dict[str, str]:
        """Return what is given as plain values."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_dict(cls, values: Any, where: str) -> FileForm:
        """Read a form from the section [file] of a TOML file. ``where`` names the file in errors."""
        known = [part.name for part in fields(cls)]
        if not isinstance(values, Mapping) or not set(values) <= set(known):
            raise TableError(f"{where}: file = {show(values)} is not possible. Its keys are {', '.join(known)}.")
        return cls(**values)

    def separator_of(self, header: Sequence[Sequence[str]], declared: Collection[str], usual: str) -> str:
        """Return the separator, given the names in the header for each of ``SEPARATORS``.

        It is the one with which most of the declared columns are found, or, if none is declared, most columns. Among
        equals it is the usual one for the ending of the file.
        """
        if self.separator is not None:
            return self.separator

        def rank(separator: str) -> tuple[int, bool]:
            names = set(header[SEPARATORS.index(separator)])
            return len(names.intersection(declared) if declared else names), separator == usual

        return max(SEPARATORS, key=rank)


RECOGNISED = FileForm()
"""The form of a file of which nothing is given."""


def _checked_encoding(name: str) -> str:
    """Return the encoding as Python spells it. It must not carry a state from one row to the next."""
    try:
        encoding = codecs.lookup(name).name
        is_text = _SAMPLE.encode(encoding).decode(encoding) == _SAMPLE
    except (LookupError, UnicodeError, TypeError, ValueError):
        is_text = False
    if not is_text:
        raise TableError(
            f"encoding = {show(name)} is not a known encoding of text. Use utf-8, utf-16, latin-1, windows-1252 or "
            "another name that Python knows."
        )
    if encoding.replace("-", "_").startswith(_WITH_STATE):
        raise TableError(
            f"encoding = {show(name)} is not supported, because with it the bytes of one row can change how other rows "
            "are read. Convert the file to UTF-8."
        )
    return encoding
