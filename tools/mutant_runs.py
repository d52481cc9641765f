"""Runs of the tests for ``tools/mutants.py``: in a copy of the tree, in processes forked after the heavy imports."""

import compileall
import contextlib
import functools
import json
import os
import py_compile
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from mutations import Mutant

ROOT = Path(__file__).resolve().parent.parent
OPTIONS = ["-q", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
_IMPORTS = 10.0  # processor time in which the chosen files of tests are imported, in seconds
Tests = dict[str, tuple[float, frozenset[str]]]  # by test: its duration, and the functions that it enters
Failure = tuple[str, str]  # a test, and the last line of its failure


class Recorder:
    """A plugin of pytest that records the duration of each passing test and the functions of privet that it enters.

    What a fixture enters counts for all tests of the file, since a fixture may run only once. Tests with a time limit
    are left out: on a busy machine they fail without any mutant.
    """

    def __init__(self, source: Path) -> None:
        self.prefix = f"{source}/"
        self.tests: dict[str, tuple[float, set[str]]] = {}
        self.by_fixtures: set[str] = set()
        self.entered: set[str] = set()

    def note(self, frame: FrameType, event: str, argument: object) -> None:
        """Note a call; returning no function to the interpreter keeps lines from being traced."""
        code = frame.f_code
        if code.co_filename.startswith(self.prefix):
            name = code.co_qualname.split(".<locals>")[0]
            self.entered.add(f"{code.co_filename.removeprefix(self.prefix)}::{name}()")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        """Record what the fixtures of a test enter."""
        self.entered = self.by_fixtures
        threading.settrace(self.note)
        sys.settrace(self.note)
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Record what a test enters, if it passes."""
        self.entered = set()
        start = time.process_time()
        result = yield
        if not {"takes_less_than", "slowness"} & set(getattr(item, "fixturenames", ())):
            self.tests[item.nodeid] = time.process_time() - start, self.entered
        return result


class Chooser:
    """A plugin of pytest that runs the chosen tests in their order, and keeps the first failure.

    A test that takes much longer than without mutants ends the process, which has no answer then. The limit is on
    processor time, which a busy machine hardly changes; only a test that waits for something is limited in real time.
    The files of tests are imported within the same limits.
    """

    def __init__(self, tests: dict[str, float]) -> None:
        self.seconds = tests
        self.order = {name: place for place, name in enumerate(tests)}
        self.failure: Failure | None = None

    def pytest_collection(self) -> None:
        """Limit the time in which the files of tests are imported."""
        self._limit(_IMPORTS)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the chosen tests, in their order."""
        items[:] = sorted((i for i in items if i.nodeid in self.order), key=lambda i: self.order[i.nodeid])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Limit the time of a test."""
        self._limit(self.seconds[item.nodeid])

    def _limit(self, seconds: float) -> None:
        signal.setitimer(signal.ITIMER_PROF, 5 * seconds + 10)
        signal.setitimer(signal.ITIMER_REAL, 20 * seconds + 120)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep a failure of a test."""
        if report.failed and self.failure is None:
            self.failure = report.nodeid, report.longreprtext.strip().splitlines()[-1][:160]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep a failure to import a test."""
        if report.failed and self.failure is None:
            self.failure = report.nodeid, report.longreprtext.strip().splitlines()[-1][:160]


class Copy:
    """A copy of the tree in which mutants run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True
        )
        for name in filter(lambda name: (ROOT / name).is_file(), listed.stdout.decode().splitlines()):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
        # Bytecode that is checked against the source, since mutants follow one another within the resolution of clocks.
        mode = py_compile.PycInvalidationMode.CHECKED_HASH
        compileall.compile_dir(folder / "src", quiet=2, invalidation_mode=mode)

    def child(self, work: Callable[[], Any]) -> Any:
        """Return what the work returns in a child that runs in the copy, or None if the child was ended."""
        answer = self.folder / ".answer"
        answer.unlink(missing_ok=True)
        if not (process := os.fork()):
            try:
                os.setsid()
                nowhere = os.open(os.devnull, os.O_RDWR)
                for stream in (0, 1, 2):
                    os.dup2(nowhere, stream)
                os.chdir(self.folder)
                os.environ["PYTHONPATH"] = str(self.folder / "src")
                sys.path.insert(0, str(self.folder / "src"))
                answer.write_text(json.dumps(work()))
            finally:
                os._exit(0)
        os.waitpid(process, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)  # what the tests left behind
        return json.loads(answer.read_text()) if answer.exists() else None

    def record(self, file: str) -> dict[str, Any]:
        """Return the tests of a file with their durations and the functions that they enter."""

        def work() -> dict[str, Any]:
            recorder = Recorder(self.folder / "src" / "privet")
            pytest.main([*OPTIONS, file], plugins=[recorder])
            sys.settrace(None)
            names = sorted(recorder.by_fixtures.union(*(entered for _, entered in recorder.tests.values())))
            place = {name: index for index, name in enumerate(names)}
            tests = {
                test: (round(seconds, 3), sorted(place[name] for name in entered | recorder.by_fixtures))
                for test, (seconds, entered) in recorder.tests.items()
            }
            return {"functions": names, "tests": tests}

        return self.child(work) or {"functions": [], "tests": {}}

    def first_failure(self, tests: dict[str, float]) -> Failure | None:
        """Return the first test that fails, or None if all pass."""

        def work() -> Failure:
            chooser, files = Chooser(tests), list(dict.fromkeys(test.split("::")[0] for test in tests))
            code = pytest.main([*OPTIONS, "-x", *files], plugins=[chooser])
            ended = (files[0], f"pytest ended with {code!s}") if code not in {0, 5} else ("", "")
            return chooser.failure or ended

        answer = self.child(work)
        return ("", "time limit") if answer is None else tuple(answer) if answer[0] else None

    @functools.cache  # noqa: B019 (one copy lives as long as the process)
    def passes(self, test: str) -> bool:
        """Return whether a test passes without any mutant."""
        return self.first_failure({test: 60.0}) is None

    def verdict(self, mutant: Mutant, tests: Tests) -> dict[str, Any]:
        """Return the first test that notices the mutant, if any."""
        file, start = self.folder / "src" / "privet" / mutant.file, time.monotonic()
        original, left = file.read_text(encoding="utf-8"), {name: seconds for name, (seconds, _) in tests.items()}
        failure: Failure | None = None
        while left:
            file.write_text(mutant.text, encoding="utf-8")
            failure = self.first_failure(left)
            file.write_text(original, encoding="utf-8")
            if failure is None or not failure[0] or self.passes(failure[0]):
                break
            left = {name: left[name] for name in left if failure[0] not in {name, name.split("::")[0]}}
        by, why = failure if failure and left else (None, "")
        return {"by": by, "why": why, "tests": len(left), "seconds": round(time.monotonic() - start, 1)}
