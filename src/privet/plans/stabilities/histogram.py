"""How far the histograms of several columns can move between neighbouring tables."""

import math
from dataclasses import dataclass
from fractions import Fraction

from privet.checks import count
from privet.privacy.budget import Adjacency


@dataclass(frozen=True)
class HistogramStability:
    """How far the histograms of several columns move, as one vector, between neighbouring tables.

    Parameters
    ----------
    n_columns : int
        Number of columns with a histogram each.
    adjacency : Adjacency

    Formal guarantees
    -----------------
    A record has one cell in each column. Replacing it takes 1 from one count of each histogram and adds 1 to another
    one, or moves nothing if both cells are counted alike or not at all. So the vector moves by at most
    sqrt(2 n_columns). Adding or removing it moves at most one count of each histogram by 1, and the vector by at most
    sqrt(n_columns).
    """

    n_columns: int = 1
    adjacency: Adjacency = Adjacency.REPLACE_ONE

    def __post_init__(self) -> None:
        count("n_columns", self.n_columns)

    @property
    def sensitivity(self) -> float:
        """Largest l2 distance between the counts of two neighbouring tables, rounded up."""
        square = self.adjacency.factor * self.n_columns
        root = math.sqrt(square)
        return root if Fraction(root) ** 2 >= square else math.nextafter(root, math.inf)

    def in_words(self) -> str:
        """Return a one-line description of the sensitivity for a guarantee."""
        histograms = "the histogram" if self.n_columns == 1 else f"each of {self.n_columns} histograms"
        if self.adjacency is Adjacency.REPLACE_ONE:
            move = f"replacing a record moves one cell out of a count and one into another in {histograms}"
        else:
            move = f"adding or removing a record changes at most one count, by 1, in {histograms}"
        return f"{move}, so that all counts together move by at most {self.sensitivity:.4g}"
