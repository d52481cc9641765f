"""Tables: what is public about them, and the bounded matrix that this alone makes of them."""

from privet.tables.errors import TableError
from privet.tables.reading import read_table
from privet.tables.schema import Categorical, Numeric, TableSchema, Target, parse_bounds, parse_levels

__all__ = [
    "Categorical",
    "Numeric",
    "TableError",
    "TableSchema",
    "Target",
    "parse_bounds",
    "parse_levels",
    "read_table",
]
