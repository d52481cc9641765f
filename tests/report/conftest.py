"""A browser, and one report of each kind."""

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="module")
def browser():
    """Return a headless Chromium, or skip with what is missing.

    One module uses it, so that one browser is started per session. It must end with that module: while playwright runs,
    no other test of the process can run an event loop.
    """
    api = pytest.importorskip("playwright.sync_api", reason="pages are tested with playwright: install the extra test")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no browser is on the PATH: install chromium, as .ci/run does")
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def reports(tmp_path_factory):
    """Return the report of a table, a network, a federated run, a study of three owners, and one that is very long."""
    pytest.importorskip("torch", reason="two of the reports need torch: install the extra deep")
    pytest.importorskip("mpyc", reason="one of the reports needs mpyc: install the extra multiparty")
    import samples

    from privet.report import Report
    from privet.saving import from_dict

    return {
        "table": samples.table_report(tmp_path_factory.mktemp("table")),
        "network": Report.of(samples.network(), made=samples.MADE),
        "federated": Report.of(samples.federated(), made=samples.MADE),
        "study": Report.of(from_dict(samples.study_result()), made=samples.MADE),
        "long": samples.long_report(tmp_path_factory.mktemp("long")),
    }


@pytest.fixture(scope="session")
def pages(reports, tmp_path_factory):
    """Return the files of these reports."""
    folder = tmp_path_factory.mktemp("pages")
    return {name: report.save(folder / f"{name}.html") for name, report in reports.items()}
