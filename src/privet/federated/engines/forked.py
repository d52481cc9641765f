"""An engine that trains stacks of clients in forked worker processes, for convolutional and recurrent models.

Threads that train stacks at the same time wait for one another: for Python's lock between operations, and for memory.
Worker processes do not. They are forks of this process, so they start within milliseconds, they need no copy of the
clients' data, and nothing is pickled except the weights of a round. Updates return through shared memory.
"""

import gc
import mmap
import multiprocessing
import os
import pickle
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray

from privet.checks import count
from privet.federated.clients import Data, Fetching, Partitioned
from privet.federated.engines.base import Answer, Engine, Fetch
from privet.federated.engines.batched import MAX_CLIENTS, Batched, fetched_data, shares
from privet.federated.engines.processes import processors
from privet.federated.engines.thread_limit import limit_threads
from privet.federated.local_training import ClientTrainer
from privet.networks import ParameterShapes, Weights
from privet.networks.norms import wide
from privet.objectives.threads import blas_libraries
from privet.privacy.noise.orders import OrderSource

Reply = tuple[list[tuple[int, Exception | int | None]], list[str]]
"""The clients of a worker, each with the row of its update, its error or None, and the worker's warnings."""


class Forked(Engine):
    """Trains the clients of a round in forked worker processes, in each of them several clients together.

    Workers read the rows of common arrays (:class:`~privet.federated.Partitioned`) themselves, as they are when the
    workers start. The data of other clients, and rows with a transform, are fetched in this process and sent.

    Parameters
    ----------
    trainer : ClientTrainer
        The training.
    random_state : int or None
        Seed of the order of examples.
    workers : int or None
        Number of processes; None uses one per processor.
    """

    name = "batched_processes"
    isolates_clients = False

    def __init__(self, trainer: ClientTrainer, random_state: int | None, workers: int | None = None) -> None:
        super().__init__(trainer, random_state)
        if not can_fork():
            raise RuntimeError(
                f"engine={self.name!r} needs Linux without accelerators, in a process that is not a daemon, because "
                'its workers are forks. Use engine="batched" or engine="processes".'
            )
        self._count = processors() if workers is None else count("workers", workers)
        self._workers: list[_Worker] = []
        self._rows: Partitioned | None = None  # what the workers can read
        self._limit: Any = None

    def answers(self, weights: Weights, rounds_done: int, chosen: Sequence[int], fetch: Fetch) -> Iterator[Answer]:
        """Yield the answers of all chosen clients. The workers are started before the first ones."""
        rows = _readable(fetch)
        if self._workers and rows is not self._rows:
            self.close()
        try:
            if not self._workers:
                self._start(rows, weights)
            at_once = MAX_CLIENTS * self._count
            for start in range(0, len(chosen), at_once):
                yield from self._together(weights, rounds_done, chosen[start : start + at_once], fetch)
        except BaseException:  # A reply that was not read would be taken for the next one.
            self.close()
            raise

    def _start(self, rows: Partitioned | None, weights: Weights) -> None:
        """Fork the workers."""
        # Threads of BLAS wait actively for the next product, and would take processors from the workers.
        self._limit = blas_libraries().limit(limits=1)
        self._rows = rows
        engine = Batched(self.trainer, self.random_state, workers=1)
        while len(self._workers) < self._count:
            self._workers.append(_Worker(engine, rows, weights, [worker.pipe for worker in self._workers]))

    def _together(self, weights: Weights, rounds_done: int, chosen: Sequence[int], fetch: Fetch) -> Iterator[Answer]:
        """Yield the answers of clients that are trained at the same time."""
        datas: dict[int, Data] = {}
        if self._rows is not None:
            sizes = {client: self._rows.size(client) for client in chosen}
        else:
            datas, gone = fetched_data(chosen, fetch)
            yield from gone
            sizes = {client: len(data[-1]) for client, data in datas.items()}
        parts: list[list[int]] = [[] for _ in self._workers]
        for place, share in enumerate(shares(sorted(sizes, key=lambda client: -sizes[client]), self._count)):
            lap, turn = divmod(place, self._count)
            parts[-1 - turn if lap % 2 else turn] += share  # The largest are followed by the smallest.
        asked = [(worker, part) for worker, part in zip(self._workers, parts, strict=True) if part]
        for worker, part in asked:
            own = {client: tuple(wide(each).numpy() for each in datas[client]) for client in part if client in datas}
            sources = {client: self.source(rounds_done, client) for client in part}
            worker.ask(weights, rounds_done, sources, own)
        for worker, _ in asked:
            yield from worker.answers()

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers:
            worker.end()
        self._workers = []
        if self._limit is not None:
            self._limit.restore_original_limits()
            self._limit = None


def can_fork() -> bool:
    """Return whether worker processes can be forked.

    On macOS, and where torch uses an accelerator, the fork of a process with threads is not safe. Daemons of
    multiprocessing may not have processes of their own.
    """
    is_daemon = multiprocessing.current_process().daemon
    return sys.platform == "linux" and not is_daemon and not torch.accelerator.is_available()


def _readable(fetch: Fetch) -> Partitioned | None:
    """Return the clients whose data a worker can read without running code of a user."""
    clients = fetch.clients if isinstance(fetch, Fetching) else None
    return clients if type(clients) is Partitioned and not clients.is_transformed else None


class _Worker:
    """A worker process, as seen by its parent.

    Parameters
    ----------
    engine : Batched
        What trains the clients in the worker.
    rows : Partitioned or None
        Clients whose data the worker reads.
    weights : dict of arrays
        The weights of some round, of which only names and shapes matter.
    others : list of Connection
        The pipes of workers that were started before.
    """

    def __init__(
        self, engine: Batched, rows: Partitioned | None, weights: Weights, others: Sequence[Connection]
    ) -> None:
        self._shapes = ParameterShapes({name: np.shape(value) for name, value in weights.items()})
        kind: Any = wide(torch.empty(0, dtype=engine.trainer.kind)).numpy().dtype
        shared = mmap.mmap(-1, MAX_CLIENTS * self._shapes.size * kind.itemsize)
        self._updates: NDArray[Any] = np.frombuffer(shared, kind).reshape(MAX_CLIENTS, -1)
        self.pipe, theirs = multiprocessing.Pipe()
        with warnings.catch_warnings():  # Python 3.12 and later warn of all threads, of which a worker uses none.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._process = multiprocessing.get_context("fork").Process(
                target=_serve,
                args=(theirs, [*others, self.pipe], engine, rows, self._shapes, self._updates),
                daemon=True,
            )
            self._process.start()
        theirs.close()

    def ask(self, weights: Weights, rounds_done: int, sources: dict[int, OrderSource], datas: dict[int, Any]) -> None:
        """Let the worker train clients, with their order sources. ``datas`` holds the data that it cannot read itself.

        The sources are made here, because a worker may be older than what watches the draws of this process.
        """
        try:
            self.pipe.send((weights, rounds_done, sources, datas))
        except OSError as error:
            raise self._died() from error

    def answers(self) -> list[Answer]:
        """Wait for the answers of the clients."""
        try:
            found, texts = pickle.loads(self.pipe.recv_bytes())
        except (EOFError, OSError) as error:
            raise self._died() from error
        for text in texts:
            warnings.warn(text, stacklevel=4)
        updates = self._updates[: sum(isinstance(answer, int) for _, answer in found)].copy()
        return [(client, self._shapes.split(updates[it]) if isinstance(it, int) else it) for client, it in found]

    def _died(self) -> RuntimeError:
        self._process.join(1)
        return RuntimeError(
            f"A worker process died (exit code {self._process.exitcode}). It probably ran out of memory: use fewer "
            'workers, or engine="batched".'
        )

    def end(self) -> None:
        """End the process, whatever it is doing."""
        self.pipe.close()
        self._process.kill()
        self._process.join()
        self._process.close()


# ---------------------------------------------------------------------------------------------------- in the worker


def _serve(
    pipe: Connection,
    others: Sequence[Connection],
    engine: Batched,
    rows: Partitioned | None,
    shapes: ParameterShapes,
    updates: NDArray[Any],
) -> NoReturn:
    """Answer requests until the parent closes the pipe or dies. A crash ends the worker, which the parent notices."""
    try:
        for each in others:  # Otherwise the pipe of another worker would stay open after the parent's death.
            each.close()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is the parent's matter.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        gc.freeze()  # The memory of the parent stays shared if the collector leaves it alone.
        limit_threads()
        while True:
            weights, rounds_done, engine.sources, datas = pipe.recv()
            fetch = Fetching(datas if rows is None else rows, engine.trainer.kind)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                answers = list(engine.answers(weights, rounds_done, list(engine.sources), fetch))
            pipe.send_bytes(_reply(answers, shapes, updates, [str(each.message) for each in caught]))
    except (EOFError, OSError):
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def _reply(answers: list[Answer], shapes: ParameterShapes, updates: NDArray[Any], texts: list[str]) -> bytes:
    """Write the updates into shared memory, and return the other answers as bytes."""
    found: list[tuple[int, Exception | int | None]] = []
    row = 0
    for client, answer in answers:
        if isinstance(answer, dict):
            for name, place in shapes.split(updates[row]).items():
                place[...] = answer[name]
            found.append((client, row))
            row += 1
        else:
            found.append((client, _sendable(answer)))
    return pickle.dumps((found, texts))


def _sendable(error: Exception | None) -> Exception | None:
    """Return an error, or one with its text if it cannot be sent."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # The code of the pickled error may raise anything.
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
