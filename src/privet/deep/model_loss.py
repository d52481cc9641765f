"""The loss that a model of transformers computes itself, with one value per example."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

_IGNORED = -100
"""The label of positions that do not count."""


@dataclass(frozen=True)
class ModelLoss:
    """The loss of a model whose outputs have ``loss`` and ``logits``, as those of transformers with ``labels`` have.

    The model averages its loss over the batch, so it is computed again for each example, from the logits and the
    labels. The value of an example is the loss that the model returns for it alone: for a language model, the mean over
    its own tokens whose label is not -100. Whenever a batch has one example, as in the check of the first batch, this
    is compared with the model's own loss, so that a model with another loss is refused.

    Parameters
    ----------
    is_shifted : bool
        Whether position t predicts the label at t + 1, as in causal language models.
    problem_type : callable
        Returns the kind of classification that the configuration of the model names, or None.
    """

    is_shifted: bool
    problem_type: Callable[[], str | None]

    @classmethod
    def of(cls, model: nn.Module) -> "ModelLoss":
        """Return the loss of a model of transformers."""
        config = getattr(model, "config", None)
        if config is None:
            raise ValueError(
                "loss='model' is for models of transformers, which compute their loss from labels, but the model has "
                "no config. Give a callable as loss."
            )
        kind = getattr(model, "loss_type", None)
        is_shifted = kind in (None, "ForCausalLM") and not getattr(config, "is_encoder_decoder", False)
        return cls(is_shifted, _ProblemType(config))

    def __call__(self, outputs: Any, batch: Mapping[str, Any]) -> Tensor:
        """Return one value per example."""
        losses = self._losses(outputs, batch)
        own = getattr(outputs, "loss", None)
        if len(losses) == 1 and own is not None and bool(torch.isfinite(losses).all() & torch.isfinite(own).all()):
            _check_alike(float(losses[0].detach()), float(own.detach()))
        return losses

    def _losses(self, outputs: Any, batch: Mapping[str, Any]) -> Tensor:
        if "start_positions" in batch and hasattr(outputs, "start_logits"):
            return self._of_spans(outputs, batch)
        logits, labels = getattr(outputs, "logits", None), batch.get("labels")
        if "labels" not in batch:
            raise ValueError(
                f"loss='model' needs the labels of the examples, but the batch has the entries {list(batch)}. Return "
                "labels from the dataset or collate_fn, or give loss=lambda outputs, batch: ..., which returns one "
                "value per example."
            )
        if not isinstance(logits, Tensor) or not isinstance(labels, Tensor) or not hasattr(outputs, "loss"):
            raise _unknown(f"The outputs are a {type(outputs).__name__}, and the batch has the entries {list(batch)}.")
        labels = labels.to(logits.device)
        if logits.ndim == 3 and labels.ndim == 2:
            return self._of_tokens(logits.float(), labels)
        if logits.ndim == 2 and labels.ndim <= 2:
            return self._of_sequences(logits, labels)
        raise _unknown(f"The logits have shape {tuple(logits.shape)}, and the labels {tuple(labels.shape)}.")

    def _of_tokens(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the mean cross-entropy over the tokens of each example."""
        if self.is_shifted:
            logits, labels = logits[:, :-1], labels[:, 1:]
        losses = functional.cross_entropy(logits.transpose(1, 2), labels, ignore_index=_IGNORED, reduction="none")
        return losses.sum(1) / (labels != _IGNORED).sum(1)

    def _of_sequences(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of one label, or of several, per example."""
        kind = self.problem_type() or _usual_type(logits, labels)
        if kind == "regression":
            return functional.mse_loss(logits, labels.view_as(logits).to(logits), reduction="none").mean(1)
        if kind == "multi_label_classification":
            return functional.binary_cross_entropy_with_logits(logits, labels.to(logits), reduction="none").mean(1)
        return functional.cross_entropy(logits.float(), labels.view(-1), reduction="none")

    @staticmethod
    def _of_spans(outputs: Any, batch: Mapping[str, Any]) -> Tensor:
        """Return the mean of the losses of the start and the end of a span. Positions outside the text do not count."""
        found = []
        for logits, name in ((outputs.start_logits, "start_positions"), (outputs.end_logits, "end_positions")):
            places = batch[name].view(-1).clamp(0, logits.shape[1])
            found.append(functional.cross_entropy(logits, places, ignore_index=logits.shape[1], reduction="none"))
        return (found[0] + found[1]) / 2


@dataclass(frozen=True)
class _ProblemType:
    """The kind of classification in a configuration, which the model itself may set in its first forward pass."""

    config: Any

    def __call__(self) -> str | None:
        found: str | None = getattr(self.config, "problem_type", None)
        return found


def _usual_type(logits: Tensor, labels: Tensor) -> str:
    if logits.shape[1] == 1:
        return "regression"
    return "multi_label_classification" if labels.is_floating_point() else "single_label_classification"


def _check_alike(found: float, own: float) -> None:
    if abs(found - own) > 1e-3 + 2e-2 * abs(own):
        raise _unknown(
            "The loss that privet computed from the logits and labels of one example differs from that of the model. "
            "This message is for the holder of the data only."
        )


def _unknown(found: str) -> ValueError:
    return ValueError(
        f"loss='model' cannot compute the loss of single examples for this model. {found} Give "
        "loss=lambda outputs, batch: ..., which returns one value per example."
    )
