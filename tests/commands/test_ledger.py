"""privet ledger prints what its file says, whatever that is."""

from typer.testing import CliRunner

from privet.cli import app
from privet.privacy import Adjacency, Guarantee, Ledger
from privet.privacy.events import GaussianRelease


def test_brackets_in_labels_and_guarantees_are_printed(tmp_path):
    guarantee = Guarantee.of(GaussianRelease(0.1), Adjacency.REPLACE_ONE, 1e-5, released="the sum [of] rows")
    Ledger(tmp_path / "a.ledger").spend(guarantee, "fit [old] table")
    found = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["ledger", str(tmp_path / "a.ledger")])
    assert found.exit_code == 0, found.output
    assert "fit [old] table" in found.output
    assert "the sum [of] rows" in found.output


def test_times_labels_and_totals_are_complete_in_80_columns(tmp_path):
    guarantee = Guarantee.of(GaussianRelease(0.1), Adjacency.REPLACE_ONE, 1e-5, released="the sum of rows")
    ledger = Ledger(tmp_path / "a.ledger", limit=3)
    entry = ledger.spend(guarantee, "fit a_very_long_name_of_a_table.csv -> model.privet.json")
    found = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["ledger", str(tmp_path / "a.ledger")]).output
    table = [line for line in found.splitlines() if line.startswith("│")]
    assert max(map(len, table)) <= 80 and "…" not in "".join(table)
    assert entry.time[:16].replace("T", " ") in table[1]
    assert "".join(line.split("│")[2].strip() for line in table[1:]).replace(" ", "") == entry.label.replace(" ", "")
