"""Tables: their public description, reading them from files, and encoding them as bounded matrices."""

from privet.tables.categories import Categorical
from privet.tables.check import Report, check_table
from privet.tables.dates import Date
from privet.tables.declarations import parse_bounds, parse_levels
from privet.tables.errors import SchemaError, TableError
from privet.tables.findings import Finding, Severity
from privet.tables.form import RECOGNISED, FileForm
from privet.tables.numbers import Numeric
from privet.tables.reading import check_header, decimal_mark, read_header, read_table
from privet.tables.schema import TableSchema
from privet.tables.targets import NumericTarget, Target
from privet.tables.writing import write_csv

__all__ = [
    "RECOGNISED",
    "Categorical",
    "Date",
    "FileForm",
    "Finding",
    "Numeric",
    "NumericTarget",
    "Report",
    "SchemaError",
    "Severity",
    "TableError",
    "TableSchema",
    "Target",
    "check_header",
    "check_table",
    "decimal_mark",
    "parse_bounds",
    "parse_levels",
    "read_header",
    "read_table",
    "write_csv",
]
