"""Reading one line of a code book in the form of a text, such as ``age: integer, 0-120, age in years``."""

from __future__ import annotations

import re

from privet.drafts.entries import Entry, range_error
from privet.drafts.wording import CATEGORY, TEXT, Level, bounds_of, kind_of, level_of, levels_of, number_of, parts_of
from privet.tables.errors import TableError, show

_BULLET = re.compile(r"^\s*(?:[-*+\u2022]\s+|\d+[.)]\s+)?")
_LINE = re.compile(
    r"(?P<name>\"[^\"]+\"|`[^`]+`|\*\*[^*]+\*\*|[^:=\t(]+?)\s*(?:\((?P<inside>[^)]*)\))?\s*(?:[:=\t]|\s[-\u2013\u2014]\s)\s*(?P<rest>.*)"
)
_KEYED = re.compile(
    r"(?P<key>units?|range|bounds|values|levels|codes|categories|missing|format|type|description)\s*(?:[:=]|\s)\s*(?P<rest>.+)",
    re.I,
)
_THOUSANDS = re.compile(r"(?<![\d,])\d{1,3},\d{3}(?=\s*(?:-|\u2013|to\b|\.\.))")
_GROUP = re.compile(r"[<>]?=?\s*\d+(?:\s*[-\u2013]\s*\d+|\s*\+)?")
_MOST_WORDS = 3  # of a level; what has more words is a description


def entry_of(line: str, number: int) -> Entry:
    """Return what a line says about a column. Raise TableError if it does not name one."""
    match = _LINE.fullmatch(_BULLET.sub("", line.rstrip()))
    if not match:
        raise TableError(f"{show(line.strip())} is not understood.")
    name = match["name"].strip().strip("*`\"'").strip()
    if not name or len(name.split()) > 2 * _MOST_WORDS:
        raise TableError(f"{show(line.strip())} is not understood.")
    entry = Entry(name, number)
    free: list[str] = []
    try:
        if thousands := _THOUSANDS.search(match["rest"]):
            number_of(thousands[0])  # raises, because the comma may be a decimal comma
        parts = [part for part in (*parts_of(match["inside"] or ""), *parts_of(match["rest"])) if part]
        groups = _groups(parts)
        entry.levels += [Level(part) for part in groups]
        for part in parts:
            if part not in groups:
                _read_part(entry, part, free)
    except TableError as error:
        entry.problem = str(error)
    _place(entry, free)
    return entry


def _groups(parts: list[str]) -> list[str]:
    """Return the parts that are levels such as 18-30, 31-60 and 61+, if there are several. One alone is a range."""
    found = [part for part in parts if _GROUP.fullmatch(part)]
    return found if sum("-" in part[1:] or "\u2013" in part for part in found) > 1 else []


def _read_part(entry: Entry, part: str, free: list[str]) -> None:
    """Put a part of a line where it belongs, or among the free parts."""
    if match := _KEYED.fullmatch(part):
        _read_keyed(entry, match["key"].lower(), match["rest"])
    elif part.lower() in ("target", "outcome"):
        entry.is_target = True
    elif (bounds := bounds_of(part)) is not None:
        entry.bounds |= bounds
    elif "|" in part or re.fullmatch(r"[^\s/]+(?:/[^\s/]+)+", part):
        entry.levels += levels_of(part)
    elif not entry.type and not free and not entry.levels and kind_of(part) and _is_type(part):
        entry.type, _, rest = part.partition(" ")
        if rest.strip() and kind_of(part) != TEXT:
            _read_part(entry, rest.strip(" -:"), free)
    elif part[0] in "[{" and part[-1] in "]}":
        entry.levels += levels_of(part)
    elif re.fullmatch(r"[^\s=]+\s*=\s*.+", part):
        entry.levels.append(level_of(part))
    else:
        free.append(part)


def _is_type(part: str) -> bool:
    """Return whether a part is a type, alone or followed by bounds, rather than a level that begins like a type."""
    word, _, rest = part.partition(" ")
    rest = rest.strip(" -:")
    is_text = all(kind_of(each) == TEXT for each in part.split())
    return is_text or (bool(kind_of(word)) and (not rest or bounds_of(rest) is not None or rest[0] in "[{(<>"))


def _read_keyed(entry: Entry, key: str, rest: str) -> None:
    if key.startswith("unit"):
        entry.unit = rest
    elif key == "missing":
        entry.missing = rest
    elif key == "format":
        entry.format = rest.strip("\"'`")
    elif key == "type":
        entry.type = rest
    elif key == "description":
        entry.description = rest
    elif (bounds := bounds_of(rest)) is not None:
        entry.bounds |= bounds
    elif key in ("range", "bounds"):
        raise range_error(entry.name, rest)
    else:
        entry.levels += levels_of(rest)


def _place(entry: Entry, free: list[str]) -> None:
    """Take the free parts for levels if there are several short ones of a category, and else for the description."""
    takes_levels = not entry.levels and entry.bounds.low is None and entry.bounds.high is None
    if takes_levels and kind_of(entry.type) in (None, CATEGORY):
        short = []
        for part in free:
            if len(part.split()) > _MOST_WORDS:
                break
            short.append(part)
        if len(short) > 1:
            entry.levels = [Level(part.strip("\"'`")) for part in short]
            free = free[len(short) :]
    entry.description = entry.description or ", ".join(free)
