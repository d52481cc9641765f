"""``frozen_features``: what a frozen network returns, computed once, so that a head trains as a small model."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from privet.checks import count
from privet.deep.datasets import Examples
from privet.deep.objective import Objective
from privet.deep.rows import as_batch, moved
from privet.deep.selfcheck import EXAMPLES
from privet.global_generators import kept, seeded_alike


def frozen_features(
    backbone: nn.Module,
    dataset: Any,
    *,
    features: Callable[[Any], Tensor] | None = None,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    max_batch: int = 256,
) -> TensorDataset:
    """Return the features of all examples and their targets.

    A head that is trained on them is the same as one that is trained behind the frozen backbone, but the backbone runs
    once per example instead of once per example and epoch. Nothing is released: the features are as private as the
    examples. Train on them with :func:`make_private`, or with an estimator such as
    :class:`~privet.PrivateLogisticRegression`.

    Parameters
    ----------
    backbone : nn.Module
        The network. It must be public, that is, not trained on the private examples. It runs in eval mode and without
        gradients, on the device of its parameters. The features of an example must not depend on other examples, which
        is checked for a few.
    dataset : map-style dataset or DataLoader
        As in :func:`make_private`. The sampler of a loader is not used; the examples keep their order.
    features : callable or None
        Returns the features, one row per example, from the outputs of the backbone. None takes the outputs.
    collate_fn : callable or None
        As in :func:`make_private`.
    max_batch : int
        How many examples are processed at a time.

    Returns
    -------
    TensorDataset
        Features and targets. Of a dictionary, the target is ``labels`` or ``label``, or else the only entry that the
        backbone does not take.
    """
    examples, size = Examples.of(dataset, collate_fn), count("max_batch", max_batch)
    objective = Objective.of(nn.CrossEntropyLoss(), backbone)
    device = next((each.device for each in backbone.parameters()), torch.device("cpu"))
    modes = {module: module.training for module in backbone.modules()}

    def of(given: Any, number: int) -> tuple[Tensor, Tensor]:
        batch = moved(as_batch(given), device)
        if isinstance(batch, Mapping):
            target = objective.classes(batch)
            inputs = {key: each for key, each in objective.arguments(batch).items() if each is not target}
            outputs = backbone(**inputs)
        else:
            target, outputs = batch[-1], backbone(*batch[:-1])
        return _checked(outputs if features is None else features(outputs), number), target.cpu()

    found: list[tuple[Tensor, Tensor]] = []
    backbone.eval()
    try:
        with torch.no_grad():
            _check_alone(examples, lambda given, number: of(given, number)[0], size)
            for start in range(0, len(examples), size):
                indices = np.arange(start, min(start + size, len(examples)))
                found.append(of(examples.collated(indices), len(indices)))
    finally:
        for module, mode in modes.items():
            module.training = mode
    return TensorDataset(*(torch.cat(parts) for parts in zip(*found, strict=True)))


def _check_alone(examples: Examples, features: Callable[[Any, int], Tensor], most: int) -> None:
    """Raise if the features of an example change with the other examples of its batch."""
    few = min(EXAMPLES, most, len(examples))
    if few < 2:
        return
    restore = kept()
    try:
        # Copies, because a collate function or a backbone may change its examples.
        given = [copy.deepcopy(each) for each in examples.read(np.arange(few))]

        def of(chosen: list[Any], seed: int = 0) -> Tensor:
            with seeded_alike(seed):
                return features(examples.batch_of(copy.deepcopy(chosen)), len(chosen))

        alone = [of([each]) for each in given]
        if not all(torch.equal(each, of([one], 1)) for one, each in zip(given, alone, strict=True)):
            return  # Random features cannot be compared.
        together = of(given).split(1)
    finally:
        restore()
    for one, other in zip(alone, together, strict=True):
        if one.shape != other.shape or not torch.allclose(one, other, 1e-3, 1e-3, equal_nan=True):
            raise ValueError(
                "The features of an example change with the other examples of its batch, so one example would change "
                "those of all others, and no guarantee of the head would hold. Let the backbone ignore padding, by an "
                "attention mask or with features=, replace normalisations over the batch, and do not mix examples in "
                "collate_fn."
            )


def _checked(features: Any, size: int) -> Tensor:
    if not isinstance(features, Tensor) or features.ndim == 0 or len(features) != size:
        raise ValueError(
            f"The backbone must return a tensor with one row for each of {size} examples, but it returned a "
            f"{type(features).__name__}. Pass features=, for instance lambda outputs: outputs.last_hidden_state[:, 0]."
        )
    return features.cpu()
