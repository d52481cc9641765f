"""The command line with real files, and in real processes except for the long list of bad inputs."""

import importlib
import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import privet as package
from privet.cli import main
from privet.extras import with_remedy
from privet.linear import MODELS
from privet.privacy import Adjacency, Guarantee, Ledger
from privet.privacy.events import GaussianRelease, PureRelease

sys.path.insert(0, str(Path(__file__).parent))

from preloaded_cli import PreloadedCommandLine

SCHEMA = """
target = "visited"
target_levels = ["no", "yes"]
[numeric]
age = [0, 120]
[categorical]
sex = ["female", "male"]
"""


def fresh_privet(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command in a fresh Python process, imports included."""
    return subprocess.run(
        [sys.executable, "-c", "from privet.cli import main; main()", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
    )


@pytest.fixture(scope="module")
def privet() -> Iterator[PreloadedCommandLine]:
    """Run a command in a process that was forked after the imports."""
    command_line = PreloadedCommandLine()
    yield command_line
    command_line.close()


def patients(n: int = 400) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    age, sex = rng.integers(0, 100, n), rng.choice(["female", "male"], n)
    visited = np.where(age + 10 * (sex == "male") + rng.normal(0, 10, n) > 55, "yes", "no")
    return pd.DataFrame({"age": age, "sex": sex, "visited": visited, "name": "x"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    patients().to_csv(tmp_path / "data.csv", index=False)
    (tmp_path / "schema.toml").write_text(SCHEMA)
    return tmp_path


FIT = ("fit", "data.csv", "--schema", "schema.toml")
FIT_AGE = ("fit", "data.csv", "--target", "age", "--target-bounds", "0:120", "--levels", "sex=female,male")


class Refusal:
    """Runs the command line in this process, and checks for one line on standard error and exit code 2."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder, self._monkeypatch, self._capsys = folder, monkeypatch, capsys

    def __call__(self, *arguments: object) -> str:
        self._monkeypatch.chdir(self._folder)
        self._monkeypatch.setattr(sys, "argv", ["privet", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_:
            main()
        assert exit_.value.code == 2
        captured = self._capsys.readouterr()
        assert not (self._folder / "model.privet.json").exists()
        (line,) = captured.err.strip().splitlines()
        return line


@pytest.fixture
def refusal(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Refusal:
    return Refusal(folder, monkeypatch, capsys)


def spent_by_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def test_help_answers_in_half_a_second(slowness: Callable[[], float]) -> None:
    """Processor time is measured, which hardly depends on other work on the machine."""
    fresh_privet("--help")  # warm the file cache
    times = []
    for _ in range(5):
        start = spent_by_children()
        result = fresh_privet("--help")
        times.append(spent_by_children() - start)
        assert result.returncode == 0
    assert min(times) < 0.5 * slowness()
    assert all(command in result.stdout for command in ("demo", "plan", "fit", "predict", "ledger"))


def test_the_version_is_that_of_the_package() -> None:
    result = fresh_privet("--version")
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"privet {package.__version__}\n"


@pytest.mark.parametrize("command", ["fit", "audit"])
def test_help_lists_the_models_and_methods_of_the_library(privet: PreloadedCommandLine, command: str) -> None:
    words = " ".join(privet(command, "--help").stdout.replace("│", " ").split())
    offered = {name for kind in MODELS.values() for name in kind.offered_methods()}
    (listed,) = re.findall(r"--method \S+ One of auto, ([^.]*)\.", words)
    assert set(listed.split(", ")) == offered
    assert ", ".join(MODELS) in words


def test_a_printed_guarantee_has_at_most_12_lines_and_verbose_shows_all_details(
    privet: PreloadedCommandLine, folder: Path
) -> None:
    short, long = (privet(*FIT, *options, cwd=folder).stdout.splitlines() for options in ((), ("--verbose",)))
    first, last = (next(k for k, line in enumerate(short) if start in line) for start in ("Ignored", "Method:"))
    assert last - first - 1 <= 12
    assert "further detail" in short[last - 1]
    assert sum("Enforced:" in line for line in long) > sum("Enforced:" in line for line in short)
    assert not any("further detail" in line for line in long)


@pytest.mark.parametrize(("module", "extra"), [("grpc", "multiparty"), ("torch.nn", "deep"), ("numpy", None)])
def test_a_missing_module_is_reported_with_the_extra_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, module: str, extra: str | None
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ModuleNotFoundError) as missing:
        importlib.import_module(module)
    said = f"The module {module.partition('.')[0]} is not installed. Run: pip install 'privet[{extra}]'"
    assert with_remedy(missing.value) == (said if extra else None)


def test_help_loads_no_heavy_library() -> None:
    heavy = ("torch", "flwr", "mpyc", "sklearn", "scipy", "pandas", "dp_accounting")
    code = (
        "import sys\nfrom privet.cli import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print('LOADED', [m for m in {heavy!r} if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "LOADED []" in result.stdout


@pytest.mark.parametrize("table", ["data.csv", "data.parquet"])
def test_fit_then_predict(privet: PreloadedCommandLine, folder: Path, table: str) -> None:
    patients().to_parquet(folder / "data.parquet")
    fitted = privet("fit", table, "--schema", "schema.toml", "--epsilon", 5, "-o", "m.json", cwd=folder)
    assert fitted.returncode == 0, fitted.stderr
    assert "differential privacy for each record (replace-one)." in fitted.stdout
    assert "Ignored columns that are not declared: name" in fitted.stdout
    predicted = privet("predict", "m.json", table, "-o", "p.csv", "--probabilities", "--score", cwd=folder)
    assert predicted.returncode == 0, predicted.stderr
    frame = pd.read_csv(folder / "p.csv")
    assert list(frame) == ["visited", "probability=no", "probability=yes"]
    assert np.allclose(frame.iloc[:, 1:].sum(axis=1), 1)
    assert np.mean(frame["visited"] == patients()["visited"]) > 0.75
    assert "accuracy" in predicted.stderr and "not private" in predicted.stderr


COST = ("--target", "cost", "--bounds", "age=0:120", "--levels", "sex=female,male")


def bills(n: int = 1000) -> pd.DataFrame:
    frame = patients(n)
    noise = np.random.default_rng(1).normal(0, 100, n)
    return frame.assign(cost=1000 + 30 * frame["age"] + 500 * (frame["sex"] == "male") + noise)


@pytest.fixture
def billed(folder: Path) -> Path:
    bills().to_csv(folder / "data.csv", index=False)
    return folder


@pytest.mark.parametrize(
    "options",
    [
        ("--target-bounds", "0:6000"),
        ("--bounds", "cost=0:6000", "--model", "ridge", "--clip-norm", 0.5),
        ("--target-bounds", "0:6000", "--model", "huber"),
        ("--target-bounds", "0:6000", "--model", "huber", "--threshold", 600, "--delta", 0),
        ("--target-bounds", "0:6000", "--model", "sparse", "--n-nonzero", 2),
        ("--target-bounds", "0:6000", "--model", "huber", "--method", "objective", "--alpha", 0.01),
        ("--target-bounds", "0:6000", "--model", "absolute", "--corner-width", 300, "--method", "random_round"),
        ("--target-bounds", "0:6000", "--method", "iteration", "--secret", "order"),
        ("--target-bounds", "0:6000", "--method", "sufficient_statistics"),
    ],
)
def test_fit_then_predict_a_number(privet: PreloadedCommandLine, billed: Path, options: tuple[object, ...]) -> None:
    fitted = privet("fit", "data.csv", *COST, *options, "--epsilon", 20, "-o", "m.json", cwd=billed)
    assert fitted.returncode == 0, fitted.stderr
    assert fitted.stdout.splitlines()[1].endswith("differential privacy for each record (replace-one).")
    assert "the target is clipped to declared bounds [0, 6000]" in (billed / "m.json").read_text(encoding="utf-8")
    assert "Ignored columns that are not declared: visited, name" in fitted.stdout
    predicted = privet("predict", "m.json", "data.csv", "-o", "p.csv", "--score", cwd=billed)
    assert predicted.returncode == 0, predicted.stderr
    frame = pd.read_csv(billed / "p.csv")
    assert list(frame) == ["prediction"]
    error = np.abs(frame["prediction"] - bills()["cost"]).mean()
    assert error < 200  # 760 from the median; the noise in the table alone makes 78
    assert f"mean absolute error {error:.6g} (always predicting the median:" in predicted.stderr
    assert "not private" in predicted.stderr


def test_public_records_are_learned_from_and_named_in_the_guarantee(
    privet: PreloadedCommandLine, billed: Path, refusal: Refusal
) -> None:
    (billed / "known.csv").write_text((billed / "data.csv").read_text())
    fit = ("fit", "data.csv", *COST, "--target-bounds", "0:6000", "--method", "iteration", "--public", "known.csv")
    fitted = privet(*fit, "-o", "m.json", cwd=billed)
    assert fitted.returncode == 0, fitted.stderr
    assert "Assumed:  the 1000 public records need no protection" in fitted.stdout
    bills().drop(columns="sex").to_csv(billed / "known.csv", index=False)
    assert "The table of public records does not fit: The table has no column 'sex'" in refusal(*fit)


def test_a_schema_file_describes_a_number(privet: PreloadedCommandLine, billed: Path) -> None:
    text = SCHEMA.replace("visited", "cost").replace('target_levels = ["no", "yes"]', "target_bounds = [0, 6000]")
    (billed / "schema.toml").write_text(text)
    bills().to_parquet(billed / "data.parquet")
    for table in ("data.csv", "data.parquet"):
        result = privet("fit", table, "--schema", "schema.toml", "--seed", 1, "-o", f"{table}.json", cwd=billed)
        assert result.returncode == 0, result.stderr
    fields = json.loads((billed / "data.csv.json").read_text())
    assert fields["model"]["estimator"] == "PrivateRidge"
    assert fields["schema"]["target"] == {"kind": "number", "name": "cost", "low": 0.0, "high": 6000.0}
    assert (billed / "data.csv.json").read_text() == (billed / "data.parquet.json").read_text()
    shown = privet("predict", "data.csv.json", "data.parquet", cwd=billed)
    assert shown.stdout.splitlines()[0] == "prediction"
    assert len(shown.stdout.splitlines()) == 1001


def test_a_support_vector_machine_predicts_and_refuses_probabilities(
    privet: PreloadedCommandLine, folder: Path
) -> None:
    fitted = privet(*FIT, "--model", "svm", "--epsilon", 5, "-o", "m.json", cwd=folder)
    assert fitted.returncode == 0, fitted.stderr
    predicted = privet("predict", "m.json", "data.csv", "-o", "p.csv", "--score", cwd=folder)
    assert predicted.returncode == 0, predicted.stderr
    assert np.mean(pd.read_csv(folder / "p.csv")["visited"] == patients()["visited"]) > 0.75
    refused = privet("predict", "m.json", "data.csv", "-o", "q.csv", "--probabilities", cwd=folder)
    assert refused.returncode == 2
    (line,) = refused.stderr.splitlines()
    assert "PrivateLinearSVC predicts no probabilities" in line and "--model logistic" in line
    assert not (folder / "q.csv").exists()


def test_a_number_has_no_probabilities(privet: PreloadedCommandLine, billed: Path, refusal: Refusal) -> None:
    assert privet("fit", "data.csv", *COST, "--target-bounds", "0:6000", "-o", "m.json", cwd=billed).returncode == 0
    assert "'cost' is a number" in refusal("predict", "m.json", "data.csv", "--probabilities", "-o", "q.csv")
    assert not (billed / "q.csv").exists()


def test_options_describe_a_table_without_a_schema_file(privet: PreloadedCommandLine, folder: Path) -> None:
    options = ("--target", "visited", "--bounds", "age=0:120", "--levels", "sex=female,male", "--epsilon", 2)
    result = privet("fit", "data.csv", *options, cwd=folder)
    assert result.returncode == 0, result.stderr
    assert "provided that the assumption below holds" in result.stdout  # the target's levels were not declared
    assert (folder / "model.privet.json").exists()


def test_the_model_file_contains_the_guarantee_but_no_seed_and_no_rows(
    privet: PreloadedCommandLine, folder: Path
) -> None:
    privet(*FIT, "--seed", 271828, "-o", "m.json", cwd=folder)
    text = (folder / "m.json").read_text()
    fields = json.loads(text)
    assert fields["model"]["learned"]["guarantee_"]["__guarantee__"]["epsilon"] <= 1.0
    assert "271828" not in text
    assert len(text) < 5000


def test_a_seed_repeats_a_run_and_is_named_in_the_first_line(privet: PreloadedCommandLine, folder: Path) -> None:
    first = privet(*FIT, "--seed", 1, "-o", "a.json", cwd=folder)
    privet(*FIT, "--seed", 1, "-o", "b.json", cwd=folder)
    privet(*FIT, "-o", "c.json", cwd=folder)
    a, b, c = ((folder / name).read_text() for name in ("a.json", "b.json", "c.json"))
    assert a == b != c
    assert "provided that" in first.stdout.splitlines()[1]


def test_delta_0_gives_pure_epsilon(privet: PreloadedCommandLine, folder: Path) -> None:
    result = privet(*FIT, "--delta", 0, "--epsilon", 2, "--verbose", cwd=folder)
    assert result.returncode == 0, result.stderr
    assert "(2, 0)-differential privacy" in result.stdout
    assert "K-norm" in result.stdout


def test_the_ledger_records_and_its_limit_is_enforced(privet: PreloadedCommandLine, folder: Path) -> None:
    booked = (*FIT, "--epsilon", 1, "--delta", 1e-6, "--ledger", "l.jsonl", "--limit", 1.6)
    assert privet(*booked, cwd=folder).returncode == 0
    assert privet(*booked, "-o", "second.json", cwd=folder).returncode == 0  # sqrt(2) times, not twice
    refused = privet(*booked, "-o", "third.json", cwd=folder)
    assert refused.returncode == 2
    assert "above the limit of 1.6" in refused.stderr
    assert "state the limit at a larger delta" in refused.stderr
    assert "--limit-delta" in refused.stderr
    assert not (folder / "third.json").exists()
    shown = privet("ledger", "l.jsonl", cwd=folder)
    assert shown.returncode == 0
    assert shown.stdout.count("fit data.csv") == 2
    assert privet("ledger", "none.jsonl", cwd=folder).returncode == 2


def old_ledger(path: Path, release: Guarantee, stated: float | None = None) -> str:
    """Write a ledger with one entry in text form, as earlier versions did, and return its text."""
    fields = release.to_dict() | ({} if stated is None else {"epsilon": stated})
    path.write_text(json.dumps({"label": "fit", "time": "2024-05-01T12:00:00+00:00", "guarantee": fields}) + "\n")
    return path.read_text()


def test_the_ledger_refuses_an_edited_epsilon(refusal: Refusal, folder: Path) -> None:
    release = Guarantee.of(GaussianRelease(1.0), Adjacency.REPLACE_ONE, 1e-6, released="a mean")
    old_ledger(folder / "l.jsonl", release, stated=0.001)
    error = refusal("ledger", "l.jsonl")
    assert "states epsilon = 0.001 at delta = 1e-06, but its event gives epsilon = 4.88" in error


def test_a_line_that_was_cut_off_is_reported_and_removed(
    refusal: Refusal, privet: PreloadedCommandLine, folder: Path
) -> None:
    old_ledger(folder / "l.jsonl", Guarantee.of(PureRelease(0.25), Adjacency.REPLACE_ONE, 0.0, released="a mean"))
    with (folder / "l.jsonl").open("a") as file:
        file.write('{"label": "fit')
    for command in (("ledger", "l.jsonl"), (*FIT, "--ledger", "l.jsonl")):
        assert f"privet ledger {folder / 'l.jsonl'} --drop-cut-line" in refusal(*command)
    shown = privet("ledger", "l.jsonl", "--drop-cut-line", cwd=folder)
    assert shown.returncode == 0, shown.stderr
    assert """Removed a line that was cut off: '{"label": "fit'""" in shown.stdout
    assert "(0.25, 0)-differential privacy" in shown.stdout
    assert "No line is cut off." in privet("ledger", "l.jsonl", "--drop-cut-line", cwd=folder).stdout


def test_a_ledger_in_text_form_is_copied_into_a_database_by_the_next_fit(
    privet: PreloadedCommandLine, folder: Path
) -> None:
    old = old_ledger(folder / "l.jsonl", Guarantee.of(PureRelease(0.25), Adjacency.REPLACE_ONE, 0.0, released="a mean"))
    assert privet("ledger", "l.jsonl", cwd=folder).returncode == 0
    assert (folder / "l.jsonl").read_text() == old  # Reading does not change it.
    assert privet(*FIT, "--ledger", "l.jsonl", cwd=folder).returncode == 0
    assert (folder / "l.jsonl.text").read_text() == old
    assert "fit data.csv" in privet("ledger", "l.jsonl", cwd=folder).stdout


def test_what_is_left_of_a_limit_is_never_rounded_up(privet: PreloadedCommandLine, folder: Path) -> None:
    ledger = Ledger(folder / "l.ledger", limit=2)
    ledger.spend(Guarantee.of(PureRelease(1.00004), Adjacency.REPLACE_ONE, 0.0, released="a mean"))
    assert "Of this, 0.9999 is left." in privet("ledger", "l.ledger", cwd=folder).stdout
    with pytest.raises(ValueError, match=r"epsilon = 2\.00004 at .* above the limit of 2;.* 1\.00004 is spent"):
        ledger.spend(Guarantee.of(PureRelease(1.0), Adjacency.REPLACE_ONE, 0.0, released="a mean"))


def test_the_limit_is_shown_raised_and_exported(refusal: Refusal, privet: PreloadedCommandLine, folder: Path) -> None:
    booked = (*FIT, "--epsilon", 1, "--delta", 1e-6, "--ledger", "l.jsonl")
    assert privet(*booked, "--limit", 1.1, cwd=folder).returncode == 0
    (folder / "model.privet.json").unlink()
    assert "above the limit of 1.1" in refusal(*booked)
    assert "would raise the stored limit" in refusal(*booked, "--limit", 2)
    raised = privet("ledger", "l.jsonl", "--set-limit", 2, "--reason", "the board", cwd=folder)
    assert raised.returncode == 0, raised.stderr
    assert "limit set: the board" in raised.stdout
    assert "It was 1.1 at delta = 1e-06." in raised.stdout
    assert privet(*booked, cwd=folder).returncode == 0
    assert privet("ledger", "export", "l.jsonl", "-o", "out.csv", cwd=folder).returncode == 0
    header, *rows = (folder / "out.csv").read_text().splitlines()
    assert header.startswith("time,kind,label,epsilon,delta,")
    assert [row.split(",")[1] for row in rows] == ["limit", "entry", "limit", "entry"]
    found = json.loads(privet("ledger", "--json", "-", "l.jsonl", cwd=folder).stdout)
    assert found["limit"] == {"epsilon": 2.0, "delta": 1e-6}
    assert found["lines"][-1]["left"] == pytest.approx(2 - found["total"]["epsilon"])
    (folder / "model.privet.json").unlink()
    assert "must end in .json or .csv" in refusal("ledger", "export", "l.jsonl", "-o", "out.txt")


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        (("-o", "folder", "--ledger", "l.jsonl"), "is a folder"),
        (("-o", "m.json", "--ledger", "none/l.jsonl"), "does not exist"),
        (("-o", "m.json", "--ledger", "folder"), "is a folder"),
    ],
)
def test_files_that_cannot_be_written_are_found_before_anything_is_spent(
    refusal: Refusal, folder: Path, options: tuple[str, ...], cause: str
) -> None:
    (folder / "folder").mkdir()
    assert cause in refusal(*FIT, *options)
    assert not (folder / "l.jsonl").exists()
    assert not (folder / "m.json").exists()


def test_plan_works_with_a_large_budget(privet: PreloadedCommandLine) -> None:
    result = privet("plan", "--n", 100, "--batch-size", 1, "--epochs", 2, "--epsilon", 16, "--delta", 0.0125)
    assert result.returncode == 0, result.stderr
    assert "Poisson" in result.stdout


def corrupt(folder: Path, column: str, row: int, value: object) -> None:
    frame = patients().astype(object)
    frame.loc[row, column] = value
    frame.to_csv(folder / "data.csv", index=False)


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        ((*FIT, "--epsilon", 0), "epsilon must be positive"),
        ((*FIT, "--epsilon", -1), "epsilon must be positive"),
        ((*FIT, "--epsilon", "nan"), "epsilon must be finite"),
        ((*FIT, "--delta", 1), "delta must lie in [0, 1)"),
        ((*FIT, "--delta", -0.1), "delta must lie in [0, 1)"),
        ((*FIT, "--delta", 0, "--method", "gradient"), "no pure epsilon"),
        ((*FIT, "--method", "magic"), "method must be"),
        ((*FIT, "--max-iter", 0), "max_iter is --max-iter"),
        ((*FIT, "--seed", -3), "random_state is --seed"),
        ((*FIT, "--alpha", -1), "alpha must not be negative"),
        ((*FIT, "--limit", 1), "--limit requires --ledger"),
        ((*FIT, "-o", "no/such/folder/m.json"), "does not exist"),
        (("fit", "none.csv", "--schema", "schema.toml"), "none.csv"),
        (("fit", "data.csv", "--bounds", "age=0:120"), "No target column"),
        (("fit", "data.csv"), "no feature is declared"),
        (("fit", "data.csv", "--target", "visited"), "no feature is declared"),
        (("fit", "data.csv", "--target", "visited", "--bounds", "weight=0:200"), "weight"),
        (("fit", "data.csv", "--target", "visited", "--bounds", "age=9:1"), "age"),
        (("fit", "data.csv", "--target", "visited", "--bounds", "sex=0:1"), "sex"),
        (("fit", "data.csv", "--target", "visited", "--levels", "sex=female,other"), "male"),
        (("fit", "schema.toml", "--schema", "schema.toml"), "schema.toml"),
        ((*FIT, "--model", "forest"), "--model must be one of auto, sparse, additive, logistic, svm, "),
        ((*FIT, "--model", "ridge"), "target_bounds is --target-bounds LOW:HIGH"),
        ((*FIT, "--model", "huber"), "PrivateHuberRegressor predicts numbers"),
        ((*FIT, "--n-nonzero", 2), "--n-nonzero is not a setting of --model logistic"),
        ((*FIT, "--model", "sparse", "--n-nonzero", 0), "n_nonzero is --n-nonzero"),
        ((*FIT, "--model", "sparse", "--smoothing", 2), "--smoothing is not a setting of --model sparse_logistic"),
        ((*FIT, "--model", "sparse", "--method", "knowledge_transfer"), "learns from public rows"),
        ((*FIT, "--threshold", 1), "--threshold is not a setting of --model logistic. Leave it out, or use huber"),
        (
            (*FIT, "--target-bounds", "0:1", "--threshold", 1),
            "--threshold is not a setting of --model ridge. Leave it out, or use huber",
        ),
        ((*FIT, "--target-bounds", "0:1", "--model", "huber", "--threshold", 0), "threshold must be positive, got 0"),
        ((*FIT, "--target-bounds", "0:1", "--model", "huber", "--threshold", "nan"), "threshold must be finite"),
        ((*FIT, "--target-bounds", "0:1", "--model", "logistic"), "PrivateHuberRegressor is --model huber"),
        ((*FIT, "--target-bounds", "0:1", "--model", "svm"), "PrivateLinearSVC predicts classes"),
        ((*FIT_AGE, "--method", "objective"), "needs a loss with bounded gradients"),
        ((*FIT_AGE, "--method", "magic"), "method must be"),
        ((*FIT_AGE, "--method", "iteration", "--secret", "sauce"), "secret must be one of 'order', 'stop', 'skip'"),
        ((*FIT_AGE, "--secret", "stop"), "method='gradient' does not use secret (got 'stop')"),
        ((*FIT_AGE, "--public", "data.csv"), "does not learn from public data. Use method='iteration'"),
        ((*FIT_AGE, "--method", "iteration", "--public", "none.csv"), "none.csv does not exist"),
        (
            (*FIT, "--model", "svm", "--loss", "square"),
            "loss must be one of 'parabola', 'gaussian', 'squared', 'huber', 'poisson', got 'square'",
        ),
        ((*FIT_AGE, "--clip-norm", 0), "clip_norm is --clip-norm"),
        ((*FIT_AGE, "--method", "gradient", "--delta", 0), "no pure epsilon"),
        ((*FIT, "--target-bounds", "0:1"), "'visited'"),  # its cells are words
        ((*FIT, "--target-bounds", "1:0"), "below"),
        ((*FIT, "--target-bounds", "0:inf"), "finite"),
        ((*FIT, "--target-bounds", "01"), "Write low:high"),
        ((*FIT, "--target-bounds", "0:1", "--bounds", "visited=0:1"), "more than once"),
        (("fit", "data.csv", "--bounds", "age=0:120", "--target-bounds", "0:1"), "no target"),
        (("fit", "data.csv", "--target", "age", "--levels", "sex=female,male"), "or target_bounds if it is a number"),
        (("predict", "none.json", "data.csv"), "none.json"),
        (("predict", "data.csv", "data.csv"), "not a privet model"),
        (("plan", "--n", 100, "--delta", 0), "delta > 0"),
        (("plan", "--n", 0), "n must be at least 1"),
        (("plan", "--n", 10, "--batch-size", 20), "cannot be drawn"),
        (("plan", "--n", 10, "--noise-multiplier", 0), "noise multiplier must be positive"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(refusal: Refusal, arguments: tuple[object, ...], cause: str) -> None:
    assert cause in refusal(*arguments)


def test_a_real_process_shows_no_traceback(folder: Path) -> None:
    result = fresh_privet(*FIT, "--epsilon", 0, cwd=folder)
    assert result.returncode == 2
    assert result.stderr == (
        "privet: epsilon must be positive, got 0.0. Smaller values give more privacy, and 1 is usual.\n"
    )


@pytest.mark.parametrize(
    ("column", "value", "cause"),
    [
        ("age", float("nan"), "age"),
        ("age", "inf", "age"),
        ("age", "old", "old"),
        ("sex", "unknown", "unknown"),
        ("sex", None, "sex"),
        ("visited", "maybe", "maybe"),
    ],
)
def test_a_bad_cell_is_named(refusal: Refusal, folder: Path, column: str, value: object, cause: str) -> None:
    corrupt(folder, column, 3, value)
    line = refusal(*FIT)
    assert cause in line and column in line


@pytest.mark.parametrize(
    ("value", "cause"),
    [(float("nan"), "missing value"), ("inf", "infinite value"), ("much", "not a number")],
)
def test_a_bad_number_to_predict_is_named(refusal: Refusal, folder: Path, value: object, cause: str) -> None:
    frame = bills().astype(object)
    frame.loc[3, "cost"] = value
    frame.to_csv(folder / "data.csv", index=False)
    line = refusal("fit", "data.csv", *COST, "--target-bounds", "0:6000")
    assert cause in line and "'cost'" in line


@pytest.mark.parametrize(
    ("table", "cause"),
    [
        ("", "empty"),
        ("age,sex,visited\n", "empty"),
        ("sex,visited\nmale,yes\nmale,no\n", "age"),
    ],
)
def test_a_bad_table_is_named(refusal: Refusal, folder: Path, table: str, cause: str) -> None:
    (folder / "data.csv").write_text(table)
    assert cause in refusal(*FIT)
