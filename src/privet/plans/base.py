"""The interfaces of plans: what every plan answers, and what every plan of several steps answers."""

from collections.abc import Callable, Iterator
from typing import Protocol

from privet.plans.gradient import Step
from privet.privacy.budget import Adjacency
from privet.privacy.events import Event
from privet.privacy.guarantees.guarantee import Guarantee
from privet.privacy.noise.source import NoiseSource


class Plan(Protocol):
    """Everything that determines how much privacy a run costs, fixed before the run.

    Plans are frozen dataclasses. ``SomePlan.for_budget(budget, ...)`` returns the plan with the least noise for a
    budget, and the plan keeps the budget's delta. A plan that is built field by field takes an optional ``delta``.
    Delta says at which point a guarantee is stated; it changes neither the run nor what the run releases. Two plans
    that differ only in their delta are therefore equal.
    """

    @property
    def delta(self) -> float | None:
        """The delta at which :attr:`guarantee` is stated by default."""
        ...

    @property
    def adjacency(self) -> Adjacency:
        """The notion of neighbouring datasets under which the plan is accounted for."""
        ...

    @property
    def tasks(self) -> int:
        """How many runs on the same data the plan covers: one per task. A :class:`~privet.solvers.Run` counts them."""
        ...

    @property
    def event(self) -> Event:
        """What all runs of the plan release together, in the form that composes."""
        ...

    @property
    def guarantee(self) -> Callable[..., Guarantee]:
        """Method ``guarantee(delta=None, *, bound=None, released=..., unit=...)``, the guarantee of all runs.

        ``delta=None`` takes the plan's own delta. A plan cannot see what is summed or released, so by itself it only
        *assumes* the bounds on the data; a solver that enforces them passes ``bound`` to say so.
        """
        ...


class SteppedPlan(Plan, Protocol):
    """A plan of several steps, each of which draws a batch and noises one sum over it."""

    @property
    def steps(self) -> int:
        """Number of steps."""
        ...

    def run(self, n: int, source: NoiseSource, *, release: str = "all") -> Iterator[Step]:
        """Yield the steps of one run over ``n`` units."""
        ...
