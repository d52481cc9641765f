import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from privet.audit import Distinguished

sys.path.insert(0, str(Path(__file__).parent))

import kept_audits
from kept_audits import Kept
from scenarios import scenarios

AUDIT = Distinguished(3.0, 1e-5, 2.5, 0.95, 400, "betting (Gaussian DP)", 0.6, 0.3, "a sum")


@dataclass(frozen=True)
class Named:
    name: str
    mechanism: object
    runs: int = 100


def test_a_kept_audit_is_not_repeated_until_the_code_or_the_setting_changes(tmp_path, monkeypatch, capsys):
    scenario = Named("a sum", scenarios()[0].mechanism)
    path = tmp_path / "kept.json"
    kept = Kept(path, 4, 0.99)
    assert kept.get(scenario, 0) is None
    assert kept.put(scenario, 0, AUDIT, ["VIOLATION"]) == (AUDIT, ["VIOLATION"])
    assert "a sum, seed 0: claimed 3, measured 2.5 VIOLATION" in capsys.readouterr().out
    assert Kept(path, 4, 0.99).get(scenario, 0) == (AUDIT, ["VIOLATION"])
    assert Kept(path, 4, 0.99).get(scenario, 1) is None
    assert Kept(path, 2, 0.99).get(scenario, 0) is None
    assert Kept(path, 4, 0.9).get(scenario, 0) is None
    monkeypatch.setattr(kept_audits, "_digest", lambda module: "other code")
    assert Kept(path, 4, 0.99).get(scenario, 0) is None


def test_without_a_file_nothing_is_kept():
    scenario, kept = Named("a sum", scenarios()[0].mechanism), Kept(None, 1, 0.95)
    kept.put(scenario, 0, AUDIT, [])
    assert kept.get(scenario, 0) is None


@pytest.mark.parametrize("scenario", scenarios()[::20], ids=lambda scenario: scenario.name)
def test_the_code_of_every_scenario_is_known(scenario):
    assert Kept(None, 1, 0.95)._key(scenario)
