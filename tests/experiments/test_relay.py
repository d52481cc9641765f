"""The relay on Adult: the study file that it writes, the plan of both forms, and what was measured."""

import json
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("mpyc", reason="several parties need MPyC: install the extra multiparty")

from privet.multiparty.protocol.participation import plan_of
from privet.multiparty.study import Study

LEVELS = {"sex": ["Female", "Male"], "native-country": ["Trinadad&Tobago", "Outlying-US(Guam-USVI-etc)"]}
RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"


@pytest.fixture
def experiment(opened):
    return opened("relay")


def test_the_study_file_says_what_the_plan_was_made_from(experiment):
    values = experiment.study_values(LEVELS, 3, 50)
    assert tomllib.loads(experiment.as_toml(values)) == values


def test_the_measured_epsilons_are_those_of_the_plan(experiment):
    written = json.loads((RESULTS / "relay.json").read_text())
    study = Study.from_values(experiment.study_values(LEVELS, written["passes"], written["batch"]))
    plan = plan_of(study, study.problem([written["rows"]] * written["owners"]))
    for owner, epsilon in enumerate(written["epsilon of each owner"]):
        # The study here has fewer columns, hence longer steps, which contract a little more.
        assert plan.guarantee(plan.turns).epsilon == pytest.approx(max(written["epsilon of each owner"]))
        assert experiment.gdp_epsilon(plan.mu(owner, plan.turns), plan.delta) == pytest.approx(epsilon, rel=0.01)


def test_processes_are_as_accurate_as_one_process_with_the_same_plan():
    written = json.loads((RESULTS / "relay.json").read_text())
    relay, pooled = written["relay"], written["one process"]
    assert abs(relay["mean"] - pooled["mean"]) <= relay["spread"] + pooled["spread"]
