"""Pages in a real browser: no errors, no requests, texts that can be read and copied, at most four pages of paper."""

import io
import math
import random
import re

import pytest
from rich.console import Console

from privet.commands.plan import compare, write_page
from privet.plans import FixedSize, Poisson
from privet.privacy import Adjacency, Budget, Guarantee, gdp_mu
from privet.privacy.analyses.accounting import epsilon
from privet.privacy.events import FixedSizeGaussian, GaussianRelease, PoissonGaussian
from privet.report.plan_page import write_plan_page

KINDS = ("table", "network", "federated", "study", "long")
CONTRAST = """() => {
  const channel = (value) => (value /= 255) <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const bright = (rgb) => 0.2126 * channel(rgb[0]) + 0.7152 * channel(rgb[1]) + 0.0722 * channel(rgb[2]);
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = numbers(getComputedStyle(each).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) { return colour; }
    }
    return numbers(getComputedStyle(document.documentElement).backgroundColor);
  };
  let worst = 21;
  for (const each of document.body.querySelectorAll("*")) {
    const own = [...each.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    const isHidden = ["SCRIPT", "TITLE", "DESC"].includes(each.tagName.toUpperCase()) || !each.getClientRects().length;
    if (isHidden || !own) { continue; }
    const style = getComputedStyle(each), colour = each.namespaceURI.endsWith("svg") ? style.fill : style.color;
    const [high, low] = [bright(numbers(colour)), bright(behind(each))].sort((a, b) => b - a);
    worst = Math.min(worst, (high + 0.05) / (low + 0.05));
  }
  return worst;
}"""


class Opened:
    """A page, what its console said, and what it asked for."""

    def __init__(self, browser, path, **options):
        self.page = browser.new_page(**options)
        self.said, self.asked = [], []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())

    def check(self, path):
        assert self.said == []
        assert self.asked == [path.as_uri()]


@pytest.fixture
def opened(browser):
    made = []

    def open_page(path, **options):
        made.append(Opened(browser, path, **options))
        return made[-1]

    yield open_page
    for each in made:
        each.page.close()


@pytest.fixture(scope="module")
def plan_path(tmp_path_factory):
    return write_plan_page(
        tmp_path_factory.mktemp("plan") / "plan.html", 10_000, Budget(1.0, 1e-6), epochs=10, batch_size=500
    )


# ------------------------------------------------------------------------------------------------------------ reports


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_loads_without_errors_or_requests_and_prints_on_four_pages(kind, pages, opened):
    shown = opened(pages[kind])
    text = shown.page.inner_text("body")
    for words in ("In plain words", "What an attacker can and cannot do", "NIST SP 800-226", "Best guess is right"):
        assert words in text
    printed = shown.page.pdf(format="A4", prefer_css_page_size=True, print_background=True)
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b(?!s)", printed)) <= 4
    shown.check(pages[kind])


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (800, "light"), (1400, "dark"), (1400, "light")])
def test_a_report_fits_the_screen_and_has_enough_contrast(width, scheme, pages, opened):
    for kind in ("table", "federated", "long"):
        page = opened(pages[kind], viewport={"width": width, "height": 900}, color_scheme=scheme).page
        assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate(CONTRAST) >= 4.5


def test_dark_and_light_pages_differ(pages, opened):
    colours = set()
    for scheme in ("light", "dark"):
        page = opened(pages["table"], color_scheme=scheme).page
        colours.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(colours) == 2


def test_the_summary_can_be_copied_from_a_page_that_was_opened_as_a_file(pages, browser):
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto(pages["table"].as_uri())
    page.focus("#copy-summary")
    page.keyboard.press("Enter")
    page.wait_for_function("document.getElementById('copied').textContent !== ''")
    assert page.inner_text("#copied") == "Copied."
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("The model predicts readmitted from 3 columns of a table.")
    assert copied.count("\n\n") == page.locator("#summary-text p").count() - 1
    context.close()


def test_every_chart_has_a_title_and_a_description(pages, opened):
    page = opened(pages["federated"]).page
    charts = page.evaluate(
        "[...document.querySelectorAll('svg[role=img]')].map((each) => each.getAttribute('aria-labelledby').split(' ')"
        ".map((id) => document.getElementById(id).textContent))"
    )
    assert len(charts) >= 4
    assert all(title and description for title, description in charts)


# ----------------------------------------------------------------------------------------------------------- the plan

MOVE = """(shares) => {
  for (const [name, share] of Object.entries(shares)) {
    const slider = document.getElementById(name);
    slider.value = Math.round(share * slider.max);
    slider.dispatchEvent(new Event("input", { bubbles: true }));
  }
  update();
  const found = Object.fromEntries(["n", "epsilon", "delta", "epochs", "batch"].map((name) => [name, at(name)]));
  for (const row of document.querySelectorAll(".schemes tbody tr:not(.absent)")) {
    const cells = [...row.querySelectorAll("td")];
    found[row.id] = Object.fromEntries(cells.map((td) => [td.dataset.name, Number(td.dataset.value)]));
  }
  return found;
}"""


def positions(number, seed):
    generator = random.Random(seed)
    names = ("n", "epsilon", "delta", "epochs", "batch")
    return [{name: generator.random() for name in names} for _ in range(number)]


def test_the_noise_for_all_records_is_that_of_privet_plan_at_any_position(plan_path, opened):
    shown = opened(plan_path)
    for position in positions(20, 0):
        found = shown.page.evaluate(MOVE, position)
        rows = compare(found["n"], Budget(found["epsilon"], found["delta"]), epochs=found["epochs"])
        exact = {row.adjacency: row for row in rows if row.analysis == "exact"}
        for key, adjacency in (("full-replace", Adjacency.REPLACE_ONE), ("full-add", Adjacency.ADD_OR_REMOVE)):
            row = exact[adjacency]
            assert found[key]["noise"] == pytest.approx(row.noise_multiplier, rel=1e-5)
            assert found[key]["mean"] == pytest.approx(row.noise_multiplier / row.batch, rel=1e-5)
            assert found[key]["steps"] == row.steps
            assert found[key]["error"] == pytest.approx(row.noise_multiplier * math.sqrt(2 / math.pi), rel=1e-5)
    shown.check(plan_path)


def test_the_noise_for_batches_is_certified_by_privet_and_not_larger_than_needed(plan_path, opened):
    shown = opened(plan_path)
    tried = 0
    for position in positions(12, 1):
        found = shown.page.evaluate(MOVE, position)
        n, batch, delta = found["n"], found["batch"], found["delta"]
        if batch == n:
            assert "poisson" not in found
            continue
        steps = math.ceil(found["epochs"] * n / batch)
        sampled = PoissonGaussian(found["poisson"]["noise"], batch / n, steps)
        fixed = FixedSizeGaussian(found["fixed"]["noise"], n, batch, steps)
        for event, adjacency in ((sampled, Adjacency.ADD_OR_REMOVE), (fixed, Adjacency.REPLACE_ONE)):
            assert 0.999 * found["epsilon"] < epsilon(event, adjacency, delta) <= found["epsilon"]
        tried += 1
    assert tried > 7


def test_the_noise_for_batches_agrees_with_privet_plan_to_three_digits(plan_path, opened):
    (position,) = positions(1, 3)
    found = opened(plan_path).page.evaluate(MOVE, position | {"batch": 0.5})
    budget = Budget(found["epsilon"], found["delta"])
    rows = list(compare(found["n"], budget, epochs=found["epochs"], batch_size=found["batch"]))
    for key, sampler in (("poisson", Poisson), ("fixed", FixedSize)):
        (row,) = [row for row in rows if row.sampling == sampler.name and row.analysis == "PLD"]
        assert found[key]["noise"] == pytest.approx(row.noise_multiplier, rel=5e-4)
        assert found[key]["steps"] == row.steps


def test_the_trade_off_curve_of_the_plan_is_that_of_the_guarantee(plan_path, opened):
    page = opened(plan_path).page
    mu = gdp_mu(Budget(1.0, 1e-6))
    events = {
        "full-replace": lambda _: (GaussianRelease(mu), Adjacency.REPLACE_ONE),
        "poisson": lambda noise: (PoissonGaussian(noise, 0.05, 200), Adjacency.ADD_OR_REMOVE),
        "fixed": lambda noise: (FixedSizeGaussian(noise, 10_000, 500, 200), Adjacency.REPLACE_ONE),
    }
    for scheme, event_at in events.items():
        page.check(f"input[value={scheme}]")
        event, adjacency = event_at(float(page.get_attribute(f"#{scheme} [data-name=noise]", "data-value")))
        guarantee = Guarantee.of(event, adjacency, 1e-6, released="sums")
        expected = {
            "guess": guarantee.best_guess,
            "recognised": guarantee.tpr(0.01),
            "recognised-rare": guarantee.tpr(1e-3),
        }
        for name, value in expected.items():
            assert float(page.get_attribute(f"#{name}", "data-value")) == pytest.approx(value, rel=5e-3), (scheme, name)


def test_sliders_move_numbers_and_the_curve_by_keyboard(plan_path, opened):
    shown = opened(plan_path)
    page = shown.page
    for name in ("n", "epsilon", "delta", "epochs", "batch"):
        page.check("input[value=poisson]")
        before = page.get_attribute("#trade-off .line-main", "points"), page.inner_text("#poisson")
        value, updates = page.inner_text(f"#{name}-value"), page.get_attribute("body", "data-updates")
        page.focus(f"#{name}")
        for _ in range(4):
            page.keyboard.press("ArrowRight")
        page.wait_for_function("(updates) => document.body.dataset.updates !== updates", arg=updates)
        page.wait_for_function("() => !waiting")
        assert page.inner_text(f"#{name}-value") != value
        assert page.get_attribute(f"#{name}", "aria-valuetext") == page.inner_text(f"#{name}-value")
        after = page.get_attribute("#trade-off .line-main", "points"), page.inner_text("#poisson")
        assert after[1] != before[1]
        if name in {"epsilon", "delta"}:
            assert after[0] != before[0]
    shown.check(plan_path)


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (800, "light"), (1400, "dark"), (1400, "light")])
def test_the_plan_fits_the_screen_and_has_enough_contrast(width, scheme, plan_path, opened):
    page = opened(plan_path, viewport={"width": width, "height": 900}, color_scheme=scheme).page
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate(CONTRAST) >= 4.5


def test_every_control_of_the_plan_has_a_label(plan_path, opened):
    page = opened(plan_path).page
    assert page.evaluate("[...document.querySelectorAll('input')].every((each) => each.labels.length === 1)")
    assert page.evaluate("[...document.querySelectorAll('th')].every((each) => each.scope)")


def test_settings_that_the_page_cannot_show_are_refused_or_named(tmp_path):
    for delta in (1e-11, 0.2):
        with pytest.raises(ValueError, match=r"computes with deltas from 1e-10 to 0\.1"):
            write_plan_page(tmp_path / "plan.html", 1000, Budget(1.0, delta), epochs=1)
    console = Console(record=True, width=200, file=io.StringIO())
    write_page(tmp_path / "plan.html", 10_000, Budget(1.0, 1e-6), epochs=1, batch_size=7, console=console)
    assert "It starts at 20, not at 7." in console.export_text()


def test_the_page_starts_where_it_was_asked_to(opened, tmp_path):
    path = write_plan_page(tmp_path / "plan.html", 777, Budget(0.3, 2.2e-6), epochs=7, batch_size=None)
    page = opened(path).page
    assert page.inner_text("#command") == "privet plan --n 777 --epsilon 0.3 --delta 2.2e-6 --epochs 7"
    assert page.inner_text("#batch-value") == "all records"
    page.evaluate(MOVE, {"n": 0.9})
    assert page.inner_text("#batch-value") == "all records"
