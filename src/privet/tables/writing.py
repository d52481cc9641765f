"""Writing CSV files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    import pyarrow as pa

_AT_ONCE = 1 << 17
_SPECIAL = r'[",\r\n]|^ | $'


def write_csv(columns: Mapping[str, Any], file: TextIO) -> None:
    """Write columns of equal lengths with a header. Texts are quoted where they must be; numbers are written exactly."""
    import pyarrow as pa
    import pyarrow.compute as pc

    file.write(",".join(_quoted(pa.array(list(columns))).to_pylist()) + "\n")
    cells = [
        pa.chunked_array(each) if isinstance(each, list) else pa.chunked_array([_array(each)])
        for each in columns.values()
    ]
    for start in range(0, len(cells[0]), _AT_ONCE):
        texts = [_texts(each.slice(start, _AT_ONCE).combine_chunks()) for each in cells]
        lines = pc.binary_join_element_wise(*texts, ",")
        file.write("\n".join(lines.to_pylist()) + "\n")


def _array(values: Any) -> pa.Array:
    import pyarrow as pa

    return pa.Array.from_pandas(values)


def _texts(values: pa.Array) -> pa.Array:
    """Return cells as they are written. Missing ones are empty."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    is_text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
    texts = pc.fill_null(pc.cast(values, pa.string()), "")
    return _quoted(texts) if is_text else texts


def _quoted(texts: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    inside = pc.replace_substring(texts, '"', '""')
    return pc.if_else(
        pc.match_substring_regex(texts, _SPECIAL), pc.binary_join_element_wise('"', inside, '"', ""), texts
    )
