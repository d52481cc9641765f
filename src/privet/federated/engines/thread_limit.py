"""Limit on the number of threads that torch uses for one operation."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit each torch operation to one thread.

    For small operations, threads that synchronise after each of them gain little on an idle machine. On a busy machine
    they wait for one another, and a round takes many times as long.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
