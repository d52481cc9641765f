"""How much of privet a reader passes through: the files and functions that common calls enter.

Counted with ``sys.setprofile``: every function, method, lambda and comprehension of ``src/privet`` that is entered,
once each, in all threads, and the files in which they stand. Module bodies do not count, and the calls in this process
are warm: they run once before they are counted.

    python tools/footprint.py            # counts and limits; ends with exit code 1 if a limit is exceeded
    python tools/footprint.py --verbose  # lists the functions too
"""

import argparse
import contextlib
import io
import json
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import privet

SOURCE = Path(privet.__file__).parent
TABLE = [(20 + i % 60, "no" if i % 3 else "yes", "ill" if i % 2 else "well") for i in range(900)]
STUDY = """
name = "footprint"
epsilon = 1.0
model = "logistic"
method = "gradient"
steps = 3
{parties}
[table]
target = "state"
target_levels = ["ill", "well"]
[table.numeric]
age = [0, 120]
[table.categorical]
smoker = ["no", "yes"]
"""
Entered = set[tuple[str, str]]


@contextmanager
def entered() -> Iterator[Entered]:
    """Yield a set that fills with the file and the name of every function of privet that is entered."""
    found: Entered = set()
    prefix = f"{SOURCE}/"

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(prefix) and code.co_name != "<module>":
            found.add((code.co_filename.removeprefix(prefix), code.co_qualname))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


def fit() -> Entered:
    """Return what fitting a logistic regression enters."""
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    model = privet.PrivateLogisticRegression(epsilon=1.0, classes=[0, 1])
    return warm(lambda: model.fit(X / 5000, y))


def command_line() -> Entered:
    """Return what ``privet fit`` enters on a small table."""
    from privet.cli import main

    with tempfile.TemporaryDirectory() as folder:
        write_table(Path(folder, "table.csv"), TABLE)
        described = ["--target", "state", "--bounds", "age=0:120", "--levels", "smoker=no,yes"]
        sys.argv = ["privet", "fit", f"{folder}/table.csv", *described, "-o", f"{folder}/model.json"]

        def run() -> None:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
                main()

        found = warm(run)
        assert Path(folder, "model.json").exists()
        return found


def warm(work: Callable[[], object]) -> Entered:
    """Return what a second call enters."""
    work()
    with entered() as found:
        work()
    return found


def party() -> Entered:
    """Return what one of three parties enters that train together, each in its own process, with keys and a ledger."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        study, keys = str(folder / "study.toml"), str(folder / "keys")
        addresses = "".join(
            f'[[party]]\nname = "p{i}"\naddress = "127.0.0.1:{port}"\n' for i, port in enumerate(ports(3))
        )
        Path(study).write_text(STUDY.format(parties=addresses))
        subprocess.run([sys.executable, "-m", "privet", "party", "keygen", study, "-o", keys], check=True, stdout=-3)
        parties = []
        for i in range(3):
            write_table(folder / f"{i}.csv", TABLE[i::3])
            files = ["--data", f"{i}.csv", "--output", f"{i}.json", "--ledger", f"{i}.ledger"]
            command = ["party", "run", study, "--index", str(i), "--keys", keys, *files]
            recorder = [sys.executable, __file__, "--record", f"entered{i}.json", *command]
            parties.append(subprocess.Popen(recorder, cwd=folder, stdout=subprocess.DEVNULL))
        assert all(process.wait(timeout=120) == 0 for process in parties)
        return {(file, function) for file, function in json.loads((folder / "entered1.json").read_text())}


def record(target: str, command: list[str]) -> None:
    """Run a command of privet in this process, and write what it entered to a file."""
    import privet.commands.party  # noqa: F401  (class bodies run on import, and do not count)
    from privet.cli import main

    sys.argv = ["privet", *command]
    with entered() as found, contextlib.suppress(SystemExit):
        main()
    Path(target).write_text(json.dumps(sorted(found)))


def write_table(path: Path, rows: list[tuple[int, str, str]]) -> None:
    """Write rows as a CSV file with the columns of the study."""
    path.write_text("age,smoker,state\n" + "".join(f"{age},{smoker},{state}\n" for age, smoker, state in rows))


def ports(number: int) -> list[int]:
    """Return ports of this machine that are free now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


# Exact noise (bits, normals, ziggurat, release) and bounds on rounding (matrices, summation) take six files.
CALLS = {  # what is called, and the most files and functions that it may enter: raise a limit only with a reason
    "PrivateLogisticRegression.fit": (fit, 25, 157),
    "privet fit": (command_line, 31, 211),
    "privet party run": (party, 34, 324),
}


def main() -> None:
    """Print a line per call, and end with exit code 1 if one exceeds its limits."""
    if sys.argv[1:2] == ["--record"]:
        record(sys.argv[2], sys.argv[3:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verbose", action="store_true", help="list the functions")
    options = parser.parse_args()
    is_exceeded = False
    for name, (measure, most_files, most_functions) in CALLS.items():
        found = measure()
        files = {file for file, _ in found}
        print(f"{name}: {len(files)} files (limit {most_files}), {len(found)} functions (limit {most_functions})")
        is_exceeded |= len(files) > most_files or len(found) > (most_functions or len(found))
        if options.verbose:
            print(*(f"  {file}: {function}" for file, function in sorted(found)), sep="\n")
    sys.exit(is_exceeded)


if __name__ == "__main__":
    main()
