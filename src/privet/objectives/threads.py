"""Work that is divided among threads, with as many threads as the BLAS library of numpy would use for one product."""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import cache
from typing import TypeVar

from threadpoolctl import ThreadpoolController

T = TypeVar("T")
R = TypeVar("R")

_TURN = threading.RLock()  # One call at a time limits BLAS, in the whole process.
_WORKER = threading.local()


def in_threads(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Return ``work`` of each item, in the order of the items.

    Many small products are slow if the threads of BLAS must synchronise after each of them. Here each thread has items
    of its own, and BLAS is limited to one thread in the whole process meanwhile. Where that is impossible, or where
    BLAS has one thread anyway, the items are worked on one after the other.
    """
    if len(items) < 2 or getattr(_WORKER, "is_one", False):
        return [work(item) for item in items]
    with _TURN:
        if (threads := min(_blas_threads(), len(items))) > 1:
            with blas_libraries().limit(limits=1), ThreadPoolExecutor(threads, initializer=_start_worker) as pool:
                if pool.submit(_blas_threads).result() == 1:
                    contexts = [copy_context() for _ in items]  # which contain the settings of np.errstate
                    return list(pool.map(lambda context, item: context.run(work, item), contexts, items))
        return [work(item) for item in items]


def _start_worker() -> None:
    """Mark a thread as a worker, and limit BLAS in it: some libraries count their threads per calling thread."""
    _WORKER.is_one = True
    blas_libraries().limit(limits=1)


@cache
def blas_libraries() -> ThreadpoolController:
    """Return the control of the BLAS libraries that are loaded. Finding them takes milliseconds."""
    return ThreadpoolController().select(user_api="blas")


def _blas_threads() -> int:
    return max((library.num_threads for library in blas_libraries().lib_controllers), default=1)


def _renew_lock() -> None:
    """Forget a lock that another thread of the parent process held when this process was forked."""
    global _TURN  # noqa: PLW0603
    _TURN = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)
