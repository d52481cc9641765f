"""An engine that trains many clients at once: their models are stacked, and one batched step updates all of them.

For a small model, the overhead of calling a step exceeds the time of its arithmetic. The models are therefore stacked
along a first axis and take their steps together: models of known layers as in
:mod:`privet.federated.engines.stacked_layers`, other models with torch.func.vmap, and softmax regression without
autograd, for clients with few examples in the span of these examples
(:mod:`privet.federated.engines.softmax_regression`). Threads train several stacks of convolutional or recurrent models
at the same time.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import grad, vmap

from privet.checks import count
from privet.federated.clients import Data, Fetching
from privet.federated.engines.base import Answer, Engine, Fetch, one_by_one
from privet.federated.engines.freed_memory import keep_freed_memory
from privet.federated.engines.processes import processors
from privet.federated.engines.softmax_regression import softmax_gradients, softmax_layer, trained_in_span
from privet.federated.engines.stacked_layers import is_costly, stacked_gradients
from privet.federated.engines.thread_limit import one_thread
from privet.federated.local_training import ClientTrainer
from privet.networks import LocalSGD, TensorDict, TensorDisplacement, Weights
from privet.networks.norms import wide

Gradients = Callable[[TensorDict, tuple[Tensor, ...], Tensor, Tensor], TensorDict]
"""Takes parameters, inputs, targets and weights of examples, one row per client, and returns the gradients."""

_RANDOM = "randomness"  # occurs in the error of vmap about a random operation
_MAX_STACKED = 1 << 24  # scalars in stacked parameters: 64 MB in float32, and a few times as much in total
MAX_CLIENTS = 64  # larger batches are hardly faster, and the data of a whole batch is in memory
_MAX_SHARE = 8  # clients in a stack of costly models: few enough for similar sizes and for the processor's cache


class Batched(Engine):
    """Trains the clients of a round together, in batches.

    Parameters
    ----------
    trainer : ClientTrainer
        The training.
    random_state : int or None
        Seed of the order of examples.
    workers : int or None
        Number of threads for convolutional and recurrent models; None uses one per processor. Only known layers run in
        threads, never the code of a user.
    """

    name = "batched"
    isolates_clients = False

    def __init__(self, trainer: ClientTrainer, random_state: int | None, workers: int | None = None) -> None:
        super().__init__(trainer, random_state)
        self._softmax = softmax_layer(trainer)
        stacked = stacked_gradients(trainer) if self._softmax is None else softmax_gradients(self._softmax)
        self._gradients: Gradients = stacked or _vmap_gradients(trainer)
        self._is_shared = stacked is not None and is_costly(trainer.model) and trainer.local.denoiser is None
        self._threads = processors() if workers is None else count("workers", workers)
        self._pool = ThreadPoolExecutor(self._threads, initializer=torch.set_num_threads, initargs=(1,))
        size = sum(parameter.numel() for parameter in trainer.model.parameters())
        self._is_random = False  # until a random layer is found
        self._at_once = max(1, min(MAX_CLIENTS, _MAX_STACKED // size))
        keep_freed_memory()

    def answers(self, weights: Weights, rounds_done: int, chosen: Sequence[int], fetch: Fetch) -> Iterator[Answer]:
        """Yield the answers of all chosen clients. Those whose data can be stacked are trained together."""
        for start in range(0, len(chosen), self._at_once):
            clients = chosen[start : start + self._at_once]
            fetched, gone = fetched_data(clients, fetch)
            yield from gone
            for group in self._groups(fetched):
                yield from self._group_answers(weights, rounds_done, group)

    def _group_answers(self, weights: Weights, rounds_done: int, fetched: dict[int, Data]) -> list[Answer]:
        """Return the answers of clients whose data can be stacked.

        A client that fails must not determine how the others are trained. Their rounding would depend on it, and
        training that amplifies rounding errors would change the sum by far more than one clipped update. Therefore the
        others are trained together again, without the failed clients.

        Random layers cannot be trained together, because the numbers that one client gets would depend on the others.
        """
        if self._is_random:
            return one_by_one(self, weights, rounds_done, fetched)
        try:
            return self._together(weights, rounds_done, fetched)
        except Exception as error:  # training each client alone shows which of them fail
            alone = one_by_one(self, weights, rounds_done, fetched)
            if isinstance(error, RuntimeError) and _RANDOM in str(error):
                self._is_random = True
                return alone
            failed = [(client, answer) for client, answer in alone if isinstance(answer, Exception)]
            if not failed:
                warnings.warn(
                    f"Batched training failed ({type(error).__name__}). The clients are trained one by one instead.",
                    stacklevel=3,
                )
                return alone
        faulty = {client for client, _ in failed}
        others = {client: data for client, data in fetched.items() if client not in faulty}
        return [*failed, *self._group_answers(weights, rounds_done, others)]

    def _together(self, weights: Weights, rounds_done: int, fetched: dict[int, Data]) -> list[Answer]:
        """Return the updates of clients that are trained together, in one stack or in several at the same time.

        Clients with more steps come first, so that the clients that are still training are always the first rows.
        """
        local = self.trainer.local
        plans = {
            client: local.schedule(data[-1].shape[0], self.source(rounds_done, client))
            for client, data in fetched.items()
        }
        clients = sorted(plans, key=lambda client: (-len(plans[client]), -fetched[client][-1].shape[0]))
        begun, sgd = self.trainer.start(weights), self.trainer.sgd(rounds_done)

        def trained(share: list[int]) -> list[Answer]:
            *inputs, targets = _stacked([fetched[client] for client in share])
            moved = self._moved(begun, inputs, targets, _runs([plans[client] for client in share]), sgd)
            arrays = {name: wide(value).numpy() for name, value in moved.items()}
            return [
                (client, {name: array[place] for name, array in arrays.items()}) for place, client in enumerate(share)
            ]

        if not clients:
            return []
        if not self._is_shared:
            return trained(clients)
        with one_thread():
            return list(chain.from_iterable(self._pool.map(trained, shares(clients, self._threads))))

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown()

    def _groups(self, fetched: dict[int, Data]) -> list[dict[int, Data]]:
        """Return groups of clients whose examples have the same shapes and dtypes and are trained by the same method.

        The method depends on the client's own data only, so no client can change the rounding of another through it.
        """
        groups: dict[Any, dict[int, Data]] = {}
        for client, data in fetched.items():
            kind = tuple((part.shape[1:], part.dtype) for part in data)
            groups.setdefault((kind, self._has_few(data), self._has_classes(data[-1])), {})[client] = data
        return list(groups.values())

    def _has_few(self, data: Data) -> bool:
        """Return whether a softmax regression stays in the span of the client's examples, which are few.

        A denoised gradient leaves the span.
        """
        if self._softmax is None or self.trainer.local.denoiser is not None or len(data) != 2:
            return False
        return bool(data[1].shape[0] < math.prod(data[0].shape[1:]))

    def _has_classes(self, targets: Tensor) -> bool:
        """Return whether all targets are classes, as softmax_gradients needs. The ignored index -100 is not a class."""
        if self._softmax is None or targets.dtype.is_floating_point or targets.numel() == 0:
            return True
        low, high = targets.aminmax()
        return int(low) >= 0 and int(high) < self._softmax.classes

    def _moved(
        self, begun: TensorDict, inputs: list[Tensor], targets: Tensor, runs: Sequence[Tensor], sgd: LocalSGD
    ) -> TensorDict:
        """Return the update of each client, one row per client."""
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
            gradients = self._gradients(weights, *_batch([*inputs, targets], rows, self.trainer.kind))
            denoised = self.trainer.denoised(gradients, is_stacked=True)
            sgd.step(so_far, None if velocity is None else velocity.first(busy), denoised)
            so_far.write_weights(weights)
        return moved.values


def shares(clients: Sequence[int], workers: int) -> list[list[int]]:
    """Divide sorted clients into stacks of nearly equal numbers, as many for each worker if there are enough."""
    number = workers * math.ceil(len(clients) / (_MAX_SHARE * workers))
    return [part.tolist() for part in np.array_split(np.asarray(clients), min(number, len(clients)))]


def fetched_data(clients: Sequence[int], fetch: Fetch) -> tuple[dict[int, Data], list[Answer]]:
    """Return the data of the clients that have some, and the answers of the others."""
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
    """Return the data of clients as tensors with one row per client, padded with zeros to equal length."""
    sizes = [data[-1].shape[0] for data in datas]
    longest = max(sizes)
    found = []
    for parts in zip(*datas, strict=True):
        if min(sizes) == longest:
            found.append(_joined(parts) if _are_adjacent(parts) else torch.stack(parts))
            continue
        whole = parts[0].new_zeros(len(parts), longest, *parts[0].shape[1:])
        for row, part, size in zip(whole, parts, sizes, strict=True):
            row[:size] = part
        found.append(whole)
    return found


def _are_adjacent(parts: Sequence[Tensor]) -> bool:
    """Return whether tensors of the same shape and dtype are adjacent in memory, without gaps."""
    first = parts[0]
    memory, start, length = first.untyped_storage().data_ptr(), first.data_ptr(), first.nbytes
    return all(
        part.is_contiguous()
        and part.untyped_storage().data_ptr() == memory
        and part.data_ptr() == start + place * length
        for place, part in enumerate(parts)
    )


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """Return adjacent tensors as one stacked tensor, without copying them."""
    first = parts[0]
    return first.as_strided((len(parts), *first.shape), (first.numel(), *first.stride()))


def _runs(plans: Sequence[NDArray[np.int64]]) -> list[Tensor]:
    """Return the batches of clients in runs of steps during which the same clients are training.

    Clients are sorted by decreasing number of steps. A run has the shape (steps, clients still training, batch).
    """
    ends = sorted({0, *map(len, plans)})
    return [
        torch.from_numpy(np.stack([plan[start:end] for plan in plans if len(plan) >= end], axis=1))
        for start, end in pairwise(ends)
    ]


def _batch(data: Sequence[Tensor], rows: Tensor, kind: torch.dtype) -> tuple[tuple[Tensor, ...], Tensor, Tensor]:
    """Return inputs, targets and weights of one step. Free places hold the first example of the batch with weight 0.

    Free places are the last ones of a batch. Those that are free for all clients are left out.
    """
    sizes = (rows >= 0).sum(1, keepdim=True)
    rows = rows[:, : int(sizes.max())]
    filled = rows >= 0
    longest = data[-1].shape[1]
    places = (torch.where(filled, rows, rows[:, :1]) + longest * torch.arange(len(rows))[:, None]).flatten()
    *inputs, targets = (
        each.flatten(0, 1).index_select(0, places).view(*rows.shape, *each.shape[2:]) for each in data
    )  # twice as fast as each[clients, rows]
    return tuple(inputs), targets, filled.to(kind) / sizes


def _vmap_gradients(trainer: ClientTrainer) -> Gradients:
    """Return a function that computes the gradients of any model with vmap."""

    def mean(parameters: TensorDict, inputs: tuple[Tensor, ...], targets: Tensor, weights: Tensor) -> Tensor:
        return (trainer.objective(parameters, inputs, targets) * weights).sum()

    gradients: Gradients = vmap(grad(mean), randomness="error")
    return gradients
