import json
import math
import os
import resource
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from privet.privacy import Adjacency, Budget, BudgetExceededError, Guarantee, Ledger, Unit, assumed, gdp_epsilon
from privet.privacy.events import (
    ApproximateRelease,
    Composition,
    FixedSizeGaussian,
    GaussianRelease,
    Noiseless,
    PureRelease,
)

REPLACE, ADD = Adjacency.REPLACE_ONE, Adjacency.ADD_OR_REMOVE


def spent(event, delta=1e-6, adjacency=REPLACE, unit=Unit.RECORD):
    return Guarantee.of(event, adjacency, delta, released="a model", assumptions=[assumed("good faith")], unit=unit)


PURE = spent(PureRelease(0.1), 0.0)
GAUSS = spent(GaussianRelease(0.3))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.jsonl"


# --- one process --------------------------------------------------------------------------------------------------


def test_an_unused_ledger_is_empty_and_has_no_file(path):
    assert Ledger(path).entries() == []
    assert Ledger(path).total() is None
    assert not path.exists()


def test_entries_survive_reopening_in_order_with_label_and_time(path):
    before = datetime.now(UTC) - timedelta(seconds=1)
    booked = [
        Ledger(path).spend(GAUSS, "first"),
        Ledger(path).spend(PURE, 'second\n"line" \u2028 é'),
        Ledger(path).spend(PURE),
    ]
    entries = Ledger(str(path)).entries()
    assert entries == booked
    assert [entry.label for entry in entries] == ["first", 'second\n"line" \u2028 é', ""]
    assert [entry.guarantee for entry in entries] == [GAUSS, PURE, PURE]
    for entry in entries:
        assert before <= datetime.fromisoformat(entry.time) <= datetime.now(UTC)


@pytest.mark.parametrize("limit", [None, (5.0, 1e-5)])
def test_a_release_without_noise_is_refused_before_and_after_training(path, limit):
    ledger = Ledger(path, limit)
    ledger.spend(GAUSS)
    for book in (ledger.check, ledger.spend):
        with pytest.raises(
            BudgetExceededError, match=r"no noise, and thus no differential privacy.*nothing was recorded"
        ):
            book(spent(Composition((GaussianRelease(0.1), Noiseless()))))
    assert ledger.entries() == Ledger(path).entries()
    assert len(ledger.entries()) == 1


def test_times_are_in_whole_seconds_of_universal_time(path):
    time = datetime.fromisoformat(Ledger(path).spend(GAUSS).time)
    assert time.utcoffset() == timedelta(0)
    assert time.isoformat() == time.isoformat(timespec="seconds")


def test_the_file_has_one_json_object_per_line(path):
    for _ in range(3):
        Ledger(path).spend(GAUSS, "a")
    lines = path.read_text(encoding="utf-8").split("\n")
    assert lines.pop() == ""
    assert [json.loads(line)["label"] for line in lines] == ["a"] * 3


def test_total_composes_events(path):
    ledger = Ledger(path)
    for _ in range(4):
        ledger.spend(GAUSS)
    assert ledger.total().epsilon == gdp_epsilon(0.6, 4e-6)
    assert ledger.total(1e-5).epsilon == gdp_epsilon(0.6, 1e-5)
    assert ledger.total().is_conditional


def test_a_release_beyond_the_limit_is_not_recorded(path):
    ledger = Ledger(path, Budget(0.35))
    for _ in range(3):
        ledger.spend(PURE)
    written = path.read_bytes()
    with pytest.raises(
        BudgetExceededError, match=r"ledger.jsonl: [^\n]*0.4[^\n]*above the limit of 0.35; nothing was recorded"
    ):
        ledger.spend(PURE)
    assert path.read_bytes() == written
    Ledger(path).spend(PURE)  # whoever opens the ledger states the limit
    assert len(ledger.entries()) == 4


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_limit_can_be_used_up_to_the_last_bit(path, delta):
    ledger = Ledger(path, Budget(0.5, delta))
    ledger.spend(spent(PureRelease(0.5), 0.0))
    with pytest.raises(BudgetExceededError):
        ledger.spend(spent(PureRelease(1e-3), 0.0))


def test_a_limit_counts_at_its_own_delta(path):
    tight = gdp_epsilon(0.3, 1e-9)
    assert tight > GAUSS.epsilon
    with pytest.raises(BudgetExceededError):
        Ledger(path, Budget(tight * 0.999, 1e-9)).spend(GAUSS)
    Ledger(path, Budget(tight * 1.001, 1e-9)).spend(GAUSS)


@pytest.mark.parametrize("guarantee", [GAUSS, spent(ApproximateRelease(0.1, 1e-6))], ids=["gaussian", "black box"])
def test_a_pure_limit_admits_no_delta(path, guarantee):
    with pytest.raises(BudgetExceededError, match="epsilon = inf"):
        Ledger(path, Budget(100.0)).spend(guarantee)
    assert Ledger(path).entries() == []


def test_delta_alone_can_exceed_a_limit(path):
    ledger = Ledger(path, Budget(10.0, 2.5e-6))
    black_box = spent(ApproximateRelease(0.1, 1e-6))
    ledger.spend(black_box)
    ledger.spend(black_box)
    with pytest.raises(BudgetExceededError):
        ledger.spend(black_box)


def test_a_total_of_nan_exceeds_every_limit(path, monkeypatch):
    monkeypatch.setattr("privet.privacy.analyses.accounting.epsilon", lambda *args, **kwargs: math.nan)
    with pytest.raises(ValueError, match="epsilon"):
        Ledger(path, Budget(1.0, 1e-5)).spend(GAUSS)
    assert not path.exists() or path.read_bytes() == b""


def test_a_release_with_delta_only_is_charged(path):
    """An ApproximateRelease with epsilon 0 may publish everything with probability delta, so it is charged as well."""
    publish = Guarantee(0.0, 0.01, REPLACE, ApproximateRelease(0.0, 0.01), "the table, one time in a hundred")
    with pytest.raises(BudgetExceededError):
        Ledger(path, Budget(1.0, 1e-5)).spend(publish)


@pytest.mark.parametrize(
    "other", [spent(GaussianRelease(0.1), adjacency=ADD), spent(GaussianRelease(0.1), unit=Unit.CLIENT)]
)
@pytest.mark.parametrize("limit", [None, Budget(10, 1e-3)], ids=["unlimited", "limited"])
def test_a_guarantee_that_cannot_be_composed_with_the_rest_is_not_recorded(path, other, limit):
    """Otherwise the ledger would no longer have a total."""
    ledger = Ledger(path, limit)
    ledger.spend(GAUSS)
    with pytest.raises(ValueError, match="cannot compose"):
        ledger.spend(other)
    assert ledger.total().epsilon == GAUSS.epsilon


def test_a_ledger_without_limit_records_every_guarantee(path):
    """This holds even if the deltas add up to more than 1, so that there is no total."""
    careless = spent(GaussianRelease(0.1), 0.4)
    for _ in range(3):
        Ledger(path).spend(careless)
    assert len(Ledger(path).entries()) == 3
    assert Ledger(path).total(1e-6).epsilon == gdp_epsilon(math.sqrt(0.03), 1e-6)


def test_a_missing_directory_is_an_error_that_names_it(tmp_path):
    ledger = Ledger(tmp_path / "nowhere" / "ledger.jsonl")
    assert ledger.entries() == []
    with pytest.raises(OSError, match="nowhere"):
        ledger.spend(GAUSS)


@pytest.mark.parametrize("limit", [1.0, "1", (1.0,)], ids=repr)
def test_a_limit_that_is_not_a_budget_is_refused(path, limit):
    with pytest.raises(ValueError, match="limit"):
        Ledger(path, limit)


def test_a_limit_may_be_a_pair(path):
    assert Ledger(path, (1.0, 1e-5)).limit == Budget(1.0, 1e-5)


# --- damage -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [1, 2, 30, 200])
def test_a_truncated_last_line_is_an_error_and_nothing_is_added_to_it(path, cut):
    """A crash of the machine can leave any part of a line, such as a line without its line feed."""
    for _ in range(3):
        Ledger(path).spend(GAUSS)
    path.write_bytes(path.read_bytes()[:-cut])
    damaged = path.read_bytes()
    if cut > 1:
        with pytest.raises(ValueError, match=r"ledger.jsonl: line 3 is not a ledger entry[^\n]*$"):
            Ledger(path).entries()
        with pytest.raises(ValueError, match="line 3"):
            Ledger(path).spend(GAUSS)
        assert path.read_bytes() == damaged
        return
    # Only the line feed is missing and the entry is complete. It may be refused, but nothing may be appended to it.
    try:
        Ledger(path).spend(GAUSS)
    except ValueError:
        assert path.read_bytes() == damaged
    else:
        assert len(Ledger(path).entries()) == 4


def test_an_entry_whose_epsilon_was_edited_is_an_error(path):
    Ledger(path).spend(GAUSS)
    path.write_text(path.read_text().replace(json.dumps(GAUSS.epsilon), "0.001"))
    with pytest.raises(ValueError, match=rf"line 1 .* epsilon = 0\.001 .* gives epsilon = {GAUSS.epsilon:.6g}"):
        Ledger(path).entries()
    assert Ledger(path).total().epsilon == GAUSS.epsilon  # computed from the events alone


def test_a_guarantee_that_states_less_than_its_event_is_not_recorded(path):
    with pytest.raises(ValueError, match="its event gives"):
        Ledger(path).spend(replace(GAUSS, epsilon=0.001))
    assert not path.exists()


@contextmanager
def disk_full_after(size):
    """Make the operating system refuse to let any file of this process grow beyond a size."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("room", [0, 1, 200])
@pytest.mark.parametrize("entries", [0, 2])
def test_a_full_disk_leaves_the_ledger_as_it_was(path, entries, room):
    for _ in range(entries):
        Ledger(path).spend(GAUSS)
    before = path.read_bytes() if entries else b""
    with disk_full_after(len(before) + room), pytest.raises(OSError, match=r"File too large\. Nothing was recorded"):
        Ledger(path).spend(GAUSS)
    assert path.read_bytes() == before
    Ledger(path).spend(GAUSS)
    assert len(Ledger(path).entries()) == entries + 1


def test_an_interrupted_write_leaves_the_ledger_as_it_was(path, monkeypatch):
    Ledger(path).spend(GAUSS)
    before = path.read_bytes()

    def interrupt(_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "fsync", interrupt)
        Ledger(path).spend(GAUSS)
    assert path.read_bytes() == before


def test_a_line_and_the_name_of_a_new_file_are_on_disk_before_spend_returns(path, monkeypatch):
    synced, sync = [], os.fsync

    def noted(descriptor):
        size = os.fstat(descriptor).st_size
        synced.append((os.readlink(f"/proc/self/fd/{descriptor}"), size))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    Ledger(path).spend(GAUSS)
    first = path.stat().st_size
    assert synced[0] == (str(path.resolve()), first)
    assert [name for name, _ in synced[1:]] == [str(path.resolve().parent)]
    synced.clear()
    Ledger(path).spend(GAUSS)
    assert synced == [(str(path.resolve()), path.stat().st_size)]
    synced.clear()
    path.write_bytes(path.read_bytes()[:-30])
    Ledger(path).drop_cut_line()
    assert synced == [(str(path.resolve()), first)]


def test_descriptors_are_closed_again(path):
    Ledger(path).spend(GAUSS)
    before = os.listdir("/proc/self/fd")
    for other in range(3):
        Ledger(path.with_name(f"{other}.jsonl")).spend(GAUSS)
        Ledger(path).total()
    assert len(os.listdir("/proc/self/fd")) <= len(before)


@pytest.mark.parametrize("cut", [2, 30, 200, 10_000])
def test_a_line_that_a_crash_cut_off_can_be_removed(path, cut):
    """It stops all work until the owner of the ledger has made sure that its release was not made."""
    Ledger(path).spend(GAUSS, "first")
    whole = path.read_bytes()
    Ledger(path).spend(GAUSS, "second")
    second = path.read_bytes()[len(whole) :]
    cut = min(cut, len(second) - 1)
    path.write_bytes(whole + second[:-cut])
    for call in (Ledger(path).entries, Ledger(path).total, lambda: Ledger(path).check(GAUSS)):
        with pytest.raises(ValueError, match=r"line 2 .*cut off after '\{.*privet ledger .* --drop-cut-line"):
            call()
    assert Ledger(path).drop_cut_line() == second[:-cut].decode()
    assert path.read_bytes() == whole
    assert Ledger(path).drop_cut_line() is None
    Ledger(path).spend(GAUSS)
    assert Ledger(path).total().epsilon == gdp_epsilon(math.hypot(0.3, 0.3), 2e-6)


def test_an_entry_without_its_line_feed_counts_and_is_never_removed(path):
    Ledger(path).spend(GAUSS, "first")
    path.write_bytes(path.read_bytes()[:-1])
    assert Ledger(path).drop_cut_line() is None
    assert [entry.label for entry in Ledger(path).entries()] == ["first"]
    Ledger(path).spend(PURE, "second")
    assert [entry.label for entry in Ledger(path).entries()] == ["first", "second"]


def test_a_line_that_is_complete_but_not_an_entry_is_never_removed(path):
    path.write_bytes(b'{"label": "x"}')
    with pytest.raises(ValueError, match="line 1 is not a ledger entry"):
        Ledger(path).entries()
    assert Ledger(path).drop_cut_line() is None
    assert path.read_bytes() == b'{"label": "x"}'


def test_check_raises_as_spend_would_and_records_nothing(path):
    ledger = Ledger(path, Budget(0.15))
    ledger.check(PURE)
    assert not path.exists()
    ledger.spend(PURE)
    written = path.read_bytes()
    with pytest.raises(BudgetExceededError, match="above the limit"):
        ledger.check(PURE)
    with pytest.raises(ValueError, match="cannot compose"):
        Ledger(path).check(spent(GaussianRelease(0.1), adjacency=ADD))
    assert path.read_bytes() == written


@pytest.mark.parametrize(
    "line", ["", "{}", "[]", "null", "1", '"x"', '{"label": "x", "time": "y", "guarantee": {}}', "\x00"]
)
def test_a_line_that_is_not_an_entry_is_an_error(path, line):
    Ledger(path).spend(GAUSS)
    with path.open("a") as file:
        file.write(line + "\n")
    for call in (Ledger(path).entries, Ledger(path).total, lambda: Ledger(path).spend(GAUSS)):
        with pytest.raises(ValueError, match=r"line 2 is not a ledger entry[^\n]*$"):
            call()


def test_bytes_that_are_not_text_are_an_error(path):
    path.write_bytes(b"\xff\xfe\n")
    with pytest.raises(ValueError, match=r"ledger\.jsonl"):
        Ledger(path).entries()


def test_a_guarantee_with_numpy_numbers_is_recorded(path):
    import numpy as np

    booked = spent(FixedSizeGaussian(2.0, np.int64(100), np.int64(10), np.int64(3)))
    Ledger(path).spend(booked)
    assert Ledger(path).entries()[0].guarantee == booked


# --- many processes -----------------------------------------------------------------------------------------------

WORKER = """
import sys
from privet.privacy import *
from privet.privacy.events import *
path, name, entries, limit = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
ledger = Ledger(path, Budget(limit) if limit else None)
guarantee = Guarantee.of(PureRelease(0.1), Adjacency.REPLACE_ONE, 0.0, released="r" * 3000)
print("ready", flush=True)
sys.stdin.readline()
booked = 0
for number in range(entries):
    try:
        ledger.spend(guarantee, f"{name}-{number}")
        booked += 1
    except BudgetExceededError:
        pass
print(booked)
"""


def start_workers(path, workers, entries, limit):
    """Start the processes, and let all begin at the same moment, after they have imported everything."""
    processes = [
        subprocess.Popen([sys.executable, "-c", WORKER, path, str(name), str(entries), str(limit)],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for name in range(workers)
    ]  # fmt: skip
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    return processes


def race(path, workers, entries, limit=0.0):
    return sum(int(process.communicate(timeout=60)[0]) for process in start_workers(path, workers, entries, limit))


def test_no_line_of_eight_concurrent_processes_is_lost_or_broken(path):
    assert race(path, workers=8, entries=10) == 80
    labels = [entry.label for entry in Ledger(path).entries()]
    assert sorted(labels) == sorted(f"{name}-{number}" for name in range(8) for number in range(10))
    for name in range(8):
        own = [label for label in labels if label.startswith(f"{name}-")]
        assert own == [f"{name}-{number}" for number in range(10)]


def test_racing_processes_never_exceed_the_limit_and_use_it_up(path):
    assert race(path, workers=4, entries=6, limit=1.05) == 10
    assert Ledger(path).total(0.0).epsilon == pytest.approx(1.0)


def test_threads_never_exceed_the_limit(path):
    def spend(_):
        try:
            Ledger(path, Budget(1.05)).spend(PURE)
        except BudgetExceededError:
            return 0
        return 1

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(spend, range(24))) == 10


def test_killing_writers_leaves_a_readable_ledger(path):
    """Writers are killed at random moments, and the next process can still read every line and continue."""
    for pause in (0.0, 0.01, 0.03):
        processes = start_workers(path, 2, 100_000, 0.0)
        time.sleep(pause)
        for process in processes:
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
        entries = Ledger(path).entries()
        Ledger(path).spend(PURE, "after")
        assert len(Ledger(path).entries()) == len(entries) + 1


LARGE = """
import sys
from privet.privacy import *
from privet.privacy.events import *
event = Composition(tuple(PureRelease(0.001 * (i + 1)) for i in range(20_000)))
guarantee = Guarantee.of(event, Adjacency.REPLACE_ONE, 0.0, released="everything")
ledger = Ledger(sys.argv[1])
print("ready", flush=True)
while True:
    ledger.spend(guarantee)
    print("booked", flush=True)
"""


def test_killing_the_writer_of_a_long_line_loses_no_earlier_entry(path):
    """A line of a megabyte takes many writes. A torn line must be reported by its number and not corrupt the rest."""
    Ledger(path).spend(PURE, "before")
    process = subprocess.Popen([sys.executable, "-c", LARGE, path], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    size = path.stat().st_size
    while path.stat().st_size == size:
        assert process.poll() is None
        time.sleep(1e-4)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    first, *rest = path.read_text().split("\n")
    assert json.loads(first)["label"] == "before"
    try:
        entries = Ledger(path).entries()
    except ValueError as error:
        assert f"line {len(rest) + 1 - (rest[-1] == '')}" in str(error)
    else:
        assert entries[0].label == "before"


def test_a_ledger_of_many_parts_totals_quickly(path, takes_less_than):
    ledger = Ledger(path)
    ledger.spend(spent(Composition((GaussianRelease(0.1),) * 200)))
    for _ in range(50):
        ledger.spend(GAUSS)
    assert takes_less_than(2.0, lambda: ledger.total(1e-5))
    assert ledger.total(1e-5).epsilon == gdp_epsilon(math.sqrt(200 * 0.01 + 50 * 0.09), 1e-5)
