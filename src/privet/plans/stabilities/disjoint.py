"""How far the mean of disjoint teachers' scores of public rows can move when one record is replaced."""

from dataclasses import dataclass

from privet.checks import count, positive
from privet.privacy.budget import Adjacency


@dataclass(frozen=True)
class DisjointStability:
    """How far the scores X~ w of public rows X~ can move, where w is the mean of k teachers of disjoint records.

    Parameters
    ----------
    teachers : int
        The number k of teachers. Every record belongs to one of them, whatever its values are.
    radius : float
        The norm R to which the weights of each teacher are clipped.
    stretch : float
        Bound on the operator norm |X~ v| / |v|, with room for the rounding of scores.

    Formal guarantees
    -----------------
    A replaced record changes one teacher only, from one point of the ball of radius R to another, so the mean moves by
    at most 2R/k and the scores by at most 2R stretch/k. Nothing is assumed about how a teacher learns. X~ may be drawn
    in any way that does not depend on the private records.
    """

    teachers: int
    radius: float
    stretch: float

    adjacency = Adjacency.REPLACE_ONE

    def __post_init__(self) -> None:
        count("teachers", self.teachers)
        positive("radius", self.radius)
        positive("stretch, the operator norm of public features,", self.stretch)

    @property
    def sensitivity(self) -> float:
        """The operator norm times the diameter of the ball, divided by the number of teachers."""
        return self.stretch * 2 * self.radius / self.teachers

    def in_words(self) -> str:
        """Return a phrase for the guarantee that states the argument."""
        return (
            f"each record belongs to one of {self.teachers} teachers, the weights of a teacher are clipped to norm "
            f"{self.radius:.4g}, and their mean's scores of public rows of operator norm at most {self.stretch:.4g} "
            f"move by at most {self.sensitivity:.4g}"
        )
