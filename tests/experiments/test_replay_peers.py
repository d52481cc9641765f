import json
from pathlib import Path

import numpy as np
import pytest

from privet.privacy import NoiseSource
from privet.privacy.noise.watch import Claim

RESULTS = Path(__file__).parents[2] / "docs" / "results"


@pytest.fixture
def experiment(opened):
    return opened("replay_peers")


def rows():
    return json.loads((RESULTS / "replay_peers.json").read_text())


def test_every_finding_is_explained_and_nothing_else_is():
    for row in rows()["rows"]:
        assert bool(row["finding"]) == row["is_refuted"], row["scenario"]
        assert row["is_refuted"] == all(outcome["is_violation"] for outcome in row["outcomes"].values())


def test_the_page_is_that_of_the_results(experiment):
    written = rows()
    assert (RESULTS / "replay_peers.md").read_text() == experiment.page(written["rows"], written["versions"])


def test_a_scenario_is_refuted_only_if_no_kind_of_neighbour_is_consistent(experiment):
    values = np.array([[1.0], [2.0], [3.0]])
    neighbours = {experiment.REPLACED: np.array([[1.0], [2.0], [4.0]]), experiment.REMOVED: values[:-1]}

    def noisy_sum(bound):
        return lambda data: NoiseSource(0).add_gaussian(data.sum(axis=0), 1.0, claim=Claim(bound))

    for bound, is_refuted in ((3.0, False), (1.0, False), (0.5, True)):
        scenario = experiment.Scenario("sum", noisy_sum(bound), values, neighbours, "The bound is too small.")
        row = experiment.row_of(scenario, "opacus")
        assert row["is_refuted"] == is_refuted
        assert row["finding"] == ("The bound is too small." if is_refuted else "")


def test_results_of_the_other_library_are_kept(experiment, monkeypatch, tmp_path):
    monkeypatch.setattr(experiment, "version", lambda library: "1")
    for library in ("diffprivlib", "opacus"):
        row = {"library": library, "scenario": "MLP", "outcomes": {}, "is_refuted": False, "finding": ""}
        experiment.write(library, [row])
    page = (tmp_path / "results" / "replay_peers.md").read_text()
    assert page.index("| opacus | MLP") < page.index("| diffprivlib | MLP")
