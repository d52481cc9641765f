"""The journal counts at least what was released, whoever continues a run; states are read without executing code."""

import os
from pathlib import Path

import numpy as np
import pytest

from privet.run_files import RunFiles, reading_state, write_state

RUN = "0123abcd"
PLAN = "ten steps"


def files(run=RUN, plan=PLAN, ahead=1):
    return RunFiles(lambda bound: int(run, 16), plan, ahead)


def steps_in(path):
    return path.read_bytes().count(b".")


def test_counting_does_nothing_before_the_first_file(tmp_path):
    one = files()
    one.count(3)
    one.settle(3)
    one.close()
    assert not one.has_journal
    assert not list(tmp_path.iterdir())


def test_a_journal_counts_blocks_ahead_and_settles_on_the_truth(tmp_path):
    one = files(ahead=10)
    one.begin(tmp_path / "state")
    journal = tmp_path / f"privet-{RUN}.journal"
    one.count(3)
    assert steps_in(journal) == 12
    one.count(5)
    assert steps_in(journal) == 12
    one.settle(5)
    assert steps_in(journal) == 5


def begun(folder, steps, spent, run=RUN):
    """Return what a state contains that was saved in a folder after some steps. Further steps were made after it."""
    one = files(run)
    one.begin(folder / "state")
    one.count(spent)
    known = one.references(folder / "state", spent)
    one.count(steps)
    one.close()
    return known


def test_another_run_takes_over_the_journal_and_its_name(tmp_path):
    first = files()
    first.begin(tmp_path / "state")
    first.count(4)
    (tmp_path / "deeper").mkdir()
    known = first.references(tmp_path / "deeper" / "state", 2)
    assert (known["run"], known["journal"]) == (RUN, "..")
    first.close()
    second = files("ffffffff")
    assert second.take_over(tmp_path / "deeper" / "state", known, spent=2) == 4
    assert second.references(tmp_path / "state", 4)["run"] == RUN
    with pytest.raises(RuntimeError, match="in use"):
        files("eeeeeeee").take_over(tmp_path / "deeper" / "state", known, spent=2)


def test_steps_that_another_process_counted_are_never_removed(tmp_path):
    known = begun(tmp_path, steps=7, spent=2)
    second = files("ffffffff", ahead=10)
    assert second.take_over(tmp_path / "state", known, 2) == 7
    second.settle(3)
    assert steps_in(tmp_path / f"privet-{RUN}.journal") == 7
    second.count(8)
    second.settle(8)
    assert steps_in(tmp_path / f"privet-{RUN}.journal") == 8


@pytest.mark.parametrize(
    ("change", "spent", "cause"),
    [
        ({"run": "f" * 8}, 2, "missing"),
        ({"run": "../x"}, 2, "name"),
        ({"run": None}, 2, "name"),
        ({"code": "0" * 64}, 2, "does not belong"),
        ({"code": None}, 2, "does not belong"),
        ({}, 1, "does not belong"),
    ],
)
def test_a_file_that_does_not_belong_to_the_journal_is_rejected(tmp_path, change, spent, cause):
    known = begun(tmp_path, steps=5, spent=2) | change
    before = (tmp_path / f"privet-{RUN}.journal").read_bytes()
    for given in (known, {name: value for name, value in known.items() if value is not None}):
        with pytest.raises(ValueError, match=cause):
            files("e" * 8).take_over(tmp_path / "state", given, spent)
    assert (tmp_path / f"privet-{RUN}.journal").read_bytes() == before
    with pytest.raises(ValueError, match="does not belong"):
        files(plan="five steps").take_over(tmp_path / "state", begun(tmp_path, 5, 2, "a" * 8), 2)


def test_a_journal_that_is_too_short_is_rejected(tmp_path):
    known, journal = begun(tmp_path, steps=3, spent=3), tmp_path / f"privet-{RUN}.journal"
    os.truncate(journal, journal.stat().st_size - 1)
    with pytest.raises(ValueError, match="incomplete"):
        files("e" * 8).take_over(tmp_path / "state", known, 3)


def test_a_journal_of_an_older_version_is_continued_if_it_lies_beside_the_file(tmp_path):
    """It has no header, and its files have no code."""
    old = tmp_path / f"privet-{RUN}.journal"
    old.write_bytes(b"..")
    known = {"run": RUN, "journal": "."}
    one = files()
    assert one.take_over(tmp_path / "state", known, 2) == 2
    one.count(3)
    assert one.references(tmp_path / "state", 3) == known
    one.close()
    assert old.read_bytes() == b"..."
    (tmp_path / "deeper").mkdir()
    for known in ({"run": RUN, "journal": ".."}, {"run": RUN, "journal": "..", "code": None}):
        with pytest.raises(ValueError, match="missing"):
            files().take_over(tmp_path / "deeper" / "state", known, 2)


def test_a_second_run_does_not_take_the_name_of_the_first(tmp_path):
    begun(tmp_path, 2, 2)
    with pytest.raises(FileExistsError):
        files().begin(tmp_path / "other")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full disk to write to")
def test_a_full_disk_raises_before_a_step_is_released(tmp_path, monkeypatch):
    one = files()
    one.begin(tmp_path / "state")
    with open("/dev/full", "wb", buffering=0) as full:
        monkeypatch.setattr(one._journal, "_handle", full.fileno())
        with pytest.raises(OSError, match="No space"):
            one.count(10_000)


def test_a_state_is_read_back_with_its_arrays(tmp_path):
    write_state(tmp_path / "state", "form 1", {"steps": 3}, {"w": np.arange(3.0)})
    with reading_state(tmp_path / "state", "form 1", "save") as (state, arrays):
        assert state == {"steps": 3}
        assert arrays["w"].tolist() == [0.0, 1.0, 2.0]
    with (
        pytest.raises(ValueError, match="has the format 'form 1'"),
        reading_state(tmp_path / "state", "form 2", "save"),
    ):
        pass
