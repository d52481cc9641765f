"""``frozen_features``: what a frozen network returns, computed once, so that a head trains as a small model."""

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
        gradients, on the device of its parameters.
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
    found: list[tuple[Tensor, Tensor]] = []
    backbone.eval()
    try:
        with torch.no_grad():
            for start in range(0, len(examples), size):
                indices = np.arange(start, min(start + size, len(examples)))
                batch = moved(as_batch(examples.collated(indices)), device)
                if isinstance(batch, Mapping):
                    target = objective.classes(batch)
                    inputs = {key: each for key, each in objective.arguments(batch).items() if each is not target}
                    outputs = backbone(**inputs)
                else:
                    target, outputs = batch[-1], backbone(*batch[:-1])
                found.append((_checked(outputs if features is None else features(outputs), len(indices)), target.cpu()))
    finally:
        for module, mode in modes.items():
            module.training = mode
    return TensorDataset(*(torch.cat(parts) for parts in zip(*found, strict=True)))


def _checked(features: Any, size: int) -> Tensor:
    if not isinstance(features, Tensor) or features.ndim == 0 or len(features) != size:
        raise ValueError(
            f"The backbone must return a tensor with one row for each of {size} examples, but it returned a "
            f"{type(features).__name__}. Pass features=, for instance lambda outputs: outputs.last_hidden_state[:, 0]."
        )
    return features.cpu()
