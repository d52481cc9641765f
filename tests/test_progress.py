import subprocess
import sys

from privet.progress import progress_bar


def test_no_bar_is_no_callback():
    with progress_bar("fit", is_shown=False) as progress:
        assert progress is None


def test_a_bar_takes_steps_done_and_planned():
    with progress_bar("fit") as progress:
        for done in range(1, 4):
            progress(done, 3)


def test_rich_is_imported_only_for_a_bar():
    code = (
        "import sys\nfrom privet.progress import progress_bar\n"
        "with progress_bar('fit', is_shown=False): assert 'rich' not in sys.modules\n"
        "with progress_bar('fit'): assert 'rich' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
