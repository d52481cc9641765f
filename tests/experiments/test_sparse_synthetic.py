"""All methods of sparse models run on tiny versions of the papers' synthetic settings."""

import math

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="experiments draw plots: install the extra experiments")


@pytest.fixture
def experiment(opened):
    return opened("sparse_synthetic")


def test_quick_run(experiment, tmp_path, capsys):
    results = experiment.main(["--quick"])
    written = {path.name for path in (tmp_path / "results").iterdir()}
    assert written == {f"sparse_synthetic_quick.{kind}" for kind in ("json", "png")}
    assert {row["method"] for row in results["rows"]} == {*experiment.METHODS, experiment.PRINTED}
    printed = {row["panel"] for row in results["rows"] if row["method"] == experiment.PRINTED}
    assert printed == {f"3.2({panel})" for panel in "abcd"}
    assert {row["panel"] for row in results["rows"]} == {setting.panel for setting in experiment.PAPER}
    assert all(math.isfinite(row["error"][0]) and 0 <= row["support"][0] <= 1 for row in results["rows"])
    assert "tiny settings" in capsys.readouterr().out
    again = experiment.main(["--quick", "--printed"])
    assert [row["method"] for row in again["rows"]] == [row["method"] for row in results["rows"]]
    kept = [row for row in results["rows"] if row["method"] != experiment.PRINTED]
    assert [row for row in again["rows"] if row["method"] != experiment.PRINTED] == kept


def test_full_is_the_papers_configuration(experiment):
    sizes = {(each.chapter, each.n, each.d, each.n_nonzero, each.is_logistic) for each in experiment.PAPER}
    large = {(2, 5000, 5000, 30), (3, 4000, 5000, 50)}
    small = {(2, 1000, 1000, 10), (3, 800, 1000, 10)}
    assert sizes == {(*size, kind) for size in large | small for kind in (False, True)}
    assert all(each.runs == each.slow_runs == 10 for each in experiment.PAPER)
    assert experiment.DELTA == 0.01


def test_rows_keep_within_their_bounds(experiment):
    for setting in experiment.PAPER[::2]:
        X = experiment.quick(setting).rows(np.random.default_rng(0))
        bounds = experiment.quick(setting)
        assert np.linalg.norm(X, axis=1).max() <= bounds.row_norm * (1 + 1e-12)
        assert np.abs(X).max() <= bounds.entry_bound
