"""Models with random layers, run so that an example gets the same result alone and in any batch.

Masks are drawn for a batch as a whole, so one example more changes those of all others. This is no problem in training,
where the masks of different examples are independent. But two runs can be compared only without it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

_DRAWING = (nn.modules.dropout._DropoutNd, nn.RNNBase, nn.MultiheadAttention)
"""Layers that drop values in training mode."""

_DROPOUTS = frozenset(
    f"{name}{end}"
    for name in ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout")
    for end in ("", "_")
) | {"dropout1d", "dropout2d", "dropout3d"}

_DRAWN = {"rand": "uniform_", "randn": "normal_"}
"""Functions that draw a tensor of a given shape, and the method that fills a tensor of another shape."""

_DRAWN_LIKE = frozenset(
    f"{name}{end}"
    for name, end in [(name, "_like") for name in ("rand", "randn", "randint")]
    + [(name, "") for name in ("bernoulli", "poisson")]
    + [(name, "_") for name in ("bernoulli", "cauchy", "exponential", "geometric", "log_normal")]
    + [(name, "_") for name in ("normal", "random", "uniform")]
)
"""Functions that draw one number for each entry of their first argument."""


class _Alike(TorchFunctionMode):  # type: ignore[misc]  # torch does not annotate it.
    """Switches functional dropout off, and draws the same numbers for each of several examples."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs, name = kwargs or {}, func.__name__
        if name in _DROPOUTS:
            return args[0] if args else kwargs["input"]
        if name == "scaled_dot_product_attention":
            return func(*args[:4], *((0.0,) if len(args) > 4 else ()), *args[5:], **kwargs | _without(kwargs))
        if name in _DRAWN and self._size > 1:
            return self._drawn(func, args, kwargs, _DRAWN[name])
        if name in _DRAWN_LIKE and self._size > 1 and self._has_rows(args[0]):
            return self._drawn_like(func, args, kwargs)
        return func(*args, **kwargs)

    def _has_rows(self, given: Tensor) -> bool:
        """Return whether the first dimension of a tensor may be that of the examples, or contain it."""
        return given.ndim > 0 and len(given) > 0 and len(given) % self._size == 0

    def _drawn(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], draw: str) -> Tensor:
        before = torch.get_rng_state()
        result: Tensor = func(*args, **kwargs)
        if not self._has_rows(result):
            return result
        torch.set_rng_state(before)
        row = getattr(torch.empty_like(result[: len(result) // self._size]), draw)()
        return result.copy_(row.repeat(self._size, *[1] * (result.ndim - 1)))

    def _drawn_like(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        before, given = torch.get_rng_state(), args[0]
        rows = []
        for part in given.chunk(self._size):
            torch.set_rng_state(before)
            rows.append(func(part, *args[1:], **kwargs))
        is_in_place = func.__name__.endswith("_")
        return given if is_in_place else torch.cat(rows)


def _without(kwargs: dict[str, Any]) -> dict[str, float]:
    return {"dropout_p": 0.0} if "dropout_p" in kwargs else {}


@contextmanager
def alike(model: nn.Module, size: int) -> Iterator[None]:
    """Run a model on ``size`` examples without dropout, and with the same other random numbers for each example.

    Activation checkpointing by a flag of the model, as in Hugging Face's, is off too, because the layers that it runs
    again in the backward pass would not see this context.
    """
    layers = [(layer, "training") for layer in model.modules() if isinstance(layer, _DRAWING) and layer.training]
    flagged = [layer for layer in model.modules() if getattr(layer, _CHECKPOINTING, False) is True]
    changed = layers + [(layer, _CHECKPOINTING) for layer in flagged]
    for layer, name in changed:
        setattr(layer, name, False)
    try:
        with _Alike(size):
            yield
    finally:
        for layer, name in changed:
            setattr(layer, name, True)


_CHECKPOINTING = "gradient_checkpointing"
