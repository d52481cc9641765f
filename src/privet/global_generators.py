"""The global generators of Python, NumPy and torch: kept, restored, and seeded for a while.

Models and datasets draw from them, for dropout and random transforms. Nothing that privacy rests on does.
"""

import pickle
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np


def kept() -> Callable[[], None]:
    """Return a function that restores the generators to their current states.

    The generators of other devices than the CPU are left alone.
    """
    of_python, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    torch = sys.modules.get("torch")  # if torch is not loaded, nobody draws from its generator
    of_torch = None if torch is None else torch.default_generator.get_state()

    def restore() -> None:
        random.setstate(of_python)
        np.random.set_state(of_numpy)  # noqa: NPY002
        if torch is not None:
            torch.default_generator.set_state(of_torch)

    return restore


def states() -> tuple[object, ...]:
    """Return the states of the generators, which differ once a number has been drawn."""
    of_numpy = pickle.dumps(np.random.get_state())  # noqa: NPY002
    torch = sys.modules.get("torch")
    of_torch = None if torch is None else bytes(torch.default_generator.get_state().numpy())
    return random.getstate(), of_numpy, of_torch


def seed(number: int) -> None:
    """Seed all generators."""
    random.seed(number)
    np.random.seed(number % 2**32)  # noqa: NPY002
    seed_torch(number)


def seed_torch(number: int) -> None:
    """Seed torch's generator, if torch is loaded."""
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.manual_seed(number)


@contextmanager
def seeded_alike(number: int) -> Iterator[None]:
    """Seed the global generators, so that they give the same numbers in every process, and restore them afterwards."""
    restore = kept()
    seed(number)
    try:
        yield
    finally:
        restore()
