"""A differential-privacy guarantee: its numbers, and everything they rest on."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from privet.checks import count, delta_value
from privet.privacy.analyses import accounting
from privet.privacy.analyses.trade_off import TradeOff, checked_rates, trade_off
from privet.privacy.budget import Adjacency, Budget
from privet.privacy.events import Composition, Event, event_from_dict
from privet.privacy.guarantees.per_record import PerRecord, per_record
from privet.privacy.guarantees.statement import statement
from privet.showing import plot, to_html

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Adjacency", "Assumption", "Budget", "Guarantee", "Unit", "assumed", "compose", "enforced"]

Floats = NDArray[np.float64]

TOLERANCE = 1e-3  # of epsilon: accountants of different versions may differ by this much


class Unit(StrEnum):
    """Whose data the guarantee protects."""

    RECORD = "record"
    CLIENT = "client"


@dataclass(frozen=True)
class Assumption:
    """One condition of a guarantee.

    Parameters
    ----------
    text : str
        The condition, as a clause without a full stop.
    is_enforced : bool
        Whether the code that ran made the condition true. Otherwise it is *assumed*: the caller vouches for it.
    is_detail : bool
        Whether an enforced condition is a technical detail, which :meth:`Guarantee.statement` shows only on request.
        Assumed conditions are always shown.
    """

    text: str
    is_enforced: bool
    is_detail: bool = False


def enforced(text: str, detail: bool = False) -> Assumption:
    """Return a condition that the code itself made true, for instance by clipping or by drawing the noise."""
    return Assumption(text, True, detail)


def assumed(text: str) -> Assumption:
    """Return a condition that only the caller can vouch for."""
    return Assumption(text, False)


@dataclass(frozen=True)
class Guarantee:
    """A differential-privacy guarantee, computed from what ran.

    Parameters
    ----------
    epsilon, delta : float
        The certified privacy loss, rounded up. Epsilon is infinite if a release has no noise.
    adjacency : Adjacency
        Which datasets count as neighbours.
    event : Event
        What was released, in the form that composes.
    released : str
        What was released, in words.
    assumptions : tuple of Assumption
        All conditions on which the numbers rest.
    unit : Unit
        Whose data is protected.
    """

    epsilon: float
    delta: float
    adjacency: Adjacency
    event: Event
    released: str
    assumptions: tuple[Assumption, ...] = ()
    unit: Unit = Unit.RECORD

    def __post_init__(self) -> None:
        if not self.epsilon >= 0:  # also true for NaN
            raise ValueError(f"epsilon must be a number of at least 0, got {self.epsilon!r}")
        object.__setattr__(self, "epsilon", float(self.epsilon))
        object.__setattr__(self, "delta", delta_value(self.delta))

    @classmethod
    def of(
        cls,
        event: Event,
        adjacency: Adjacency,
        delta: float,
        *,
        released: str,
        assumptions: Sequence[Assumption] = (),
        unit: Unit = Unit.RECORD,
    ) -> "Guarantee":
        """Return the guarantee of an event. The accountant computes epsilon."""
        epsilon = accounting.epsilon(event, adjacency, delta)
        return cls(epsilon, delta, adjacency, event, released, tuple(assumptions), unit)

    @property
    def is_conditional(self) -> bool:
        """Whether any condition is assumed rather than enforced."""
        return any(not assumption.is_enforced for assumption in self.assumptions)

    @property
    def is_private(self) -> bool:
        """Whether all releases have noise. If one has none, nothing is promised and epsilon is infinite."""
        return all(leaf.has_noise for leaf in self.event.leaves())

    def epsilon_at(self, delta: float) -> float:
        """Return the epsilon of the same release at another delta."""
        return accounting.epsilon(self.event, self.adjacency, delta)

    @overload
    def tpr(self, fpr: float) -> float: ...
    @overload
    def tpr(self, fpr: Floats) -> Floats: ...
    def tpr(self, fpr: float | Floats) -> float | Floats:
        """Return the most that the true-positive rate of any attack can be at a false-positive rate, rounded up.

        An attack sees the release, knows everything else, and decides between two neighbouring datasets: whether a
        given record was used (under replace-one adjacency: which of two records). Of the datasets without the record, a
        share of ``fpr`` raises a false alarm; of those with it, a share of at most ``tpr(fpr)`` is recognised.
        """
        found = self._trade_off.tpr(checked_rates("fpr", fpr))
        return found if isinstance(fpr, np.ndarray) else float(found)

    @property
    def best_guess(self) -> float:
        """The most that the chance to guess right can be, between two neighbouring datasets that are equally likely.

        It is 1/2 if nothing is revealed, and (1 + delta) / 2 for the delta at epsilon = 0. It is rounded up.
        """
        return (1 + self._trade_off.advantage) / 2

    @property
    def mu(self) -> float:
        """The parameter of Gaussian differential privacy: exact for Gaussian releases, otherwise rounded up.

        The release is mu-GDP up to ``delta``: ``tpr(a) <= Phi(Phi^-1(a) + mu) + delta`` at every false-positive rate a.
        If all releases are exactly Gaussian, this holds without ``delta``. Infinite if no mu suffices.
        """
        return self._trade_off.mu(self.delta)

    def trade_off(self, points: int = 200) -> tuple[Floats, Floats]:
        """Return about ``points`` false-positive rates and bounds on true-positive rates, to draw the curve.

        The straight lines between them are nowhere below :meth:`tpr`, so that the drawn curve is a valid bound as well.
        """
        return self._trade_off.polygon(count("points", points, at_least=4))

    @property
    def _trade_off(self) -> TradeOff:
        return trade_off(self.event, self.adjacency)

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the trade-off curve, together with that of guessing. This requires matplotlib."""
        return plot(self, ax)

    def _repr_html_(self) -> str:
        return to_html(self)

    def recomputed(self) -> "Guarantee":
        """Return the guarantee with an epsilon that its event supports, computed anew. Every file is read through this.

        Raise ValueError if the stated epsilon is below that of the event by more than a thousandth, which is the most
        that accountants of different versions may differ by. If it is below by less, it is raised to that of the event.
        An epsilon above that of the event is a valid promise and stays.
        """
        certified = self.epsilon_at(self.delta)
        if not self.epsilon >= certified * (1 - TOLERANCE):  # also true if one of them is NaN
            raise ValueError(
                f"the guarantee states epsilon = {self.epsilon:.6g} at delta = {self.delta:.3g}, but its event gives "
                f"epsilon = {certified:.6g}. It was edited, or it is damaged. Use the file that privet wrote."
            )
        return self if self.epsilon >= certified else replace(self, epsilon=certified)

    @property
    def per_record(self) -> PerRecord | None:
        """The epsilon of each record where records differ, None where all have the same. ``.plot()`` draws it.

        ``epsilon`` is that of the worst record. Records differ if only the last iterate of a fixed order is released:
        the records that are visited early are hidden by more noise. If privet drew the order, nobody is told which
        record was visited when.
        """
        return per_record(self.event, self.adjacency, self.delta)

    @property
    def local(self) -> "Guarantee | None":
        """The guarantee against whoever sees the state right after a person's step, None where it does not apply.

        It applies to a descent that takes one record per step, in a fixed order, and it holds if each person makes
        their own step and adds its noise: "Privacy Amplification by Iteration", Lemma 27, with exact Gaussian
        accounting. It is computed from the event, so that it is saved with it.
        """
        parts = [part.local() for part in self.event.leaves()]
        if None in parts or not parts or self.delta == 0:
            return None
        return Guarantee.of(
            Composition(tuple(part for part in parts if part is not None)),
            self.adjacency,
            self.delta,
            released="the state after every step",
            assumptions=(*self.assumptions, assumed("each person makes their own step and adds its noise")),
            unit=self.unit,
        )

    def assuming(self, *assumptions: Assumption) -> "Guarantee":
        """Return the same guarantee with further conditions."""
        return replace(self, assumptions=self.assumptions + assumptions)

    def statement(self, verbose: bool = False) -> str:
        """Return the guarantee in plain words: the promise, what it means, what is released, and what it rests on.

        The first line says whether anything is merely assumed. By default, lines are wrapped and enforced conditions
        are left out if they are details. If the rest does not fit into 12 lines, the longest are left out, too. A last
        line counts them. Assumed conditions are never left out. With ``verbose=True`` all conditions are listed, one
        per line. If there is no privacy, the first line says so, and no conditions follow.
        """
        return statement(self, verbose)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary."""
        conditions = []
        for each in self.assumptions:
            conditions.append({"text": each.text, "enforced": each.is_enforced, "detail": each.is_detail})
        return {
            "epsilon": self.epsilon if math.isfinite(self.epsilon) else None,  # JSON has no infinity
            "delta": self.delta,
            "adjacency": str(self.adjacency),
            "unit": str(self.unit),
            "released": self.released,
            "event": self.event.to_dict(),
            "assumptions": conditions,
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any], *, check: bool = True) -> "Guarantee":
        """Read a guarantee back from :meth:`to_dict`, and check its epsilon as :meth:`recomputed` does.

        ``check=False`` takes the stated epsilon as it is. It is meant for callers that use only the event.
        """
        try:
            read = cls(
                epsilon=math.inf if fields["epsilon"] is None else float(fields["epsilon"]),
                delta=float(fields["delta"]),
                adjacency=Adjacency(fields["adjacency"]),
                event=event_from_dict(fields["event"]),
                released=str(fields["released"]),
                assumptions=tuple(
                    Assumption(str(a["text"]), a["enforced"] is True, a.get("detail") is True)  # not "false" or 1
                    for a in fields["assumptions"]
                ),
                unit=Unit(fields["unit"]),
            )
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"not a guarantee: {type(error).__name__}: {error}") from error
        return read.recomputed() if check else read

    def to_json(self) -> str:
        """Return the guarantee as a JSON text."""
        return json.dumps(self.to_dict(), indent=2)

    @classmethod
    def from_json(cls, text: str) -> "Guarantee":
        """Read a guarantee back from :meth:`to_json`, and check its epsilon as :meth:`recomputed` does."""
        return cls.from_dict(json.loads(text))

    def __str__(self) -> str:
        return self.statement()


def compose(guarantees: Sequence[Guarantee], delta: float | None = None) -> Guarantee:
    """Return the guarantee of releasing everything that ``guarantees`` released, on the same data.

    The releases may have been chosen adaptively, one after the other. The total is computed from their events, which is
    far tighter than adding epsilons up. ``delta`` is the total delta, by default the sum of the parts' deltas.

    Guarantees of different adjacency or unit cannot be composed: no single neighbouring relation covers both.
    """
    check_composable(guarantees)
    events: list[Event] = []
    released: list[str] = []
    assumptions: list[Assumption] = []
    total = 0.0
    for guarantee in guarantees:
        events.append(guarantee.event)
        released.append(guarantee.released)
        assumptions += guarantee.assumptions
        total += guarantee.delta
    first = guarantees[0]
    return Guarantee.of(
        Composition(tuple(events)),
        first.adjacency,
        total if delta is None else delta,
        released="; ".join(dict.fromkeys(released)),
        assumptions=tuple(dict.fromkeys(assumptions)),
        unit=first.unit,
    )


def check_composable(guarantees: Sequence[Guarantee]) -> None:
    """Raise ValueError unless all guarantees have the same adjacency and the same unit."""
    if not guarantees:
        raise ValueError("nothing to compose: the list of guarantees is empty")
    first = guarantees[0]
    for other in guarantees[1:]:
        if other.adjacency is not first.adjacency:
            raise ValueError(
                f"cannot compose {first.adjacency} with {other.adjacency} adjacency in one guarantee. Make all "
                "releases under the same adjacency, or state the two guarantees separately."
            )
        if other.unit is not first.unit:
            raise ValueError(
                f"cannot compose a guarantee for each {first.unit} with one for each {other.unit}. State the two "
                "guarantees separately."
            )
