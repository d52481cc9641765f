"""Tables: their public description, reading them from files, and encoding them as bounded matrices."""

from privet.tables.columns import Categorical, Numeric, NumericTarget, Target
from privet.tables.errors import TableError
from privet.tables.schema import TableSchema, parse_bounds, parse_levels, read_table

__all__ = [
    "Categorical",
    "Numeric",
    "NumericTarget",
    "TableError",
    "TableSchema",
    "Target",
    "parse_bounds",
    "parse_levels",
    "read_table",
]
