"""The loop of a training: batches, epochs, and the whole loop in one call."""

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn

from privet.checks import count
from privet.deep.check import Prepare, check
from privet.deep.gradient_estimators import GradientEstimator, SpentEpsilon
from privet.deep.processes import Processes
from privet.deprecation import renamed
from privet.plans import GradientPlan, PlanError, RecursivePlan
from privet.privacy import Guarantee
from privet.progress import status_bar
from privet.replay import Replayed

Progress = Callable[[int, int], None]
"""Called after each step with the number of steps spent and the number planned."""


class TrainingLoop(ABC):
    """What a training offers to those who write its loop."""

    model: nn.Module
    steps_spent: int
    _estimator: GradientEstimator
    _processes: Processes
    _has_begun: bool
    _last_loss: float
    _stream: Iterator[Any] | None

    @property
    @abstractmethod
    def plan(self) -> GradientPlan | RecursivePlan:
        """The plan of the whole training."""

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee:
        """The guarantee of the steps made so far."""

    @abstractmethod
    def step(self, *batch: Any, **entries: Any) -> Tensor:
        """Take one private step on a batch."""

    @abstractmethod
    def save(self, path: str | os.PathLike[str], extra: Any = None) -> None:
        """Write the training to a file."""

    @abstractmethod
    def _begin(self) -> None: ...

    @abstractmethod
    def _drawn_batches(self) -> Iterator[Any]: ...

    @abstractmethod
    def _check_used(self) -> None: ...

    @property
    def steps_per_epoch(self) -> int:
        """The number of steps that make one pass over the data, on average."""
        return math.ceil(1 / self.plan.sampler.batch_share - 1e-9)

    def batches(self, *, verbose: bool = False, progress: Progress | bool | None = None) -> Iterator[Any]:
        """Yield the batches of all remaining steps: tuples of inputs and, last, targets, or dictionaries.

        A batch may be empty.

        Parameters
        ----------
        verbose : bool
            Show a progress bar with the epsilon spent and the mean loss of the batch. The loss is private: it is for
            the holder of the data only.
        progress : callable or None
            Called after each step with the number of steps spent and the number planned. A bool is the deprecated name
            of ``verbose``.
        """
        if isinstance(progress, bool):
            renamed("The argument progress=True of batches()", "verbose=True")
            verbose, progress = progress, None
        return self._batches(verbose, progress)

    def _batches(self, verbose: bool, progress: Progress | None) -> Iterator[Any]:
        if self._has_begun:
            raise PlanError(
                "The batches of a training can be iterated only once per training. For several epochs, use "
                "`for epoch in private.epochs(): for batch in epoch: ...`. For another training with its own budget, "
                "call make_private() again."
            )
        self._begin()
        planned, spent = self.plan.steps, SpentEpsilon(self._estimator)
        with status_bar("training", planned, verbose and self._processes.is_first) as tell:
            for batch in self._drawn_batches():
                yield batch
                del batch  # The next one may need its memory.
                self._check_used()
                if verbose:
                    tell(self.steps_spent, f"loss {self._last_loss:.3f}, epsilon {spent.bound(self.steps_spent):.3g}")
                if progress is not None:
                    progress(self.steps_spent, planned)

    def epochs(self, *, verbose: bool = False, progress: Progress | None = None) -> Iterator["Epoch"]:
        """Yield the remaining epochs, each of which yields batches.

        An epoch has :attr:`steps_per_epoch` steps. With Poisson sampling, an example takes part once per epoch on
        average: in some epochs not at all, in others several times. A resumed training begins with the rest of the
        epoch in which it was saved. Calling ``epochs`` again continues.

        Parameters
        ----------
        verbose, progress : bool, callable or None
            As in :meth:`batches`.
        """
        if self._stream is None:
            self._stream = self._batches(verbose, progress)
        number = self.steps_spent // self.steps_per_epoch
        while self.steps_spent < self.plan.steps:
            before = self.steps_spent
            yield Epoch(number, self, self._stream)
            if self.steps_spent == before:
                raise PlanError("An epoch was not used. Take its batches: `for batch in epoch: private.step(batch)`.")
            number = max(number + 1, self.steps_spent // self.steps_per_epoch)
        next(self._stream, None)  # No batch remains, and the iterator learns that the last one was used.

    def fit(
        self,
        *,
        epochs: int | None = None,
        validate: Callable[[nn.Module], Any] | None = None,
        scheduler: Any = None,
        save: str | os.PathLike[str] | None = None,
        verbose: bool = False,
    ) -> list["EpochRecord"]:
        """Train for all remaining epochs, and return what was found after each of them.

        Parameters
        ----------
        epochs : int or None
            Stop after so many epochs. A further call continues.
        validate : callable or None
            ``validate(model)`` is called after each epoch, with the model in eval mode and without gradients. It must
            use public data only: a score on private examples would be an additional release.
        scheduler : learning-rate scheduler or None
            Its ``step()`` is called after each epoch. It must be fixed in advance.
        save : path or None
            The training is saved there after each epoch, with the state of the scheduler as ``extra``.
        verbose : bool
            As in :meth:`batches`.

        Returns
        -------
        list of EpochRecord
            The steps and the epsilon spent, and what ``validate`` returned. The losses of the training are private and
            are not among them.
        """
        most = math.inf if epochs is None else count("epochs", epochs)
        history: list[EpochRecord] = []
        for epoch in self.epochs(verbose=verbose):
            for batch in epoch:
                self.step(batch)
            if scheduler is not None:
                scheduler.step()
            found = None if validate is None else _validated(self.model, validate)
            history.append(EpochRecord(epoch.number, self.steps_spent, self.guarantee.epsilon, found))
            if save is not None:
                self.save(save, extra=None if scheduler is None else scheduler.state_dict())
            if len(history) == most:
                break
        return history

    def check(self, *, steps: int = 4, examples: int = 16, prepare: Prepare | None = None) -> list[Replayed]:
        """Replay a few steps with and without one example, and raise if anything but the noisy sums differs.

        Call it before a long training. It works on copies of the model, the optimizer and the loss, and on a few
        examples of the dataset, to which unusual ones are added. It spends no budget and changes nothing. Its result is
        for the holder of the data only.

        Parameters
        ----------
        steps, examples : int
            Number of steps of each replay, and number of examples.
        prepare : callable or None
            What the training loop does to a batch before :meth:`step`, for instance moving it to another device. It
            gets the parts of a tuple, or the entries of a dictionary by keyword, and must not draw random numbers.

        Returns
        -------
        list of Replayed
            What was found for each added or removed example. None of it is a violation.
        """
        return check(cast(Any, self), steps=steps, examples=examples, prepare=prepare)


@dataclass
class Epoch:
    """The batches of one epoch: as many steps as make one pass over the data on average.

    Attributes
    ----------
    number : int
        The number of the epoch, from 0. A resumed training continues in the epoch in which it was saved.
    """

    number: int
    _training: "TrainingLoop" = field(repr=False)
    _batches: Iterator[Any] = field(repr=False)

    def __len__(self) -> int:
        """Return the number of batches that remain in this epoch."""
        return max(0, self._end - self._training.steps_spent)

    def __iter__(self) -> Iterator[Any]:
        while self._training.steps_spent < self._end:
            try:
                yield next(self._batches)
            except StopIteration:
                return

    @property
    def _end(self) -> int:
        training = self._training
        return min(training.plan.steps, (self.number + 1) * training.steps_per_epoch)


@dataclass(frozen=True)
class EpochRecord:
    """What is known after an epoch. All of it may be published.

    Attributes
    ----------
    epoch : int
        The number of the epoch, from 0.
    steps : int
        Number of steps spent so far.
    epsilon : float
        The epsilon spent so far.
    validation : Any
        What ``validate`` returned, or None.
    """

    epoch: int
    steps: int
    epsilon: float
    validation: Any = None


def _validated(model: nn.Module, validate: Callable[[nn.Module], Any]) -> Any:
    """Call a function with the model in eval mode, and put every layer back into the mode that it had."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            return validate(model)
    finally:
        for module, mode in modes.items():
            module.training = mode
