"""Tables: what is public about them, and the bounded matrix that this alone makes of them."""

from privet.tables.columns import Categorical, Numeric
from privet.tables.errors import TableError
from privet.tables.options import parse_bounds, parse_levels
from privet.tables.reading import read_table
from privet.tables.schema import TableSchema
from privet.tables.targets import NumericTarget, Target

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
