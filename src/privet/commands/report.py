"""``privet report``: write the report of a saved model, and its entry for the registry of deployments."""

from pathlib import Path
from typing import Any

from rich.console import Console

from privet.files import check_writable, read_json
from privet.linear import TableModel
from privet.report import Report
from privet.report.about import About
from privet.report.figures import digest_of, test_figures
from privet.report.registry import write_entry
from privet.saving import load
from privet.tables import RECOGNISED, FileForm, read_table


def run(
    model_path: Path,
    *,
    output: Path,
    title: str | None = None,
    ledger: Path | None = None,
    public_test: Path | None = None,
    about: Path | None = None,
    registry: Path | None = None,
    form: FileForm = RECOGNISED,
    console: Console,
) -> Report:
    """Write the report of the model in a file, and say where it is."""
    for path in (output, registry):
        if path is not None:
            check_writable(path)
    model = load(model_path)
    options: dict[str, Any] = {"digest": digest_of(model_path)}
    options["version"] = str(read_json(model_path).get("privet_version", ""))
    if about is not None:
        options["about"] = About.read(about)
    if public_test is not None:
        if not isinstance(model, TableModel):
            raise ValueError("--public-test needs the model of a table, which knows its columns. Leave it out.")
        options["tests"] = test_figures(model, read_table(public_test, model.schema, form=form))
    report = Report.of(model, title=title, ledger=ledger, **options)
    report.save(output)
    console.print(f"Report written to {output}. Open it in a browser, or print it on A4 paper.", soft_wrap=True)
    if registry is not None:
        left = write_entry(report, registry)
        console.print(f"Entry for the registry of deployments written to {registry}.", soft_wrap=True)
        if left:
            console.print(f"To be completed in it, or by --about: {', '.join(left)}.", soft_wrap=True)
    return report
