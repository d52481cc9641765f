"""What may be spent, and on which notion of neighbouring datasets."""

from dataclasses import dataclass
from enum import StrEnum

from privet.checks import delta_value, positive


class Adjacency(StrEnum):
    """Which two datasets count as neighbours. The two notions never mix in one computation."""

    REPLACE_ONE = "replace-one"
    ADD_OR_REMOVE = "add-or-remove"

    @property
    def factor(self) -> int:
        """How many times one unit's bound a sum over units moves between neighbours.

        Replacing a unit takes one contribution of norm at most C away and adds another: the sum moves by up to 2C.
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
    """Return 1/n^1.1, below the 1/n at which publishing a random record would be allowed."""
    return float(max(n, 2) ** -1.1)
