import subprocess
import sys

from privet.progress import progress_bar, status_bar


def test_no_function_is_given_if_no_bar_is_shown():
    with progress_bar("fit", is_shown=False) as progress:
        assert progress is None


def test_a_bar_accepts_finished_and_planned_steps():
    with progress_bar("fit") as progress:
        for done in range(1, 4):
            progress(done, 3)


def test_rich_is_imported_only_if_a_bar_is_shown():
    code = (
        "import sys\nfrom privet.progress import progress_bar\n"
        "with progress_bar('fit', is_shown=False): assert 'rich' not in sys.modules\n"
        "with progress_bar('fit'): assert 'rich' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_a_status_bar_shows_the_latest_status(capsys):
    with status_bar("training", 2) as show:
        show(1, "loss 0.50")
        show(2, "loss 0.25")
    assert "loss 0.25" in capsys.readouterr().out


def test_a_status_bar_that_is_not_shown_prints_nothing(capsys):
    with status_bar("training", 2, is_shown=False) as show:
        show(1, "loss 0.50")
    assert capsys.readouterr().out == ""
