"""Guarantees of individual records, where they differ: records visited early are hidden by more noise."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from privet.extras import axes
from privet.privacy.budget import Adjacency
from privet.privacy.events import Event

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class PerRecord:
    """One epsilon per record, at a common delta.

    Attributes
    ----------
    epsilons : array of n numbers
        In the order in which the records were visited.
    delta : float
    is_by_row : bool
        Whether this is the order of the data, so that ``epsilons[i]`` is that of row i. Otherwise the order was drawn
        at random and is secret. ``epsilons[i]`` is then that of the record at place i, whichever that is. Estimators
        draw such an order, so that nothing rests on the order of the data.

    Formal guarantees
    -----------------
    Given that a record is at place i, replacing it is (``epsilons[i]``, ``delta``)-DP, also for someone who knows this.
    A table with the epsilon of every row would publish the drawn order. This must not be done if the order of the data
    depends on its content, as in a sorted table (docs/proofs.md, section 3), and privet keeps no such table.
    """

    epsilons: NDArray[np.float64]
    delta: float
    is_by_row: bool = True

    def __len__(self) -> int:
        return len(self.epsilons)

    def __getitem__(self, index: int) -> float:
        return float(self.epsilons[index])

    def quantile(self, share: float) -> float:
        """Return the epsilon that this share of records does not exceed."""
        return float(np.quantile(self.epsilons, share, method="higher"))

    def __str__(self) -> str:
        shown = [f"{self.quantile(share):.4g}" for share in (0.1, 0.5, 0.9)]
        worst = int(np.argmax(self.epsilons))
        where = f"is record {worst:,}" if self.is_by_row else f"is at place {worst:,} of a secret random order,"
        return (
            f"epsilon of {len(self):,} records at delta = {self.delta:.3g}: a tenth has at most {shown[0]}, half at "
            f"most {shown[1]}, nine tenths at most {shown[2]}; the worst {where} with {self[worst]:.4g}"
        )

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw epsilon against the position of the record in the order. This needs matplotlib."""
        ax = axes(ax, 6.0, 3.5)
        ax.plot(np.arange(1, len(self) + 1), self.epsilons)
        ax.axhline(float(self.epsilons.max()), linestyle=":", color="grey", label="worst record")
        ax.set(xlabel="position of the record in the order", ylabel=f"epsilon (delta = {self.delta:.2g})", yscale="log")
        ax.legend()
        return ax


def per_record(event: Event, adjacency: Adjacency, delta: float) -> PerRecord | None:
    """Return the epsilon of every record where records differ, or None where all have the same or it is not known.

    It is known for one run in a fixed order, also together with Gaussian releases that treat all records equally.
    """
    parts = event.leaves()
    runs = [part for part in parts if part.distinguishes_records]
    others = [part.gaussian_mu(adjacency) for part in parts if not part.distinguishes_records]
    mus = [mu for mu in others if mu is not None]
    if len(runs) != 1 or len(mus) < len(others) or any(part.approximation_error for part in parts) or delta == 0:
        return None
    epsilons = runs[0].record_epsilons(delta, math.hypot(*mus, 0.0))
    return None if epsilons is None else PerRecord(epsilons, delta, runs[0].is_by_row)
