"""How far the second moments of bounded rows and targets can move when one record is replaced."""

import math
from dataclasses import dataclass

from privet.checks import count, nonnegative, positive
from privet.privacy.budget import Adjacency


@dataclass(frozen=True)
class MomentStability:
    """How far the sums of u u^T and of ``target_scale`` u v^T over ``n`` records can move when one is replaced.

    u is the row of a record divided by ``row_norm``, and v its targets divided by ``target_bound``. Off-diagonal
    entries of u u^T are released once and count with the factor sqrt(2), so that the l2 norm of what is released is the
    Frobenius norm of the symmetric matrix.

    Parameters
    ----------
    n : int
        Number of records.
    row_norm, target_bound : float
        Bounds on the norm of a row and on the absolute value of a target.
    target_scale : float
        The factor by which the sums with targets are multiplied, and with which they share the noise.
    n_targets : int
        Number of targets of each record.
    rounding : float
        By how much the rounding errors of two sums may differ, relative to the largest norm of a summand.

    Formal guarantees
    -----------------
    With k = n_targets target_scale^2, the sums of two neighbours differ by at most (2 + k)/sqrt(2) if k <= 2 and by at
    most 2 sqrt(k) otherwise (docs/proofs.md, section 38). Both are attained. A summand has norm at most sqrt(1 + k).
    """

    n: int
    row_norm: float
    target_bound: float
    target_scale: float
    n_targets: int = 1
    rounding: float = 0.0

    adjacency = Adjacency.REPLACE_ONE

    def __post_init__(self) -> None:
        count("n", self.n)
        count("n_targets", self.n_targets)
        for name in ("row_norm", "target_bound", "target_scale"):
            positive(name, getattr(self, name))
        nonnegative("rounding", self.rounding)

    @property
    def sensitivity(self) -> float:
        """The largest distance between the sums of two neighbours, including rounding errors."""
        k = self.n_targets * self.target_scale**2
        exact = (2 + k) / math.sqrt(2) if k <= 2 else 2 * math.sqrt(k)
        return (exact + self.rounding * math.sqrt(1 + k)) * (1 + 1e-12)  # the factor covers the roundings of this line

    def in_words(self) -> str:
        """Return a phrase for the guarantee that states the argument."""
        targets = "the target" if self.n_targets == 1 else f"the {self.n_targets} targets"
        return (
            f"the sums of products of columns with each other and with {targets}, in units of rows of norm "
            f"{self.row_norm:.4g} and targets of {self.target_bound:.4g}, move together by at most "
            f"{self.sensitivity:.4g} when one record is replaced"
        )


def balanced_target_scale(n_targets: int) -> float:
    """Return the factor of the sums with targets for which the noise of the normal equations is least.

    With k = m factor^2 for m targets, the noise of an equation has a variance of (2 + k)^2 (1/4 + m/(2 k)), up to a
    constant, for weights of norm 1 in units of the bounds. It is least where k^2 + m k = 2 m.
    """
    m = count("n_targets", n_targets)
    return math.sqrt((math.sqrt(m * m + 8 * m) - m) / (2 * m))
