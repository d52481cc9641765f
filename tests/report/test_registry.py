"""Entries for the registry of deployments: they follow its schema, agree with the report, and say what is open."""

import copy
import os
from pathlib import Path

import pytest
import samples

yaml = pytest.importorskip("yaml", reason="entries are YAML: install the extra report")
pytest.importorskip("jsonschema", reason="entries are checked: install the extra report")

from privet.report import Report  # noqa: E402
from privet.report.about import About  # noqa: E402
from privet.report.page import text_of  # noqa: E402
from privet.report.registry import OPEN, check_entry, entry, open_fields, write_entry  # noqa: E402

DATA = Path(os.environ.get("PRIVET_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
REGISTRY = DATA / "opendp-registry"
ABOUT = About(
    name="Readmissions",
    curators=("University hospital",),
    authors=("A. Author",),
    intended_use="Planning of beds.",
    region="Europe",
    sector="Healthcare",
    utility="Errors were compared by sex.",
    side_channels="A machine of its own.",
    security="Two people have access.",
    collection="Routine care, with consent.",
    tuning="Settings were chosen on public data.",
    justification="The ethics board decided.",
)


@pytest.mark.parametrize("kind", ["table", "network", "federated", "study"])
def test_an_entry_of_every_kind_follows_the_schema_at_the_highest_tier(kind, reports, tmp_path):
    write_entry(reports[kind], tmp_path / "entry.yaml")
    found = yaml.safe_load((tmp_path / "entry.yaml").read_text(encoding="utf-8"))
    check_entry(found)
    assert found["tier"] == 3
    deployment = found["deployment"]
    assert deployment["privacy_loss"]["privacy_parameters"]["epsilon"] >= reports[kind].guarantee.epsilon
    assert deployment["privacy_loss"]["privacy_parameters"]["delta"] == reports[kind].guarantee.delta
    assert deployment["deployment_model"]["model_name"] == (
        "Federated" if kind in {"federated", "study"} else "Central"
    )
    assert "drawn exactly" in deployment["implementation"]["mechanisms"]
    assert "settings were chosen" in deployment["implementation"]["preprocessing_and_hyperparameter_tuning"]


def test_all_fields_of_tier_three_are_there(reports):
    schema = yaml.safe_load(text_of("deployments-schema.yaml"))
    found = entry(reports["table"])["deployment"]
    optional = {"data_product_sector", "sources", "notes", "data_source_type_details", "rho"}
    for group, fields in schema["properties"]["deployment"]["properties"].items():
        missing = set(fields["properties"]) - set(found[group]) - optional
        assert not missing, group


def test_what_nobody_answered_is_marked_and_listed(reports):
    left = open_fields(entry(reports["table"]))
    assert "deployment.basic.data_curators" in left
    assert "deployment.implementation.justification" in left
    report = Report.of(samples.table_model(), about=ABOUT)
    assert open_fields(entry(report)) == ["deployment.deployment_model.release_type_details"]


def test_answers_are_in_the_page_too():
    report = Report.of(samples.table_model(), about=ABOUT)
    page = report.html()
    for answer in (ABOUT.security, ABOUT.collection, ABOUT.utility, ABOUT.side_channels):
        assert answer in page
    assert page.count(">by the data holder<") == 4
    assert ">for the data holder<" not in page


@pytest.mark.parametrize(
    ("place", "value"), [("status", "Done"), ("tier", 4), ("url_slug", 7), ("surprise", "field"), ("deployment", {})]
)
def test_an_entry_that_does_not_follow_the_schema_is_refused(place, value, reports):
    broken = copy.deepcopy(entry(reports["table"])) | {place: value}
    with pytest.raises(ValueError, match="does not follow the schema"):
        check_entry(broken)


def test_an_invalid_date_is_refused(reports):
    broken = entry(reports["table"])
    broken["deployment"]["basic"]["publication_date"] = "soon"
    with pytest.raises(ValueError, match="publication_date"):
        check_entry(broken)


def test_the_schema_accepts_an_entry_of_the_registry():
    if not REGISTRY.is_dir():
        pytest.skip("the example of the registry is not on this machine")
    check_entry(yaml.safe_load((REGISTRY / "example-federated.yaml").read_text(encoding="utf-8")))
    assert text_of("deployments-schema.yaml") == (REGISTRY / "deployments-schema.yaml").read_text(encoding="utf-8")


def test_an_entry_of_a_release_without_noise_states_no_epsilon(tmp_path):
    report = Report.of(samples.table_model(epsilon=None, noise_multiplier=0.0, method="gradient"))
    write_entry(report, tmp_path / "entry.yaml")
    assert "epsilon is infinite" in (tmp_path / "entry.yaml").read_text()
    assert OPEN in (tmp_path / "entry.yaml").read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("curator = 'x'", "unknown key 'curator'"),
        ("curators = 'x'", None),
        ("curators = []", "curators in .* must be a list of texts"),
        ("security = 3", "security in .* must be a text"),
        ("security = ' '", "security in .* must be a text"),
        ("sector = 'Sports'", "sector in .* must be one of"),
        ("security = ", "is not a TOML file"),
    ],
)
def test_the_answers_are_checked(text, message, tmp_path):
    path = tmp_path / "about.toml"
    path.write_text(text)
    if message is None:
        assert About.read(path).curators == ("x",)
        return
    with pytest.raises(ValueError, match=message):
        About.read(path)
