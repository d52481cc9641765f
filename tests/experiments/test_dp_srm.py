"""The experiment on recursive momentum runs from end to end on a part of the data."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
DATA = Path(os.environ.get("PRIVET_DATA", ROOT.parent / "shared" / "data")) / "a9a.npz"


@pytest.mark.skipif(not DATA.exists(), reason="a9a.npz is not available: set PRIVET_DATA to the folder that holds it")
def test_the_experiment_runs_and_prints_paper_and_privet_side_by_side():
    written = [ROOT / "docs" / "results" / f"dp_srm_table42_quick.{kind}" for kind in ("json", "png")]
    command = [sys.executable, str(ROOT / "experiments" / "dp_srm_table42.py"), "--quick"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=ROOT)
        assert done.returncode == 0, done.stderr
        rows = json.loads(written[0].read_text())["rows"]
    finally:
        for path in written:
            path.unlink(missing_ok=True)
    assert {row["method"] for row in rows} >= {"DP-GD", "DP-AGD", "RRPSGD", "DP-SRM"}
    assert all(0 < row["gradient"][0] < 1 and 0 < row["objective"][0] < 1 for row in rows)
    assert "0.0528" in done.stdout  # the paper's
