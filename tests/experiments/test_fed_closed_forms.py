"""Noise by theorem, moments accountant and privet's accountant is ordered, and the experiment runs from end to end."""

import json

import pytest

torch = pytest.importorskip("torch", reason="privet.federated trains networks: install the extra deep")


@pytest.fixture
def experiment(opened, monkeypatch):
    module = opened("fed_closed_forms")
    module.divergences.cache_clear()
    monkeypatch.setattr(module, "NOISES", module.NOISES[:12])
    monkeypatch.setattr(module, "ORDERS", module.ORDERS[:8])
    yield module
    module.divergences.cache_clear()


def test_quick_run(experiment, tmp_path):
    results = experiment.main(["--quick"])
    assert json.loads((tmp_path / "results" / "fed_closed_forms_quick.json").read_text())["panels"] == results["panels"]
    assert (tmp_path / "results" / "fed_closed_forms_quick.png").exists()
    for panel in results["panels"]:
        assert panel["covered_from"] == 7.0  # no split meets the conditions at epsilon 4
        first, *covered = panel["rows"]
        assert first["theorem"] is None
        for row in covered:
            assert row["privet"] < row["moments"] < row["theorem"]
        assert panel["constant"]["multiplier_relative_to_twice_the_clip"] == pytest.approx(
            2 * panel["constant"]["both_relative_to_the_clip"]
        )
