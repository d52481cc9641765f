"""Gradient perturbation: every step releases a noisy sum of bounded contributions."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from privet.checks import count, positive
from privet.plans.samplers import Batch, Sampler
from privet.privacy.budget import Adjacency, Budget
from privet.privacy.calibration import calibrate
from privet.privacy.events import Event
from privet.privacy.guarantee import Assumption, Guarantee, Unit, assumed, enforced
from privet.privacy.noise import NoiseSource


class PlanError(RuntimeError):
    """A run asked for more than its plan accounts for."""


@dataclass(frozen=True)
class GradientPlan:
    """Sampling, bound, noise and steps of a run that releases a noisy sum a step.

    Parameters
    ----------
    sampler : Sampler
        How a step chooses its units.
    steps : int
        How many noisy sums are released.
    clip_norm : float
        Bound C on the l2 norm of one unit's contribution to a sum.
    noise_multiplier : float
        Standard deviation of the noise on the **sum**, divided by ``clip_norm``.
    adjacency : Adjacency or None
        None takes the sampler's own.
    public_n : int or None
        A public guess of the number of units, from which the divisor of a sum is made under add-or-remove adjacency,
        where the true number is private. Not needed under replace-one.

    Formal guarantees
    -----------------
    :meth:`guarantee`, computed from these fields and nothing else. :meth:`run` is the only way to draw batches and
    noise: it yields exactly ``steps`` steps, each of which noises exactly one sum. All noisy sums count as released.
    """

    sampler: Sampler
    steps: int
    clip_norm: float
    noise_multiplier: float
    adjacency: Adjacency
    public_n: int | None

    def __init__(
        self,
        sampler: Sampler,
        steps: int | None,
        clip_norm: float,
        noise_multiplier: float,
        adjacency: Adjacency | None = None,
        public_n: int | None = None,
    ) -> None:
        set_field = object.__setattr__
        set_field(self, "sampler", sampler)
        set_field(self, "steps", _planned_steps(sampler, steps))
        set_field(self, "clip_norm", positive("clip_norm", clip_norm))
        set_field(self, "noise_multiplier", positive("noise_multiplier", noise_multiplier))
        set_field(self, "adjacency", _planned_adjacency(sampler, adjacency))
        set_field(self, "public_n", None if public_n is None else count("public_n", public_n))

    @classmethod
    def for_budget(
        cls,
        budget: Budget,
        *,
        sampler: Sampler,
        steps: int | None = None,
        clip_norm: float,
        adjacency: Adjacency | None = None,
        public_n: int | None = None,
    ) -> "GradientPlan":
        """Return the plan with the least noise that is certified to keep within ``budget``.

        Its epsilon is never above the budget's: equal to it for a full batch, above 0.99 of it by search otherwise.
        """
        steps = _planned_steps(sampler, steps)
        adjacency = _planned_adjacency(sampler, adjacency)
        multiplier = calibrate(lambda z: sampler.event(z, steps, adjacency), adjacency, budget)
        return cls(sampler, steps, clip_norm, multiplier, adjacency, public_n)

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise on the sum, per coordinate."""
        return self.noise_multiplier * self.clip_norm

    @property
    def event(self) -> Event:
        """What the whole run releases, in the form that composes."""
        return self.sampler.event(self.noise_multiplier, self.steps, self.adjacency)

    def guarantee(
        self,
        delta: float,
        *,
        bound: Assumption | None = None,
        released: str = "every noisy sum, and with it everything computed from them",
        unit: Unit = Unit.RECORD,
    ) -> Guarantee:
        """Return the guarantee of a whole run.

        A plan cannot see what is summed, so by itself it only *assumes* the bound; a solver that clips, or whose rows
        are bounded, passes ``bound`` to say that it enforces it.
        """
        bound = bound or assumed(f"each {unit} contributes a vector of l2 norm at most {self.clip_norm:.6g} to a sum")
        drawn = enforced(
            f"{self.sampler.in_words()}; Gaussian noise of standard deviation {self.noise_std:.6g} on each of "
            f"{self.steps} sums (noise multiplier {self.noise_multiplier:.6g})"
        )
        return Guarantee.of(self.event, self.adjacency, delta, released=released, assumptions=(bound, drawn), unit=unit)

    def divisor(self, n: int) -> float:
        """Return what to divide a noisy sum over ``n`` units by: a public constant, never the realised batch size."""
        if self.adjacency is Adjacency.REPLACE_ONE:
            return self.sampler.nominal_size(n)
        if self.public_n is None:
            raise ValueError(
                "under add-or-remove adjacency the number of units is private: give the plan a public_n, a guess of it "
                "that owes nothing to the data, to divide by"
            )
        return self.sampler.nominal_size(self.public_n)

    def run(self, n: int, source: NoiseSource) -> Iterator["Step"]:
        """Yield the steps of one run over ``n`` units."""
        for batch in self.sampler.batches(count("n", n, at_least=0), self.steps, source):
            step = Step(batch, self.noise_std, source)
            yield step
            step.close()


class Step:
    """One step of a run: a batch, and noise for one sum over it."""

    def __init__(self, batch: Batch, noise_std: float, source: NoiseSource) -> None:
        self.batch = batch
        self._noise_std = noise_std
        self._source = source
        self._is_open = True

    def noisy(self, total: NDArray[Any]) -> NDArray[Any]:
        """Return the sum over the batch with its noise. A second call is refused: it was not accounted for."""
        if not self._is_open:
            raise PlanError("the plan accounts for one noisy sum a step, while the step lasts; this asks for another")
        self._is_open = False
        noise = self._source.gaussian(total.shape, self._noise_std, total.dtype)
        noise += total
        return noise

    def close(self) -> None:
        """End the step: its noise can no longer be drawn."""
        self._is_open = False


def _planned_steps(sampler: Sampler, steps: int | None) -> int:
    implied = sampler.implied_steps
    if implied is not None:
        if steps is not None and steps != implied:
            raise ValueError(f"{sampler!r} makes {implied} steps, not {steps}: leave steps out")
        return implied
    if steps is None:
        raise ValueError(f"{sampler!r} needs a number of steps")
    return count("steps", steps)


def _planned_adjacency(sampler: Sampler, adjacency: Adjacency | None) -> Adjacency:
    if adjacency is None:
        return sampler.adjacencies[0]
    adjacency = Adjacency(adjacency)
    if adjacency not in sampler.adjacencies:
        names = " or ".join(sampler.adjacencies)
        raise ValueError(f"{sampler!r} is accounted for under {names} adjacency, not {adjacency}")
    return adjacency
