"""Many clients at once: their models are stacked, and one batched step moves them all.

A client's step of a small model takes less time than its call. Stacked along a first axis, the models of all clients
take their steps together: by torch.func.vmap for any model, without autograd for softmax regression, and for that in
the span of a client's examples (:mod:`privet.federated.engines.softmax_regression`) if they are few.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import grad, vmap

from privet.federated.clients import Data, Fetching
from privet.federated.engines.base import Answer, Engine, Fetch, one_by_one
from privet.federated.engines.softmax_regression import trained_in_span
from privet.federated.local_training import ClientTrainer, order_source
from privet.networks import LocalSGD, TensorDict, TensorDisplacement, Weights

Slopes = Callable[[TensorDict, tuple[Tensor, ...], Tensor, Tensor], TensorDict]
"""Gradients of stacked models: parameters, inputs, targets and weights of examples, each with a client a row."""

_STACKED = 1 << 24  # parameters that are stacked at most: 64 MB in float32, and a few times that in all
_AT_ONCE = 64  # clients: more hardly go faster, and their data is in memory together


class Batched(Engine):
    """Trains the clients of a round together."""

    name = "batched"
    keeps_apart = False

    def __init__(self, trainer: ClientTrainer, random_state: int | None) -> None:
        super().__init__(trainer, random_state)
        self._softmax = softmax_layer(trainer)
        self._slopes = _any_slopes(trainer) if self._softmax is None else _softmax_slopes(self._softmax)
        size = sum(parameter.numel() for parameter in trainer.model.parameters())
        self._at_once = max(1, min(_AT_ONCE, _STACKED // size))

    def answers(self, weights: Weights, rounds_done: int, chosen: Sequence[int], fetch: Fetch) -> Iterator[Answer]:
        """Yield the updates of all chosen clients; those that stack are trained together."""
        for start in range(0, len(chosen), self._at_once):
            clients = chosen[start : start + self._at_once]
            fetched, gone = _fetched(clients, fetch)
            yield from gone
            for alike in self._alike(fetched):
                yield from self._of_alike(weights, rounds_done, alike)

    def _of_alike(self, weights: Weights, rounds_done: int, fetched: dict[int, Data]) -> list[Answer]:
        """Return the answers of clients that stack.

        One that fails must not decide how the others are trained: their rounding would differ by it, and training that
        blows up rounding errors would move the sum by far more than one clip. So the others train together without it.
        """
        try:
            return self._together(weights, rounds_done, fetched)
        except Exception as error:  # of one client or of the model: trained alone, each shows its own
            alone = one_by_one(self, weights, rounds_done, fetched)
            failed = [(client, answer) for client, answer in alone if isinstance(answer, Exception)]
            if not failed:
                warnings.warn(
                    f"clients do not train together ({type(error).__name__}), and now do one by one", stacklevel=3
                )
                return alone
        faulty = {client for client, _ in failed}
        others = {client: data for client, data in fetched.items() if client not in faulty}
        return [*failed, *self._of_alike(weights, rounds_done, others)]

    def _together(self, weights: Weights, rounds_done: int, fetched: dict[int, Data]) -> list[Answer]:
        """Return the updates of clients, longest training first, so that those still at it are the first rows."""
        local = self.trainer.local
        plans = {
            client: local.schedule(data[-1].shape[0], order_source(self.random_state, rounds_done, client))
            for client, data in fetched.items()
        }
        clients = sorted(plans, key=lambda client: -len(plans[client]))
        if not clients:
            return []
        *inputs, targets = _stacked([fetched[client] for client in clients])
        runs = _runs([plans[client] for client in clients])
        moved = self._moved(self.trainer.start(weights), inputs, targets, runs, self.trainer.sgd(rounds_done))
        arrays = {name: value.numpy() for name, value in moved.items()}
        return [
            (client, {name: array[place] for name, array in arrays.items()}) for place, client in enumerate(clients)
        ]

    def _alike(self, fetched: dict[int, Data]) -> list[dict[int, Data]]:
        """Return clients in groups whose examples have the same shapes and types, and train in the same way.

        Which way that is depends on the client's own data, so that nobody changes the rounding of others by it.
        """
        groups: dict[Any, dict[int, Data]] = {}
        for client, data in fetched.items():
            kind = tuple((part.shape[1:], part.dtype) for part in data)
            groups.setdefault((kind, self._has_few(data), self._has_classes(data[-1])), {})[client] = data
        return list(groups.values())

    def _has_few(self, data: Data) -> bool:
        """Whether a client of softmax regression has fewer examples than features."""
        return self._softmax is not None and len(data) == 2 and data[1].shape[0] < math.prod(data[0].shape[1:])

    def _has_classes(self, targets: Tensor) -> bool:
        """Whether all targets of a client are classes, where stacked gradients need them: -100 is none."""
        if self._softmax is None or targets.dtype.is_floating_point or targets.numel() == 0:
            return True
        low, high = targets.aminmax()
        return int(low) >= 0 and int(high) < self._softmax.classes

    def _moved(
        self, begun: TensorDict, inputs: list[Tensor], targets: Tensor, runs: Sequence[Tensor], sgd: LocalSGD
    ) -> TensorDict:
        """Return how far each client moves from the global model, one row per client."""
        layer = self._softmax
        if layer is not None and self._has_few((inputs[0][0], targets[0])):
            weight, bias = f"{layer.prefix}weight", f"{layer.prefix}bias"
            X = inputs[0].flatten(2) if layer.is_flattened else inputs[0]
            in_span = trained_in_span(X, targets, begun[weight], begun.get(bias), runs, sgd)
            return {name: value for name, value in zip((weight, bias), in_span, strict=True) if value is not None}
        here = {name: value.expand(len(targets), *value.shape).clone() for name, value in begun.items()}
        moved = TensorDisplacement.zero(begun, len(targets))
        velocity = TensorDisplacement.zero(begun, len(targets)) if sgd.momentum else None
        for rows in chain.from_iterable(runs):
            busy = len(rows)
            weights, so_far = {name: value[:busy] for name, value in here.items()}, moved.first(busy)
            slopes = self._slopes(weights, *_batch([*inputs, targets], rows, self.trainer.kind))
            sgd.step(so_far, None if velocity is None else velocity.first(busy), slopes)
            so_far.write_weights(weights)
        return moved.values


def _fetched(clients: Sequence[int], fetch: Fetch) -> tuple[dict[int, Data], list[Answer]]:
    """Return the data of clients, and the answers of those that have none."""
    found = fetch.many(clients) if isinstance(fetch, Fetching) else [fetch(client) for client in clients]
    fetched: dict[int, Data] = {}
    gone: list[Answer] = []
    for client, data in zip(clients, found, strict=True):
        if isinstance(data, tuple):
            fetched[client] = data
        else:
            gone.append((client, data))
    return fetched, gone


def _stacked(datas: Sequence[Data]) -> list[Tensor]:
    """Return the data of clients as tensors with a client a row; shorter ones are filled up by zeros."""
    sizes = [data[-1].shape[0] for data in datas]
    longest = max(sizes)
    found = []
    for parts in zip(*datas, strict=True):
        if min(sizes) == longest:
            found.append(_as_they_lie(parts) if _follow_one_another(parts) else torch.stack(parts))
            continue
        whole = parts[0].new_zeros(len(parts), longest, *parts[0].shape[1:])
        for row, part, size in zip(whole, parts, sizes, strict=True):
            row[:size] = part
        found.append(whole)
    return found


def _follow_one_another(parts: Sequence[Tensor]) -> bool:
    """Whether tensors of one shape and type lie in one memory without a gap."""
    first = parts[0]
    memory, start, length = first.untyped_storage().data_ptr(), first.data_ptr(), first.nbytes
    return all(
        part.is_contiguous()
        and part.untyped_storage().data_ptr() == memory
        and part.data_ptr() == start + place * length
        for place, part in enumerate(parts)
    )


def _as_they_lie(parts: Sequence[Tensor]) -> Tensor:
    """Return tensors that follow one another as one, without a copy."""
    first = parts[0]
    return first.as_strided((len(parts), *first.shape), (first.numel(), *first.stride()))


def _runs(plans: Sequence[NDArray[np.int64]]) -> list[Tensor]:
    """Return the batches of clients, longest training first, in runs of steps in which the same clients are at it.

    A run has the shape (steps, clients still at it, batch).
    """
    ends = sorted({0, *map(len, plans)})
    return [
        torch.from_numpy(np.stack([plan[start:end] for plan in plans if len(plan) >= end], axis=1))
        for start, end in pairwise(ends)
    ]


def _batch(data: Sequence[Tensor], rows: Tensor, kind: torch.dtype) -> tuple[tuple[Tensor, ...], Tensor, Tensor]:
    """Return inputs, targets and weights of one step: a place that is not filled has a client's first example, at 0."""
    filled = rows >= 0
    longest = data[-1].shape[1]
    places = (rows.clamp_min(0) + longest * torch.arange(len(rows))[:, None]).flatten()
    *inputs, targets = (
        each.flatten(0, 1).index_select(0, places).view(*rows.shape, *each.shape[2:]) for each in data
    )  # twice as fast as each[clients, rows]
    return tuple(inputs), targets, filled.to(kind) / filled.sum(1, keepdim=True)


def _any_slopes(trainer: ClientTrainer) -> Slopes:
    """Return gradients by vmap, for any model."""

    def mean(parameters: TensorDict, inputs: tuple[Tensor, ...], targets: Tensor, weights: Tensor) -> Tensor:
        return (trainer.objective(parameters, inputs, targets) * weights).sum()

    slopes: Slopes = vmap(grad(mean), randomness="different")
    return slopes


@dataclass(frozen=True)
class SoftmaxLayer:
    """The only layer of a softmax regression: where it is, whether inputs are flattened, if it has a bias, classes."""

    prefix: str
    is_flattened: bool
    has_bias: bool
    classes: int


def _softmax_slopes(layer: SoftmaxLayer) -> Slopes:
    """Return gradients of softmax regression by two products of matrices."""

    def slopes(parameters: TensorDict, inputs: tuple[Tensor, ...], targets: Tensor, weights: Tensor) -> TensorDict:
        (X,) = inputs
        X = X.flatten(2) if layer.is_flattened else X
        scores = torch.bmm(X, parameters[f"{layer.prefix}weight"].mT)
        if layer.has_bias:
            scores += parameters[f"{layer.prefix}bias"][:, None]
        pull = torch.softmax(scores, dim=2)
        pull.scatter_add_(2, targets[..., None], pull.new_full((1, 1, 1), -1.0).expand(*targets.shape, 1))
        pull *= weights[..., None]
        found = {f"{layer.prefix}weight": torch.bmm(pull.mT, X)}
        return found | {f"{layer.prefix}bias": pull.sum(1)} if layer.has_bias else found

    return slopes


def softmax_layer(trainer: ClientTrainer) -> SoftmaxLayer | None:
    """Return the layer of a softmax regression; None if model and loss are another."""
    loss: Any = trainer.loss
    if (
        type(loss) is not nn.CrossEntropyLoss
        or loss.weight is not None
        or loss.label_smoothing
        or loss.ignore_index >= 0
    ):
        return None
    model: Any = trainer.model
    layers = list(model) if type(model) is nn.Sequential else [model]
    is_flattened = type(layers[0]) is nn.Flatten and (layers[0].start_dim, layers[0].end_dim) == (1, -1)
    (*before, last) = layers
    if type(last) is not nn.Linear or len(before) != is_flattened or set(trainer.names) != _names(model):
        return None
    prefix = "" if last is model else f"{len(before)}."
    return SoftmaxLayer(prefix, is_flattened, last.bias is not None, last.out_features)


def _names(model: nn.Module) -> set[str]:
    return {name for name, _ in model.named_parameters()}
