"""Curves: the bins of a column, laid out by noisy counts alone, and the smooth features in which a curve is trained.

Everything here is computed from noisy counts and public numbers, so it is post-processing and costs no privacy.

A curve is a value per bin. It is trained as a sum of features: the smooth part of a curve is a random walk along the
quantiles of the column, whose covariance is the inverse of the Laplacian operator along the curve, and each bin has a
value of its own besides. Noise that is isotropic in these features is therefore smooth along each curve, and never
spreads from one column to the next.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Floats = NDArray[np.float64]

CELLS = 1024
"""Into how many cells of equal width the interval between the bounds of a number is divided."""
_BINS = 64  # the number of bins that a curve has if noise does not limit it
_OF_BIN, _OF_POINT = 4.0, 3.0  # the least count of a bin, and of a point, in standard deviations of a cell's noise
_LEAST_POINT = 0.004  # the least share of the records that makes a cell a point of its own
_CROWDED = 4.0  # how many times more records than an average cell a point has
_EVIDENCE = 3.0  # standard deviations from which a difference of counts is believed
_FEWEST_CELLS, _NOISE_OF_ALL = (
    64,
    0.1,
)  # cells that are counted, and the share of n that the noise of their sum may have
_WAVES = 16  # smooth features per curve
_OWN, _POINT = 0.25, 1.0  # prior variance of a bin's own value, and of a point's, relative to the smooth part
_RARE, _RAREST = 0.25, 0.2  # rare bins learn faster: by this power of their share, which counts as at least so much
_VANISHING = 1e-9  # share of the largest variance below which a feature is left out
_GROUPS = 6  # of the bins of a column that is part of a pair
_CENTRED = 256  # the largest number of levels whose features are centred


@dataclass(frozen=True, eq=False)
class Curve:
    """The bins of one column.

    Parameters
    ----------
    bin_of_cell : array of int
        The bin of each cell of the column. In a category, each level is a cell and a bin of its own.
    shares : array
        The share of the records in each bin, from noisy counts; positive, with the sum 1.
    is_point : array of bool
        Which bins are single cells with many records.
    is_ordered : bool
        Whether neighbouring bins are expected to have similar values.
    """

    bin_of_cell: NDArray[np.intp]
    shares: Floats
    is_point: NDArray[np.bool_]
    is_ordered: bool

    @property
    def n_bins(self) -> int:
        """Number of bins."""
        return len(self.shares)

    def features(self) -> Any:
        """Return the features of each bin, one row per bin. On average over the records they are zero.

        Many levels have one feature each, in a sparse array, which is not centred.
        """
        shares = self.shares
        if not self.is_ordered and self.n_bins > _CENTRED:
            return sparse.diags_array(np.maximum(self.n_bins * shares, _RAREST) ** -_RARE, format="csr")
        if self.is_ordered:
            own = np.diag(np.sqrt(_OWN + _POINT * self.is_point))
            found = np.hstack([_walk(shares), own])
        else:
            found = np.eye(self.n_bins)
        found = found * np.maximum(self.n_bins * shares, _RAREST)[:, None] ** -_RARE
        return _uncorrelated(found - shares @ found, shares) if self.n_bins <= _CENTRED else found


def _uncorrelated(features: Floats, shares: Floats) -> Floats:
    """Return the features, rotated such that they are uncorrelated over the records, without those that vanish."""
    sizes, directions = np.linalg.eigh(features.T @ (shares[:, None] * features))
    return np.asarray(features @ directions[:, sizes > _VANISHING * sizes[-1]])


def _walk(shares: Floats) -> Floats:
    """Return the smoothest features of a random walk along the quantiles, with a mean square of at most 1."""
    places = np.cumsum(shares) - shares / 2
    covariance = np.minimum.outer(places, places)
    covariance -= shares @ covariance
    covariance -= (covariance @ shares)[:, None]
    sizes, waves = np.linalg.eigh(covariance)
    found: Floats = (waves * np.sqrt(np.maximum(sizes, 0)))[:, ::-1]
    scale = float(shares @ (found * found).sum(axis=1))
    return found[:, :_WAVES] / np.sqrt(scale) if scale > 0 else found[:, :0]


@dataclass(frozen=True, eq=False)
class Pair:
    """The joint term of two columns: one bin per combination of groups of their bins.

    Parameters
    ----------
    columns : pair of int
        The positions of the two columns.
    groups : pair of arrays
        The group of each bin of either column.
    curve : Curve
        The combinations, as the levels of a category. Their shares are those of independent columns.
    """

    columns: tuple[int, int]
    groups: tuple[NDArray[np.intp], NDArray[np.intp]]
    curve: Curve

    @classmethod
    def of(cls, columns: tuple[int, int], one: Curve, other: Curve) -> "Pair":
        """Return the term of two columns whose curves are laid out."""
        groups = _groups(one), _groups(other)
        shares = [np.bincount(each, weights=curve.shares) for each, curve in zip(groups, (one, other), strict=True)]
        joint = np.outer(*shares).ravel().astype(np.float64)
        curve = Curve(np.arange(len(joint)), joint, np.zeros(len(joint), dtype=bool), False)
        return cls(columns, groups, curve)

    def bins(self, first: NDArray[Any], second: NDArray[Any]) -> NDArray[np.intp]:
        """Return the combination of each record, from its bins in the two columns."""
        one, other = self.groups
        return np.asarray(one[first] * (int(other.max()) + 1) + other[second])


def _groups(curve: Curve) -> NDArray[np.intp]:
    """Return the group of each bin: neighbours of a number are joined, and the rare levels of a category."""
    if curve.is_ordered:
        middle = np.cumsum(curve.shares) - curve.shares / 2
        found = (middle * _GROUPS).astype(np.intp)
    else:
        found = np.full(curve.n_bins, _GROUPS - 1)
        largest = np.sort(np.argsort(-curve.shares, kind="stable")[: _GROUPS - 1])  # in the order of the levels
        found[largest] = np.arange(len(largest))
    return np.asarray(np.unique(found, return_inverse=True)[1])


def lay_out(counts: Floats, noise_std: float, n: int, *, is_ordered: bool) -> Curve:
    """Return the bins of a column from the noisy counts of its cells.

    A cell of a number with many records is a point, which is a bin of its own. The other cells are joined with their
    neighbours until a bin has enough records for the noise, and at least its part of all records.

    Parameters
    ----------
    counts : array
        Noisy number of records in each cell.
    noise_std : float
        Standard deviation of the noise in each of them.
    n : int
        Number of records, which is public.
    is_ordered : bool
        Whether the cells are those of a number. The cells of a category are its levels, which are not joined.
    """
    if not is_ordered:
        places = np.arange(len(counts))
        return Curve(places, _shares(counts, noise_std), np.zeros(len(counts), dtype=bool), is_ordered)
    enough = max(n / _BINS, _OF_BIN * noise_std)
    least = max(enough, _LEAST_POINT * n, _OF_POINT * noise_std, _CROWDED * n / len(counts))
    denoised = _denoised(counts, noise_std, n)
    bin_of_cell = np.zeros(len(counts), dtype=np.intp)
    totals: list[float] = []
    points: list[bool] = []
    is_open = False  # whether the last bin takes further cells
    for cell, (count, alone) in enumerate(zip(denoised.tolist(), (counts > least).tolist(), strict=True)):
        if alone or not is_open:
            totals.append(0.0)
            points.append(alone)
        totals[-1] += count
        bin_of_cell[cell] = len(totals) - 1
        is_open = not alone and totals[-1] < enough
    fine = np.repeat(bin_of_cell, CELLS // len(counts))
    return Curve(fine, _shares(np.array(totals), noise_std), np.array(points), is_ordered)


def resolution(noise_std: float, n: int) -> int:
    """Return how many cells of a number are counted: fewer if noise is strong, because it adds up over cells.

    It is a power of two between 64 and :data:`CELLS`, above 64 only if the noise in the sum of all cells is at most a
    tenth of n.
    """
    allowed = (_NOISE_OF_ALL * n / noise_std) ** 2 if noise_std else float(CELLS)
    return int(2 ** np.clip(np.floor(np.log2(max(allowed, 1.0))), np.log2(_FEWEST_CELLS), np.log2(CELLS)))


def _denoised(counts: Floats, noise_std: float, n: int) -> Floats:
    """Return counts whose Haar coefficients are zero if they may be noise, and whose sum is about n.

    Without evidence, the records are spread evenly over the cells of an interval.
    """
    sums, details = counts, []
    while len(sums) > 1:
        left, right = sums[0::2], sums[1::2]
        noise = noise_std * np.sqrt(len(counts) / len(left))  # of the difference of two sums of cells
        difference = left - right
        details.append(np.where(np.abs(difference) > _EVIDENCE * noise, difference, 0.0))
        sums = left + right
    found = np.array([float(n)])
    for difference in reversed(details):
        split = np.empty(2 * len(found))
        split[0::2], split[1::2] = (found + difference) / 2, (found - difference) / 2
        found = split
    return np.asarray(np.maximum(found, 0.0))


def _shares(counts: Floats, noise_std: float) -> Floats:
    """Return shares from noisy counts. No count is believed to be below the noise."""
    counts = np.maximum(counts, noise_std + 1)
    return np.asarray(counts / counts.sum())
