"""Many processes book in one ledger, and some of them are killed. The processes are forked from this one, and real.

``PRIVET_AUDIT=long`` books 1,000 entries in each of 8 processes.
"""

import os
import signal
import sqlite3
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from ledger_examples import GAUSS, PURE, spent, text_ledger

from privet.privacy import Budget, BudgetExceededError, Ledger
from privet.privacy.events import Composition, GaussianRelease, PureRelease
from privet.privacy.ledger import database

IS_LONG = os.environ.get("PRIVET_AUDIT") == "long"
ENTRIES = 1000 if IS_LONG else 40
SMALL = spent(PureRelease(0.001), 0.0)


def forked(work):
    """Run a function in a forked process, and return the number of the process."""
    process = os.fork()
    if process == 0:
        code = 1
        try:
            work()
            code = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(code)
    return process


def finished(processes):
    """Wait for processes, and return how each of them ended: its exit code, or minus the signal that killed it."""
    return [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]


def book_and_note(path, notes, entries, limit=None):
    """Book entries, and note the id of each in a file of this process, which is on disk before the next one."""
    ledger = Ledger(path, limit)
    handle = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in range(entries):
        try:
            entry = ledger.spend(SMALL, f"{notes.name} {number}")
        except BudgetExceededError:
            continue
        os.write(handle, f"{entry.id}\n".encode())
        os.fsync(handle)


def noted_in(notes):
    lines = notes.read_text().split("\n") if notes.exists() else [""]
    return lines[:-1]  # A killed process may have written a part of the last line.


@pytest.mark.parametrize("limit", [Budget(8 * ENTRIES * 0.75 * 0.001 + 1e-9), *([None] if IS_LONG else [])], ids=str)
def test_eight_processes_lose_and_double_no_entry_while_some_are_killed(tmp_path, limit):
    """The file of each process says which bookings returned. The limit, which 3/4 of them reach, is never exceeded."""
    path = tmp_path / "patients.ledger"
    Ledger(path, limit).begin()
    generator = np.random.default_rng(0)
    names = [tmp_path / f"notes {number}" for number in range(8)]
    begun = [forked(lambda notes=notes: book_and_note(path, notes, ENTRIES, limit)) for notes in names]
    kills = 20 if IS_LONG else 2
    for kill in range(kills):
        time.sleep(float(generator.uniform(0.2, 1.0 if IS_LONG else 0.4)))
        place = int(generator.integers(8))
        os.kill(begun[place], signal.SIGKILL)
        finished([begun[place]])
        notes = tmp_path / f"notes of a new process {kill}"  # continues what the killed one left
        done = sum(len(noted_in(each)) for each in names if each.name.split()[1] == str(place))
        names.append(notes)
        begun[place] = forked(lambda notes=notes, done=done: book_and_note(path, notes, ENTRIES - done, limit))
    assert set(finished(begun)) == {0}
    noted = [line for notes in names for line in noted_in(notes)]
    booked = Ledger(path).entries()
    ids = Counter(entry.id for entry in booked)
    assert set(ids.values()) == {1}
    assert Counter(noted) <= ids  # nothing lost, nothing doubled
    assert len(booked) - len(noted) <= kills  # a killed process may have booked without noting it
    assert len({entry.label for entry in booked}) == len(booked)
    total = Ledger(path).total(0.0).epsilon
    assert total == pytest.approx(0.001 * len(booked))
    if limit is not None:
        assert limit.epsilon - 0.001 < total <= limit.epsilon
    print(f"{len(noted)} bookings noted, {len(booked)} entries, {kills} kills, total {total:.6g}, limit {limit}")


def test_processes_that_create_the_ledger_at_the_same_time_share_it(tmp_path):
    for attempt in range(20 if IS_LONG else 2):
        path = tmp_path / f"{attempt}.ledger"
        workers = [forked(lambda path=path: Ledger(path, 3).spend(PURE)) for _ in range(6)]
        assert finished(workers) == [0] * 6
        assert len(Ledger(path).entries()) == 6
        assert len(Ledger(path).timeline()) == 7
        assert [name for name in os.listdir(tmp_path) if name.startswith(f"{attempt}.")] == [path.name]


def test_processes_that_migrate_the_same_ledger_lose_no_entry(tmp_path):
    for attempt in range(20 if IS_LONG else 2):
        path = text_ledger(tmp_path / f"{attempt}.ledger", *[GAUSS] * 3)
        workers = [forked(lambda path=path: Ledger(path).spend(GAUSS)) for _ in range(6)]
        assert finished(workers) == [0] * 6
        assert len(Ledger(path).entries()) == 9


def test_two_processes_that_together_would_exceed_the_limit_do_not(tmp_path):
    """Both check first and find room. Only one of the two bookings is recorded."""
    path = tmp_path / "patients.ledger"
    Ledger(path, Budget(0.15)).begin()
    ready, go = os.pipe(), os.pipe()

    def check_and_book():
        ledger = Ledger(path)
        ledger.check(PURE)
        os.write(ready[1], b".")
        os.read(go[0], 1)
        ledger.spend(PURE)

    processes = [forked(check_and_book) for _ in range(2)]
    for _ in processes:
        os.read(ready[0], 1)
    os.write(go[1], b"..")
    assert sorted(finished(processes)) == [0, 1]
    assert len(Ledger(path).entries()) == 1


def test_threads_never_exceed_the_limit(tmp_path):
    path = tmp_path / "patients.ledger"
    ledger = Ledger(path, Budget(1.05))

    def spend(number):
        try:
            (ledger if number % 2 else Ledger(path, Budget(1.05))).spend(PURE)
        except BudgetExceededError:
            return 0
        return 1

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(spend, range(24))) == 10


def test_threads_and_processes_book_in_turn(tmp_path):
    """A thread that closes the file must not free the lock that another thread of the same process holds."""
    path = tmp_path / "patients.ledger"

    def many():
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: Ledger(path).spend(SMALL), range(12)))

    assert finished([forked(many) for _ in range(3)]) == [0] * 3
    assert len(Ledger(path).entries()) == 36


@pytest.mark.parametrize("is_text", [False, True], ids=["database", "text form"])
def test_a_ledger_can_be_read_and_continued_wherever_its_writer_is_killed(tmp_path, is_text):
    """The first booking, the migration of a text file, and the booking of a megabyte are killed after random times."""
    large = spent(Composition(tuple(GaussianRelease(1e-4 * (i + 1)) for i in range(5000))))
    generator = np.random.default_rng(1)
    for attempt in range(60 if IS_LONG else 6):
        path = tmp_path / f"{attempt}.ledger"
        before = 0
        if is_text:
            text_ledger(path, *[(GAUSS, f"old {number}") for number in range(50)])
            before = 50
        started = os.pipe()

        def work(path=path, started=started):
            os.write(started[1], b".")
            for _ in range(20):
                Ledger(path).spend(large, "new")
                os.write(started[1], b"+")

        process = forked(work)
        os.read(started[0], 1)
        time.sleep(float(generator.uniform(0.0, 0.15)))
        os.kill(process, signal.SIGKILL)
        finished([process])
        os.close(started[1])
        returned = len(os.read(started[0], 100))
        labels = [entry.label for entry in Ledger(path).entries()]
        assert labels[:before] == [f"old {number}" for number in range(before)]
        assert len(labels) - before - returned in {0, 1}
        Ledger(path).spend(GAUSS, "after")
        assert [entry.label for entry in Ledger(path).entries()] == [*labels, "after"]


def test_a_process_that_dies_between_booking_and_release_wastes_budget_only(tmp_path):
    path = tmp_path / "patients.ledger"

    def book_and_die():
        Ledger(path, Budget(0.25)).spend(PURE)
        os.kill(os.getpid(), signal.SIGKILL)

    assert finished([forked(book_and_die)]) == [-signal.SIGKILL]
    assert len(Ledger(path).entries()) == 1
    Ledger(path).spend(PURE)
    with pytest.raises(BudgetExceededError):
        Ledger(path).spend(PURE)


def test_a_fork_during_a_booking_of_another_thread_does_not_block_the_child(tmp_path):
    path = tmp_path / "patients.ledger"
    with database.exclusive(), ThreadPoolExecutor(1) as pool:
        child = pool.submit(lambda: forked(lambda: Ledger(path).spend(PURE))).result()
        assert finished([child]) == [0]
    assert len(Ledger(path).entries()) == 1


def test_a_ledger_that_stays_locked_is_an_error_that_says_so(tmp_path, monkeypatch):
    path = tmp_path / "patients.ledger"
    Ledger(path).spend(PURE)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr(database, "PATIENCE", 0.2)
    with pytest.raises(TimeoutError, match=r"in use by other processes for 0\.2 s\. Nothing was recorded"):
        Ledger(path).spend(PURE)
    assert len(Ledger(path).entries()) == 1  # Reading does not wait for writers.
    holder.execute("ROLLBACK")
    holder.close()
    Ledger(path).spend(PURE)
    assert len(Ledger(path).entries()) == 2
