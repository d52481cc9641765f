"""The page shows the results, what was run, and what was not."""

import importlib
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def report(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "experiments"))
    support = importlib.import_module("support")
    monkeypatch.setattr(support, "ROOT", tmp_path)
    monkeypatch.setattr(support, "RESULTS", tmp_path)
    return importlib.import_module("fed_report")


def test_the_page_shows_tables_findings_and_missing_experiments(report, tmp_path):
    table = report.Shown("Table 9", ["sigma", "paper", "privet"], [["0", "1.00", "2.00"]])
    found = {"ran": "Configuration preset", "seconds": 3, "findings": ["better: no"], "subset": "few"}
    kept = report.keep("fed_logistic", [table], **found)
    assert json.loads((tmp_path / "fed_logistic.json").read_text())["tables"] == kept["tables"]
    page = report.main().read_text()
    assert "| sigma | paper | privet |\n| --- | --- | --- |\n| 0 | 1.00 | 2.00 |" in page
    assert "Configuration preset. It took 3 s" in page
    assert "- better: no" in page
    assert "Not run yet: `python experiments/fed_membership.py`" in page
    assert "fed_logistic.png" not in page  # there is no figure
    (tmp_path / "fed_logistic.png").touch()
    assert "fed_logistic.png" in report.page(tmp_path)


def test_accuracies_stand_beside_that_of_the_start(report, tmp_path):
    for name in report.EXPERIMENTS:
        begun = {"start": 42.5, "majority": 20.0} if name == "fed_membership" else {}
        report.keep(name, [], ran="Configuration preset", seconds=3, findings=[], **begun)
    assert report.page(tmp_path).count("an accuracy of 42.50 %. Always guessing the most common digit has 20.00 %") == 1


def test_options_have_defaults_and_can_be_set(report):
    assert report.options("about", []).configuration == "preset"
    assert report.options("about", [], default="full").configuration == "full"
    chosen = report.options("about", ["--quick", "--runs", "3"])
    assert (chosen.configuration, chosen.runs) == ("quick", 3)


def test_the_configuration_on_the_page_has_the_plain_name(report):
    assert report.result_name("fed_logistic", "full") == "fed_logistic"
    assert report.result_name("fed_logistic", "preset") == "fed_logistic_preset"
    assert report.result_name("fed_frequency", "preset") == "fed_frequency"
    assert report.result_name("fed_frequency", "full") == "fed_frequency_full"
