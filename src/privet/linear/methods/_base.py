"""What a training method is: what it is given, what it offers and needs, and the registry of all methods."""

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from privet.plans.base import Plan
from privet.privacy import AttackRate, Budget, Guarantee, NoiseMultiplier, NoiseSource, gdp_epsilon
from privet.privacy.analyses.gaussian import shared_budget
from privet.privacy.budget import BudgetOrNoise
from privet.solvers import Problem, Progress, Release, Run
from privet.solvers.knowledge_transfer import PublicFeatures

P = TypeVar("P", bound=Plan)


@dataclass(frozen=True)
class Task:
    """Everything that a method is given. A setting that is None is chosen by the method from public numbers.

    Parameters
    ----------
    problem : Problem
        Loss, regulariser, bounded rows and targets.
    budget : Budget
        The budget of all tasks together. If a noise multiplier is given instead, what such noise usually costs: see
        :func:`usual_budget`. Methods choose their defaults by it.
    source : NoiseSource
    scale : float
        Public scale of the scores: 1 for classes, the bound on the target for numbers.
    worth : float
        The deviation of a score that matters: the whole scale for classes, where only the order of scores counts, and a
        fifth of it for numbers.
    max_iter, clip_norm, smoothing, secret, batch_size
        Settings of the estimator.
    public_records : Problem or None
        The same problem over records that need no protection.
    public_rows : PublicFeatures or None
        Rows without targets that need no protection, for sparse models.
    n_nonzero, entry_bound, teacher
        Sparse models only: how many features keep a weight, the bound on the absolute value of an entry, and the
        teacher of ``knowledge_transfer``.
    noise : NoiseMultiplier or None
        Noise that is given instead of a budget.
    rate : AttackRate or None
        What attacks may achieve, given instead of an epsilon. The budget is then that of Gaussian releases with this
        rate, so that only methods whose releases are not all Gaussian need to ask for it.
    others, other_public : tuple of Problem
        The same problem with the targets of further tasks, and the public records of these.
    progress : callable or None
    before_training : callable or None
        As in :class:`~privet.solvers.Run`.
    """

    problem: Problem
    budget: Budget
    source: NoiseSource
    scale: float = 1.0
    worth: float = 1.0
    max_iter: int | None = None
    clip_norm: float | None = None
    smoothing: float = 0.0
    secret: str | None = None
    batch_size: int | None = None
    public_records: Problem | None = None
    public_rows: PublicFeatures | None = None
    n_nonzero: int = 0
    entry_bound: float = math.inf
    teacher: str = "auto"
    noise: NoiseMultiplier | None = None
    rate: AttackRate | None = None
    others: tuple[Problem, ...] = ()
    other_public: tuple[Problem, ...] = ()
    progress: Progress | None = None
    before_training: Callable[[Guarantee], object] | None = None

    @property
    def noise_or_budget(self) -> BudgetOrNoise:
        """What a plan is made for: the given noise or attack rate, or else the budget.

        Methods that use a noise multiplier, or whose releases are not all Gaussian, ask for it.
        """
        return self.noise or self.rate or self.budget

    @property
    def tasks(self) -> int:
        """Number of tasks on the same rows, for which the plan of the method must be made."""
        return 1 + len(self.others)

    @property
    def residual_scale(self) -> float:
        """The scale of the scores times the largest weight of a class, of which default clipping norms are a share."""
        return self.scale * self.problem.objective.largest_weight

    @property
    def share(self) -> Budget:
        """The budget that one of the tasks would have alone, for choosing defaults."""
        return shared_budget(self.budget, 1 / self.tasks)

    def solve(self, solver: Callable[..., Release], plan: Plan, **options: Any) -> Release:
        """Run a solver once per task, with public records if there are any. The last axis of weights counts tasks.

        With one task, the weights are those of the solver.
        """
        run = self.run(plan)
        releases = []
        for done, problem in enumerate((self.problem, *self.others)):
            if self.public_records is not None:
                options["public"] = (self.public_records, *self.other_public)[done]
            of_task = replace(run, progress=self._progress_of(done))
            releases.append(solver(problem, of_task, **options))
        if self.tasks == 1:
            return releases[0]
        return replace(releases[0], weights=np.stack([release.weights for release in releases], axis=-1))

    def _progress_of(self, done: int) -> Progress | None:
        """Return what reports the progress of a task after ``done`` tasks."""
        report, tasks = self.progress, self.tasks
        if report is None or tasks == 1:
            return report
        return lambda step, steps: report(done * steps + step, tasks * steps)

    def run(self, plan: P) -> Run[P]:
        """Return a run of a plan, for the solver of this task. Most methods call :meth:`solve` instead."""
        return Run(plan, self.source, self.progress, self.before_training)

    @property
    def has_bounded_loss(self) -> bool:
        """Whether the loss itself bounds the residuals, as losses of classes do."""
        return self.problem.objective.has_bounded_gradient

    @property
    def sparse_norm(self) -> float:
        """Largest norm of the part of a row that meets nonzero weights, including the constant column."""
        rows = self.problem.rows
        return math.hypot(min(rows.row_norm, self.entry_bound * math.sqrt(self.n_nonzero)), rows.intercept)


@dataclass(frozen=True)
class Method:
    """A way to train a linear model, with everything that estimators, messages, docs and audits must know about it.

    Parameters
    ----------
    name : str
        Value of the ``method`` parameter of the estimators.
    train : callable
        Runs the method on a :class:`Task`.
    summary : str
        One phrase for docstrings and for the table in docs/: what the noise is added to.
    is_pure : bool
        Whether the method offers pure epsilon (delta = 0).
    uses : tuple of str
        Which of the settings that only some methods use this method uses: ``clip_norm``, ``smoothing``, ``secret``,
        ``batch_size``, ``noise_multiplier``, ``teacher``, ``tpr``. Estimators refuse the others.
    needs_bound : bool
        Whether the loss must have bounded gradients. Methods that clip do not need that.
    needs_one_score : bool
        Whether the loss must be a function of one score per record, which a softmax over several classes is not.
    needs_squared : bool
        Whether the loss must be the squared loss of numbers, whose minimum is determined by second moments.
    uses_public, needs_public : bool
        Whether the method can learn from public records, and whether it cannot do without them.
    is_sparse : bool
        Whether the method trains models with at most ``n_nonzero`` features, and is offered by sparse estimators.
    takes_steps : bool
        Whether ``max_iter`` has an effect.
    excess : callable or None
        Returns how far the result of a task is expected to be above the minimum, from public numbers alone.
        ``method="auto"`` takes the applicable method for which this is least. A method without it is never taken.
    """

    name: str
    train: Callable[[Task], Release]
    summary: str
    is_pure: bool = False
    uses: tuple[str, ...] = ()
    needs_bound: bool = False
    needs_one_score: bool = False
    needs_squared: bool = False
    uses_public: bool = False
    needs_public: bool = False
    is_sparse: bool = False
    takes_steps: bool = True
    excess: Callable[[Task], float] | None = None


METHODS: dict[str, Method] = {}
_USUAL_STEPS, _LARGEST_MU = 50, 100.0


def usual_budget(noise: NoiseMultiplier, tasks: int = 1) -> Budget:
    """Return what 50 full-batch steps per task would cost with this noise, and at most a mu of 100, if it is tiny or 0.

    A method chooses its number of steps by the budget. The cost of given noise depends on that number in turn.
    """
    assert noise.delta is not None
    mu = 2 * math.sqrt(_USUAL_STEPS * tasks)
    mu = mu / noise.multiplier if noise.multiplier * _LARGEST_MU > mu else _LARGEST_MU
    return Budget(gdp_epsilon(mu, noise.delta), noise.delta)


def method_settings() -> list[str]:
    """Return the settings of estimators that only some methods use."""
    return sorted({setting for each in METHODS.values() for setting in each.uses})


def method(name: str, **fields: Any) -> Callable[[Callable[[Task], Release]], Callable[[Task], Release]]:
    """Register the decorated function as a :class:`Method` with these fields."""

    def registered(train: Callable[[Task], Release]) -> Callable[[Task], Release]:
        METHODS[name] = Method(name, train, **fields)
        return train

    return registered


def described(text: str, offered: Collection[Method]) -> str:
    """Return a docstring with the methods that are offered in place of ``{methods}`` and of names of settings."""
    lines = [f"``{each.name}``: noise is added to {each.summary}." for each in offered]
    text = text.replace("{methods}", "\n        ".join(lines))
    for setting in method_settings():
        users = ", ".join(f"``{each.name}``" for each in offered if setting in each.uses)
        text = text.replace(f"{{{setting}}}", users)
    return text


def named(methods: Iterable[Method], last: str = "or") -> str:
    """Return the names of methods for an error message: ``method='objective' or 'output'``."""
    names = [repr(each.name) for each in methods]
    return "method=" + (f"{', '.join(names[:-1])} {last} {names[-1]}" if len(names) > 1 else names[0])
