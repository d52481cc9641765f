"""A budget that is spent during the run: what is released, and at which price, may depend on earlier releases."""

import math
import threading
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf, erfinv, log_expit, log_ndtr, ndtri_exp

from privet.checks import count, positive, quotient_above
from privet.plans.gradient import PlanError
from privet.plans.tasks import all_runs, of_tasks
from privet.privacy.analyses.gaussian import as_exact_budget, gdp_mu
from privet.privacy.budget import Adjacency, BudgetLike, stated_delta
from privet.privacy.events import Event, GaussianRelease
from privet.privacy.guarantees.guarantee import Assumption, Guarantee, Unit, assumed, enforced
from privet.privacy.noise.release import checked_grid
from privet.privacy.noise.source import NoiseSource
from privet.privacy.noise.watch import Claim


@dataclass(frozen=True)
class AdaptivePlan:
    """A total Gaussian-DP parameter that a run spends release by release.

    Parameters
    ----------
    mu : float
        The total: the whole run is mu-GDP (Gaussian differential privacy with parameter mu).
    tasks : int
        How many such runs are made on the same data, each with a total of its own.
    delta : float or None
        The delta at which :meth:`guarantee` is stated by default.

    Formal guarantees
    -----------------
    :meth:`guarantee`: distinguishing two neighbouring datasets by everything that a :class:`Purse` released is at least
    as hard as distinguishing N(0, 1) from N(mu, 1). Each release is mu_i-GDP given the earlier ones, where mu_i may
    depend on their values, and the purse refuses a release that would bring mu_1^2 + mu_2^2 + ... above mu^2. Choosing
    the mu_i adaptively costs no more than fixing them in advance: Smith and Thakurta, "Fully Adaptive Composition for
    Gaussian Differential Privacy". docs/proofs.md, section 10, proves it for the two kinds of release made here.
    """

    mu: float
    tasks: int = field(default=1, kw_only=True)
    delta: float | None = field(default=None, compare=False, repr=False, kw_only=True)
    adjacency: Adjacency = field(default=Adjacency.REPLACE_ONE, init=False, repr=False)

    def __post_init__(self) -> None:
        count("tasks", self.tasks)
        object.__setattr__(self, "mu", GaussianRelease(positive("mu", self.mu)).mu)

    @classmethod
    def for_budget(cls, budget: BudgetLike, tasks: int = 1) -> "AdaptivePlan":
        """Return the plan that spends exactly ``budget``. The budget's delta must be positive."""
        budget = as_exact_budget(budget)
        mu = gdp_mu(budget)
        of_one = mu if tasks == 1 else mu / math.sqrt(count("tasks", tasks)) * (1 - 1e-12)
        return cls(of_one, tasks=tasks, delta=budget.delta)

    @property
    def event(self) -> Event:
        """What all runs release together, in the form that composes."""
        return all_runs(GaussianRelease(self.mu), self.tasks)

    def guarantee(
        self,
        delta: float | None = None,
        *,
        bound: Assumption | None = None,
        released: str = "everything that the purse released, and everything computed from it",
        unit: Unit = Unit.RECORD,
    ) -> Guarantee:
        """Return the guarantee of a whole run, which may spend less than the total.

        A purse receives sums and cannot check the contributions of single records, so the guarantee assumes that the
        stated bounds hold. A solver that clips contributions passes ``bound``, the statement that it enforces them.
        """
        bound = bound or assumed(f"each {unit} contributes to a sum at most the bound stated for that sum")
        spent = enforced(
            "every unit takes part in every sum; Gaussian noise on sums, on a public grid, and choices by the "
            "exponential mechanism are drawn exactly; each noise and each choice has a price, and the squared prices "
            f"add up to at most {self.mu:.6g}^2",
            detail=True,
        )
        return Guarantee.of(
            self.event,
            self.adjacency,
            stated_delta(delta, self.delta),
            released=of_tasks(released, self.tasks),
            assumptions=(bound, spent),
            unit=unit,
        )

    def open(self, source: NoiseSource) -> "Purse":
        """Return a purse that holds the total, for one run."""
        return Purse(self, source)


class Purse:
    """What is left of an :class:`AdaptivePlan` during one run, and the only way to draw its noise.

    A release is paid for before its noise is drawn, and refused if its price exceeds what is left. The account is kept
    in exact fractions, so rounding cannot overspend it. A purse cannot be refilled or copied. As a context manager, it
    is closed at the end of the run.
    """

    def __init__(self, plan: AdaptivePlan, source: NoiseSource) -> None:
        self._source = source
        self._factor = plan.adjacency.factor
        self._left = Fraction(plan.mu) ** 2
        self._lock = threading.Lock()

    @property
    def left(self) -> float:
        """The mu of the largest release that is still affordable, rounded down."""
        mu = math.sqrt(float(self._left))
        while Fraction(mu) ** 2 > self._left:
            mu = math.nextafter(mu, 0.0)
        return mu

    def affords(self, *mus: float) -> bool:
        """Return whether releases with all of these mu are affordable."""
        return sum(Fraction(positive("mu", mu)) ** 2 for mu in mus) <= self._left

    def noisy(self, total: NDArray[Any], bound: float, mu: float) -> NDArray[Any]:
        """Return a sum over all records with Gaussian noise, at the price ``mu``.

        Parameters
        ----------
        total : array of float32 or float64
            The sum.
        bound : float
            Bound on the l2 norm of one record's contribution to the sum.
        mu : float
            The price.

        Formal guarantees
        -----------------
        mu-GDP: replacing a record moves the sum by at most 2 ``bound``, and the noise has standard deviation
        2 ``bound`` / mu in every coordinate.
        """
        bound, mu = positive("bound", bound), positive("mu", mu)
        total = _finite("a sum", total)
        std = positive("the standard deviation of the noise, 2 bound / mu,", quotient_above(self._factor * bound, mu))
        checked_grid(std)  # before the price is paid
        self._pay(mu)
        return self._source.add_gaussian(total, std, None, None, Claim(self._factor * bound))

    def noisy_min(self, sums: NDArray[Any], bound: float, epsilon: float) -> int:
        """Return the index of a small sum, by the exponential mechanism, at the price ``selection_mu(epsilon)``.

        Parameters
        ----------
        sums : array of shape (k,)
            Sums over all records, each plus any number that does not depend on the data.
        bound : float
            Bound on the absolute value of one record's contribution to a sum. For losses in [0, b] this is b/2: the
            choice stays the same if b/2 is subtracted from the loss of every record.
        epsilon : float
            Pure epsilon of the choice.

        Formal guarantees
        -----------------
        epsilon-DP and ``selection_mu(epsilon)``-GDP. Index i is returned with probability proportional to
        exp(-epsilon sums[i] / (4 bound)), drawn exactly (docs/proofs.md, section 27). Replacing a record moves every
        sum by at most 2 ``bound``, up or down, so the odds of any two indices change by a factor of at most
        exp(epsilon). This epsilon is called the range of the mechanism.
        """
        bound, price = positive("bound", bound), selection_mu(epsilon)
        sums = _finite("the sums", sums)
        if sums.ndim != 1 or sums.size == 0:
            raise ValueError(f"the sums must be a list of at least one number, got shape {sums.shape}")
        scale = positive("the scale of the noise, 4 bound / epsilon,", 2 * self._factor * bound / epsilon)
        self._pay(price)
        return int(self._source.top(-sums, scale, 1, Claim(2 * self._factor * bound))[0])

    def noisy_top(self, scores: NDArray[Any], bound: float, mu: float, number: int) -> NDArray[np.int64]:
        """Return the sorted indices of large scores, by peeling: one exponential mechanism after the other.

        Parameters
        ----------
        scores : array of shape (k,)
            Absolute values of sums over all records, each plus any number that does not depend on the data.
        bound : float
            Bound on the absolute value of one record's contribution to a sum.
        mu : float
            The price of all indices together.
        number : int
            How many indices to return, at most k.

        Formal guarantees
        -----------------
        mu-GDP. Let epsilon = ``selection_epsilon(mu / sqrt(number))``. Ideal Gumbel noise of scale 4 ``bound`` /
        epsilon is added to each score once, and the indices of the largest noisy scores are returned, drawn exactly
        (docs/proofs.md, section 27). They have the same distribution as indices that are chosen one after the other by
        exponential mechanisms of range epsilon, each among the indices not chosen before (Durfee and Rogers, "Practical
        Differentially Private Top-k Selection with Pay-what-you-get Composition", Lemma 4.2). Each of these choices is
        ``selection_mu(epsilon)``-GDP, and their squared prices add up to at most mu^2.
        """
        bound, scores = positive("bound", bound), _finite("the scores", scores)
        if scores.ndim != 1 or not 1 <= number <= scores.size:
            raise ValueError(f"{number} indices cannot be chosen from scores of shape {scores.shape}")
        epsilon = selection_epsilon(positive("mu", mu) / math.sqrt(number))
        scale = positive("the scale of the noise, 4 bound / epsilon,", 2 * self._factor * bound / epsilon)
        self._pay(mu)
        return self._source.top(scores, scale, number, Claim(2 * self._factor * bound))

    def close(self) -> None:
        """End the run: nothing more can be released."""
        self._left = Fraction(0)

    def _pay(self, mu: float) -> None:
        price = Fraction(mu) ** 2
        with self._lock:
            if price > self._left:
                raise PlanError(f"a release of mu = {mu:.6g} exceeds what the plan has left, mu = {self.left:.6g}")
            self._left -= price

    def __enter__(self) -> "Purse":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("a Purse cannot be pickled or copied: its budget would be spent twice")


def selection_mu(epsilon: float) -> float:
    """Return the smallest mu such that every exponential mechanism of range epsilon is mu-GDP, rounded up.

    Formal guarantees
    -----------------
    The result is mu = 2 Phi^{-1}(1 / (1 + exp(-epsilon/2))). The worst case among mechanisms of range epsilon is
    randomised response with epsilon/2, and this is its mu (docs/proofs.md, section 11). A mechanism of which only pure
    epsilon-DP is known would cost 2 Phi^{-1}(1 / (1 + exp(-epsilon))), about twice as much. The bounded range of
    exponential mechanisms is studied in "Optimal Differential Privacy Composition for Exponential Mechanisms and the
    Cost of Adaptivity".
    """
    epsilon = positive("epsilon", epsilon)
    if epsilon < 1:  # avoids the cancellation of a probability close to 1/2
        mu = 2 * math.sqrt(2) * float(erfinv(math.tanh(epsilon / 4)))
    else:
        mu = -2 * float(ndtri_exp(log_expit(-epsilon / 2)))
    return mu * (1 + 1e-12)


def selection_epsilon(mu: float) -> float:
    """Return the largest epsilon that costs at most mu: the inverse of :func:`selection_mu`, rounded down."""
    mu = positive("mu", mu)
    if mu < 1:
        epsilon = 4 * math.atanh(float(erf(mu / (2 * math.sqrt(2)))))
    else:
        epsilon = 2 * float(log_ndtr(mu / 2) - log_ndtr(-mu / 2))
    return epsilon * (1 - 1e-11)


def _finite(name: str, values: NDArray[Any]) -> NDArray[Any]:
    values = np.asarray(values)
    if values.dtype not in (np.float32, np.float64):
        raise ValueError(f"{name} must be of type float32 or float64, not {values.dtype}")
    if not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite, but a value overflowed or the data contains NaN")
    return values
