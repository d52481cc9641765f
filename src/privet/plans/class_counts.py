"""Weights of classes that balance them, computed from noisy numbers of records per class."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privet.plans.output import OutputPlan
from privet.plans.stabilities.histogram import HistogramStability
from privet.privacy.analyses.gaussian import shared_budget
from privet.privacy.budget import Adjacency, Budget
from privet.privacy.events import Event
from privet.privacy.guarantees.guarantee import Guarantee, enforced
from privet.privacy.noise.source import NoiseSource

COUNTS_SHARE = 0.04
"""Share of the squared mu, or of a pure epsilon, that pays for the counts.

A training with Gaussian noise then gets 2 % more noise. The weights need only rough counts.
"""
LEAST_WEIGHT = 0.01
"""The least weight of a class. The largest weight is always 1, so that it is public, as is the whole range."""


@dataclass(frozen=True)
class ClassCounts:
    """One noisy release of the number of records in each class, and the weights that follow from it.

    Parameters
    ----------
    n_classes : int
    plan : OutputPlan
        The noise of the counts.

    Formal guarantees
    -----------------
    The counts are a histogram of one column, whose sensitivity is that of
    :class:`~privet.plans.stabilities.histogram.HistogramStability`. The weights are post-processing. They lie in a
    public range, and the largest one is 1 whatever the counts are. So the constants of a weighted loss are known before
    the counts are drawn, and a training whose plan depends on them only has the same event for all counts. This is what
    adaptive composition of both releases needs: an event that was chosen by the counts would not be covered.
    """

    n_classes: int
    plan: OutputPlan

    @classmethod
    def for_budget(cls, budget: Budget, n_classes: int, adjacency: Adjacency) -> "ClassCounts":
        """Return the counts that spend their share of a budget."""
        stability = HistogramStability(1, adjacency)
        return cls(n_classes, OutputPlan.for_budget(shared_budget(budget, COUNTS_SHARE), stability=stability))

    @property
    def event(self) -> Event:
        """What is released, in the form that composes."""
        return self.plan.event

    @property
    def equal_weights(self) -> dict[int, float]:
        """The weights by class number until the counts are drawn."""
        return dict.fromkeys(range(self.n_classes), 1.0)

    def guarantee(self) -> Guarantee:
        """Return the guarantee of the counts alone."""
        return self.plan.guarantee(
            bound=enforced(self.plan.stability.in_words()),
            released=f"noisy numbers of records of {self.n_classes} classes",
        ).assuming(
            enforced(f"class weights are computed from the noisy numbers only, and lie between {LEAST_WEIGHT:g} and 1")
        )

    def weights(self, codes: NDArray[np.int64], source: NoiseSource) -> NDArray[np.float64]:
        """Draw the noisy counts of the classes of all records, and return the weight of each class.

        The class with the smallest noisy count has weight 1, and a class that is r times as frequent has weight 1/r,
        but at least :data:`LEAST_WEIGHT`. Counts below the standard deviation of their noise are raised to it. Codes
        that are not those of a class are not counted.
        """
        counts = np.bincount(codes[(codes >= 0) & (codes < self.n_classes)], minlength=self.n_classes)
        noisy = self.plan.noisy(counts.astype(np.float64), source)
        floored = np.maximum(noisy, self.plan.noise_std(self.n_classes))
        return np.asarray(np.maximum(floored.min() / floored, LEAST_WEIGHT), dtype=np.float64)
