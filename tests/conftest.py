"""Fixtures for all tests: time limits that adapt to the machine, and reproducible noise."""

import functools
import gc
import hashlib
import inspect
import itertools
import os
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privet.privacy.noise import source as noise

TESTS = Path(__file__).parent
REFERENCE = 0.35  # seconds that the reference work takes on the two-core machine where the limits were set


def reference_work() -> None:
    """Do reference work that is slow on slow machines: transforms larger than the cache, and plain Python."""
    values = np.random.default_rng(0).standard_normal(1 << 19)
    for _ in range(10):
        np.fft.irfft(np.fft.rfft(values) ** 3)
        np.exp(-values * values).cumsum()
    sum(number * number for number in range(300_000))


def forget() -> None:
    """Empty the caches of privet, so that another try repeats the work."""
    for thing in gc.get_objects():
        if isinstance(thing, functools._lru_cache_wrapper) and thing.__module__.startswith("privet"):
            thing.cache_clear()


def seconds_of(work: Callable[[], Any]) -> float:
    """Return the processor time that the work takes in this process, without the time of other processes."""
    start = time.process_time()
    work()
    return time.process_time() - start


@pytest.fixture
def slowness() -> Callable[[], float]:
    """Return a function that measures the factor, at least 1, by which time limits are currently extended.

    Other processes take memory bandwidth and lower the clock rate, which increases even processor time. Limits are
    therefore multiplied by the current duration of a reference work over its usual duration.
    """
    return lambda: max(1.0, seconds_of(reference_work) / REFERENCE)


@pytest.fixture
def takes_less_than(slowness: Callable[[], float]) -> Callable[[float, Callable[[], Any]], bool]:
    """Return a check of a time limit that also holds on a slower or busier machine."""

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
    "report/test_pages",
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


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without garbage collection, which would take a quarter of the time and find hardly any garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give unseeded noise the same keys in every run of a test, so that no test fails by chance.

    A test that has passed then passes again. With ``@pytest.mark.system_noise`` keys come from the operating system.
    """
    noise._system_key = system_key if item.get_closest_marker("system_noise") else repeatable_keys(item.nodeid)
    if "torch" in sys.modules:
        # torch.manual_seed also notes the call stack for each kind of accelerator, which takes 500 times as long.
        sys.modules["torch"].default_generator.manual_seed(0)


system_key = noise._system_key


def repeatable_keys(name: str) -> Callable[[], bytes]:
    process, numbers = os.getpid(), itertools.count()

    def key() -> bytes:
        if os.getpid() != process:  # a child must not repeat its parent's noise
            return system_key()
        return hashlib.sha256(f"{name} {next(numbers)}".encode()).digest()

    return key


def draws() -> list[str]:
    """Return the names of all methods of a noise source that draw."""
    methods = inspect.getmembers(noise.NoiseSource, inspect.isfunction)
    return [name for name, _ in methods if not name.startswith("_") and name != "assumption"]


@pytest.fixture
def no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every draw from a noise source raise an error other than ValueError."""

    def refuse(*args: Any, **options: Any) -> None:
        raise AssertionError("noise was drawn")

    for name in draws():
        monkeypatch.setattr(noise.NoiseSource, name, refuse)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which every draw from a noise source adds the name of its method."""
    names: list[str] = []
    for name in draws():
        draw = getattr(noise.NoiseSource, name)

        def record(*args: Any, name: str = name, draw: Callable[..., Any] = draw, **options: Any) -> Any:
            result = draw(*args, **options)
            names.append(name)  # not if the draw was refused
            return result

        monkeypatch.setattr(noise.NoiseSource, name, record)
    return names
