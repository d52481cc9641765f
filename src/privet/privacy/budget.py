"""Privacy budgets, and the two notions of neighbouring datasets."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from numbers import Real
from typing import TypeAlias

from scipy.special import ndtr, ndtri

from privet.checks import delta_value, nonnegative, positive, rate_pair


class Adjacency(StrEnum):
    """Which two datasets are neighbours. The two notions never mix in one computation."""

    REPLACE_ONE = "replace-one"
    ADD_OR_REMOVE = "add-or-remove"

    @property
    def factor(self) -> int:
        """The distance between the sums of neighbouring datasets, as a multiple of the bound C of one contribution.

        Replacing a unit removes one contribution of norm at most C and adds another: the sum moves by up to 2C.
        Adding or removing a unit moves it by up to C.
        """
        return 2 if self is Adjacency.REPLACE_ONE else 1

    @property
    def in_words(self) -> str:
        """The notion as a phrase, completing 'two tables are neighbours if one arises from the other by ...'."""
        return {
            Adjacency.REPLACE_ONE: "replacing one {unit} by any other",
            Adjacency.ADD_OR_REMOVE: "adding or removing one {unit}",
        }[self]


@dataclass(frozen=True)
class Budget:
    """A target (epsilon, delta). ``delta=0`` asks for pure epsilon-differential privacy."""

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", positive("epsilon", self.epsilon))
        object.__setattr__(self, "delta", delta_value(self.delta))

    @property
    def is_pure(self) -> bool:
        """Whether delta is zero."""
        return self.delta == 0.0


@dataclass(frozen=True)
class NoiseMultiplier:
    """Noise that is given instead of a budget. The guarantee then states the epsilon that results.

    Parameters
    ----------
    multiplier : float
        Standard deviation of the noise on a **sum**, divided by the bound on the norm of one unit's contribution. 0
        adds no noise, for comparisons: the guarantee then says that there is no privacy.
    delta : float or None
        The delta at which the guarantee is stated. None takes ``default_delta(n)`` where the number of units is known,
        and otherwise leaves the plan without a delta.
    """

    multiplier: float
    delta: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "multiplier", nonnegative("noise_multiplier", self.multiplier) + 0.0)  # no -0.0
        object.__setattr__(self, "delta", None if self.delta is None else delta_value(self.delta))


@dataclass(frozen=True)
class AttackRate:
    """What attacks may achieve, given instead of an epsilon. It determines the noise.

    An attack sees the release and decides whether the data contained a given record (under replace-one adjacency: which
    of two records).

    Parameters
    ----------
    fpr : float
        A false-positive rate: how often the attack sees the record in data that did not contain it.
    tpr : float
        The largest true-positive rate that any attack may have at ``fpr``: how often it sees the record in data that
        did contain it. Guessing has a true-positive rate of ``fpr``, so ``tpr`` must be larger.
    delta : float or None
        The delta at which the guarantee is stated, which does not change the noise. 0 asks for pure epsilon. None takes
        ``default_delta(n)`` where the number of units is known.
    """

    fpr: float
    tpr: float
    delta: float | None = None

    def __post_init__(self) -> None:
        fpr, tpr = rate_pair("an attack rate", (self.fpr, self.tpr))
        object.__setattr__(self, "fpr", fpr)
        object.__setattr__(self, "tpr", tpr)
        object.__setattr__(self, "delta", None if self.delta is None else delta_value(self.delta))

    @property
    def mu(self) -> float:
        """The largest mu of Gaussian differential privacy that allows no more, rounded down."""
        return float(ndtri(self._below) - ndtri(self.fpr)) * (1 - 1e-9)

    @property
    def pure_epsilon(self) -> float:
        """The largest epsilon of pure differential privacy that allows no more, rounded down."""
        at_left, at_right = math.log(self._below / self.fpr), math.log((1 - self.fpr) / (1 - self._below))
        return max(at_left, at_right) * (1 - 1e-9)

    @property
    def _below(self) -> float:
        """The true-positive rate, less what bounds are rounded up by."""
        return self.tpr * (1 - 1e-9)

    def shared(self, share: float) -> "AttackRate":
        """Return the rate of a share of the squared mu. Shares of Gaussian releases compose to this rate."""
        return replace(self, tpr=float(ndtr(ndtri(self.fpr) + self.mu * math.sqrt(share))))

    def __str__(self) -> str:
        return f"a true-positive rate of at most {self.tpr:g} at a false-positive rate of {self.fpr:g}"


def default_delta(n: int) -> float:
    """Return min(1e-6, 0.01/n), the delta of a budget for which none is given.

    A delta permits publishing each of n records with that probability. At the default, the chance that any record is
    published in this way is at most n delta <= 1 %.

    Parameters
    ----------
    n : int
        The number of protected units. It must be public, because delta is. Under add-or-remove adjacency, it is a
        declared estimate.
    """
    return min(1e-6, 0.01 / max(n, 1))


def stated_delta(delta: float | None, own: float | None) -> float:
    """Return the delta at which a plan states its guarantee: the given one, or else the plan's own."""
    if delta is None:
        delta = own
    if delta is None:
        raise ValueError(
            "this plan has no delta at which its guarantee could be stated. Call guarantee(delta), set delta= when you "
            "build the plan, or make the plan with for_budget(), which keeps the budget's delta."
        )
    return delta


BudgetOrNoise: TypeAlias = Budget | NoiseMultiplier | AttackRate
BudgetLike: TypeAlias = BudgetOrNoise | float | tuple[float, float]


def given_budget(
    budget: BudgetLike | None, epsilon: float | None, delta: float | None, noise_multiplier: float | None, n: int
) -> BudgetOrNoise:
    """Return what a caller gave: a budget, an epsilon or a noise multiplier. The latter two may come with a delta.

    Parameters
    ----------
    budget, epsilon, noise_multiplier
        Exactly one of them must be given. The others are None.
    delta : float or None
        None takes ``default_delta(n)``. A budget has its own delta.
    n : int
        The public number of protected units.
    """
    choices = {"budget": budget, "epsilon": epsilon, "noise_multiplier": noise_multiplier}
    if sum(value is not None for value in choices.values()) != 1:
        got = ", ".join(f"{name}={value!r}" for name, value in choices.items())
        raise ValueError(f"Give one of budget, epsilon and noise_multiplier, got {got}.")
    if budget is not None:
        if delta is not None:
            raise ValueError(
                f"budget and delta cannot be given together, got delta={delta!r}. Give budget=(epsilon, delta)."
            )
        return as_budget_or_noise(budget, n)
    if noise_multiplier is not None:
        return as_budget_or_noise(NoiseMultiplier(noise_multiplier, delta), n)
    assert epsilon is not None
    return as_budget(epsilon if delta is None else (epsilon, delta), n)


def as_budget_or_noise(value: BudgetLike, n: int | None = None) -> BudgetOrNoise:
    """Return a noise multiplier or an attack rate as it is, with ``default_delta(n)`` if it has no delta.

    All else is returned as a budget.
    """
    if not isinstance(value, NoiseMultiplier | AttackRate):
        return as_budget(value, n)
    return value if value.delta is not None or n is None else replace(value, delta=default_delta(n))


def as_budget(value: BudgetLike, n: int | None = None) -> Budget:
    """Return a budget given as a :class:`Budget`, as an epsilon, or as a pair (epsilon, delta).

    Parameters
    ----------
    value : Budget, float, or tuple of two floats
        A :class:`NoiseMultiplier` or an :class:`AttackRate` raises an error.
    n : int or None
        The public number of protected units. An epsilon without a delta gets ``default_delta(n)``.
    """
    if isinstance(value, Budget):
        return value
    if isinstance(value, NoiseMultiplier):
        raise ValueError(
            f"{value!r} cannot be used here, because a noise multiplier does not determine this noise. Give a "
            "Budget(epsilon, delta)."
        )
    if isinstance(value, AttackRate):
        raise ValueError(
            f"{value!r} cannot be used here, because what this releases is known only by an epsilon and a delta, which "
            "do not determine the rates of attacks. Give a Budget(epsilon, delta)."
        )
    if isinstance(value, Real) and not isinstance(value, bool):
        if n is None:
            raise ValueError(
                f"budget={value!r} has no delta, and the number of records, from which the default delta is computed, "
                "is not known here. Give Budget(epsilon, delta); delta=0 asks for pure epsilon-differential privacy."
            )
        return Budget(float(value), default_delta(n))
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 2:
        return Budget(*value)
    raise ValueError(f"a budget must be a Budget, an epsilon, or a pair (epsilon, delta), got {value!r}")
