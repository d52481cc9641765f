"""Reading a large table, and the commands that do so, beside pandas.read_csv in the same run.

The table is made up: an ID, numbers with three decimals and whole numbers, categories of four levels, a date, and a
target of two levels. Everything runs in a process of its own, with one thread for linear algebra. The time is the
processor time of all threads of the process, imports included, and the memory is its largest resident set.

    python benchmarks/tables.py [--rows 1000000] [--turns 1] [--folder FOLDER] [--json]
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
from pyarrow import csv

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "experiments"))
from support import console, print_table, write_results

NUMBERS, CATEGORIES = 42, 5  # and an ID, a date and the target: 50 columns
LEVELS = ("low", "middle", "high", "very high")
GOALS = {"privet fit": (25.0, 1.5), "privet predict": (12.0, None), "read_table": (12.0, 1.0)}
"""Seconds of processor time, and gigabytes."""

PANDAS = "import sys, pandas; assert len(pandas.read_csv(sys.argv[1])) > 0"
READ = """
import sys
from privet.tables import TableSchema, read_table
assert len(read_table(sys.argv[1], TableSchema.from_toml(sys.argv[2]))) > 0
"""
COMMAND = "from privet.cli import main; main()"


def write_table(path: Path, rows: int) -> None:
    """Write a made-up table. The target depends on one of the numbers."""
    rng = np.random.default_rng(0)
    columns: dict[str, object] = {"id": [f"P{row:07d}" for row in range(rows)]}
    for k in range(NUMBERS):
        columns[f"x{k}"] = np.round(rng.normal(50, 15, rows), 3) if k % 3 else rng.integers(0, 120, rows)
    for k in range(CATEGORIES):
        columns[f"c{k}"] = np.array(LEVELS)[rng.integers(0, len(LEVELS), rows)]
    columns["day"] = (np.datetime64("2015-01-01") + rng.integers(0, 3000, rows)).astype(str)
    columns["y"] = np.where(columns["x1"] + rng.normal(0, 10, rows) > 50, "yes", "no")
    csv.write_csv(pa.table(columns), path, csv.WriteOptions(quoting_style="none"))


def write_schema(path: Path) -> None:
    """Write the public description of the table."""
    levels = ", ".join(f'"{level}"' for level in LEVELS)
    lines = [
        'target = "y"\ntarget_levels = ["no", "yes"]\nids = ["id"]\n[numeric]',
        *(f"x{k} = [0, 120]" for k in range(NUMBERS)),
        "[categorical]",
        *(f"c{k} = [{levels}]" for k in range(CATEGORIES)),
        "[dates]\nday = [2015-01-01, 2024-12-31]",
    ]
    path.write_text("\n".join(lines) + "\n")


def measured(code: str, *arguments: object) -> tuple[float, float]:
    """Run a program in a process of its own, and return its processor time and its memory in gigabytes."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    _, status, used = os.wait4(os.posix_spawn(sys.executable, command, environment, file_actions=quiet), 0)
    if status != 0:
        raise RuntimeError(f"The process failed with status {status}: {arguments}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e9


def turn(folder: Path) -> dict[str, tuple[float, float]]:
    """Run everything once."""
    table, schema, model = folder / "table.csv", folder / "schema.toml", folder / "model.privet.json"
    return {
        "pandas.read_csv": measured(PANDAS, table),
        "read_table": measured(READ, table, schema),
        "privet fit": measured(COMMAND, "fit", table, "--schema", schema, "-o", model),
        "privet predict": measured(COMMAND, "predict", model, table, "-o", folder / "predictions.csv"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="keep the table here, and use the one that is there")
    parser.add_argument("--json", action="store_true", help="write docs/results/tables_benchmark.json")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = told.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "table.csv").exists():
            write_table(folder / "table.csv", told.rows)
        write_schema(folder / "schema.toml")
        turns = [turn(folder) for _ in range(told.turns)]
        size = (folder / "table.csv").stat().st_size
    work = {
        name: {
            "seconds": median(each[name][0] for each in turns),
            "gigabytes": median(each[name][1] for each in turns),
            "seconds_of_each_turn": [each[name][0] for each in turns],
            "goal": dict(zip(("seconds", "gigabytes"), GOALS.get(name, (None, None)), strict=True)),
        }
        for name in turns[0]
    }
    rows = [[name, f"{each['seconds']:.1f}", f"{each['gigabytes']:.2f}"] for name, each in work.items()]
    print_table(f"{told.rows:,} rows of 50 columns, {size / 1e6:.0f} MB", ["", "CPU seconds", "GB"], rows)
    console.print("Processor time and largest resident set of a process, imports included")
    if told.json:
        write_results(
            "tables_benchmark",
            {"rows": told.rows, "columns": 50, "megabytes": size / 1e6, "work": work, "load": os.getloadavg()[0]},
        )


if __name__ == "__main__":
    main()
