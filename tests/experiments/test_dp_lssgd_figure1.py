"""More noise gives a larger loss, on a part of MNIST."""

import os
from pathlib import Path

import pytest

DATA = Path(os.environ.get("PRIVET_DATA", Path(__file__).resolve().parents[3] / "shared" / "data")) / "mnist.npz"


@pytest.mark.skipif(not DATA.exists(), reason="mnist.npz is not available: set PRIVET_DATA to the folder that holds it")
def test_quick_run(opened, tmp_path):
    results = opened("dp_lssgd_figure1").main(["--quick"])
    assert (tmp_path / "results" / "dp_lssgd_figure1_quick.json").exists()
    assert [row["epsilon"] for row in results["rows"]] == [2.0, 8.0, 2000.0]
    losses = [row["last_training"] for row in results["rows"]]
    assert losses[0] > losses[2]
