"""What a guarantee is: numbers, and everything they rest on."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal, localcontext
from enum import StrEnum
from typing import Any

from privet.checks import delta_value
from privet.privacy.analyses import accounting
from privet.privacy.budget import Adjacency, Budget
from privet.privacy.events import Composition, Event, event_from_dict
from privet.privacy.guarantees.per_record import PerRecord, per_record

__all__ = ["Adjacency", "Assumption", "Budget", "Guarantee", "Unit", "assumed", "compose", "enforced"]


class Unit(StrEnum):
    """Whose data the guarantee protects."""

    RECORD = "record"
    CLIENT = "client"


@dataclass(frozen=True)
class Assumption:
    """One condition of a guarantee: *enforced* by the code that ran, or *assumed* because the caller vouches for it."""

    text: str
    is_enforced: bool


def enforced(text: str) -> Assumption:
    """Return a condition that the code itself made true: clipped, projected, drawn so."""
    return Assumption(text, True)


def assumed(text: str) -> Assumption:
    """Return a condition that only the caller can vouch for."""
    return Assumption(text, False)


@dataclass(frozen=True)
class Guarantee:
    """A differential-privacy guarantee, computed from what ran.

    Parameters
    ----------
    epsilon, delta : float
        The privacy loss. Certified: rounded up.
    adjacency : Adjacency
        Which datasets count as neighbours.
    event : Event
        What was released, in the form that composes.
    released : str
        What was released, in words.
    assumptions : tuple of Assumption
        Everything the numbers rest on.
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
        if not self.epsilon >= 0:  # NaN is refused too
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
        """Return the guarantee of an event: the accountant computes epsilon."""
        epsilon = accounting.epsilon(event, adjacency, delta)
        return cls(epsilon, delta, adjacency, event, released, tuple(assumptions), unit)

    @property
    def is_conditional(self) -> bool:
        """Whether any part of it is assumed rather than enforced."""
        return any(not assumption.is_enforced for assumption in self.assumptions)

    def epsilon_at(self, delta: float) -> float:
        """Return the epsilon of the same release at another delta."""
        return accounting.epsilon(self.event, self.adjacency, delta)

    @property
    def per_record(self) -> PerRecord | None:
        """The epsilon of each record, where records differ; None where all have the same. ``.plot()`` draws it.

        ``epsilon`` is that of the worst record. Records differ where only the last iterate of a fixed order is
        released: those visited early are hidden by more noise.
        """
        return per_record(self.event, self.adjacency, self.delta)

    def assuming(self, *assumptions: Assumption) -> "Guarantee":
        """Return the same guarantee with further conditions."""
        return replace(self, assumptions=self.assumptions + assumptions)

    def statement(self) -> str:
        """Return the guarantee in plain words, its first line saying whether anything is merely assumed."""
        held = [assumption.text for assumption in self.assumptions if assumption.is_enforced]
        vouched = [assumption.text for assumption in self.assumptions if not assumption.is_enforced]
        condition = f", provided that the {_counted(len(vouched), 'assumption')} below hold" if vouched else ""
        if len(vouched) == 1:
            condition += "s"
        neighbours = self.adjacency.in_words.format(unit=self.unit)
        lines = [
            f"({_upwards(self.epsilon, 6)}, {_upwards(self.delta, 3)})-differential privacy for each {self.unit}, "
            f"{self.adjacency} adjacency{condition}.",
            f"  Meaning: {neighbours} changes the probability of any outcome by a factor of at most "
            f"e^{_upwards(self.epsilon, 4)}"
            + (f", plus at most {_upwards(self.delta, 3)}." if self.delta > 0 else "."),
            f"  Released: {self.released}.",
        ]
        lines += [f"  Enforced: {text}." for text in held]
        lines += [f"  Assumed:  {text}." for text in vouched]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary."""
        return {
            "epsilon": self.epsilon if math.isfinite(self.epsilon) else None,  # JSON has no infinity
            "delta": self.delta,
            "adjacency": str(self.adjacency),
            "unit": str(self.unit),
            "released": self.released,
            "event": self.event.to_dict(),
            "assumptions": [{"text": a.text, "enforced": a.is_enforced} for a in self.assumptions],
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "Guarantee":
        """Read a guarantee back from :meth:`to_dict`."""
        try:
            return cls(
                epsilon=math.inf if fields["epsilon"] is None else float(fields["epsilon"]),
                delta=float(fields["delta"]),
                adjacency=Adjacency(fields["adjacency"]),
                event=event_from_dict(fields["event"]),
                released=str(fields["released"]),
                assumptions=tuple(Assumption(str(a["text"]), bool(a["enforced"])) for a in fields["assumptions"]),
                unit=Unit(fields["unit"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a guarantee: {type(error).__name__}: {error}") from error

    def to_json(self) -> str:
        """Return the guarantee as a JSON text."""
        return json.dumps(self.to_dict(), indent=2)

    @classmethod
    def from_json(cls, text: str) -> "Guarantee":
        """Read a guarantee back from :meth:`to_json`."""
        return cls.from_dict(json.loads(text))

    def __str__(self) -> str:
        return self.statement()


def compose(guarantees: Sequence[Guarantee], delta: float | None = None) -> Guarantee:
    """Return the guarantee of releasing everything that ``guarantees`` released, on the same data.

    The releases may have been chosen adaptively, one after the other. The total is computed from their events, which is
    far tighter than adding epsilons up. ``delta`` is the total delta, by default the sum of the parts'.

    Guarantees of different adjacency or unit are refused: no single neighbouring relation covers both.
    """
    check_composable(guarantees)
    first = guarantees[0]
    total = sum(guarantee.delta for guarantee in guarantees) if delta is None else delta
    assumptions = dict.fromkeys(assumption for guarantee in guarantees for assumption in guarantee.assumptions)
    return Guarantee.of(
        Composition(tuple(guarantee.event for guarantee in guarantees)),
        first.adjacency,
        total,
        released="; ".join(dict.fromkeys(guarantee.released for guarantee in guarantees)),
        assumptions=tuple(assumptions),
        unit=first.unit,
    )


def check_composable(guarantees: Sequence[Guarantee]) -> None:
    """Raise unless the guarantees speak of the same neighbours and the same unit."""
    if not guarantees:
        raise ValueError("nothing to compose: the list of guarantees is empty")
    first = guarantees[0]
    for other in guarantees[1:]:
        if other.adjacency is not first.adjacency:
            raise ValueError(f"cannot compose {first.adjacency} with {other.adjacency} adjacency in one guarantee")
        if other.unit is not first.unit:
            raise ValueError(f"cannot compose a guarantee for each {first.unit} with one for each {other.unit}")


def _upwards(value: float, digits: int) -> str:
    """Return a number in few digits, rounded up: what is quoted must not promise more than was certified.

    An excess that is a mere rounding error of the number itself does not count.
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    with localcontext(prec=digits, rounding=ROUND_CEILING):
        return f"{float(+Decimal(value * (1 - 1e-12))):.{digits}g}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("s" if number != 1 else "")
