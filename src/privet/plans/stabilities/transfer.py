"""How far a teacher's scores of public rows can move when one of its training records is replaced."""

from dataclasses import dataclass

from privet.checks import positive
from privet.plans.stabilities.minimiser import MinimiserStability
from privet.privacy.budget import Adjacency


@dataclass(frozen=True)
class TransferStability:
    """How far the scores X~ w of public rows X~ can move, where w is a certified minimiser.

    Parameters
    ----------
    minimiser : MinimiserStability
        How far w can move.
    stretch : float
        Bound on the operator norm |X~ v| / |v|, with room for the rounding of scores.

    Formal guarantees
    -----------------
    |X~ w - X~ w'| <= stretch |w - w'|, and |w - w'| is bounded by :class:`MinimiserStability`. X~ may be drawn in any
    way that does not depend on the private records.
    """

    minimiser: MinimiserStability
    stretch: float

    adjacency = Adjacency.REPLACE_ONE

    def __post_init__(self) -> None:
        positive("stretch, the operator norm of public features,", self.stretch)

    @property
    def sensitivity(self) -> float:
        """The operator norm times the minimiser's sensitivity."""
        return self.stretch * self.minimiser.sensitivity

    def in_words(self) -> str:
        """Return a phrase for the guarantee that states the argument."""
        return (
            f"{self.minimiser.in_words()}, and its scores of public rows of operator norm at most {self.stretch:.4g} "
            f"move by at most {self.sensitivity:.4g}"
        )
