"""Gradient perturbation: every step releases a noisy sum of bounded contributions."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray

from privet.checks import count, nonnegative, positive, product_above
from privet.plans.contraction import Descent
from privet.plans.prepared import Drawn
from privet.plans.samplers import Batch, FullBatch, Sampler, common_adjacency
from privet.plans.tasks import all_runs, of_tasks
from privet.privacy.analyses.calibration import calibrate
from privet.privacy.budget import Adjacency, BudgetLike, as_budget_or_noise, stated_delta
from privet.privacy.events import Event, LastIterate, Noiseless
from privet.privacy.guarantees.guarantee import Assumption, Guarantee, Unit, assumed, enforced
from privet.privacy.noise.release import checked_grid, in_words
from privet.privacy.noise.source import NoiseSource
from privet.privacy.noise.watch import Claim

Ahead = Callable[[Iterator[Batch]], Iterator[Batch]]
"""Draws batches before their steps begin, and returns them in the same order."""

_FEW = 1 << 14  # numbers that are drawn in about the time that a thread takes to start


@dataclass(frozen=True)
class GradientPlan:
    """Everything that determines a run with one noisy sum per step: sampling, bound, noise and number of steps.

    Parameters
    ----------
    sampler : Sampler
        How each step chooses its units.
    steps : int or None
        Number of noisy sums that are released. None if the sampler implies it.
    clip_norm : float
        Bound C on the l2 norm of one unit's contribution to a sum.
    noise_multiplier : float
        Standard deviation of the noise on the **sum**, divided by ``clip_norm``. 0 adds no noise, for comparisons: the
        guarantee then says that there is no privacy.
    adjacency : Adjacency or None
        None takes the sampler's own.
    public_n : int or None
        A public guess of the number of units. Under add-or-remove adjacency the true number is private, and sums are
        divided by a constant computed from this guess. Under replace-one it is needed only for full batches within a
        ball.
    release : {"all", "last"}
        What is released: every noisy sum, and thus all iterates; or only the last iterate of a descent.
    descent : Descent or None
        With ``release="last"``, the sizes of the steps and the constants that make them contract.
    tasks : int
        How many such runs are made on the same data, one per task. The guarantee covers all of them together. A
        :class:`~privet.solvers.Run` of the plan counts them, and refuses a further one.
    delta : float or None
        The delta at which :meth:`guarantee` is stated by default.

    Formal guarantees
    -----------------
    :meth:`guarantee`, computed from these fields and nothing else. :meth:`run` is the only way to draw batches and
    noise: it yields at most ``steps`` steps, each of which adds noise to exactly one sum. With ``release="all"`` all
    noisy sums may be released, by composition. With ``release="last"`` they must not be released: amplification by
    iteration (:mod:`privet.privacy.iteration`) then covers only the last iterate of the steps that ``descent``
    describes, if noise is added to each next point, and rounding errors stay below ``event.rounding_mu()``, as in
    :func:`~privet.solvers.projected_sgd.projected_sgd`.
    """

    sampler: Sampler
    steps: int
    clip_norm: float
    noise_multiplier: float
    adjacency: Adjacency
    public_n: int | None
    release: str
    descent: Descent | None
    tasks: int
    delta: float | None = field(default=None, compare=False, repr=False, kw_only=True)

    def __init__(
        self,
        sampler: Sampler,
        steps: int | None,
        clip_norm: float,
        noise_multiplier: float,
        adjacency: Adjacency | None = None,
        public_n: int | None = None,
        release: str = "all",
        descent: Descent | None = None,
        tasks: int = 1,
        delta: float | None = None,
    ) -> None:
        set_field = object.__setattr__
        set_field(self, "sampler", sampler)
        set_field(self, "steps", sampler.checked_steps(steps))
        set_field(self, "clip_norm", positive("clip_norm", clip_norm))
        set_field(self, "noise_multiplier", nonnegative("noise_multiplier", noise_multiplier))
        set_field(self, "adjacency", common_adjacency(adjacency, sampler))
        set_field(self, "public_n", None if public_n is None else count("public_n", public_n))
        set_field(self, "release", release)
        set_field(self, "descent", descent)
        set_field(self, "tasks", count("tasks", tasks))
        set_field(self, "delta", delta)
        if self.has_noise:
            checked_grid(self.noise_std)  # raises if the noise is out of range
        if release not in ("all", "last"):
            raise ValueError(f'release must be "all" or "last", got {release!r}')
        if (release == "last") != (descent is not None):
            raise ValueError(
                'release="last" needs the sizes of the steps: give descent=Descent(step_size, smoothness)'
                if descent is None
                else 'a Descent has an effect only with release="last": set it, or leave descent out'
            )
        if release == "last":
            if self.adjacency is not Adjacency.REPLACE_ONE:
                raise ValueError("amplification by iteration is accounted for under replace-one adjacency")
            self.event_at(self.noise_multiplier or 1.0)  # raises if the sampler has no such event

    @classmethod
    def for_budget(
        cls,
        budget: BudgetLike,
        *,
        sampler: Sampler,
        steps: int | None = None,
        clip_norm: float,
        adjacency: Adjacency | None = None,
        public_n: int | None = None,
        release: str = "all",
        descent: Descent | None = None,
        tasks: int = 1,
    ) -> "GradientPlan":
        """Return the plan with the least noise that is certified to stay within ``budget``, or with the given noise.

        Its epsilon never exceeds that of the budget: it is equal for full batches, and above 99 % of it otherwise.
        """
        budget = as_budget_or_noise(budget)
        draft = cls(sampler, steps, clip_norm, 1.0, adjacency, public_n, release, descent, tasks)
        multiplier = calibrate(draft.event_at, draft.adjacency, budget)
        return replace(draft, noise_multiplier=multiplier, delta=budget.delta)

    def truncated(self, steps: int) -> "GradientPlan":
        """Return the plan of the first ``steps`` steps alone.

        Its guarantee is that of everything released up to then: "what holds after t of T steps", Corollary 6.3.5 of L.
        Wang's dissertation, but computed from the event. With ``release="last"`` it is that of ending the run there and
        releasing that iterate in place of the last one, and a fixed order must have completed its pass.
        """
        count("steps", steps, at_most=self.steps)
        descent = self.descent and self.descent.truncated(steps)
        return replace(self, sampler=self.sampler.truncated(steps), steps=steps, descent=descent)

    @property
    def has_noise(self) -> bool:
        """Whether noise is added. Without noise there is no privacy."""
        return self.noise_multiplier > 0

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise on the sum, per coordinate, rounded up. It is 0 only without noise."""
        return product_above(self.noise_multiplier, self.clip_norm)

    @property
    def sensitivity(self) -> float:
        """How far one unit can move a sum, including the rounding errors that the event covers."""
        sensitivity = self.adjacency.factor * self.clip_norm
        event = self.event if self.release == "last" else None
        return sensitivity + (event.rounding_mu() * self.noise_std if isinstance(event, LastIterate) else 0.0)

    @property
    def event(self) -> Event:
        """What the whole run (or all runs, for several tasks) releases, in the form that composes."""
        return self.event_at(self.noise_multiplier)

    def event_at(self, noise_multiplier: float) -> Event:
        """Return the event at another noise multiplier."""
        if noise_multiplier == 0:
            return Noiseless()
        if self.descent is None:
            return all_runs(self.sampler.event(noise_multiplier, self.steps, self.adjacency), self.tasks)
        reach = self.descent.diameter and self.descent.diameter * self._public_divisor() / (2 * self.clip_norm)
        last = self.sampler.last_iterate(noise_multiplier, self.steps, self.descent, reach)
        return replace(last, runs=self.tasks)

    def _public_divisor(self) -> float:
        """Return the divisor of sums, without access to the data."""
        if isinstance(self.sampler, FullBatch) and self.public_n is None:
            raise ValueError(
                "full batches within a ball need the number of records, because a step uses their mean: give public_n"
            )
        return self.sampler.nominal_size(self.public_n or 0)

    def guarantee(
        self,
        delta: float | None = None,
        *,
        bound: Assumption | None = None,
        released: str | None = None,
        unit: Unit = Unit.RECORD,
        contracts: Assumption | None = None,
    ) -> Guarantee:
        """Return the guarantee of a whole run, or of all runs for several tasks.

        A plan cannot see what is summed, so by itself it only *assumes* the bound. A solver that clips, or whose rows
        are bounded, passes ``bound`` to say that it enforces it; ``contracts`` does the same for a descent's steps.
        """
        bound = bound or assumed(f"each {unit} contributes a vector of l2 norm at most {self.clip_norm:.6g} to a sum")
        assumptions: tuple[Assumption, ...] = (bound, self.drawn())
        if self.descent is None:
            released = released or "every noisy sum, and everything computed from them"
        else:
            assumptions += (contracts or assumed(self.descent.in_words()),)
            released = released or "the last iterate, and no earlier one"
        assumptions += self.sampler.conditions(unit)
        return Guarantee.of(
            self.event,
            self.adjacency,
            stated_delta(delta, self.delta),
            released=of_tasks(released, self.tasks),
            assumptions=assumptions,
            unit=unit,
        )

    def drawn(self, prefix: str = "") -> Assumption:
        """Return the condition that says how batches and noise are drawn."""
        if not self.has_noise:
            return enforced(f"{prefix}{self.sampler.in_words()}; no noise is added", detail=True)
        sums = "the sum" if self.steps == 1 else f"each of {self.steps} sums"
        exactly = in_words(self.noise_std) if self.descent is None else "drawn exactly, on a public grid"
        return enforced(
            f"{prefix}{self.sampler.in_words()}; Gaussian noise of standard deviation {self.noise_std:.6g} on {sums} "
            f"(noise multiplier {self.noise_multiplier:.6g}), {exactly}",
            detail=True,
        )

    def divisor(self, n: int) -> float:
        """Return the divisor of a noisy sum over ``n`` units: a public constant, never the realised batch size."""
        if self.adjacency is Adjacency.REPLACE_ONE:
            return self.sampler.nominal_size(n)
        if self.public_n is None:
            raise ValueError(
                "under add-or-remove adjacency the number of units is private, and sums cannot be divided by it: give "
                "the plan a public_n, a guess that does not depend on the data"
            )
        return self.sampler.nominal_size(self.public_n)

    def run(self, n: int, source: NoiseSource, *, release: str = "all", ahead: Ahead | None = None) -> "Iterator[Step]":
        """Yield the steps of one run over ``n`` units. ``release`` is what the solver will release.

        ``ahead`` may draw batches before their steps begin, for instance to read their units in other processes. It
        receives an iterator of the batches, and must return all of them in the same order.
        """
        if release != self.release:
            raise PlanError(
                f"this solver releases {release!r}, but the plan accounts for release={self.release!r}. Only "
                "projected_sgd hides its iterates; all other solvers, averages and momentum reveal them."
            )
        noise_std, sensitivity = self.noise_std, self.sensitivity
        batches = self.sampler.batches(count("n", n, at_least=0), self.steps, source)
        for batch in batches if ahead is None else ahead(batches):
            step = Step(self.clip_norm, noise_std, Claim(sensitivity, batch, n), source)
            yield step
            step.close()


def check_noise(*parts: GradientPlan) -> None:
    """Raise ValueError if some parts of a plan have noise and others have none."""
    if len({part.has_noise for part in parts}) > 1:
        found = " and ".join(f"{part.noise_multiplier:g}" for part in parts)
        raise ValueError(
            f"the parts of a plan have the noise multipliers {found}. Add noise to all of them or to none, because a "
            "part without noise leaves the whole run without privacy"
        )


class Step:
    """One step of a run: a batch, the bound of one unit's contribution, and noise for one sum over the batch.

    Attributes
    ----------
    batch : array of int or slice
        The units that take part.
    clip_norm : float
        Bound on the l2 norm of one unit's contribution to the sum, for which the noise of this step is calibrated.
    """

    def __init__(self, clip_norm: float, noise_std: float, claim: Claim, source: NoiseSource) -> None:
        assert claim.batch is not None
        self.batch: Batch = claim.batch
        self.clip_norm = clip_norm
        self._noise_std, self._claim, self._source = noise_std, claim, source
        self._is_open = True
        self._noise: Drawn | None = None

    def prepare(self, size: int) -> None:
        """Start to draw the noise of ``size`` numbers in another thread, while their sum is computed.

        The noise does not depend on the sum. If the numbers are few, they are drawn later instead, because starting a
        thread would take longer.
        """
        if self._is_open and self._noise is None and size > _FEW and self._noise_std > 0:
            self._noise = Drawn(lambda: self._source.normals(size, self._noise_std))

    def noisy(self, total: NDArray[Any], *, scale: float = 1.0, grid: float | None = None) -> NDArray[Any]:
        """Return the sum over the batch with its noise. Raise on a second call, which the plan does not account for.

        Without noise, the sum itself is returned.

        Parameters
        ----------
        total : array
            The sum, or ``scale`` times the sum plus a vector that does not depend on the batch.
        scale : float
            Factor of the sum in ``total``, above 0. The noise is multiplied by it, too.
        grid : float or None
            The result is rounded to multiples of this power of two; None for the default of the noise source.
        """
        if not self._is_open:
            raise PlanError(
                "noisy() was called twice in one step, or after the step ended. The plan accounts for one noisy sum "
                "per step."
            )
        self._is_open = False
        claim = self._claim if scale == 1 else replace(self._claim, bound=self._claim.bound * scale)
        if self._noise_std == 0:
            return self._source.without_noise(total, claim)
        prepared = None if self._noise is None else self._noise.result()
        return self._source.add_gaussian(total, self._noise_std * scale, grid, prepared, claim)

    def close(self) -> None:
        """End the step: its noise can no longer be drawn."""
        self._is_open = False
        if self._noise is not None:
            self._noise.wait()  # the next batch is drawn from the same source


class PlanError(RuntimeError):
    """Raised when a run asks for more than its plan accounts for."""
