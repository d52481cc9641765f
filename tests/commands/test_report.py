"""``privet report`` from files to files."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "report"))

import samples

from privet import PrivateLogisticRegression
from privet.cli import app
from privet.privacy import Ledger

yaml = pytest.importorskip("yaml", reason="entries are YAML: install the extra report")


def run(*arguments):
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    samples.table_model(Ledger("patients.ledger")).save("model.privet.json")
    samples.patients(200, 1).to_csv("test.csv", index=False)
    Path("about.toml").write_text('curators = ["University hospital"]\nsecurity = "Two people have access."\n')
    return tmp_path


def test_a_model_becomes_a_page_and_an_entry(folder):
    options = ["--ledger", "patients.ledger", "--public-test", "test.csv", "--about", "about.toml"]
    done = run(
        "model.privet.json", "-o", "report.html", *options, "--registry", "entry.yaml", "--title", "Readmissions"
    )
    assert done.exit_code == 0, done.output
    assert "Report written to report.html" in done.output
    assert "deployment.basic.intended_use" in done.output
    assert "data_curators" not in done.output
    page = Path("report.html").read_text(encoding="utf-8")
    for words in ("<h1>Readmissions</h1>", "Accuracy", "Two people have access.", "fit of PrivateLogisticRegression"):
        assert words in page
    entry = yaml.safe_load(Path("entry.yaml").read_text(encoding="utf-8"))
    assert entry["deployment"]["basic"]["data_curators"] == ["University hospital"]


def test_a_report_names_the_file_of_the_model_and_the_version_that_wrote_it(folder):
    import hashlib

    from privet import __version__

    assert run("model.privet.json").exit_code == 0
    page = Path("report.html").read_text(encoding="utf-8")
    assert hashlib.sha256(Path("model.privet.json").read_bytes()).hexdigest() in page
    assert f"Trained by privet {__version__}" in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.json"], "does not exist"),
        (["about.toml"], "is not a privet model"),
        (["model.privet.json", "-o", "no/such/folder.html"], "does not exist"),
        (["model.privet.json", "--registry", "no/such/entry.yaml"], "does not exist"),
        (["model.privet.json", "--ledger", "no.ledger"], "does not exist"),
        (["estimator.json", "--public-test", "test.csv"], "needs the model of a table"),
    ],
)
def test_mistakes_are_refused_before_anything_is_written(folder, arguments, message):
    X = samples.patients()[["age", "bmi"]] / 400
    PrivateLogisticRegression(1.0, delta=1e-6).fit(X, X["age"] > 0.12).save("estimator.json")
    done = run(*arguments)
    assert done.exit_code != 0
    assert message in str(done.exception)
    assert not Path("report.html").exists()


def test_a_file_of_an_earlier_version_has_no_noise_and_no_version(folder):
    import json

    fields = json.loads(Path("model.privet.json").read_text())
    del fields["privet_version"], fields["model"]["learned"]["noise_std_"]
    Path("old.json").write_text(json.dumps(fields))
    assert run("old.json").exit_code == 0
    page = Path("report.html").read_text(encoding="utf-8")
    assert "Trained by privet" not in page
    assert "not known" in page
