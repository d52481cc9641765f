"""A draft of a schema: what is proposed for each column, and the comments that say why and what to check."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from privet.tables import RECOGNISED, Categorical, Date, FileForm, Numeric, TableError, TableSchema, Target
from privet.tables.cells import REFUSE
from privet.tables.errors import listing
from privet.tables.features import Feature
from privet.tables.targets import AnyTarget, described

SECTIONS: dict[type[Feature], str] = {Numeric: "numeric", Categorical: "categorical", Date: "dates"}
"""The sections of a schema file in their order."""


@dataclass(frozen=True)
class DraftColumn:
    """What is proposed for one column: a feature, the target, an ID, or, if it is none of these, to leave it out.

    Parameters
    ----------
    name : str
    feature : Feature or None
    target : AnyTarget or None
    is_id : bool
    comments : tuple of str
        Why this is proposed, and what to check. They become comments of the schema file.
    """

    name: str
    feature: Feature | None = None
    target: AnyTarget | None = None
    is_id: bool = False
    comments: tuple[str, ...] = ()

    @property
    def is_used(self) -> bool:
        """Whether the schema names the column."""
        return self.is_id or self.feature is not None or self.target is not None

    @property
    def role(self) -> str:
        """What the column is proposed to be, in one word or two."""
        if self.target is not None:
            return "target"
        if self.feature is not None:
            return SECTIONS[type(self.feature)].removesuffix("s")
        return "ID" if self.is_id else "not used"

    @property
    def values(self) -> tuple[Any, ...]:
        """The levels, or the two bounds, or nothing."""
        column = self.target or self.feature
        return () if column is None else values_of(column)

    def renamed(self, name: str) -> DraftColumn:
        """Return the same column under another name."""
        feature, target = (
            self.feature and replace(self.feature, name=name),
            self.target and replace(self.target, name=name),
        )
        return replace(self, name=name, feature=feature, target=target)

    def as_target(self) -> DraftColumn:
        """Return the same column as the target."""
        if self.target is not None:
            return self
        if self.feature is None:
            what = (
                "This is the target. Nothing is known about it yet: declare target_levels for classes, or target_bounds"
            )
            return replace(self, is_id=False, target=Target(self.name), comments=(*self.comments, f"{what}."))
        if isinstance(self.feature, Date):
            described(Target(self.name), self.feature)  # raises the error that names the remedy
        target = described(Target(self.name), self.feature)
        return replace(self, feature=None, target=target)


@dataclass(frozen=True)
class Draft:
    """A draft of a schema.

    Parameters
    ----------
    origin : tuple of str
        Where the draft comes from and what that means: the first comments of the file.
    columns : tuple of DraftColumn
        In the order of the table.
    form : FileForm
        What was given about the form of the table's file.
    """

    origin: tuple[str, ...]
    columns: tuple[DraftColumn, ...]
    form: FileForm = RECOGNISED

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        names = [column.name for column in self.columns]
        check_different(names)

    @property
    def features(self) -> tuple[Feature, ...]:
        """The features in the order of the file: section by section, and in the order of the table within a section."""
        features = [column.feature for column in self.columns if column.feature is not None]
        return tuple(sorted(features, key=lambda feature: list(SECTIONS).index(type(feature))))

    @property
    def schema(self) -> TableSchema:
        """The schema that the file declares. Raise TableError if no column is a feature."""
        targets = [column.target for column in self.columns if column.target is not None]
        ids = tuple(column.name for column in self.columns if column.is_id)
        return TableSchema(self.features, targets[0] if targets else None, tuple(targets[1:]), ids, self.form)

    def for_table(self, names: Sequence[str]) -> tuple[Draft, tuple[str, ...]]:
        """Return the draft for a table with these columns, in their order, and the columns that the table lacks.

        A description of ``height`` is also that of a column ``height (cm)``, unless there are several such columns.
        """
        known = {column.name: column for column in self.columns}
        alone = Counter(_without_unit(name) for name in names)
        for name in names:
            short = _without_unit(name)
            if name not in known and short in known and short not in names and alone[short] == 1:
                known[name] = known.pop(short).renamed(name)
        absent = DraftColumn("", comments=("not described.",))
        columns = tuple(known.get(name) or replace(absent, name=name) for name in names)
        return replace(self, columns=columns), tuple(sorted(known.keys() - set(names), key=list(known).index))

    def with_roles(self, target: str | None, ids: Iterable[str]) -> Draft:
        """Return the draft with the target and the IDs that the caller named."""
        ids = tuple(ids)
        check_names([*ids, *([] if target is None else [target])], [column.name for column in self.columns])
        named = {name: DraftColumn(name, is_id=True) for name in ids}
        columns = (named.get(column.name, column) for column in self.columns)
        return replace(self, columns=tuple(each.as_target() if each.name == target else each for each in columns))


def _without_unit(name: str) -> str:
    return re.sub(r"\s*[(\[][^()\[\]]*[)\]]$", "", name)


def check_different(names: Iterable[str]) -> None:
    """Raise TableError if a name of a column occurs more than once."""
    if repeated := [name for name, times in Counter(names).items() if times > 1]:
        raise TableError(f"The column {listing(repeated)} occurs more than once. Rename all but one.")


def check_names(names: Collection[str], known: Sequence[str]) -> None:
    """Raise TableError unless all names are those of known columns."""
    for name in names:
        if name not in known:
            raise TableError(f"There is no column {name!r}. The columns are {listing(known)}.")


def values_of(column: Feature | AnyTarget) -> tuple[Any, ...]:
    """Return the levels of a column, its two bounds, or nothing if a target has no declared levels."""
    if isinstance(column, Categorical | Target):
        return column.levels or ()
    return column.low, column.high


def missing_rule(feature: Feature) -> float | date | str | None:
    """Return what the file says about the missing cells of a feature. None if it says nothing."""
    return None if feature.missing == REFUSE else feature.missing


__all__ = ["SECTIONS", "Draft", "DraftColumn", "check_different", "check_names", "missing_rule", "values_of"]
