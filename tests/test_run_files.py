"""The journal counts at least what was released, whoever continues a run; states are read without executing code."""

import numpy as np
import pytest

from privet.run_files import Journal, RunFiles, reading_state, write_state

RUN = "0123abcd"


def test_counting_does_nothing_before_the_first_file(tmp_path):
    files = RunFiles(RUN)
    files.count(3)
    files.settle(3)
    files.close()
    assert not files.has_journal
    assert not list(tmp_path.iterdir())


def test_a_journal_counts_blocks_ahead_and_settles_on_the_truth(tmp_path):
    files = RunFiles(RUN, ahead=10)
    files.begin(tmp_path / "state")
    journal = tmp_path / f"privet-{RUN}.journal"
    files.count(3)
    assert journal.stat().st_size == 12
    files.count(5)
    assert journal.stat().st_size == 12
    files.settle(5)
    assert journal.stat().st_size == 5


def test_another_run_takes_over_the_journal_and_its_name(tmp_path):
    first = RunFiles(RUN)
    first.begin(tmp_path / "state")
    first.count(4)
    (tmp_path / "deeper").mkdir()
    known = first.references(tmp_path / "deeper" / "state")
    assert known == {"run": RUN, "journal": ".."}
    first.close()
    second = RunFiles("ffffffff")
    assert second.take_over(tmp_path / "deeper" / "state", known["run"], known["journal"], spent=2) == 4
    assert second.run == RUN
    with pytest.raises(RuntimeError, match="in use"):
        RunFiles("eeeeeeee").take_over(tmp_path / "state", RUN, ".", spent=2)


@pytest.mark.parametrize(
    ("run", "spent", "cause"), [(RUN, 3, "incomplete"), ("f" * 8, 0, "missing"), ("../x", 0, "name")]
)
def test_a_journal_that_is_short_missing_or_elsewhere_is_rejected(tmp_path, run, spent, cause):
    Journal(tmp_path / f"privet-{RUN}.journal").count(2)
    with pytest.raises(ValueError, match=cause):
        RunFiles("e" * 8).take_over(tmp_path / "state", run, ".", spent)


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
