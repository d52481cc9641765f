"""How people write types, bounds and levels in code books: ``integer``, ``0-120``, ``1=male; 2=female``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date

from privet.tables.dates import to_date
from privet.tables.errors import TableError, show

NUMBER, CATEGORY, DATE, ID, TEXT = "number", "category", "date", "ID", "text"

_TYPES = {
    NUMBER: "number numeric num integer int float double decimal real continuous count quantity interval ratio bigint "
    "smallint long currency percent percentage scale slider calc zahl ganzzahl dezimalzahl numerisch",
    CATEGORY: "categorical category categories cat factor nominal ordinal enum enumeration choice choices radio "
    "dropdown select checkbox boolean bool binary logical yesno truefalse dichotomous code coded "
    "kategorie kategorial kategoriell auswahl",
    DATE: "date datetime timestamp day datum",
    ID: "id identifier identification key pseudonym",
    TEXT: "text string str char character varchar nvarchar free freetext notes note comment memo file freitext",
}
TYPE_WORDS = {word: kind for kind, words in _TYPES.items() for word in words.split()}
IMPLIED_LEVELS = {"yesno": ("yes", "no"), "truefalse": ("False", "True")} | dict.fromkeys(
    ("boolean", "bool", "logical"), ("False", "True")
)

_FLOAT = r"[-+]?(?:\d+(?:[.,]\d+)?|[.,]\d+)(?:[eE][-+]?\d+)?"
_BETWEEN = r"\s*(?:-|\.{2,3}|~|to|until|and|bis|;|:)\s*"
_RANGE = re.compile(
    rf"(?:from|between|range|von)?\s*(?P<low>{_FLOAT}){_BETWEEN}(?P<high>{_FLOAT})(?P<unit>\s*[^\d\s,;].*)?"
)
_BRACKETED = re.compile(rf"(?P<low>{_FLOAT})\s*[,;]\s*(?P<high>{_FLOAT})")
_DAY = r"\d{4}-\d{2}-\d{2}|\d{1,2}\.\d{1,2}\.\d{4}"
_DAYS = re.compile(
    rf"(?:from|between|range|von)?\s*(?P<low>{_DAY})\s*(?:-|\.{{2,3}}|to|until|and|bis|/|,|;|:)\s*(?P<high>{_DAY})"
)
_ONE_SIDED = re.compile(rf"(?P<sign><=|>=|<|>|min(?:imum)?\s*[:=]?|max(?:imum)?\s*[:=]?)\s*(?P<bound>{_DAY}|{_FLOAT})")
_LABELLED = re.compile(r"\(?(?P<code>[^=:()]{1,40}?)\)?\s*(?:=|:|\s-\s|\)\s)\s*(?P<label>.+)")
_NUMBERED = re.compile(r"(?P<code>[-+]?\d+)\.?\s+(?P<label>\D.*)")

Bound = float | date


@dataclass(frozen=True)
class Bounds:
    """Bounds as they are written: either may be missing. ``unit`` is what follows them."""

    low: Bound | None = None
    high: Bound | None = None
    unit: str = ""

    def __or__(self, other: Bounds) -> Bounds:
        """Return these bounds, completed by others."""
        low = self.low if self.low is not None else other.low
        high = self.high if self.high is not None else other.high
        return Bounds(low, high, self.unit or other.unit)


@dataclass(frozen=True)
class Level:
    """A level as cells contain it, and what it means."""

    code: str
    label: str = ""


def is_id_name(name: str) -> bool:
    """Return whether the name of a column suggests an ID, as in ``patient_id`` or ``caseNumber ID``."""
    words = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}
    return bool(words & {"id", "ids", "identifier", "pseudonym", "key", "uuid", "guid"})


def kind_of(text: str) -> str | None:
    """Return the kind of a column from the first word of its type, as in ``Integer (3)``. None if it is not a type."""
    return TYPE_WORDS.get(first_word(text))


def first_word(text: str) -> str:
    """Return the first word of a text in lower case, without digits at its end: ``int`` for ``INT64``."""
    match = re.match(r"[a-z]+", text.strip().lower().replace("/", "").replace("yes no", "yesno"))
    return match[0] if match else ""


def bound_of(text: str) -> Bound:
    """Return one bound: a number or a date."""
    text = _plain(text)
    if (day := to_date(text)) is not None:
        return day
    if not re.fullmatch(_FLOAT, text):
        raise TableError(f"The bound {show(text)} is neither a number nor a date such as 2019-01-31. Correct it.")
    return number_of(text)


def bounds_of(text: str) -> Bounds | None:
    """Return the bounds that a text such as ``0-120 years``, ``[0, 120]`` or ``>= 0`` states, or None."""
    plain = _plain(text)
    inner = plain[1:-1].strip() if plain[:1] in "[(" and plain[-1:] in "])" and plain else plain
    if match := _DAYS.fullmatch(inner):
        return Bounds(bound_of(match["low"]), bound_of(match["high"]))
    if match := _RANGE.fullmatch(inner):
        return Bounds(number_of(match["low"]), number_of(match["high"]), (match["unit"] or "").strip())
    if inner != plain and (match := _BRACKETED.fullmatch(inner)):
        return Bounds(number_of(match["low"]), number_of(match["high"]))
    if match := _ONE_SIDED.fullmatch(inner):
        bound = bound_of(match["bound"])
        return Bounds(low=bound) if match["sign"][:1] == ">" or match["sign"].startswith("min") else Bounds(high=bound)
    return None


def levels_of(text: str) -> list[Level]:
    """Return the levels that a text lists, such as ``1=male; 2=female``, ``1, Female | 2, Male`` or ``yes/no``."""
    text = text.strip()
    if text[:1] in "[{(" and text[-1:] in "]})":
        text = text[1:-1]
    for separator in ("\n", "|", ";"):
        if separator in text:
            items, has_commas = text.split(separator), separator == "|"
            break
    else:
        items, has_commas = _split(text), False
    found = [level_of(item, has_commas) for item in items if item.strip()]
    return [level for level in found if level.code]


def level_of(item: str, has_commas: bool = False) -> Level:
    """Return a level with its label, if there is one."""
    item = item.strip().strip(",")
    if has_commas and "," in item:
        code, _, label = item.partition(",")
        return Level(_unquoted(code), label.strip())
    for pattern in (_LABELLED, _NUMBERED):
        if match := pattern.fullmatch(item):
            return Level(_unquoted(match["code"]), _unquoted(match["label"]))
    return Level(_unquoted(item))


def _split(text: str) -> list[str]:
    """Return what commas separate, or, without commas, slashes, as in yes/no."""
    if "," in text:
        return parts_of(text)
    return text.split("/") if "/" in text and not re.search(r"\d/\d", text) else [text]


def parts_of(text: str) -> list[str]:
    """Return what commas and semicolons separate, outside of quotes and brackets."""
    parts, depth, quote, current = [], 0, "", ""
    for sign in text:
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "\"'" and not current.strip():
            quote = sign
        elif sign in "[({":
            depth += 1
        elif sign in "])}":
            depth = max(depth - 1, 0)
        if sign in ",;" and not quote and not depth:
            parts.append(current.strip())
            current = ""
        else:
            current += sign
    return [*parts, current.strip()]


def _unquoted(text: str) -> str:
    text = text.strip()
    return text[1:-1].strip() if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'`" else text


def _plain(text: str) -> str:
    """Return a text with ordinary signs for minus and for comparisons."""
    for sign, plain in {"\u2212": "-", "\u2013": "-", "\u2014": "-", "\u2264": "<=", "\u2265": ">="}.items():
        text = text.replace(sign, plain)
    return " ".join(text.split())


def number_of(text: str) -> float:
    """Return a number that may have a decimal comma. Raise TableError if the comma may separate thousands."""
    if re.fullmatch(r"[-+]?\d{1,3},\d{3}", text):
        raise TableError(
            f"{text!r} can be {text.replace(',', '')} or {text.replace(',', '.')}. Write it without a comma."
        )
    return float(text.replace(",", "."))
