"""A ledger in one process: what is booked, limits, and the total."""

import math
import os
import pickle
import sqlite3
import stat
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from ledger_examples import ADD, GAUSS, PURE, REPLACE, spent

from privet.privacy import Budget, BudgetExceededError, Guarantee, Ledger, LimitChange, Unit, gdp_epsilon
from privet.privacy.events import (
    ApproximateRelease,
    Composition,
    FixedSizeGaussian,
    GaussianRelease,
    NearlyGaussian,
    Noiseless,
    PureRelease,
)
from privet.privacy.ledger import database
from privet.privacy.ledger import ledger as ledger_module


@pytest.fixture
def path(tmp_path):
    return tmp_path / "patients.ledger"


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
    cause = r"patients.ledger: [^\n]*0.4[^\n]*above the limit of 0.35; nothing was recorded. Of the limit, 0.3 is spent"
    with pytest.raises(BudgetExceededError, match=cause):
        ledger.spend(PURE)
    assert path.read_bytes() == written


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
    Ledger(path).set_limit(Budget(tight * 1.001, 1e-9))
    Ledger(path).spend(GAUSS)


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
    ledger = Ledger(tmp_path / "nowhere" / "patients.ledger")
    assert ledger.entries() == []
    with pytest.raises(OSError, match="nowhere"):
        ledger.spend(GAUSS)


@pytest.mark.parametrize("limit", ["1", (1.0,), -1, (1.0, 2.0)], ids=repr)
def test_a_limit_that_is_not_a_budget_is_refused(path, limit):
    with pytest.raises(ValueError, match="limit"):
        Ledger(path, limit)


def test_a_limit_may_be_a_pair_or_a_number(path):
    assert Ledger(path, (1.0, 1e-5)).limit == Budget(1.0, 1e-5)
    assert Ledger(path, 3).limit == Budget(3.0, 1e-6)


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


def test_a_guarantee_that_states_less_than_its_event_is_not_recorded(path):
    with pytest.raises(ValueError, match="its event gives"):
        Ledger(path).spend(replace(GAUSS, epsilon=0.001))
    assert not path.exists()


def test_a_guarantee_with_numpy_numbers_is_recorded(path):
    import numpy as np

    booked = spent(FixedSizeGaussian(2.0, np.int64(100), np.int64(10), np.int64(3)))
    Ledger(path).spend(booked)
    assert Ledger(path).entries()[0].guarantee == booked


# --- stored limits ------------------------------------------------------------------------------------------------


def test_a_limit_is_stored_and_binds_whoever_opens_the_ledger_without_one(path):
    Ledger(path, Budget(0.25)).spend(PURE)
    assert Ledger(path).limit == Budget(0.25)
    Ledger(path).spend(PURE)
    for book in (Ledger(path).spend, Ledger(path).check, Ledger(path, Budget(0.25)).spend):
        with pytest.raises(BudgetExceededError, match=r"above the limit of 0\.25"):
            book(PURE)


def test_a_limit_binds_even_if_the_first_release_under_it_is_refused(path):
    with pytest.raises(BudgetExceededError):
        Ledger(path, Budget(0.05)).spend(PURE)
    assert Ledger(path).entries() == []
    with pytest.raises(BudgetExceededError):
        Ledger(path).spend(PURE)


def test_check_with_a_limit_stores_nothing(path):
    Ledger(path, 1.0).check(PURE)
    assert not path.exists()
    with pytest.raises(BudgetExceededError):
        Ledger(path, 0.05).check(PURE)
    assert not path.exists()


def test_a_lower_limit_replaces_the_stored_one(path):
    Ledger(path, Budget(1.0, 1e-5)).spend(PURE)
    with pytest.raises(BudgetExceededError, match=r"limit of 0\.15"):
        Ledger(path, Budget(0.15, 1e-5)).spend(PURE)
    assert Ledger(path).limit == Budget(0.15, 1e-5)
    with pytest.raises(BudgetExceededError, match=r"limit of 0\.05"):  # below what is spent: nothing fits any more
        Ledger(path, Budget(0.05, 0.0)).spend(PURE)
    assert len(Ledger(path).entries()) == 1


@pytest.mark.parametrize("limit", [Budget(1.1, 1e-6), Budget(1.0, 1e-5), Budget(0.5, 1e-5), 2], ids=str)
def test_a_higher_limit_needs_an_explicit_call(path, limit):
    """A limit at a larger delta is not comparable, so it counts as higher."""
    Ledger(path, Budget(1.0, 1e-6)).spend(PURE)
    written = path.read_bytes()
    for call in (Ledger(path, limit).spend, Ledger(path, limit).check):
        with pytest.raises(ValueError, match=r"would raise the stored limit.*privet ledger .* --set-limit"):
            call(PURE)
    assert path.read_bytes() == written
    Ledger(path).set_limit(limit, "decision of the board")
    Ledger(path, limit).spend(PURE)
    first, _, second, _ = Ledger(path).timeline()
    assert first.limit == Budget(1.0, 1e-6)
    assert isinstance(second, LimitChange)
    assert second.label == "decision of the board"
    assert Ledger(path).limit == second.limit


def test_the_same_limit_is_stored_once(path):
    for _ in range(3):
        Ledger(path, 3).spend(PURE)
    assert [isinstance(line, LimitChange) for line in Ledger(path).timeline()] == [True, False, False, False]


# --- runs that are resumed ----------------------------------------------------------------------------------------


def test_a_run_is_booked_once(path):
    ledger = Ledger(path, Budget(0.15))
    booked = ledger.spend(PURE, "training", run="r")
    again = Ledger(path).spend(PURE, "training", run="r")
    assert (again.id, again.time) == (booked.id, booked.time)
    Ledger(path).check(PURE, run="r")  # although another entry would exceed the limit
    assert len(ledger.entries()) == 1
    with pytest.raises(ValueError, match="booked as 'training' with another event"):
        ledger.spend(GAUSS, run="r")
    with pytest.raises(BudgetExceededError):
        ledger.spend(PURE, run="another")


# --- many entries -------------------------------------------------------------------------------------------------


def test_the_total_of_counted_events_is_that_of_their_composition(path):
    """The limit is checked with counts. Their epsilon must not be below that of all events one by one."""
    parts = [GaussianRelease(0.1), NearlyGaussian(0.2, 1e-9), PureRelease(0.05), FixedSizeGaussian(4.0, 100, 5, 3)]
    parts += parts[1:] + [ApproximateRelease(0.02, 1e-8)] * 3
    together = Guarantee.of(Composition(tuple(parts)), REPLACE, 1e-5, released="all")
    *first, last = [spent(part) for part in parts]
    for limit, is_allowed in ((together.epsilon * 0.9999, False), (together.epsilon * 1.0001, True)):
        ledger = Ledger(path.with_name(f"{is_allowed}.ledger"))
        for guarantee in first:
            ledger.spend(guarantee)
        ledger.set_limit((limit, 1e-5))
        if is_allowed:
            ledger.spend(last)
            assert ledger.total(1e-5).epsilon == together.epsilon
        else:
            with pytest.raises(BudgetExceededError):
                ledger.spend(last)


def test_thousands_of_entries_are_checked_as_fast_as_few(path, takes_less_than):
    """This holds even for an object that has to read all of them first."""
    ledger = Ledger(path, (100.0, 1e-5))
    ledger.spend(spent(NearlyGaussian(0.01, 1e-12)), "first")
    with sqlite3.connect(path) as connection:  # 3,000 calls of spend() would take a minute
        (digest,) = connection.execute("SELECT digest FROM guarantees").fetchone()
        connection.executemany(
            "INSERT INTO lines (id, time, label, guarantee) VALUES (?, '2024-05-01T12:00:00+00:00', 'fit', ?)",
            [(str(number), digest) for number in range(3000)],
        )
    connection.close()
    assert takes_less_than(0.1, lambda: Ledger(path).spend(spent(NearlyGaussian(0.01, 1e-12))))
    assert takes_less_than(0.5, lambda: Ledger(path).entries())
    assert Ledger(path).total(1e-5).epsilon > gdp_epsilon(0.01 * math.sqrt(3000), 1e-5)


def test_a_ledger_of_many_parts_totals_quickly(path, takes_less_than):
    ledger = Ledger(path)
    ledger.spend(spent(Composition((GaussianRelease(0.1),) * 200)))
    for _ in range(10):
        ledger.spend(GAUSS)
    assert takes_less_than(1.0, lambda: ledger.total(1e-5))
    assert ledger.total(1e-5).epsilon == pytest.approx(gdp_epsilon(math.sqrt(200 * 0.01 + 10 * 0.09), 1e-5), rel=1e-12)


# --- the file and the object --------------------------------------------------------------------------------------


def test_only_the_owner_can_read_a_new_ledger_and_later_permissions_stay(path):
    Ledger(path).spend(GAUSS)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o640)
    Ledger(path).spend(GAUSS)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_an_unused_ledger_is_one_file(path):
    Ledger(path).spend(GAUSS)
    Ledger(path).entries()
    assert os.listdir(path.parent) == [path.name]


def test_an_entry_is_on_disk_when_spend_returns(path):
    """SQLite waits for the disk in every transaction, which is what synchronous=FULL sets for a write-ahead log."""
    Ledger(path).spend(GAUSS)
    with_log = sqlite3.connect(path)
    assert with_log.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    with_log.close()
    with database.writing(path) as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)


def test_descriptors_are_closed_again(path):
    Ledger(path).spend(GAUSS)
    before = os.listdir("/proc/self/fd")
    for other in range(3):
        Ledger(path.with_name(f"{other}.ledger")).spend(GAUSS)
        Ledger(path).total()
    assert len(os.listdir("/proc/self/fd")) <= len(before)


@pytest.mark.parametrize(
    "copied", [deepcopy, lambda ledger: pickle.loads(pickle.dumps(ledger))], ids=["copy", "pickle"]
)
def test_copies_of_a_ledger_write_to_the_same_file(path, copied):
    ledger = Ledger(path, 3)
    ledger.spend(GAUSS)
    copied(ledger).spend(GAUSS)
    copied(Ledger(path, 3)).spend(GAUSS)
    assert len(ledger.entries()) == 3


def test_labels_of_file_names_that_are_no_text_are_recorded(path):
    Ledger(path).spend(GAUSS, "fit " + os.fsdecode(b"caf\xe9.csv"))
    (entry,) = Ledger(path).entries()
    assert entry.label.startswith("fit caf")


def test_a_clock_that_is_set_back_changes_neither_order_nor_total(path, monkeypatch):
    for year in (2026, 1999, 2030):
        monkeypatch.setattr(ledger_module, "_now", lambda year=year: f"{year}-01-01T00:00:00+00:00")
        Ledger(path, Budget(0.35)).spend(PURE, str(year))
    assert [entry.label for entry in Ledger(path).entries()] == ["2026", "1999", "2030"]
    with pytest.raises(BudgetExceededError):
        Ledger(path).spend(PURE)
