"""Drafts of table schemas: from a code book, a public sample, questions in the terminal, or, with noise, private rows.

Only :func:`from_rows` reads rows that need protection, and it pays for what it learns. It is imported on first use,
because it needs scikit-learn, and the other drafts do not.
"""

from typing import TYPE_CHECKING, Any

from privet.drafts.code_book import CodeBook, Problem, read_code_book
from privet.drafts.draft import Draft, DraftColumn
from privet.drafts.questions import from_answers
from privet.drafts.sample import from_sample
from privet.drafts.toml import to_toml

if TYPE_CHECKING:
    from privet.drafts.private import from_rows

__all__ = [
    "CodeBook",
    "Draft",
    "DraftColumn",
    "Problem",
    "from_answers",
    "from_rows",
    "from_sample",
    "read_code_book",
    "to_toml",
]


def __getattr__(name: str) -> Any:
    if name == "from_rows":
        from privet.drafts.private import from_rows

        return from_rows
    raise AttributeError(f"module 'privet.drafts' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
