"""The curves of "Privacy Amplification by Iteration" are drawn, and their figures are the expected ones."""

import json
import math
from itertools import pairwise

import pytest

pytest.importorskip("matplotlib", reason="experiments draw plots: install the extra experiments")


@pytest.fixture
def experiment(opened):
    return opened("iteration_curves")


def test_quick_run(experiment, tmp_path):
    results = experiment.main(["--quick"])
    written = {path.name for path in (tmp_path / "results").iterdir()}
    assert written == {f"iteration_curves_quick.{kind}" for kind in ("json", "png")}
    assert json.loads((tmp_path / "results" / "iteration_curves_quick.json").read_text())["public"]["runs"] == 2

    by_epochs = {row["epochs"]: row for row in results["epochs"]}
    for key, figures in experiment.EXPECTED.items():
        for epochs, text in zip(experiment.TOLD_EPOCHS, figures, strict=False):
            last_digit = 10.0 ** -len(text.split(".")[1])
            assert by_epochs[epochs][key] == pytest.approx(float(text), abs=last_digit)
    for row in results["epochs"]:
        assert row["first"] < row["secret_order"] < row["last"] < row["renyi"] < row["paper"] <= row["theorem_35"]
        assert row["last"] <= row["composition"] * (1 + 1e-6)
    for profile in results["places"]["epochs"].values():
        assert all(ours < paper for ours, paper in zip(profile["privet"], profile["paper"], strict=True))

    rows = results["public"]["rows"]
    assert all(math.isfinite(row["excess"][0]) and row["excess"][0] < row["bound"] for row in rows)
    assert rows[-1]["excess"][0] < rows[0]["excess"][0]
    assert rows[-1]["public"] == 100
    assert rows[-1]["printed_epsilon"] == pytest.approx(1.092, abs=1e-3)  # docs/errata.md (e)

    for row in results["tasks"]:
        assert row["theorem_32_epsilon"] < 1
        assert row["secret_stop"] < min(row["theorem_32"], row["known_order"])
    assert all(one["secret_stop"] < more["secret_stop"] for one, more in pairwise(results["tasks"]))
