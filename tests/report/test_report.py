"""What reports say: true of the guarantee, valid HTML, self-contained, and nothing that was not released or public."""

import html
import re
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import samples

from privet import PrivateLogisticRegression, PrivateRidge, load
from privet.preprocessing import PublicScaler
from privet.privacy import Adjacency, Budget, Guarantee, Ledger, NoiseMultiplier, compose
from privet.privacy.events import GaussianRelease, Noiseless, PoissonGaussian, PureRelease
from privet.privacy.ledger.timeline import moments
from privet.report import Facts, Report
from privet.report.numbers import percent_up, up
from privet.report.sections import ORDER, sections

KINDS = ("table", "network", "federated", "study", "long")


def text_of(page):
    """Return the text of a page on one line, without tags."""
    body = page[page.index("<body>") :]
    return " ".join(html.unescape(re.sub(r"<(script|style)>.*?</\1>|<[^>]*>", " ", body, flags=re.S)).split())


def bare(guarantee, **fields):
    facts = Facts("model", "A model", "predicts", settings=[("Method", "none")], trust="Nobody saw anything.")
    return Report(guarantee, facts, "A model", made=samples.MADE, **fields)


def gaussian(mu=0.5, delta=1e-6):
    return Guarantee.of(GaussianRelease(mu), Adjacency.REPLACE_ONE, delta, released="a sum")


# --------------------------------------------------------------------------------------------------- valid, by itself


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_is_one_valid_page_below_two_megabytes(kind, pages):
    html5lib = pytest.importorskip("html5lib", reason="the validity of HTML is tested with html5lib: install test")
    page = pages[kind].read_text(encoding="utf-8")
    html5lib.HTMLParser(strict=True).parse(page)
    assert len(page.encode()) < 200_000
    identifiers = re.findall(r'\bid="([^"]*)"', page)
    assert len(identifiers) == len(set(identifiers))
    assert {target[1:] for target in re.findall(r'href="([^"]*)"', page)} <= set(identifiers)


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_refers_to_nothing_outside_itself(kind, pages):
    page = pages[kind].read_text(encoding="utf-8")
    assert "default-src 'none'" in page
    assert not re.search(r"<(link|img|iframe|script)\b[^>]*\b(src|href)=|url\(|@import|https?://", page)


def test_every_section_has_a_row_in_the_guide_in_the_same_order(reports):
    guide = (Path(__file__).resolve().parents[2] / "docs" / "report.md").read_text(encoding="utf-8")
    titles = [import_module(f"privet.report.sections.{key}").TITLE for key in ORDER]
    shown = [section.title for section in sections(reports["table"])]
    assert shown == [title for title in titles if title != "Curves"]  # the model of the table is linear
    assert [title for title in re.findall(r"^\| ([^|]*) \|", guide, re.M) if title in titles] == titles


# ------------------------------------------------------------------------------------------------------------- true


@pytest.mark.parametrize("kind", KINDS)
def test_the_figures_are_those_of_the_guarantee(kind, reports):
    guarantee, text = reports[kind].guarantee, text_of(reports[kind].html())
    for words in (
        f"ε = {up(guarantee.epsilon, 4)}",
        f"one {guarantee.unit}",
        f"right with probability at most {percent_up(guarantee.best_guess)},".replace("\u00a0", " "),
        f"recognise at most {percent_up(guarantee.tpr(0.01))} of".replace("\u00a0", " "),
        f"μ = {up(guarantee.mu, 4)}",
        *(condition.text[1:] for condition in guarantee.assumptions if not condition.is_enforced),
    ):
        assert words in text


def test_what_is_said_about_the_figures_is_rounded_to_the_safe_side(reports):
    guarantee = reports["table"].guarantee
    shown = float(re.search(r"≤ ([\d.]+) % 50 % is a coin toss", text_of(reports["table"].html()))[1])
    assert guarantee.best_guess <= shown / 100 < guarantee.best_guess + 0.0011


def test_a_federated_report_shows_the_scores_on_public_data_and_what_was_spent(reports):
    text = text_of(reports["federated"].html())
    assert "Score after each round, on public data" in text
    assert "Epsilon after each round" in text
    assert "one server saw the update of every sampled client" in text


def test_the_report_of_a_study_names_its_owners_and_whom_they_trust(reports):
    text = text_of(reports["study"].html())
    for words in (
        "Parties north, south, west",
        "fewer than half of them to combine",
        "with 240 rows in all",
        "mpyc 0.",
    ):
        assert words in text


@pytest.mark.parametrize(("trust", "words"), [("one", "at least one of them"), ("majority", "fewer than half of them")])
def test_the_report_of_a_committee_says_which_servers_must_be_honest(trust, words):
    pytest.importorskip("torch")
    from privet.federated import Committee

    assert words in Report.of(samples.federated(n=300, committee=Committee(trust, 3))).facts.trust


def test_a_loaded_result_of_a_study_knows_its_study_and_a_new_fit_does_not(tmp_path):
    from privet.saving import from_dict

    model = from_dict(samples.study_result())
    assert model.study["name"] == "stroke"
    assert "study" not in model.to_dict()
    model.fit(samples.patients())
    assert model.study is None


def test_a_time_line_has_all_lines_the_total_and_the_limit(reports):
    text = text_of(reports["table"].html())
    total = reports["table"].spent[-1].total
    assert f"Together they spend at most ε = {up(total, 4)}" in text
    assert "limit set to 10: decision of the ethics board" in text
    assert text.count("fit of PrivateLogisticRegression") == 2


def test_a_release_without_noise_promises_nothing():
    guarantee = Guarantee.of(Noiseless(), Adjacency.REPLACE_ONE, 1e-6, released="everything")
    text = text_of(bare(guarantee).html())
    assert "ε = unlimited" in text
    assert "Nothing is promised to the people in the data" in text
    assert "limits what it can reveal" not in text


def test_pure_privacy_is_reported_at_delta_zero():
    guarantee = Guarantee.of(PureRelease(1.0), Adjacency.REPLACE_ONE, 0.0, released="a sum")
    text = text_of(bare(guarantee).html())
    assert "ε = 1 at δ = 0" in text
    assert "at most 73.2 %" in text  # e / (1 + e), rounded up


def test_what_software_cannot_make_true_is_said_even_if_all_conditions_are_enforced(reports):
    report = reports["table"]
    assert not report.guarantee.is_conditional
    text = text_of(report.html())
    assert "software made all conditions of this run true" in text
    assert text.count("were not chosen by looking at the data; nobody can predict the random numbers") == 2


def test_a_factor_beyond_what_can_be_written_out_is_not_stated_too_small():
    guarantee = Guarantee.of(PureRelease(800.0), Adjacency.REPLACE_ONE, 0.0, released="a sum")
    assert "by a factor of at most e to the power of 800." in text_of(bare(guarantee).html())


WARNING = "This model was not found in the ledger."


@pytest.mark.parametrize("is_booked", [True, False])
def test_a_model_that_is_missing_in_the_ledger_is_called_missing(is_booked, tmp_path):
    ledger = Ledger(tmp_path / "l.ledger")
    other = samples.table_model(ledger, epsilon=0.5)
    model = samples.table_model(ledger if is_booked else None)
    assert (WARNING in text_of(Report.of(model, ledger=ledger).html())) != is_booked
    assert WARNING not in text_of(Report.of(other, ledger=ledger).html())


def test_every_release_is_looked_for_in_the_ledger_and_steps_that_were_not_made_may_be_booked(tmp_path):
    ledger = Ledger(tmp_path / "l.ledger")
    run, once = PoissonGaussian(2.0, 0.1, 30), gaussian()
    ledger.spend(Guarantee.of(run, Adjacency.ADD_OR_REMOVE, 1e-6, released="a run"), "a run")
    for steps, is_missing in ((10, False), (30, False), (31, True)):
        made = Guarantee.of(replace(run, steps=steps), Adjacency.ADD_OR_REMOVE, 1e-6, released="a run")
        report = bare(made, spent=moments(ledger.timeline(), None, float("inf")))
        assert (WARNING in text_of(report.html())) == is_missing
    other = Ledger(tmp_path / "other.ledger")
    other.spend(once, "one of two equal releases")
    report = bare(compose([once, once]), spent=moments(other.timeline(), None, float("inf")))
    assert WARNING in text_of(report.html())


def test_a_ledger_without_a_finite_total_is_shown_without_a_chart(tmp_path):
    ledger = Ledger(tmp_path / "l.ledger")
    for _ in range(2):
        ledger.spend(gaussian(delta=0.6), "a release")
    text = text_of(bare(gaussian(delta=0.6), spent=moments(ledger.timeline(), None, float("inf"))).html())
    assert "Together they spend at most ε = unlimited" in text.replace("\u00a0", " ")


def test_the_days_of_a_time_line_are_those_of_its_table_in_any_time_zone(tmp_path, monkeypatch):
    model = samples.table_model(Ledger(tmp_path / "l.ledger"))
    day = Ledger(tmp_path / "l.ledger").timeline()[0].time[:10]
    try:
        for zone in ("Pacific/Kiritimati", "Pacific/Pago_Pago"):
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            text = text_of(Report.of(model, ledger=tmp_path / "l.ledger", made=samples.MADE).html())
            assert set(re.findall(r"20\d\d-\d\d-\d\d", text)) == {day, str(samples.MADE)}
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("score", [float("nan"), float("inf")])
def test_scores_that_are_not_finite_are_left_out_of_the_curve_and_counted(score):
    pytest.importorskip("torch")
    result = samples.federated()
    history = tuple(replace(each, score=score if each.number == 3 else each.score) for each in result.history)
    report = Report.of(replace(result, history=history))
    assert len(report.facts.curves[0].points) == len(history) - 1
    assert "In 1 round, it was not a finite number." in text_of(report.html())


@pytest.mark.parametrize(("mu", "is_weak"), [(0.5, False), (6.0, True)])
def test_a_weak_promise_is_called_weak(mu, is_weak):
    assert ("This promise is weak" in text_of(bare(gaussian(mu)).html())) == is_weak


def test_names_are_text_and_not_markup(tmp_path):
    guarantee = replace(gaussian(), released="<b>weights</b> & more")
    page = bare(guarantee).html()
    assert "&lt;b&gt;weights&lt;/b&gt; &amp; more" in page
    hostile = Report(gaussian(), bare(gaussian()).facts, "</title><script>alert(1)</script>")
    assert "<script>alert" not in hostile.html()


def test_only_models_can_be_reported():
    with pytest.raises(TypeError, match="dict cannot be reported"):
        Report.of({})


def test_a_ledger_that_does_not_exist_is_an_error(tmp_path):
    model = samples.table_model()
    with pytest.raises(ValueError, match="does not exist"):
        model.report(tmp_path / "report.html", ledger=tmp_path / "no.ledger")
    assert not (tmp_path / "report.html").exists()


def test_a_report_can_be_read_by_others(tmp_path):
    path = samples.table_model().report(tmp_path / "report.html")
    assert path.stat().st_mode & 0o044


# ----------------------------------------------------------------------------------- only what was released or public


def test_a_report_of_a_model_holds_nothing_that_its_file_does_not(tmp_path):
    """All that a fitted model knows beyond its file stays out: the report of the file is the same."""
    model = samples.table_model(Ledger(tmp_path / "l.ledger"), random_state=7)
    model.save(tmp_path / "model.privet.json")
    from_memory, from_file = (
        Report.of(each, made=samples.MADE) for each in (model, load(tmp_path / "model.privet.json"))
    )
    assert from_memory.facts == from_file.facts
    assert from_memory.html() == from_file.html()


def test_a_report_of_a_network_does_not_depend_on_its_data():
    """Other examples, and another number of them, give the same report: no loss or size of a batch is in it."""
    pytest.importorskip("torch")
    pages = [Report.of(samples.network(*each), made=samples.MADE) for each in ((400, 0), (371, 5))]
    assert pages[0].html() == pages[1].html()


def test_a_report_of_a_federated_run_depends_on_clients_only_through_the_public_score():
    pytest.importorskip("torch")
    results = [samples.federated(seed) for seed in (0, 5)]
    results = [
        replace(result, history=tuple(replace(each, score=None) for each in result.history)) for result in results
    ]
    pages = [Report.of(result, made=samples.MADE).html() for result in results]
    assert pages[0] == pages[1]


@pytest.mark.parametrize("kind", KINDS)
def test_no_private_cell_is_in_a_report(kind, reports):
    assert samples.SECRET not in reports[kind].html()


def test_what_a_report_shows_of_a_model_is_post_processing_of_its_weights():
    """With the same released weights, other rows of the same number give the same report."""
    model, other = samples.table_model(), samples.table_model(rows=samples.patients(seed=3))
    for name in ("coef_", "intercept_"):
        setattr(other.estimator, name, getattr(model.estimator, name))
    assert Report.of(model).html() == Report.of(other).html()


# ----------------------------------------------------------------------------------------------------- other models


def test_an_interrupted_training_is_reported_with_the_steps_that_were_made():
    pytest.importorskip("torch")
    report = Report.of(samples.network(steps=10))
    text = text_of(report.html())
    assert "10 of 30" in text
    assert report.guarantee.epsilon < 2


def test_estimators_and_pipelines_are_reported():
    from sklearn.pipeline import make_pipeline

    rng = np.random.default_rng(0)
    X, y = rng.uniform(0, 10, (300, 3)), rng.uniform(-1, 1, 300)
    scaler = PublicScaler(np.zeros(3), np.full(3, 10.0))
    pipeline = make_pipeline(scaler, PrivateRidge(1.0, delta=1e-6)).fit(X, y)
    assert "PublicScaler, then PrivateRidge" in text_of(Report.of(pipeline).html())
    text = text_of(Report.of(PrivateLogisticRegression(1.0, delta=1e-6).fit(X / 20, y > 0)).html())
    assert "A private logistic regression" in text
    assert "column 2" in text


def test_noise_that_was_given_instead_of_a_budget_is_reported():
    assert NoiseMultiplier(3.0).multiplier == 3.0
    model = samples.table_model(epsilon=None, noise_multiplier=80.0, method="gradient")
    assert f"ε = {up(model.guarantee.epsilon, 4)}" in text_of(Report.of(model).html())


def test_a_budget_is_not_confused_with_what_was_certified():
    report = bare(replace(gaussian(), epsilon=2 * gaussian().epsilon))
    assert f"ε = {up(2 * gaussian().epsilon, 4)}" in text_of(report.html())
    assert Budget(1.0).is_pure
