"""An engine with worker processes, for models that take longer to train than to send."""

import os
import pickle
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any

import torch
from numpy.typing import NDArray

from privet.checks import count
from privet.federated.engines.base import Answer, Engine, Fetch
from privet.federated.local_training import ClientTrainer, order_source
from privet.networks import Weights
from privet.privacy.noise.orders import OrderSource

_trainer: ClientTrainer | None = None  # set once per worker process, when it starts


class Processes(Engine):
    """Trains clients in single-threaded worker processes.

    Model and loss are sent to each worker once. The data of a client is sent whenever the client is sampled.

    Parameters
    ----------
    trainer : ClientTrainer
        The training, which is pickled. Its model and loss must be importable in another process.
    random_state : int or None
        Seed of the order of examples.
    workers : int or None
        Number of processes; None uses one per processor.
    """

    name = "processes"

    def __init__(self, trainer: ClientTrainer, random_state: int | None, workers: int | None = None) -> None:
        super().__init__(trainer, random_state)
        self._workers = processors() if workers is None else count("workers", workers)
        self._pool = ProcessPoolExecutor(
            self._workers,
            mp_context=get_context("spawn"),  # torch's threads do not survive a fork
            initializer=_begin,
            initargs=(pickle.dumps(trainer),),
        )

    def answers(self, weights: Weights, rounds_done: int, chosen: Sequence[int], fetch: Fetch) -> Iterator[Answer]:
        """Yield the answers in order. Only the data of clients that are being trained or queued is in memory."""
        waiting: deque[tuple[int, Future[Weights]]] = deque()
        for client in chosen:
            data = fetch(client)
            if not isinstance(data, tuple):
                yield client, data
                continue
            arrays = tuple(each.numpy() for each in data)
            source = order_source(self.random_state, rounds_done, client)
            waiting.append((client, self._pool.submit(_update, weights, arrays, rounds_done, source)))
            if len(waiting) > 2 * self._workers:
                yield _answer(*waiting.popleft())
        while waiting:
            yield _answer(*waiting.popleft())

    def close(self) -> None:
        """Stop the workers."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def is_picklable(trainer: ClientTrainer) -> bool:
    """Return whether the trainer can be sent to a worker."""
    try:
        pickle.dumps(trainer)
    except Exception:  # the code of the pickled object may raise anything
        return False
    return True


def _answer(client: int, future: "Future[Weights]") -> Answer:
    try:
        return client, future.result()
    except BrokenProcessPool as error:
        raise RuntimeError(
            "A worker process died. Either it ran out of memory: use fewer workers. Or the program calls simulate() "
            'without a guard and starts itself again in each worker: put the call under `if __name__ == "__main__":`, '
            'or use engine="sequential".'
        ) from error
    except Exception as error:
        return client, error


def _begin(trainer: bytes) -> None:
    """Initialise a worker."""
    global _trainer  # noqa: PLW0603  a worker has one trainer
    torch.set_num_threads(1)
    _trainer = pickle.loads(trainer)


def _update(weights: Weights, arrays: tuple[NDArray[Any], ...], rounds_done: int, source: OrderSource) -> Weights:
    """Return the update of one client, computed in a worker."""
    assert _trainer is not None
    data = tuple(torch.from_numpy(array) for array in arrays)
    return _trainer.update(weights, data, rounds_done, source)
