"""Build the wheel, install it into a clean environment without constraints, and use it as a stranger would.

Run by ``make wheel``, outside pytest: it downloads the newest release of every dependency. A dependency that privet
imports but does not declare is not there, and one whose newest release breaks privet fails here first.
"""

import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = "age,smoker,ill\n" + "".join(f"{20 + i % 60},{'yes' if i % 3 else 'no'},{i % 2}\n" for i in range(400))
PROGRAM = """
import importlib.metadata, sys
import privet
assert privet.__version__ == importlib.metadata.version("privet")
assert not {"torch", "flwr", "mpyc"} & set(sys.modules)
model = privet.load("model.json")
print(model.guarantee)
"""


def started(command: Sequence[str | Path], cwd: Path) -> "subprocess.CompletedProcess[str]":
    """Run a command that does not find the modules of the caller's environment, only those that are installed."""
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    return subprocess.run(
        list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command and return what it printed; print it and stop if it fails."""
    done = started(command, cwd)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> None:
    """Build, install and use the wheel."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        run(sys.executable, "-m", "build", "--wheel", "--outdir", work, ROOT, cwd=work)
        (wheel,) = work.glob("privet-*.whl")
        venv.create(work / "venv", with_pip=True)
        python, privet = work / "venv/bin/python", work / "venv/bin/privet"
        run(python, "-m", "pip", "--disable-pip-version-check", "install", wheel, cwd=work)
        (work / "table.csv").write_text(TABLE)
        declared = ["--target", "ill", "--bounds", "age=0:120", "--levels", "smoker=no,yes"]
        run(privet, "--help", cwd=work)
        version = run(privet, "--version", cwd=work)
        plan = ("--n", "1000", "--epsilon", "1", "--delta", "1e-6", "--epochs", "2", "--batch-size", "100")
        run(privet, "plan", *plan, cwd=work)
        run(privet, "fit", "table.csv", *declared, "--epsilon", "1", "-o", "model.json", cwd=work)
        run(privet, "predict", "model.json", "table.csv", "-o", "predictions.csv", cwd=work)
        command = [privet, "report", "model.json"]
        refused = started(command, work)
        if "pip install 'privet[report]'" not in refused.stderr:
            sys.exit(f"privet report without jinja2 does not name the extra to install:\n{refused.stderr}")
        run(python, "-m", "pip", "--disable-pip-version-check", "install", f"{wheel}[report]", cwd=work)
        run(privet, "report", "model.json", "-o", "report.html", "--registry", "entry.yaml", cwd=work)
        run(privet, "plan", *plan, "--html", "plan.html", cwd=work)
        (work / "windows.csv").write_bytes(TABLE.replace("\n", "\r\n").encode())
        for table in ("table.csv", "windows.csv"):  # The same rows with the same seed must give the same model.
            run(privet, "fit", table, *declared, "--seed", "1", "-o", f"{table}.json", cwd=work)
        run(privet, "predict", "table.csv.json", "windows.csv", "-o", "windows.predictions.csv", cwd=work)
        if (work / "table.csv.json").read_bytes() != (work / "windows.csv.json").read_bytes():
            sys.exit("A table with the line ends of Windows gives another model.")
        refused = started([python, "-c", "import privet; privet.deep"], work)
        if "pip install 'privet[deep]'" not in refused.stderr:
            sys.exit(f"privet.deep without torch does not name the extra to install:\n{refused.stderr}")
        (work / "program.py").write_text(PROGRAM)
        run(python, "program.py", cwd=work)
        print(f"{wheel.name} works in a clean environment: {version.strip()}")


if __name__ == "__main__":
    main()
