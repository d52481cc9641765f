"""The first hour of a new user: from a messy file to a private model, in four commands and two rounds of corrections.

The user drafts a schema from a code book, checks the table, corrects the file and the schema as the report says, checks
again and fits. All corrections below are taken from what the commands print: rows, example values and remedies.
"""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import privet
from privet.cli import app

N = 600
NUMBERS = {f"wert {k}": (-4.0, 4.0) for k in range(12)}
LEVELS = {f"gruppe {k}": ("niedrig", "mittel", "hoch") for k in range(8)} | {"Geschlecht": ("männlich", "weiblich")}
REMARKS = ["bemerkung", "station", "zimmer", "arzt"]


def messy_file() -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of a table of 30 columns that a hospital might export."""
    rng = np.random.default_rng(20)
    risk = rng.normal(size=N)
    columns = {"Patient": [f"P{k:05d}" for k in range(N)]}
    columns |= {name: [f"{x:.2f}".replace(".", ",") for x in rng.normal(risk / 4)] for name in NUMBERS}
    columns |= {name: list(rng.choice(levels, N)) for name, levels in LEVELS.items()}
    days = np.datetime64("2020-01-01") + rng.integers(0, 1400, N)
    columns["aufnahme"] = [f"{day.item():%d.%m.%Y}" for day in days]
    columns["geboren"] = [f"{(day - 20000).item():%d/%m/%Y}" for day in days]
    columns["entlassen"] = [f"{(day + 9).item():%Y-%m-%d}" for day in days]
    columns |= {name: list(rng.choice(["ä", "b; c", 'sagt "ja"'], N)) for name in REMARKS}
    columns["Rückfall"] = list(np.where(risk + rng.normal(size=N) / 2 > 0, "ja", "nein"))
    for name, row, cell in [
        ("Geschlecht", 3, "maennlich"),
        ("Geschlecht", 17, "Weiblich"),
        ("Geschlecht", 40, "weiblch"),
        ("gruppe 2", 5, "MITTEL"),
        ("gruppe 2", 9, ""),
        ("wert 1", 8, ""),
        ("wert 1", 300, "NA"),
        ("wert 4", 21, "?"),
        ("entlassen", 77, ""),
        ("Rückfall", 11, "Nein"),
        ("wert 7", 500, "99999"),
    ]:
        columns[name][row] = cell
    rows = [list(map(str, row)) for row in zip(*columns.values(), strict=True)]
    rows[123] = rows[123][:-2]  # a line that was cut off
    return list(columns), rows


def write(path, header, rows, encoding):
    with path.open("w", encoding=encoding, newline="") as file:
        csv.writer(file, delimiter=";", lineterminator="\r\n").writerows([header, *rows])


def write_code_book(path):
    """Write a code book as a hospital might have it. It says nothing of remarks, and swaps the bounds of one column."""
    lines = ["Merkmal;Typ;Wertebereich;Ausprägungen;Rolle", "Patient;ID;;;"]
    for name, (low, high) in NUMBERS.items():
        bounds = (high, low) if name == "wert 9" else (low, high)
        lines.append(f"{name};Dezimalzahl;{bounds[0]:g} bis {bounds[1]:g};;".replace(".", ","))
    lines += [f"{name};Kategorie;;{' | '.join(levels)};" for name, levels in LEVELS.items()]
    lines += ["aufnahme;Datum;01.01.2020 bis 31.12.2024;;\ngeboren;Datum;01.01.1920 bis 31.12.2024;;"]
    lines += ["entlassen;Datum;01.01.2020 bis 31.12.2024;;", "Rückfall;Kategorie;;nein | ja;target"]
    path.write_text("\n".join(lines), encoding="latin-1")


def corrected_schema(problems, toml):
    """Declare the columns of which the code book was not understood, as the printed problem says."""
    for problem in problems:
        message = problem["message"]
        swapped = re.fullmatch(r"Column '(.+)': the low bound (.+) must be below the high bound (.+)\.", message)
        assert swapped, problem
        toml = toml.replace("[numeric]\n", f'[numeric]\n"{swapped[1]}" = [{swapped[3]}, {swapped[2]}]\n')
    return toml


def corrected_table(findings, header, rows, toml):
    """Do what the remedies of the check say, and return the corrected rows and the corrected schema."""
    dropped, rules = set(), []
    for finding in (each for each in findings if each["severity"] == "problem"):
        column, remedy = finding["column"], finding["remedy"]
        if finding["what"].startswith("rows with"):
            dropped |= {row - 1 for row in finding["rows"]}
        elif "format" in remedy:
            toml = re.sub(rf"({column} =) (\[.+\])", r'\1 { bounds = \2, format = "%d/%m/%Y" }', toml)
        elif rule := re.search(r"in the section \[missing\]: (.+?) = \"level\"", remedy):
            rules.append(f'{rule[1]} = "level"')
        else:
            meanings = dict(re.findall(r"If '([^']+)' means '([^']+)', replace it", remedy))
            meanings |= dict.fromkeys(
                re.findall(r"If '([^']+)' stands for a missing value, leave the cell empty", remedy), ""
            )
            if "" in meanings.values():
                rules.append(f'"{column}" = "level"')
            assert {f"'{cell}'" for cell in meanings} == set(finding["examples"]), finding
            place = header.index(column)
            rows = [[meanings.get(cell, cell) if at == place else cell for at, cell in enumerate(row)] for row in rows]
    return [row for number, row in enumerate(rows) if number not in dropped], "\n".join([toml, "[missing]", *rules])


def run(*arguments):
    return CliRunner().invoke(app, arguments)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8-sig"])
def test_a_messy_file_becomes_a_model_in_four_commands_and_two_rounds_of_corrections(tmp_path, monkeypatch, encoding):
    monkeypatch.chdir(tmp_path)
    header, rows = messy_file()
    assert len(header) == 30 and len(rows) == N
    write(Path("klinik.csv"), header, rows, encoding)
    write_code_book(Path("merkmale.csv"))
    schema = Path("klinik.toml")

    drafted = run("schema", "klinik.csv", "--code-book", "merkmale.csv", "-o", "klinik.toml", "--json", "-")
    assert drafted.exit_code == 0, (drafted.output, drafted.exception)
    # The first round of corrections.
    toml = corrected_schema(json.loads(drafted.stdout)["problems"], schema.read_text(encoding="utf-8"))
    schema.write_text(toml, encoding="utf-8")

    checked = run("check", "klinik.csv", "--schema", "klinik.toml", "--json", "-")
    assert checked.exit_code == 1
    # The second one.
    rows, toml = corrected_table(json.loads(checked.stdout)["findings"], header, rows, toml)
    schema.write_text(toml, encoding="utf-8")
    write(Path("klinik.csv"), header, rows, encoding)

    again = run("check", "klinik.csv", "--schema", "klinik.toml")
    assert again.exit_code == 0, again.output
    fitted = run("fit", "klinik.csv", "--schema", "klinik.toml", "--epsilon", "4", "--seed", "0", "-o", "m.json")
    assert fitted.exit_code == 0, (fitted.output, fitted.exception)

    assert len(rows) == N - 1  # only the line that was cut off is lost
    model = privet.load("m.json")
    assert len(model.schema.features) == 24 and model.schema.ids == ("Patient",) and model.guarantee.epsilon <= 4
