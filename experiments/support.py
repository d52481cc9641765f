"""What the experiments share: finding data, repeating runs, printing tables and writing results.

Data is never part of the repository. Point PRIVET_DATA at a folder with the files named here (by default ../shared/data
beside the repository); an experiment stops and names a file that is missing. Files that scripts make, and the outcomes
of single runs, are kept in .experiments.
"""

import hashlib
import json
import math
import os
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "results"
console = Console(width=140, highlight=False)
MADE_BY = {"cifar10.npz": "experiments/cifar10.py makes it."}


@dataclass(frozen=True)
class Split:
    """A training and a test part."""

    X: NDArray[Any]
    y: NDArray[Any]
    X_test: NDArray[Any]
    y_test: NDArray[Any]


def data_file(name: str) -> Path:
    """Return the path of a data file. If it is missing, stop with its name."""
    folder = Path(os.environ.get("PRIVET_DATA", ROOT.parent / "shared" / "data"))
    path = next((each for each in (folder / name, made_data(name)) if each.exists()), None)
    if path is None:
        remedy = MADE_BY.get(name, "Set PRIVET_DATA to the folder that holds it.")
        sys.exit(f"{name} is not in {folder}: {remedy}")
    return path


def made_data(name: str) -> Path:
    """Return the path of a data file that a script of this folder makes."""
    return ROOT / ".experiments" / "data" / name


def arrays(name: str, first: Mapping[str, int | None] | None = None) -> dict[str, NDArray[Any]]:
    """Return the arrays of an .npz file.

    ``first`` maps the end of a key, such as ``"train"``, to the number of rows that are read from these arrays. Reading
    ends there, which saves seconds for files that are slow to decompress.
    """
    with np.load(data_file(name), allow_pickle=False) as file:
        rows = {key: (first or {}).get(key.rpartition("_")[2]) for key in file.files}
        return {key: file[key] if n is None else _first_rows(file, key, n) for key, n in rows.items()}


def _first_rows(file: Any, key: str, n: int) -> NDArray[Any]:
    """Return the first ``n`` rows of an array of an open .npz file, without decompressing the others if possible."""
    with file.zip.open(f"{key}.npy") as member:
        if np.lib.format.read_magic(member) == (1, 0):
            shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(member)
            if shape and not is_fortran and not dtype.hasobject:
                shape = (min(n, shape[0]), *shape[1:])
                content = bytearray(member.read(math.prod(shape) * dtype.itemsize))  # writable, as torch expects
                return np.frombuffer(content, dtype).reshape(shape)
    whole: NDArray[Any] = file[key]
    return whole[:n]


def a9a() -> Split:
    """Return a9a: 123 columns of zeros and ones, at most 14 ones per row; labels 0 and 1."""
    return _signed(arrays("a9a.npz"))


def ijcnn1() -> Split:
    """Return ijcnn1: 22 columns; labels 0 and 1."""
    return _signed(arrays("ijcnn1.npz"))


def mnist(n: int = 50_000) -> Split:
    """Return the first ``n`` images of MNIST's training part, pixels from 0 to 1, and its test part."""
    parts = arrays("mnist.npz")
    pixels = {key: parts[key].reshape(-1, 784) / 255.0 for key in ("x_train", "x_test")}
    return Split(pixels["x_train"][:n], parts["y_train"][:n].astype(int), pixels["x_test"], parts["y_test"].astype(int))


def _signed(parts: dict[str, NDArray[Any]]) -> Split:
    X, X_test = (parts[key].astype(np.float64) for key in ("x_train", "x_test"))
    return Split(X, (parts["y_train"] > 0).astype(int), X_test, (parts["y_test"] > 0).astype(int))


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation of repeated runs."""

    mean: float
    std: float
    runs: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Summarise a list."""
        std = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        return cls(float(np.mean(values)), std, len(values))

    def show(self, digits: int = 4, factor: float = 1.0) -> str:
        """Return mean ± standard deviation, or the value alone if there was one run."""
        if not math.isfinite(self.mean):
            return "inf"
        if self.runs == 1:
            return f"{factor * self.mean:.{digits}f}"
        return f"{factor * self.mean:.{digits}f} ± {factor * self.std:.{digits}f}"


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of a call and the processor time of all threads that it took, in seconds."""
    begin = time.process_time()
    result = run()
    return result, time.process_time() - begin


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table with its first column aligned to the left."""
    table = Table(title=title)
    for place, name in enumerate(columns):
        table.add_column(name, justify="left" if place == 0 else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def resumed(key: object, run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the outcome of a run, which is read from .experiments if a run with the same key has finished before.

    Experiments of hours thereby continue where they were interrupted. Delete the folder to run everything anew.
    """
    kept = kept_run(key)
    if not kept.exists():
        keep_run(key, run())
    found: dict[str, Any] = json.loads(kept.read_text())["outcome"]
    return found


def kept_run(key: object) -> Path:
    """Return the file in .experiments that holds the outcome of a run, or will hold it."""
    return ROOT / ".experiments" / f"{hashlib.sha256(repr(key).encode()).hexdigest()[:24]}.json"


def keep_run(key: object, outcome: dict[str, Any]) -> None:
    """Keep the outcome of a run. The file appears only when it is complete."""
    kept = kept_run(key)
    kept.parent.mkdir(exist_ok=True)
    part = kept.with_suffix(f".{os.getpid()}")
    part.write_text(json.dumps({"key": repr(key), "commit": commit(), "outcome": outcome}))
    part.replace(kept)


def commit() -> str:
    """Return the commit of the repository, with a "+" if files of the package differ from it."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        number = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
        changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "../src"], check=False)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return number.stdout.strip() + "+" * changed.returncode


def write_results(name: str, content: dict[str, Any]) -> Path:
    """Write docs/results/<name>.json, with the command, the commit, the versions and the machine of the run."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    target = RESULTS / f"{name}.json"
    machine = {"python": platform.python_version(), "numpy": np.__version__, "cores": os.cpu_count()}
    # Paths say where something is on one machine, so only their last parts are written.
    arguments = [Path(each).name if Path(each).is_absolute() else each for each in sys.argv[1:]]
    ran = {"command": " ".join([Path(sys.argv[0]).name, *arguments]), "commit": commit(), "machine": machine}
    target.write_text(json.dumps({"experiment": name, **ran, **content}, indent=1) + "\n")
    console.print(f"Written: {target.relative_to(ROOT)}")
    return target


def save_figure(figure: Any, name: str) -> Path:
    """Write docs/results/<name>.png."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    target = RESULTS / f"{name}.png"
    figure.savefig(target, dpi=110, bbox_inches="tight")
    console.print(f"Written: {target.relative_to(ROOT)}")
    return target


def ports_of_servers(number: int) -> list[int]:
    """Return free ports whose successors are free as well, because a server listens on two."""
    found: list[int] = []
    while len(found) < number:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            if not any(abs(port - other) < 2 for other in found):
                found.append(port)
    return found
