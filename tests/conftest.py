"""What all tests share."""

import functools
import gc
import hashlib
import itertools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privet.privacy.noise import source as noise

TESTS = Path(__file__).parent
REFERENCE = 0.35  # seconds that the reference work takes on the two-core machine where the limits were set


def reference_work() -> None:
    """Do what slow machines are slow at: transforms that leave the cache, and plain Python."""
    values = np.random.default_rng(0).standard_normal(1 << 19)
    for _ in range(10):
        np.fft.irfft(np.fft.rfft(values) ** 3)
        np.exp(-values * values).cumsum()
    sum(number * number for number in range(300_000))


def forget() -> None:
    """Empty privet's caches, so that a second try does the work again."""
    for thing in gc.get_objects():
        if isinstance(thing, functools._lru_cache_wrapper) and thing.__module__.startswith("privet"):
            thing.cache_clear()


def seconds_of(work: Callable[[], Any]) -> float:
    """Return the processor time of this process alone: others may be at work."""
    start = time.process_time()
    work()
    return time.process_time() - start


@pytest.fixture
def slowness() -> Callable[[], float]:
    """Return how to ask by which factor limits of time grow just now, at least 1.

    A busy neighbour costs memory bandwidth and clock rate, which processor time does not leave out. So limits grow with
    the time that a reference work takes now.
    """
    return lambda: max(1.0, seconds_of(reference_work) / REFERENCE)


@pytest.fixture
def takes_less_than(slowness: Callable[[], float]) -> Callable[[float, Callable[[], Any]], bool]:
    """Return a check of a time limit that holds on a slower or busier machine too."""

    def check(limit: float, work: Callable[[], Any], tries: int = 5) -> bool:
        for _ in range(tries):
            forget()
            taken = seconds_of(work)
            if taken < limit * slowness():
                return True
        return False

    return check


# What ``make check`` leaves out: attacks, experiments, processes, and accounting over wide grids.
SLOW = (
    "audit",
    "commands/test_audit",
    "commands/test_demo",
    "commands/test_party",
    "commands/test_plan",
    "deep/test_processes",
    "deep/test_resume",
    "deep/test_sequences",
    "deep/test_training",
    "experiments",
    "federated/engines",
    "federated/flower",
    "federated/test_plan",
    "federated/test_saving",
    "federated/test_simulation",
    "linear/test_every_estimator",
    "linear/test_iteration",
    "linear/test_sparse",
    "linear/test_training",
    "multiparty/protocol",
    "multiparty/transport/test_network",
    "objectives/test_glm",
    "plans/test_aggregation",
    "plans/test_gradient",
    "plans/test_recursive",
    "preprocessing/test_saving",
    "privacy/test_accounting",
    "privacy/test_calibration",
    "privacy/test_closed_forms",
    "privacy/test_fixed_size",
    "privacy/test_gaussian",
    "privacy/test_iteration",
    "privacy/test_ledger",
    "privacy/test_loss_masses",
    "privacy/test_noise",
    "privacy/test_ziggurat",
    "solvers/test_adaptive_gradient",
    "solvers/test_centred_gradient",
    "solvers/test_objective_perturbation",
    "solvers/test_random_round",
    "test_cli",
    "test_docs",
    "test_saving",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--fast``, which ``make check`` uses."""
    parser.addoption("--fast", action="store_true", help="leave out the slow tests, without importing them")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the slow tests if asked to."""
    slow = tuple(str(TESTS / name) for name in SLOW)
    return True if config.getoption("--fast") and str(collection_path).startswith(slow) else None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give unseeded noise of this process the same keys in every run of a test, so that chance fails none of them.

    A test that has passed then passes again. ``@pytest.mark.system_noise`` leaves a test its keys from the system.
    """
    noise._system_key = system_key if item.get_closest_marker("system_noise") else repeatable_keys(item.nodeid)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


system_key = noise._system_key


def repeatable_keys(name: str) -> Callable[[], bytes]:
    process, numbers = os.getpid(), itertools.count()

    def key() -> bytes:
        if os.getpid() != process:  # a child must not repeat its parent's noise
            return system_key()
        return hashlib.sha256(f"{name} {next(numbers)}".encode()).digest()

    return key
