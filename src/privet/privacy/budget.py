"""Privacy budgets, and the two notions of neighbouring datasets."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from numbers import Real
from typing import TypeAlias

from privet.checks import delta_value, positive


class Adjacency(StrEnum):
    """Which two datasets are neighbours. The two notions never mix in one computation."""

    REPLACE_ONE = "replace-one"
    ADD_OR_REMOVE = "add-or-remove"

    @property
    def factor(self) -> int:
        """The distance between the sums of neighbouring datasets, as a multiple of the bound C of one contribution.

        Replacing a unit removes one contribution of norm at most C and adds another: the sum moves by up to 2C.
        Adding or removing a unit moves it by up to C.
        """
        return 2 if self is Adjacency.REPLACE_ONE else 1

    @property
    def in_words(self) -> str:
        """The notion as a phrase, completing 'two tables are neighbours if one arises from the other by ...'."""
        return {
            Adjacency.REPLACE_ONE: "replacing one {unit} by any other",
            Adjacency.ADD_OR_REMOVE: "adding or removing one {unit}",
        }[self]


@dataclass(frozen=True)
class Budget:
    """A target (epsilon, delta). ``delta=0`` asks for pure epsilon-differential privacy."""

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", positive("epsilon", self.epsilon))
        object.__setattr__(self, "delta", delta_value(self.delta))

    @property
    def is_pure(self) -> bool:
        """Whether delta is zero."""
        return self.delta == 0.0


def default_delta(n: int) -> float:
    """Return min(1e-6, 0.01/n), the delta of a budget for which none is given.

    A delta permits publishing each of n records with that probability. At the default, the chance that any record is
    published in this way is at most n delta <= 1 %.

    Parameters
    ----------
    n : int
        The number of protected units. It must be public, because delta is. Under add-or-remove adjacency, it is a
        declared estimate.
    """
    return min(1e-6, 0.01 / max(n, 1))


def stated_delta(delta: float | None, own: float | None) -> float:
    """Return the delta at which a plan states its guarantee: the given one, or else the plan's own."""
    if delta is None:
        delta = own
    if delta is None:
        raise ValueError(
            "this plan has no delta at which its guarantee could be stated. Call guarantee(delta), set delta= when you "
            "build the plan, or make the plan with for_budget(), which keeps the budget's delta."
        )
    return delta


BudgetLike: TypeAlias = Budget | float | tuple[float, float]


def as_budget(value: BudgetLike, n: int | None = None) -> Budget:
    """Return a budget given as a :class:`Budget`, as an epsilon, or as a pair (epsilon, delta).

    Parameters
    ----------
    value : Budget, float, or tuple of two floats
    n : int or None
        The public number of protected units. An epsilon without a delta gets ``default_delta(n)``.
    """
    if isinstance(value, Budget):
        return value
    if isinstance(value, Real) and not isinstance(value, bool):
        if n is None:
            raise ValueError(
                f"budget={value!r} has no delta, and the number of records, from which the default delta is computed, "
                "is not known here. Give Budget(epsilon, delta); delta=0 asks for pure epsilon-differential privacy."
            )
        return Budget(float(value), default_delta(n))
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 2:
        return Budget(*value)
    raise ValueError(f"a budget must be a Budget, an epsilon, or a pair (epsilon, delta), got {value!r}")
