"""Changes that did not come from the optimizer: of parameters and buffers, and of a batch before its step."""

import warnings
from collections.abc import Hashable, Iterable
from typing import Any, ClassVar

from torch import nn

from privet.deep.fingerprint import Fingerprint, batch_checksum
from privet.deep.state import hidden_modules
from privet.privacy import Assumption, assumed

BETWEEN_STEPS = assumed("changes that the caller made to the parameters between steps do not depend on the data")
IN_FORWARD = assumed("values that the model wrote into its own parameters or buffers do not depend on the data")
COUNTED = assumed(
    "what the model counts in its forward pass shows how many batches were empty, which need not be secret, and "
    "nothing else about the data"
)
IN_BATCHES = assumed("what the caller changed in a batch before step() treats each example by itself")


class Changes:
    """Notices changes of a model and of its batches during training.

    Parameters
    ----------
    model, loss : nn.Module, callable
        The model and its loss. The parameters, trained or frozen, and the buffers of the model are watched, and those
        of modules in plain attributes of the two.
    assumptions : list of Assumption
        What the guarantee assumes from the beginning.

    Attributes
    ----------
    assumptions : list of Assumption
        What the guarantee assumes, also because of changes so far.
    """

    _stays_with_holder: ClassVar[frozenset[str]] = frozenset({"_batch"})

    def __init__(self, model: nn.Module, loss: object, assumptions: list[Assumption]) -> None:
        self._model, self._hidden = model, hidden_modules(model, loss)
        self.assumptions = assumptions
        self._counters: frozenset[str] = frozenset()
        self._batch: Hashable = None
        self._known = Fingerprint.of(self._model, self._hidden)

    def accept(self) -> list[str]:
        """Accept the parameters and buffers as they are now, for instance after a step of the optimizer.

        Return the names of those that are different from before.
        """
        before, self._known = self._known, Fingerprint.of(self._model, self._hidden)
        return before.changed(self._known)

    def remember_batch(self, batch: tuple[Any, ...]) -> None:
        """Remember the values of a batch before the caller gets it."""
        self._batch = batch_checksum(batch)

    def warn_about_batch(self, batch: tuple[Any, ...]) -> None:
        """Warn, and add an assumption, if the values of the batch are not those that were remembered."""
        if batch_checksum(batch) != self._batch:
            self._assume(
                IN_BATCHES,
                "The batch was changed between batches() and step(). The guarantee now assumes that the change treats "
                "each example by itself. That holds for scaling by constants and for random crops, but not for MixUp, "
                "CutMix or statistics of the batch, which void the guarantee. Make changes in the dataset instead, "
                "where each example is created alone.",
            )

    def warn_about_caller(self) -> None:
        """Warn, and add an assumption, if parameters or buffers were changed since they were accepted."""
        if self._changed():
            self._assume(
                BETWEEN_STEPS,
                "The model's parameters or buffers were changed between two private steps. The guarantee now assumes "
                "that the change does not depend on the private data. That holds for averages of weights, but not for "
                "a step of another optimizer.",
            )

    def check_forward(self, counters: frozenset[str]) -> None:
        """Raise if the forward or backward pass changed parameters or buffers, other than ``counters``.

        There is no forward pass for an empty batch, so the guarantee has to mention counters.
        """
        self._counters = counters
        changed = self._changed()
        for is_found, assumption in ((counters, COUNTED), (changed, IN_FORWARD)):
            if is_found and assumption not in self.assumptions:
                self.assumptions.append(assumption)
        if changed:
            raise changed_in_forward(self._model, changed)

    def _changed(self) -> list[str]:
        """Return the names of what was changed, and accept it. Counters change without anybody's doing."""
        before, self._known = self._known, Fingerprint.of(self._model, self._hidden)
        return [name for name in before.changed(self._known) if name not in self._counters]

    def _assume(self, assumption: Assumption, message: str) -> None:
        if assumption not in self.assumptions:
            self.assumptions.append(assumption)
            warnings.warn(message, stacklevel=4)  # The caller of step().


def changed_in_forward(model: nn.Module, names: Iterable[str]) -> ValueError:
    """Return the error for parameters or buffers that a forward pass wrote to."""
    owners = dict(model.named_modules())
    named = [f"{name} of {type(owners.get(name.rpartition('.')[0], model)).__name__}" for name in names]
    return ValueError(
        f"The forward pass of the model changed {', '.join(named)}. Only the optimizer may do so, because values that "
        "a forward pass writes can depend on the examples, and would be released without clipping or noise. Do not "
        "release the model as it is now. Leave out max_norm and initialisations from the first batch, or set the "
        "values once from public data before training."
    )
