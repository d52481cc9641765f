"""Mistakes are refused in one line, with exit code 2, before any heavy library is loaded."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from privet.cli import app
from privet.cli.early import examples
from privet.commands.json_output import plain_console

sys.path.insert(0, str(Path(__file__).parent.parent))

from preloaded_cli import PreloadedCommandLine

HEAVY = ("sklearn", "scipy", "pandas", "torch", "mpyc", "dp_accounting", "flwr", "pyarrow")
FIT = "fit t.csv --schema s.toml"
REFUSED = {
    "fit": "Missing argument",
    "fit t.csv --foo": "No such option",
    "fit t.csv --epsilon abc": "not a valid float",
    f"{FIT} --epsilon 0": "epsilon must be positive",
    f"{FIT} --epsilon nan": "epsilon must be finite",
    f"{FIT} --delta 2": "delta must lie in [0, 1)",
    f"{FIT} --epsilon 1 --noise-multiplier 1": "cannot be given together",
    f"{FIT} --epsilon 1 --tpr 0.01:0.05": "--epsilon and --tpr cannot be given together",
    f"{FIT} --tpr 0.05": "--tpr must be two numbers with a colon between them",
    f"{FIT} --tpr 0.05:0.01": "--tpr must be a false-positive rate and a larger true-positive rate",
    "plan --n 10 --noise-multiplier 1 --tpr 0.01:0.05": "--noise-multiplier and --tpr cannot be given together",
    f"{FIT} --noise-multiplier -1": "noise_multiplier is --noise-multiplier",
    f"{FIT} --model foo": "--model must be one of auto, sparse, additive, logistic",
    f"{FIT} --method foo": "method must be one of 'auto', 'adaptive'",
    f"{FIT} --alpha -1": "alpha must not be negative",
    f"{FIT} --smoothing -1": "smoothing must not be negative",
    f"{FIT} --clip-norm 0": "clip_norm must be positive",
    f"{FIT} --secret foo": "secret must be one of 'order', 'stop', 'skip'",
    f"{FIT} --batch-size 0": "batch_size must be at least 1",
    f"{FIT} --max-iter 0": "max_iter must be at least 1",
    f"{FIT} --seed -1": "random_state is --seed",
    f"{FIT} --n-nonzero 0": "n_nonzero must be at least 1",
    f"{FIT} --n-nonzero 3 --model logistic": "use sparse_logistic or sparse_regression",
    f"{FIT} --loss foo": "loss must be one of 'parabola', 'gaussian'",
    f"{FIT} --loss gaussian --model logistic": "--loss is not a setting of --model logistic",
    f"{FIT} --threshold 3 --model ridge": "or use huber",
    f"{FIT} --smoothing 2 --model sparse_logistic": "--smoothing is not a setting of",
    "fit no.csv --schema s.toml": "table no.csv does not exist",
    "fit folder --schema s.toml": "folder is a folder",
    "fit t.csv --schema no.toml": "no.toml",
    "fit t.csv --schema bad.toml": "not valid TOML",
    "fit t.csv": "no feature is declared",
    "fit t.csv --bounds age=0:120": "No target column is declared",
    "fit t.csv --bounds age --target ill": "cannot be read",
    "fit t.csv --bounds age=120:0 --target ill": "must be below",
    "fit t.csv --levels sex --target ill": "cannot be read",
    f"{FIT} -o no/m.json": "folder no does not exist",
    f"{FIT} -o folder": "folder is a folder",
    f"{FIT} --limit 1": "--limit requires --ledger",
    f"{FIT} --ledger l --limit -1": "--limit must be positive",
    f"{FIT} --ledger no/l": "folder no does not exist",
    f"{FIT} --public no.csv": "table of public records no.csv does not exist",
    "fit empty.csv --schema s.toml": "empty.csv is empty",
    "fit t.csv --bounds height=0:300 --target ill": "no column 'height'",
    f"{FIT} --ledger s.toml": "s.toml is not a ledger",
    "predict {} empty.csv": "empty.csv is empty",
    "predict": "Missing argument",
    "predict no.json t.csv": "model file no.json does not exist",
    "predict t.csv t.csv": "does not contain JSON",
    "predict folder t.csv": "folder is a folder",
    "predict {} no.csv": "table no.csv does not exist",
    "predict {} t.csv -o no/p.csv": "folder no does not exist",
    "predict {} t.csv --json s.json": "requires --score",
    "show": "Missing argument",
    "show no.json": "model file no.json does not exist",
    "show folder": "folder is a folder",
    "show t.csv": "does not contain JSON",
    "show {} --json no/x.json": "folder no does not exist",
    "predict {} t.csv --sep foo": "separator is --sep",
    "check": "Missing argument",
    "check no.csv --schema s.toml": "table no.csv does not exist",
    "check folder --schema s.toml": "folder is a folder",
    "check t.csv --schema s.toml --sep foo": "separator is --sep",
    "check t.csv --schema s.toml --json no/x.json": "folder no does not exist",
    "schema": "Give the table, or a --code-book or --sample",
    "schema no.csv --sample t.csv": "table no.csv does not exist",
    "schema t.csv --code-book no.txt": "code book no.txt does not exist",
    "schema t.csv --sample no.csv": "sample no.csv does not exist",
    "schema folder --epsilon 1": "folder is a folder",
    "schema t.csv --epsilon 0": "epsilon must be positive",
    "schema t.csv --epsilon 1 --delta 2": "delta must lie in [0, 1)",
    "schema t.csv --epsilon 1 --delta 0": "needs delta > 0",
    "schema t.csv --epsilon 1 --ledger s.toml": "s.toml is not a ledger",
    "schema t.csv --sample t.csv --sep foo -o x": "separator is --sep",
    "schema t.csv --code-book empty.csv -o x": "empty.csv is empty",
    "schema empty.csv --epsilon 1 -o x": "empty.csv is empty",
    "schema t.csv --epsilon 1 --seed -1": "random_state is --seed",
    "schema t.csv --epsilon 1 --ledger no/l": "folder no does not exist",
    "schema t.csv --limit 3": "--limit is for private drafts only",
    "schema t.csv --sample t.csv -o s.toml": "s.toml exists already",
    "schema t.csv --sample t.csv --epsilon 1": "cannot be given together",
    "ledger no.ledger": "ledger no.ledger does not exist",
    "ledger t.csv": "t.csv is not a ledger",
    "ledger folder": "folder is a folder",
    "ledger t.csv --delta 3": "delta must lie in [0, 1)",
    "ledger t.csv --set-limit 0": "--set-limit must be positive",
    "ledger export t.csv -o x.txt": "must end in .json or .csv",
    "ledger export t.csv -o no/x.csv": "folder no does not exist",
    "plan": "Missing option '--n'",
    "plan --n 0": "n must be at least 1",
    "plan --n 10 --epsilon 0": "epsilon must be positive",
    "plan --n 10 --delta 1": "delta must lie in [0, 1)",
    "plan --n 10 --epochs 0": "epochs must be at least 1",
    "plan --n 10 --batch-size 11": "cannot be drawn",
    "plan --n 10 --dimension 0": "dimension must be at least 1",
    "plan --n 10 --json no/x.json": "folder no does not exist",
    "audit": "Give either a model file",
    "audit {}": "requires --train",
    "audit {} --train t.csv --holdout no.csv": "no.csv does not exist",
    "audit --estimator foo": "--estimator must be one of logistic",
    "audit --estimator logistic --confidence 2": "--confidence must lie in (0, 1)",
    "audit --estimator logistic --method foo": "method must be one of",
    "audit --estimator logistic --epsilon -1": "epsilon must be positive",
    "audit no.py --replay": "script no.py does not exist",
    "demo --seeds 1": "not in the range",
    "demo -o no/x.json": "folder no does not exist",
    "party run no.toml --index 0": "study no.toml does not exist",
    "party bad.toml --index 0": "study bad.toml cannot be read",
    "party s.toml": "exactly one of --index, --server and --owner",
    "party s.toml --index 0 --server 1": "exactly one of",
    "party s.toml --index 0 --data no.csv": "table no.csv does not exist",
    "party s.toml --owner 0": "An owner brings rows",
    "party s.toml --index 0 --timeout -1": "--timeout must be positive",
    "party s.toml --index 0 --keys no": "make keys with `privet party keygen`",
    "party keygen s.toml --days 0": "--days must be positive",
    "party local s.toml --data no.csv": "table no.csv does not exist",
    "party verify no.json": "model file no.json does not exist",
    "party verify {}": "{} is not the result of a study",
    "party verify {} --on monday": "does not match the format",
    "frob": "No such command 'frob'",
}
PROGRAM = f"""
import contextlib, io, json, sys
from privet.cli import main
found = {{}}
for line in json.load(sys.stdin):
    sys.argv, errors = ["privet", *line.split()], io.StringIO()
    code = None
    with contextlib.redirect_stderr(errors):
        try:
            main()
        except SystemExit as end:
            code = end.code
    found[line] = [code, errors.getvalue(), [name for name in {HEAVY!r} if name in sys.modules]]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def privet() -> Iterator[PreloadedCommandLine]:
    """Run a command in a process that was forked after the imports."""
    command_line = PreloadedCommandLine()
    yield command_line
    command_line.close()


def write_files(folder: Path) -> None:
    (folder / "folder").mkdir()
    (folder / "t.csv").write_text("age,ill\n1,no\n2,yes\n")
    (folder / "s.toml").write_text('target="ill"\ntarget_levels=["no","yes"]\n[numeric]\nage=[0,120]\n')
    (folder / "bad.toml").write_text("x = [")
    (folder / "{}").write_text("{}")
    (folder / "empty.csv").touch()


def test_mistakes_are_refused_in_one_line_before_anything_heavy_is_loaded(tmp_path):
    write_files(tmp_path)
    lines, program = json.dumps(list(REFUSED)), [sys.executable, "-c", PROGRAM]
    done = subprocess.run(program, input=lines, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    for line, (code, errors, loaded) in json.loads(done.stdout).items():
        assert code == 2, (line, errors)
        assert len(errors.splitlines()) == 1, (line, errors)
        assert errors.startswith("privet: ") and REFUSED[line] in errors, (line, errors)
        assert loaded == [], (line, loaded)


def run(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    command = [sys.executable, "-m", "privet", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, env={**os.environ, **environment}, check=False
    )


def test_warnings_are_single_lines_on_standard_error_that_quiet_and_the_environment_silence(privet, tmp_path):
    plan = ("plan", "--n", "100", "--epsilon", "20", "--delta", "0.05", "--epochs", "1")
    loud = privet(*plan, cwd=tmp_path)
    assert [line.split("=")[0] for line in loud.stderr.splitlines()] == [
        "privet: warning: epsilon",
        "privet: warning: delta",
    ]
    for silent in (privet(*plan, "--quiet", cwd=tmp_path), run(*plan, cwd=tmp_path, PRIVET_QUIET="1", COLUMNS="200")):
        assert silent.stderr == "" and silent.stdout == loud.stdout


def test_a_replaced_model_is_named_before_the_training(privet, tmp_path):
    write_files(tmp_path)
    (tmp_path / "t.csv").write_text("age,ill\n" + "1,no\n99,yes\n" * 500)
    fit = ("fit", "t.csv", "--schema", "s.toml", "--epsilon", "2")
    first, second = privet(*fit, cwd=tmp_path), privet(*fit, cwd=tmp_path)
    assert first.returncode == second.returncode == 0
    assert first.stderr == ""
    assert second.stderr.startswith("privet: warning: the model in model.privet.json will be replaced")
    assert len(second.stderr.splitlines()) == 1


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_can_complete_models_and_methods(tmp_path, shell):
    words = {"_TYPER_COMPLETE_ARGS": "privet fit t.csv --model hu", "COMP_WORDS": "privet fit t.csv --model hu"}
    found = run(
        cwd=tmp_path,
        _PRIVET_COMPLETE=f"complete_{shell}",
        COMP_CWORD="4",
        _TYPER_COMPLETE_FISH_ACTION="get-args",
        **words,
    )
    assert "huber" in found.stdout and "ridge" not in found.stdout


def commands(group=None, path=()):
    """Yield every command of the command line that does some work, with its words."""
    group = get_command(app) if group is None else group
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield pytest.param(command, id=" ".join((*path, name)))


@pytest.mark.parametrize("command", list(commands()))
def test_the_help_of_every_command_ends_with_examples_that_fit_into_80_columns(command):
    first, *lines = command.epilog.split("\n\n")
    assert first.startswith("Example") and lines
    for line in lines:
        assert line.startswith("privet ") and len(line) <= 78


def test_examples_are_lines_of_their_own():
    assert examples("privet demo") == "Example:\n\nprivet demo"
    assert examples("a", "b") == "Examples:\n\na\n\nb"


def test_square_brackets_and_colons_of_names_are_printed_as_they_are(capsys):
    plain_console().print("pip install 'privet[deep]' and column :cat: of [bold]x")
    assert capsys.readouterr().out == "pip install 'privet[deep]' and column :cat: of [bold]x\n"


def test_a_missing_extra_is_named_with_the_command_that_installs_it(tmp_path):
    (tmp_path / "script.py").write_text("import torch\n")
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    # A finder that comes first hides torch, as if it were not installed.
    (hidden / "sitecustomize.py").write_text(
        "import sys\n"
        "class Hidden:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('torch', 'mpyc'):\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Hidden())\n"
    )
    done = run("audit", "script.py", "--replay", cwd=tmp_path, PYTHONPATH=str(hidden))
    assert done.returncode == 2
    assert done.stderr == "privet: The module torch is not installed. Run: pip install 'privet[deep]'\n"
    code = "import privet; privet.deep"
    environment = {**os.environ, "PYTHONPATH": str(hidden)}
    library = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert library.stderr.strip().endswith("pip install 'privet[deep]'")


def test_a_reader_that_stops_early_is_no_error(privet, tmp_path):
    write_files(tmp_path)
    (tmp_path / "t.csv").write_text("age,ill\n" + "1,no\n99,yes\n" * 20000)
    assert privet("fit", "t.csv", "--schema", "s.toml", cwd=tmp_path).returncode == 0
    command = f"{sys.executable} -m privet predict model.privet.json t.csv | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.stdout == "ill\n" and done.stderr == ""
