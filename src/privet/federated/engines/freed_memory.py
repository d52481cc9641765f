"""Keeps freed memory in the process, where the next step of a training can use it again."""

import torch

_LARGEST = (1 << 25) - (1 << 16)  # bytes, just below the largest block that changes the limits of glibc


def keep_freed_memory() -> None:
    """Make the allocator of glibc keep up to 64 MB of freed memory, if its limits were not set by hand.

    Each step of a training allocates and frees the same megabytes. By default, glibc returns most of them to the
    system, which has to clear every page before it is used again: a third of a round with many small clients. When a
    block of up to 32 MB is freed, glibc takes its size as the new limit for separate blocks, and twice its size as the
    limit for free memory that it keeps (see ``man mallopt``, ``M_MMAP_THRESHOLD``). The block itself is never touched.
    """
    torch.empty(_LARGEST, dtype=torch.uint8)  # freed at once
