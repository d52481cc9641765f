"""The global generators of Python, NumPy and torch, from which the random transforms of datasets draw."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def seeded_alike(seed: int) -> Iterator[None]:
    """Seed the global generators, so that they give the same numbers in every process, and restore them afterwards.

    The generators of other devices than the CPU are left alone.
    """
    states = random.getstate(), np.random.get_state(), torch.default_generator.get_state()  # noqa: NPY002
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        torch.default_generator.set_state(states[2])
