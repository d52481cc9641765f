"""privet audit --replay: settings and scripts, replayed from the command line."""

import json
import re
import textwrap

import pytest
from typer.testing import CliRunner

from privet.cli import app
from privet.plans import OutputPlan

RIDGE = """
    import numpy as np
    from privet import PrivateRidge

    X = np.random.default_rng(0).standard_normal((20, 3))
    data = X, X[:, 0]

    def train(data):
        return PrivateRidge(epsilon=1.0, delta=1e-5, feature_norm=2.0, target_bound=3.0, max_iter=3).fit(*data)
"""
LEAK = """
    def train(data):
        model = PrivateRidge(epsilon=1.0, delta=1e-5, feature_norm=2.0, target_bound=3.0, max_iter=3).fit(*data)
        model.mean_ = data[0].mean()
        return model
"""


def run(*arguments):
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["audit", "--replay", *map(str, arguments)])


@pytest.fixture
def script(tmp_path):
    def write(*parts):
        (tmp_path / "script.py").write_text("\n".join(map(textwrap.dedent, parts)))
        return tmp_path / "script.py"

    return write


def test_a_script_is_consistent_and_only_a_script_that_leaks_ends_with_exit_code_1(script, tmp_path):
    right = run(script(RIDGE, "if __name__ == '__main__':\n    raise SystemExit(3)"), "--json", tmp_path / "a.json")
    assert right.exit_code == 0, right.output
    assert "consistent: over 6 pairs" in right.output
    found = json.loads((tmp_path / "a.json").read_text())["replays"]
    assert all(each["releases"] == 4 and not each["is_violation"] for each in found.values())
    assert found["first unit replaced: huge numbers"]["moved"] == 4
    wrong = run(script(RIDGE, LEAK))
    assert wrong.exit_code == 1
    assert "VIOLATION: What the run returns differs at result.mean_." in wrong.output
    assert "(first unit replaced: huge numbers, and 5 more)" in wrong.output


def test_a_script_may_define_its_neighbours(script, tmp_path):
    other = "neighbours = {'one other target': (X, np.append(X[:-1, 0], 9.0))}"
    found = run(script(RIDGE, other), "--json", tmp_path / "a.json")
    assert found.exit_code == 0, found.output
    assert list(json.loads((tmp_path / "a.json").read_text())["replays"]) == ["one other target"]
    single = run(script(RIDGE, "neighbour = X, np.append(X[:-1, 0], 9.0)"))
    assert "consistent: over 1 pairs" in single.output
    far = run(script(RIDGE, "neighbours = [(-X, X[:, 0])]"))
    assert "are not neighbours: 20 units" in str(far.exception)


def test_a_script_may_import_from_its_folder_and_write_to_a_folder(script, tmp_path):
    (tmp_path / "helper_of_a_script.py").write_text(textwrap.dedent(RIDGE))
    (tmp_path / "out").mkdir()
    writes = f"""
        from helper_of_a_script import *

        folder, fit = {str(tmp_path / "out")!r}, train

        def train(data):
            (__import__("pathlib").Path(folder) / "log.txt").write_text(str(data[0].sum()))
            return fit(data)
    """
    found = run(script(writes, "neighbour = X, np.append(X[:-1, 0], 9.0)"))
    assert found.exit_code == 0, found.output  # The target is not logged.
    found = run(script(writes, "neighbour = np.append(X[:-1], [[0.0, 0.0, 9.0]], axis=0), X[:, 0]"))
    assert found.exit_code == 1
    assert "log.txt" in found.output


def test_units_are_added_and_removed_under_that_adjacency(script, tmp_path):
    sums = """
        import numpy as np
        from privet.plans import GradientPlan, Poisson
        from privet.privacy import NoiseSource

        data = np.random.default_rng(0).standard_normal((20, 2))
        plan = GradientPlan(Poisson(0.5), 3, 1.0, 2.0, public_n=20, delta=1e-5)

        def clipped(rows):
            norms = np.linalg.norm(rows, axis=1, keepdims=True)
            return (rows / np.maximum(1.001 * norms, 1)).sum(axis=0)

        def train(data):
            steps = plan.run(len(data), NoiseSource())
            return [step.noisy(clipped(data[step.batch])) for step in steps], plan.guarantee()
    """
    found = run(script(sums), "--json", tmp_path / "a.json")
    assert found.exit_code == 0, found.output
    replays = json.loads((tmp_path / "a.json").read_text())["replays"]
    assert {"without the first unit", "one more unit: huge numbers"} <= set(replays)
    wrong = run(script(sums.replace("1.001 * norms", "0.5 * norms")))
    assert wrong.exit_code == 1
    assert re.search(r"VIOLATION: Release \d \(Gaussian noise\) moved by 2 times the bound of 1", wrong.output)
    public = """
        from privet.privacy import assumed

        guarantee = plan.guarantee().assuming(assumed("the number of examples is public"))
    """
    assert "assumes that the number of examples is public" in str(run(script(sums, public)).exception)


def test_settings_are_replayed_and_a_planted_bug_ends_with_exit_code_1(tmp_path, monkeypatch):
    options = ("--estimator", "logistic", "--method", "output", "--json", tmp_path / "a.json")
    right = run(*options)
    assert right.exit_code == 0, right.output
    assert "consistent: over 11 pairs" in right.output
    names = set(json.loads((tmp_path / "a.json").read_text())["replays"])
    assert names >= {"label flip", "outlier", "first unit of a sorted table becomes the last"}
    noisy = OutputPlan.noisy
    monkeypatch.setattr(OutputPlan, "noisy", lambda self, result, source: noisy(self, 20 * result, source))
    wrong = run(*options)
    assert wrong.exit_code == 1, wrong.output
    assert "(Gaussian noise) moved by" in wrong.output
    assert "further problems are listed in the file of --json" in wrong.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "either a script for --replay"),
        (("a.py", "--estimator", "logistic"), "either a script for --replay"),
        (("none.py",), "none.py does not exist"),
        (("--estimator", "forest"), "must be one of logistic"),
        (("--estimator", "logistic", "--method", "gradient", "--delta", 0), "delta=0 asks for pure epsilon, but"),
        (("--estimator", "logistic", "--json", "/nowhere/a.json"), "does not exist"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(arguments, message):
    found = run(*arguments)
    assert isinstance(found.exception, ValueError)
    assert message in str(found.exception)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data = [1.5, 2.5]", "does not define train"),
        ("def train(data): ...", "does not define data"),
        ("data = [1.5, 2.5]\ndef train(data): ...", "returns no guarantee"),
    ],
)
def test_incomplete_scripts_are_refused(script, text, message):
    assert message in str(run(script(text)).exception)


def test_a_saved_model_cannot_be_replayed(tmp_path):
    (tmp_path / "m.json").write_text("{}")
    assert "is not a Python script" in str(run(tmp_path / "m.json").exception)


LATE = """
    neighbour = X, np.append(X[:-1, 0], 1.0)
    fit = train

    def train(data):
        fit(data)
        raise OSError("late")
"""


def test_an_error_at_the_end_of_both_runs_is_not_called_consistent(script):
    found = run(script(RIDGE, LATE))
    assert isinstance(found.exception, ValueError)
    assert "Both runs end with an error (neighbour)" in str(found.exception)
    assert "OSError: late" in str(found.exception)
    assert "consistent: over" not in found.output


def test_neighbours_that_move_nothing_are_told(script):
    found = run(script(RIDGE, "neighbour = data"))
    assert found.exit_code == 0, found.output
    assert "No release moved" in found.output
