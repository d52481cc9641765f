"""Writing CSV files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

_AT_ONCE = 1 << 17
_SPECIAL = r'[",\r\n]|^ | $'


def write_csv(columns: Mapping[str, Any], file: IO[str]) -> None:
    """Write columns of equal lengths with a header. Texts are quoted where they must be."""
    import pyarrow as pa
    import pyarrow.compute as pc

    file.write(",".join(_quoted(pa.array(list(columns))).to_pylist()) + "\n")
    cells = [_array(values) for values in columns.values()]
    for start in range(0, len(cells[0]), _AT_ONCE):
        texts = [_texts(each.slice(start, _AT_ONCE)) for each in cells]
        lines = pc.binary_join_element_wise(*texts, ",")
        file.write("\n".join(lines.to_pylist()) + "\n")


def _array(values: Any) -> pa.Array:
    import pyarrow as pa

    array = pa.Array.from_pandas(values)
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _texts(values: pa.Array) -> pa.Array:
    """Return cells as they are written. Missing ones are empty."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    texts = pc.fill_null(pc.cast(values, pa.string()), "")
    return texts if pa.types.is_floating(values.type) or pa.types.is_integer(values.type) else _quoted(texts)


def _quoted(texts: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    in_quotes = pc.binary_join_element_wise('"', pc.replace_substring(texts, '"', '""'), '"', "")
    return pc.if_else(pc.match_substring_regex(texts, _SPECIAL), in_quotes, texts)
