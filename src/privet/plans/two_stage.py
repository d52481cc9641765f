"""A private choice of features, then objective perturbation on the chosen ones, under one budget."""

from dataclasses import dataclass, field

from privet.plans.adaptive import AdaptivePlan
from privet.plans.objective import ObjectivePlan
from privet.privacy.budget import Adjacency, stated_delta
from privet.privacy.events import Composition, Event
from privet.privacy.guarantees.guarantee import Assumption, Guarantee, compose


@dataclass(frozen=True)
class TwoStagePlan:
    """A choice of features by noisy votes, followed by objective perturbation.

    :func:`~privet.solvers.two_stage.two_stage_plan` makes the plan of a problem and a budget.

    Parameters
    ----------
    selection : AdaptivePlan
        The budget of the choice, with a delta.
    fit : ObjectivePlan
        The plan of the second stage, with a delta.
    delta : float or None
        The delta at which :meth:`guarantee` is stated by default: at least the sum of the two stages'.

    Formal guarantees
    -----------------
    :meth:`guarantee`, the adaptive composition of the two stages, computed from their events.
    """

    selection: AdaptivePlan
    fit: ObjectivePlan
    delta: float | None = field(default=None, compare=False, repr=False, kw_only=True)

    adjacency = Adjacency.REPLACE_ONE
    tasks = 1

    @property
    def event(self) -> Event:
        """What both stages release together, in the form that composes."""
        return Composition((self.selection.event, self.fit.event))

    def guarantee(
        self, delta: float | None = None, *, bounds: tuple[Assumption, Assumption] | None = None
    ) -> Guarantee:
        """Return the guarantee of both stages; ``bounds`` are the conditions on votes and on losses."""
        of_votes, of_losses = bounds or (None, None)
        choice = self.selection.guarantee(bound=of_votes, released="the features chosen by noisy votes")
        return compose([choice, self.fit.guarantee(bound=of_losses)], stated_delta(delta, self.delta))
