"""What every solver is given and returns: a problem, a run of a plan, a rule for step sizes, and the release.

Formal guarantees
-----------------
:meth:`Run.guarantee` returns the guarantee of the plan. A rule for step sizes sees only noisy gradients and public
numbers, so it is post-processing and costs no privacy.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from privet.checks import count, positive
from privet.objectives import BoundedRows, GeneralisedLinear, Regulariser
from privet.plans.base import Plan, SteppedPlan
from privet.plans.gradient import Step
from privet.plans.samplers import Batch
from privet.privacy.budget import Adjacency
from privet.privacy.guarantees.guarantee import Assumption, Guarantee, enforced
from privet.privacy.ledger.spending import book_spending
from privet.privacy.noise.source import NoiseSource
from privet.solvers.base.tally import Tally

P_co = TypeVar("P_co", bound=Plan, covariant=True)
T = TypeVar("T")

Progress = Callable[[int, int], None]
"""Called after each step with the number of steps done and the number planned."""

Chooser = Callable[[NDArray[Any]], float]
"""Returns the size of the next step, given the noisy gradient of that step."""

ALL_ITERATES = "every noisy gradient, all iterates and the final weights"
"""Description of what is released if the plan accounts for every noisy gradient."""

FEATURE_NOISE = "feature_noise"
"""Key of a trace: the standard deviation of the noise in the weight of each feature, where it is known exactly."""


@dataclass(frozen=True)
class Problem:
    """Minimise the mean loss over bounded rows plus a regulariser."""

    objective: GeneralisedLinear
    regulariser: Regulariser
    rows: BoundedRows
    targets: NDArray[Any]

    def __post_init__(self) -> None:
        if np.shape(self.targets) != (self.rows.n,):
            raise ValueError(f"targets must have shape ({self.rows.n},), one per row, got {np.shape(self.targets)}")
        self.objective.check_targets(self.targets)

    @property
    def lipschitz(self) -> float:
        """Bound on the gradient of one record's loss."""
        return self.objective.lipschitz(self.rows.norm_bound)

    @property
    def smoothness(self) -> float:
        """Smoothness of the regularised objective."""
        return self.objective.smoothness(self.rows.largest_norm) + self.regulariser.smoothness

    @property
    def strong_convexity(self) -> float:
        """Strong convexity of the regularised objective, which is that of the regulariser. Negative if not convex."""
        return self.regulariser.strong_convexity

    @property
    def is_convex(self) -> bool:
        """Whether the regularised objective is convex. All losses are convex, so this depends on the regulariser."""
        return self.regulariser.is_convex

    def batch(self, batch: Batch, adjacency: Adjacency) -> tuple[BoundedRows, NDArray[Any]]:
        """Return the rows and targets of a batch, for a sum that is released under ``adjacency``.

        A record that is added or removed moves others to other places of the batch. This must not change their scores,
        not even by rounding. A record that is replaced leaves all others where they are.
        """
        return self.rows.take(batch, alone=adjacency is Adjacency.ADD_OR_REMOVE), self.targets[batch]

    def start(self) -> NDArray[Any]:
        """Return zero weights in float64 for every type of data, so that small steps and noise are not rounded away."""
        return self.objective.start(self.rows.dimension)

    def value(self, weights: NDArray[Any]) -> float:
        """Return the regularised objective. Not private: for tests, and for reports to the owner of the data."""
        return self.objective.mean_loss(weights, self.rows, self.targets) + self.regulariser.value(weights)

    def gradient_norm(self, weights: NDArray[Any], clip_norm: float = math.inf) -> float:
        """Return the norm of the objective's gradient, with records clipped to ``clip_norm``. Not private."""
        total = self.objective.gradient_sum(weights, self.rows, self.targets, clip_norm)
        return float(np.linalg.norm(total / self.rows.n + self.regulariser.gradient(weights)))


@dataclass(frozen=True, eq=False)
class Run(Generic[P_co]):
    """What every solver is given besides its problem.

    For several tasks on the same rows, the same ``Run`` is given to the solver once per task. It counts these runs, and
    raises :class:`~privet.plans.PlanError` if there are more than the plan covers.

    Parameters
    ----------
    plan : Plan
        What is released and how much noise it gets. A plan that was made for a budget holds the delta at which the
        guarantee is stated; a plan that was built by hand needs ``delta=``.
    source : NoiseSource
        Where batches and noise come from. By default, a generator that the operating system keys.
    progress : callable or None
        Called after each step with the number of steps done and the number planned.
    before_training : callable or None
        Called with the guarantee before any noise is drawn, once for all tasks. An error that it raises stops the run.
        By default, the guarantee is booked in the ledgers of :func:`privet.spending`. None is for parts of a run whose
        cost is known already.
    """

    plan: P_co
    source: NoiseSource = field(default_factory=NoiseSource)
    progress: Progress | None = None
    before_training: Callable[[Guarantee], object] | None = book_spending
    _tally: Tally = field(default_factory=Tally, repr=False)

    def steps(self: "Run[SteppedPlan]", n: int, *, at_most: int | None = None, release: str = "all") -> Iterator[Step]:
        """Yield the plan's steps over ``n`` records, and report progress after each.

        Parameters
        ----------
        n : int
            Number of records.
        at_most : int or None
            Stop after this many steps, at least one.
        release : {"all", "last"}
            What the solver releases, which must be what the plan accounts for.
        """
        planned = self.plan.steps if at_most is None else count("at_most", at_most)
        self._tally.count("steps", self.plan.tasks)
        for done, step in enumerate(self.plan.run(n, self.source, release=release), start=1):
            yield step
            if self.progress is not None:
                self.progress(done, planned)
            if done == at_most:
                step.close()
                return

    def report(self, done: int, planned: int) -> None:
        """Call ``progress``, if there is one. For solvers that do not iterate over :meth:`steps`."""
        if self.progress is not None:
            self.progress(done, planned)

    def guarantee(self, **conditions: Any) -> Guarantee:
        """Count a run and return the plan's guarantee, with what the noise source assumes.

        Raise if the plan covers no further run, or if its noise gives no finite epsilon. Solvers call this before
        they draw any noise. ``conditions`` are those of the plan's ``guarantee``: ``bound`` for what the solver
        enforces, and ``released``.
        """
        guarantee = self.plan.guarantee(**conditions)
        if guarantee.is_private and not math.isfinite(guarantee.epsilon):
            raise ValueError(
                f"the plan has no finite epsilon at delta = {guarantee.delta:g}. Gaussian noise gives no pure epsilon "
                "guarantee: set delta > 0."
            )
        is_first = self._tally.count("runs", self.plan.tasks) == 1
        if self.plan.tasks > 1:
            guarantee = guarantee.assuming(enforced(f"runs are counted: {self.plan.tasks}, one per task, and no more"))
        guarantee = guarantee.assuming(self.source.assumption())
        if is_first and self.before_training is not None:
            self.before_training(guarantee)
        return guarantee

    def shared(self, name: str, release: Callable[[], T]) -> T:
        """Return what all tasks share, such as a noisy mean of the rows. It is released once, in the first run."""
        return self._tally.shared(name, release)


def gradients_bounded_by(clip_norm: float) -> Assumption:
    """Return the condition on gradients that a solver enforces by clipping or by bounded rows."""
    return enforced(f"each record's gradient has l2 norm at most {clip_norm:.6g}, by bounded rows or by clipping")


@dataclass(frozen=True)
class Release:
    """The private weights, their guarantee, and facts about the run.

    ``trace`` contains public facts only, such as steps, step size and noise. Nothing in it was computed from the data
    without noise.
    """

    weights: NDArray[Any]
    guarantee: Guarantee
    trace: Mapping[str, Any] = field(default_factory=dict)


class StepSize(ABC):
    """A rule for step sizes."""

    @abstractmethod
    def start(self, noise_std: float) -> Chooser:
        """Return the chooser of one descent, whose gradients have noise of this standard deviation per coordinate."""


@dataclass(frozen=True)
class ConstantStep(StepSize):
    """The same size for all steps."""

    size: float

    def __post_init__(self) -> None:
        positive("step_size", self.size)

    def start(self, noise_std: float) -> Chooser:
        """Return a chooser that always returns ``size``."""
        return lambda _: self.size


@dataclass(frozen=True)
class DecayingStep(StepSize):
    """``first / t`` in step t, as in the experiments of DP-LSSGD."""

    first: float

    def __post_init__(self) -> None:
        positive("first", self.first)

    def start(self, noise_std: float) -> Chooser:
        """Return a chooser that counts the steps."""
        taken = 0

        def choose(_: NDArray[Any]) -> float:
            nonlocal taken
            taken += 1
            return self.first / taken

        return choose


@dataclass(frozen=True)
class AlignedStep(StepSize):
    """Longer steps while successive gradients agree, and shorter steps when they point in opposite directions.

    The safe step size of a smooth objective, 2 divided by its worst-case smoothness, is too small for most data,
    because rows are spread over many directions. If steps are too short, successive gradients are almost equal; if they
    are too long, the iterate jumps across the minimum and the gradient changes direction. Both are visible in the inner
    product of two successive noisy gradients, whose noise level is known. In addition, no step moves the weights more
    than twice as far as the previous one, or as noise, could have: steps that grew on a plateau must not become huge
    when the gradient grows.

    Parameters
    ----------
    first, longest : float
        Size of the first step, and a limit for all steps. The limit matters because the noise is multiplied by the
        step size, too.
    growth, cut : float
        Factors applied to the size when gradients agree, and when they point in opposite directions.
    agreement : float
        Gradients agree if their inner product exceeds this share of the previous gradient's squared norm.
    """

    first: float
    longest: float = math.inf
    growth: float = 1.5
    cut: float = 0.5
    agreement: float = 0.3

    def __post_init__(self) -> None:
        positive("first", self.first)
        if not (self.growth >= 1 and 0 < self.cut <= 1 and self.longest > 0):
            raise ValueError("growth must be at least 1, cut in (0, 1], longest above 0")

    def start(self, noise_std: float) -> Chooser:
        """Return a chooser that compares each gradient with the previous one."""
        size = previous = min(self.first, self.longest)
        last: NDArray[Any] | None = None

        def choose(gradient: NDArray[Any]) -> float:
            nonlocal size, last, previous
            if last is not None:
                product = float(np.vdot(gradient, last))
                squares = float(np.vdot(last, last))
                doubt = (
                    2 * noise_std * math.sqrt(squares + float(np.vdot(gradient, gradient)))
                )  # two standard deviations
                signal = max(squares - last.size * noise_std * noise_std, 0.0)
                if product < -doubt:
                    size *= self.cut
                elif product > self.agreement * signal - doubt:  # if noise dominates, only ``longest`` limits the size
                    size = min(size * self.growth, self.longest)
                noise = 2 * noise_std * math.sqrt(last.size)
                reach = 2 * previous * max(math.sqrt(squares), noise)
                length = math.sqrt(float(np.vdot(gradient, gradient)))
                if size * length > reach and length < math.inf:
                    size = max(reach / length, min(self.first, self.longest))
            last, previous = gradient, size
            return size

        return choose


@dataclass(frozen=True)
class ShortestStep(StepSize):
    """In each step, the shortest of the sizes that several rules choose."""

    rules: tuple[StepSize, ...]

    def __post_init__(self) -> None:
        if not self.rules:
            raise ValueError("rules must contain at least one rule for step sizes")

    def start(self, noise_std: float) -> Chooser:
        """Return a chooser that asks all rules."""
        choosers = [rule.start(noise_std) for rule in self.rules]
        return lambda gradient: min([choose(gradient) for choose in choosers])


def as_step_size(step_size: "float | StepSize") -> StepSize:
    """Return a rule for step sizes; a number stands for a constant."""
    return step_size if isinstance(step_size, StepSize) else ConstantStep(step_size)
