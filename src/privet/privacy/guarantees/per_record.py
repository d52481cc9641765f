"""The guarantee of every record, where records differ: those visited early are hidden better than later ones."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from privet.privacy.analyses.gaussian import gdp_epsilons
from privet.privacy.analyses.unsampled import takes_everybody, unsampled_mu
from privet.privacy.budget import Adjacency
from privet.privacy.events import Event, GaussianRelease, LastIterate, Secret, leaves
from privet.privacy.iteration import epsilons, place_mus

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class PerRecord:
    """An epsilon for each record, at one delta.

    Attributes
    ----------
    epsilons : array of n numbers
        In the order in which records were visited, that of the data.
    delta : float
    """

    epsilons: NDArray[np.float64]
    delta: float

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
        return (
            f"epsilon of {len(self):,} records at delta = {self.delta:.3g}: a tenth has at most {shown[0]}, half at "
            f"most {shown[1]}, nine tenths at most {shown[2]}; the worst is record {worst:,} with {self[worst]:.4g}"
        )

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw epsilon against the record's place in the order; needs matplotlib."""
        if ax is None:
            try:
                from matplotlib.figure import Figure
            except ModuleNotFoundError as error:
                raise ModuleNotFoundError("plots need matplotlib: pip install 'privet[report]'") from error
            ax = Figure(figsize=(6, 3.5), layout="constrained").subplots()
        ax.plot(np.arange(1, len(self) + 1), self.epsilons)
        ax.axhline(float(self.epsilons.max()), linestyle=":", color="grey", label="worst record")
        ax.set(xlabel="place of the record in the order", ylabel=f"epsilon (delta = {self.delta:.2g})", yscale="log")
        ax.legend()
        return ax


def per_record(event: Event, adjacency: Adjacency, delta: float) -> PerRecord | None:
    """Return every record's epsilon where an event tells them apart, or None where all have the same.

    One run in a fixed order, and beside it any releases that are Gaussian and the same for all records.
    """
    parts = leaves(event)
    orders = [part for part in parts if isinstance(part, LastIterate) and part.n > 1]
    others = [part for part in parts if part not in orders]
    if len(orders) != 1 or not all(_is_gaussian(part) for part in others) or delta == 0:
        return None
    run: Any = orders[0]
    if run.secret is not Secret.NOTHING:
        return PerRecord(epsilons(run, delta), delta) if run.runs == 1 and not others else None
    rest = math.hypot(*(unsampled_mu(part, adjacency) for part in others), 0.0)
    mus = np.hypot(place_mus(run) * math.sqrt(run.runs), rest)
    return PerRecord(np.repeat(gdp_epsilons(mus, delta), run.size)[: run.n], delta)


def _is_gaussian(part: Event) -> bool:
    return isinstance(part, GaussianRelease) or takes_everybody(part)
