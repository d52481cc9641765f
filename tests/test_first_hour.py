"""The first hour of a new user: from a messy file to a private model, in four commands and two rounds of corrections.

The user writes a schema, checks the table, corrects the file and the schema as the report says, checks again and fits.
All corrections below are taken from the report alone: from its rows, its example values and its remedies.
"""

import csv
import json
import re

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


def schema() -> str:
    """Return a schema file, as a user writes it at first: with a name and an order of bounds that are wrong."""
    lines = ['target = "Rückfall"', 'target_levels = ["nein", "ja"]', 'ids = ["Patient"]', "[numeric]"]
    lines += [
        f'"{name}" = [{high if name == "wert 9" else low}, {low if name == "wert 9" else high}]'
        for name, (low, high) in NUMBERS.items()
    ]
    lines += [
        "[categorical]",
        *(f'"{name.lower()}" = {json.dumps(levels, ensure_ascii=False)}' for name, levels in LEVELS.items()),
    ]
    lines += [
        "[dates]",
        *(
            f"{name} = [{first}, 2024-12-31]"
            for name, first in (("aufnahme", "2020-01-01"), ("geboren", "1920-01-01"), ("entlassen", "2020-01-01"))
        ),
    ]
    return "\n".join([*lines, "[missing]", ""])


def correct(findings, header, rows, toml):
    """Do what the remedies say, and return the corrected rows and the corrected schema."""
    dropped = set()
    for finding in (each for each in findings if each["severity"] == "problem"):
        column, remedy = finding["column"], finding["remedy"]
        if finding["what"].startswith("rows with"):
            dropped |= {row - 1 for row in finding["rows"]}
        elif meant := re.search(r"Did you mean '(.+?)'\?", remedy):
            toml = toml.replace(f'"{column}" =', f'"{meant[1]}" =')
        elif "must be below" in finding["what"]:
            toml = re.sub(rf'("{column}" =) \[(.+), (.+)\]', r"\1 [\3, \2]", toml)
        elif "format" in remedy:
            toml = re.sub(rf"({column} =) (\[.+\])", r'\1 { bounds = \2, format = "%d/%m/%Y" }', toml)
        elif rule := re.search(r"in the section \[missing\]: (.+?) = \"level\"", remedy):
            toml += f'{rule[1]} = "level"\n'
        else:
            meanings = dict(re.findall(r"If '([^']+)' means '([^']+)', replace it", remedy))
            meanings |= dict.fromkeys(
                re.findall(r"If '([^']+)' stands for a missing value, leave the cell empty", remedy), ""
            )
            assert {f"'{cell}'" for cell in meanings} == set(finding["examples"]), finding
            place = header.index(column)
            rows = [[meanings.get(cell, cell) if at == place else cell for at, cell in enumerate(row)] for row in rows]
    return [row for number, row in enumerate(rows) if number not in dropped], toml


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8-sig"])
def test_a_messy_file_becomes_a_model_in_four_commands_and_two_rounds_of_corrections(tmp_path, monkeypatch, encoding):
    monkeypatch.chdir(tmp_path)
    header, rows = messy_file()
    assert len(header) == 30 and len(rows) == N
    write(tmp_path / "klinik.csv", header, rows, encoding)
    toml, commands = schema(), 1  # the command that drafts the schema from a code book

    rounds = 0
    for _ in range(2):
        (tmp_path / "klinik.toml").write_text(toml, encoding="utf-8")
        checked = CliRunner().invoke(app, ["check", "klinik.csv", "--schema", "klinik.toml", "--json", "-"])
        commands += 1
        if checked.exit_code == 0:
            break
        rows, toml = correct(json.loads(checked.stdout)["findings"], header, rows, toml)
        rounds += 1
        write(tmp_path / "klinik.csv", header, rows, encoding)
    (tmp_path / "klinik.toml").write_text(toml, encoding="utf-8")
    options = ("--schema", "klinik.toml", "--epsilon", "4", "--seed", "0", "-o", "m.json")
    fitted = CliRunner().invoke(app, ["fit", "klinik.csv", *options])
    commands += 1

    assert fitted.exit_code == 0, (fitted.output, fitted.exception)
    assert commands <= 4 and 1 <= rounds <= 2
    assert len(rows) == N - 1  # only the line that was cut off is lost
    model = privet.load(tmp_path / "m.json")
    assert len(model.schema.features) == 24 and model.schema.ids == ("Patient",) and model.guarantee.epsilon <= 4
