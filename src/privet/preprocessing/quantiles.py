"""Quantiles of columns on a public grid, by the exponential mechanism."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from privet.checks import count, positive
from privet.plans import PlanError
from privet.plans.adaptive import selection_epsilon, selection_mu
from privet.preprocessing.bounds import Bounds, Floats
from privet.privacy import Adjacency, Guarantee, NoiseSource, enforced, gdp_mu
from privet.privacy.analyses.accounting import epsilon
from privet.privacy.budget import BudgetLike, as_budget, stated_delta
from privet.privacy.events import Composition, Event, GaussianRelease, PureRelease
from privet.privacy.noise.watch import Claim


class Tally(NamedTuple):
    """A column on the grid: the points that have records, in ascending order, and the number of records at each."""

    places: NDArray[np.int64]
    counts: NDArray[np.int64]


class Choices(NamedTuple):
    """All grid points, in runs of equal score: the start, the length and the score of each run."""

    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    scores: Floats


@dataclass(frozen=True)
class QuantilePlan:
    """Which quantiles of how many columns are released, and the epsilon of each.

    Parameters
    ----------
    n_columns : int
    quantiles : tuple of float
        The levels, the same for every column, each strictly between 0 and 1.
    resolution : int
        The interval between the bounds of a column is divided into this many equal steps. Entries are rounded to the
        ends of steps, from which quantiles are chosen.
    query_epsilon : float
        The epsilon of one quantile of one column.
    is_pure : bool
        Whether the queries compose by adding up pure epsilons, rather than as Gaussian DP.
    delta : float or None
        The delta at which :meth:`guarantee` is stated by default.

    Formal guarantees
    -----------------
    Smith, "Privacy-Preserving Statistical Estimation with Optimal Convergence Rates" (2011), on a grid and with ties:
    the score of a grid point y is minus the distance of q n from the interval [#{x < y}, #{x <= y}]. Replacing a record
    moves each end, and therefore the score, by at most 1. Grid points are drawn with probability proportional to
    exp(query_epsilon score/2). This is the exponential mechanism, which is query_epsilon-DP under replace-one adjacency
    (McSherry and Talwar, "Mechanism Design via Differential Privacy", Theorem 6, for a sensitivity of 1). It is drawn
    exactly, from scores that are exact because q n is rounded first (docs/proofs.md, section 27). The logarithms of
    probabilities move within a range of query_epsilon, so a query is also mu-GDP, with the mu of
    :func:`~privet.plans.adaptive.selection_mu`, and q queries are sqrt(q) mu-GDP.

    The same holds for a tally of some of the records, such as those whose cell is a number, where each record belongs
    to it or not by itself. If the replacement changes the size m of the tally by one, q m moves by at most 1, in the
    same direction as the ends of the interval or while they stay, so that the score moves by at most 1 again
    (docs/proofs.md, section 34). An empty tally has the score 0 everywhere.

    Between neighbouring records all grid points have equal scores. Such a run is chosen as a whole, with a weight
    in proportion to its length, and then a point in it uniformly. This has the same distribution, and takes time
    proportional to the number of records instead of the number of grid points.
    """

    n_columns: int
    quantiles: tuple[float, ...]
    resolution: int
    query_epsilon: float
    is_pure: bool = True
    delta: float | None = field(default=None, compare=False, repr=False, kw_only=True)

    adjacency = Adjacency.REPLACE_ONE

    def __post_init__(self) -> None:
        count("n_columns", self.n_columns)
        count("resolution", self.resolution)
        positive("query_epsilon", self.query_epsilon)
        if not self.quantiles or not all(0 < q < 1 for q in self.quantiles):
            raise ValueError(f"quantiles must lie strictly between 0 and 1, got {self.quantiles!r}")

    @classmethod
    def for_budget(
        cls, budget: BudgetLike, *, n_columns: int, quantiles: Sequence[float], resolution: int
    ) -> "QuantilePlan":
        """Return the plan with the largest epsilon per query that stays within ``budget``.

        The budget is divided evenly if it is pure or if this gives the larger epsilon, else it composes as Gaussian DP.
        """
        budget = as_budget(budget)
        queries = count("n_columns", n_columns) * len(quantiles)
        fields = (n_columns, tuple(quantiles), resolution)
        share = budget.epsilon / queries
        while epsilon(_sum(share, queries), cls.adjacency, 0.0) > budget.epsilon:  # the sum may have been rounded up
            share *= 1 - 1e-15
        if not budget.is_pure:
            gaussian = selection_epsilon(gdp_mu(budget) / math.sqrt(queries) * (1 - 1e-12))
            if gaussian > share:
                return cls(*fields, gaussian, is_pure=False, delta=budget.delta)
        return cls(*fields, share, is_pure=True, delta=budget.delta)

    @property
    def n_queries(self) -> int:
        """Number of quantiles that are released."""
        return self.n_columns * len(self.quantiles)

    @property
    def scale(self) -> float:
        """What scores are divided by in the exponential mechanism: 2 / query_epsilon, rounded up."""
        scale = positive("the scale of the exponential mechanism, 2 / query_epsilon,", 2 / self.query_epsilon)
        if Fraction(scale) * Fraction(self.query_epsilon) < 2:
            scale = math.nextafter(scale, math.inf)
        return scale

    @property
    def event(self) -> Event:
        """What is released, in the form that composes."""
        if self.is_pure:
            return _sum(self.query_epsilon, self.n_queries)
        return GaussianRelease(selection_mu(self.query_epsilon) * math.sqrt(self.n_queries))

    def guarantee(self, delta: float | None = None) -> Guarantee:
        """Return the guarantee of :meth:`release`."""
        return Guarantee.of(
            self.event,
            self.adjacency,
            stated_delta(delta, self.delta),
            released=f"{len(self.quantiles)} noisy quantiles of each of {self.n_columns} columns",
            assumptions=(
                enforced(
                    f"entries are clipped to the declared bounds and rounded to a public grid of {self.resolution} "
                    "steps, each independently; replacing a record moves a rank by at most 1"
                ),
                enforced(
                    f"each of {self.n_queries} quantiles is drawn exactly by the exponential mechanism with epsilon = "
                    f"{self.query_epsilon:.6g}"
                ),
            ),
        )

    def release(self, X: Any, bounds: Bounds, source: NoiseSource) -> Floats:
        """Return noisy quantiles of the columns of ``X``, of shape (quantiles, columns), in units of bounds [-1, 1]."""
        if X.shape[1] != self.n_columns:
            raise PlanError(f"The plan accounts for {self.n_columns} columns, but the rows have {X.shape[1]}.")
        drawn = [[self.draw(tally, q, source) for q in self.quantiles] for tally in self.tallies(X, bounds)]
        return 2 * np.array(drawn, dtype=np.float64).T / self.resolution - 1

    def tallies(self, X: Any, bounds: Bounds) -> Iterator[Tally]:
        """Yield the columns on the grid. The zeros of sparse columns are counted without being stored."""
        if not sparse.issparse(X):
            for j in range(X.shape[1]):
                yield Tally(*np.unique(self._places(bounds.unit(X[:, j], j)), return_counts=True))
            return
        columns = X.tocsc()
        for j in range(X.shape[1]):
            stored = columns.data[columns.indptr[j] : columns.indptr[j + 1]]
            all_places = self._places(bounds.unit(np.append(stored, 0.0), j))
            places, counts = np.unique(all_places, return_counts=True)
            counts[np.searchsorted(places, all_places[-1])] += (
                X.shape[0] - stored.size - 1
            )  # one zero was appended above
            yield Tally(places[counts > 0], counts[counts > 0])

    def choices(self, tally: Tally, q: float) -> Choices:
        """Return all grid points with their scores for the quantile ``q``."""
        upto = np.cumsum(tally.counts)
        below, target = upto - tally.counts, _rank(q, int(tally.counts.sum()))
        starts, sizes = np.empty((2, 2 * upto.size + 1), dtype=np.int64)
        scores = np.empty(2 * upto.size + 1)
        # Even runs are the gaps before, between and after records. Odd runs are the grid points with records.
        starts[0::2], starts[1::2] = np.append(0, tally.places + 1), tally.places
        sizes[0::2], sizes[1::2] = np.append(tally.places, self.resolution + 1) - starts[0::2], 1
        scores[0::2] = -np.abs(np.append(0, upto) - target)
        scores[1::2] = -np.maximum(0.0, np.maximum(below - target, target - upto))
        is_there = sizes > 0
        return Choices(starts[is_there], sizes[is_there], scores[is_there])

    def draw(self, tally: Tally, q: float, source: NoiseSource) -> int:
        """Draw a grid point with the exponential mechanism. This is one of the queries that the plan accounts for."""
        choices = self.choices(tally, q)
        claim = Claim(self.query_epsilon * self.scale)
        return source.top_point(choices.starts, choices.scores, self.resolution + 1, self.scale, claim)

    def _places(self, u: Floats) -> NDArray[np.int64]:
        return np.rint((u + 1) / 2 * self.resolution).astype(np.int64)


def quantile_pair(quantiles: Any) -> tuple[float, float]:
    """Return the pair as two floats if 0 < low < high < 1, else raise ValueError."""
    try:
        low, high = (float(q) for q in quantiles)
    except (TypeError, ValueError):
        low = high = math.nan
    if not 0 < low < high < 1:
        raise ValueError(f"quantiles must be a pair low < high strictly between 0 and 1, got {quantiles!r}")
    return low, high


def _rank(q: float, n: int) -> float:
    """Return q n, rounded such that its differences from the integers 0, ..., n are exact in float64."""
    digits = 52 - n.bit_length()
    return math.ldexp(round(math.ldexp(q * n, digits)), -digits)


def _sum(query_epsilon: float, queries: int) -> Composition:
    return Composition((PureRelease(query_epsilon),) * queries)
