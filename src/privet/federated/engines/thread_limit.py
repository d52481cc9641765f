"""Limit on the number of threads that torch and numpy use for one operation."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from privet.objectives.threads import blas_libraries


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit each operation to one thread.

    For small operations, threads that synchronise after each of them gain little on an idle machine. On a busy machine
    they wait for one another, and a round takes many times as long.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with blas_libraries().limit(limits=1):
            yield
    finally:
        torch.set_num_threads(threads)


def limit_threads() -> None:
    """Limit each operation of this process, which has one thread, to this thread."""
    torch.set_num_threads(1)
    blas_libraries().limit(limits=1)
