"""A check of a collate function: what it makes of an example must not depend on the other examples of the batch."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from privet.deep.datasets import Examples, Indices
from privet.deep.fingerprint import batch_checksum
from privet.deep.objective import Objective, Task
from privet.deep.randomness import alike
from privet.deep.rows import as_batch, moved
from privet.deep.selfcheck import EXAMPLES
from privet.deep.state import SavedState
from privet.global_generators import kept, seeded_alike
from privet.privacy import assumed

IN_COLLATE = assumed(
    "collate_fn makes each row of a batch from its example alone, up to padding that the model ignores"
)


class CollateCheck:
    """Compares the losses of some examples in one batch with their losses when each is collated alone.

    Padding to the longest example of a batch changes nothing if the model ignores it, but a collate function that mixes
    examples does. If the function itself is random, so that its results cannot be compared, nothing is checked.
    """

    def __init__(self, examples: Examples, model: nn.Module, objective: Objective) -> None:
        self._examples, self._model, self._objective = examples, model, objective
        self._is_done = examples.collate is None

    def check(self, indices: Indices) -> None:
        """Check the collate function on some examples of a batch, unless it has been checked."""
        if self._is_done or len(indices) < 2:
            return
        self._is_done = True
        restore, saved = kept(), SavedState(self._model, self._objective)
        try:
            self._compare(self._examples.read(indices[:EXAMPLES]))
        finally:
            saved.restore()
            restore()

    def _compare(self, examples: list[Any]) -> None:
        alone = [self._batch([each]) for each in examples]
        again = [self._batch([each], seed=1) for each in examples]
        if [batch_checksum(each) for each in alone] != [batch_checksum(each) for each in again]:
            return
        together = self._losses(self._batch(examples), len(examples))
        if together is None:
            return
        expected = [self._losses(each, 1) for each in alone]
        if any(each is None for each in expected):
            return
        single = torch.cat([each for each in expected if each is not None])
        is_close = (together - single).abs() <= 1e-3 * (1 + single.abs())
        is_same = (together == single) | (together.isnan() & single.isnan())
        if not bool((is_close | is_same).all()):
            raise ValueError(
                "The loss of an example changes with the other examples that collate_fn puts into its batch, so "
                "clipping cannot bound the influence of one example. Let the model ignore padding, by an attention "
                "mask and an ignored label, and do not mix examples or use statistics of the batch in collate_fn."
            )

    def _batch(self, examples: list[Any], seed: int = 0) -> Any:
        """Return a batch of copies, because a collate function may change its examples."""
        with seeded_alike(seed):
            return as_batch(self._examples.batch_of(copy.deepcopy(examples)))

    def _losses(self, batch: Any, size: int) -> Tensor | None:
        """Return the losses, or None if the training loop prepares batches in some way before the model takes them."""
        device = next(self._model.parameters()).device
        task = Task.of(self._model, self._objective, moved(batch, device), size)
        with alike(self._model, size), torch.no_grad():
            try:
                return task.loss(task.model(*task.rows[:-1]), task.rows[-1]).detach().double()
            except Exception:
                return None
