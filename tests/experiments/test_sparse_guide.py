"""The comparison of sparse methods runs, and its settings have the sizes of the paper's figures."""

import pytest

pytest.importorskip("matplotlib", reason="experiments draw plots: install the extra experiments")


def test_quick_run(opened, tmp_path):
    experiment = opened("sparse_guide")
    results = experiment.main(["--quick"])
    assert {path.name for path in (tmp_path / "results").iterdir()} == {"sparse_guide_quick.json"}
    methods = {row["method"] for row in results["rows"]}
    assert len(methods) == len(experiment.METHODS) + len(experiment.TEACHERS)
    assert all(0 <= row["found"] <= 1 and row["quality"] <= 1 for row in results["rows"])
    best = {row["method"]: row["quality"] for row in results["rows"] if row["setting"] == "two features"}
    assert best["peeling"] > 0.6
    first = experiment.SETTINGS[0]
    assert (first.n, first.d, first.s, first.delta) == (1000, 1000, 10, 0.01)
