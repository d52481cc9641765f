"""How much of privet a reader passes through: the files and functions that common calls enter.

Counted with ``sys.setprofile`` on a second, warm call: every function, method, lambda and comprehension of
``src/privet`` that is entered, once each, and the files in which they stand. Module bodies do not count.

    python tools/footprint.py            # counts and limits; ends with exit code 1 if one is exceeded
    python tools/footprint.py --verbose  # lists the functions too
"""

import argparse
import contextlib
import io
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import privet

SOURCE = Path(privet.__file__).parent
LIMITS = {  # files, functions
    "PrivateLogisticRegression.fit": (20, 110),
    "privet fit": (25, 150),
    "privet party": (30, None),
}
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


def fit() -> None:
    """Fit a logistic regression to a small data set of scikit-learn's."""
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    privet.PrivateLogisticRegression(epsilon=1.0, classes=[0, 1]).fit(X / 5000, y)


def command_line() -> None:
    """Run ``privet fit`` on a small table."""
    from privet.cli import main

    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder, "table.csv")
        table.write_text(
            "age,smoker,ill\n" + "".join(f"{20 + i % 60},{'no' if i % 3 else 'yes'},{i % 2}\n" for i in range(900))
        )
        arguments = [table, "--target", "ill", "--bounds", "age=0:120", "--levels", "smoker=no,yes"]
        sys.argv = ["privet", "fit", *map(str, arguments), "-o", f"{folder}/model.json"]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
            main()
        assert Path(folder, "model.json").exists()


def measured(work: Callable[[], None]) -> Entered:
    """Return what a warm call enters."""
    work()
    with entered() as found:
        work()
    return found


def main() -> None:
    """Print a line per call, and end with exit code 1 if one exceeds its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verbose", action="store_true", help="list the functions")
    options = parser.parse_args()
    is_exceeded = False
    for name, work in {"PrivateLogisticRegression.fit": fit, "privet fit": command_line}.items():
        found = measured(work)
        files = {file for file, _ in found}
        most_files, most_functions = LIMITS[name]
        print(f"{name}: {len(files)} files (limit {most_files}), {len(found)} functions (limit {most_functions})")
        is_exceeded |= len(files) > most_files or len(found) > (most_functions or len(found))
        if options.verbose:
            print(*(f"  {file}: {function}" for file, function in sorted(found)), sep="\n")
    sys.exit(is_exceeded)


if __name__ == "__main__":
    main()
