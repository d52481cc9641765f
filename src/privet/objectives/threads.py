"""Work that is divided among threads, with as many threads as the BLAS library of numpy would use for one product."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

from threadpoolctl import ThreadpoolController

T = TypeVar("T")
R = TypeVar("R")

_TURN = threading.Lock()  # The number of BLAS threads is a setting of the whole process.


def in_threads(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Return ``work`` of each item, in the order of the items.

    Many small products are slow if the threads of BLAS have to meet after each of them. Here each thread has items of
    its own, and BLAS uses one thread meanwhile. Where BLAS has one thread only, or if another call is under way, the
    items are worked on one after the other.
    """
    threads = min(_blas_threads(), len(items)) if len(items) > 1 else 1
    if threads == 1 or not _TURN.acquire(blocking=False):
        return [work(item) for item in items]
    try:
        with _blas().limit(limits=1), ThreadPoolExecutor(threads) as pool:
            return list(pool.map(work, items))
    finally:
        _TURN.release()


@cache
def _blas() -> ThreadpoolController:
    """Return the control of the BLAS libraries that are loaded. Finding them takes milliseconds."""
    return ThreadpoolController().select(user_api="blas")


def _blas_threads() -> int:
    return max((library.num_threads for library in _blas().lib_controllers), default=1)
