"""How many threads torch may take for one operation."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep each operation of torch to one thread.

    Threads that wait for one another at the end of each small operation gain little where the machine is idle, and
    where it is busy they wait for their turns: a round then takes many times as long.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
