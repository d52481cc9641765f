"""The experiment of chapter 6 on synthetic and real data. Its fast methods agree with those of the package."""

import asyncio
import json
import math
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

pytest.importorskip("matplotlib", reason="experiments draw plots: install the extra experiments")
pytest.importorskip("cryptography", reason="several parties need cryptography: install the extra multiparty")

from privet.multiparty.protocol.aggregation import SimulatedAggregator
from privet.multiparty.protocol.gradient import gradient_plan, joint_gradient_descent
from privet.multiparty.protocol.output import joint_output_perturbation, output_plan
from privet.objectives import L2, BoundedRows, Huber, Logistic
from privet.privacy import Budget, NoiseSource, gdp_mu
from privet.solvers import Problem
from privet.solvers.base.minimise import minimise

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("PRIVET_DATA", ROOT.parent / "shared" / "data"))
BUDGET = Budget(0.5, 1e-3)
SHAPES = {"KDD Cup 99": (50_000, 20_000, 122), "Adult": (30_000, 15_222, 104), "Bike": (13_000, 4_379, 61)}


@pytest.fixture
def experiment(opened):
    return opened("multiparty")


@pytest.fixture
def methods(experiment):
    return sys.modules["multiparty_methods"]


def study_of(experiment, n=240, d=6, is_regression=False):
    """Return rows in the unit ball with half of their entries zero, and targets that depend on them."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n + 60, d)) * (rng.random((n + 60, d)) < 0.5)
    X = sys.modules["multiparty_data"].in_unit_ball(X)
    scores = X @ np.linspace(-2, 2, d)
    y = np.clip(scores, -1, 1) if is_regression else (scores + rng.normal(size=n + 60) / 4 > 0).astype(int)
    return experiment.Study("made up", X[:n], y[:n], X[n:], y[n:])


def of_zeros(experiment, n, d):
    zeros = sparse.csr_array((n, d))
    return experiment.Study("zeros", zeros, np.arange(n) % 2, zeros, np.arange(n) % 2)


def problems_of(study, parties, alpha):
    rows = len(study.y) // parties
    parts = [slice(rows * party, rows * (party + 1)) for party in range(parties)]
    return [Problem(study.objective, L2(alpha), BoundedRows(study.X[part], 1.0), study.y[part]) for part in parts]


# ------------------------------------------------------------------------------------------------------ the whole run


def tiny(experiment, **changes):
    fields = {
        "name": "tiny",
        "told": "a tiny run",
        "seeds": 2,
        "steps": (2, 8),
        "step_size": None,
        "alphas": (0.1, 1.0),
    }
    return experiment.Preset(**fields | changes)


@pytest.mark.parametrize("is_regression", [False, True])
def test_a_tiny_run_writes_all_results(experiment, methods, tmp_path, is_regression, capsys):
    study = study_of(experiment, is_regression=is_regression)
    preset = tiny(experiment)
    rows = [row for parties in (4, 240) for row in experiment.examine(study, parties, preset)]
    results = experiment.conclude(rows, preset, 1.0, "multiparty_tiny")
    assert {path.name for path in (tmp_path / "results").iterdir()} == {
        "multiparty_tiny.json",
        "multiparty_tiny.md",
        "multiparty_tiny_madeup.png",
    }
    assert json.loads((tmp_path / "results" / "multiparty_tiny.json").read_text())["preset"] == "tiny"
    page = (tmp_path / "results" / "multiparty_tiny.md").read_text()
    assert "a tiny run" in page
    assert "88.72" in page  # Table 6.1
    assert [row["method"] for row in rows] == [*methods.METHODS, *methods.METHODS]
    assert all(row["gap"]["mean"] > 0 for row in rows)
    for row in rows:
        if row["method"] == methods.PATHAK:
            assert row["epsilon"] < 0.5 / 4 + 1e-9
        elif row["method"] == methods.RAJKUMAR:
            assert row["epsilon"] > 0.5
        else:
            assert 0.49 < row["epsilon"] <= 0.5
        if row["method"] in methods.DESCENTS:
            assert row["curve"]["steps"][-1] == row["knobs"]["steps"]
            assert row["curve"]["gap"][0] == pytest.approx(row["gap_of_zero_weights"], rel=1e-3)
    assert len(results["verdicts"]) == 2 * 2 * 4 * 2
    assert "clearly better" in capsys.readouterr().out


def test_each_method_has_its_best_setting_and_the_central_descent_that_of_grad_p(experiment, methods):
    study = study_of(experiment)
    preset = tiny(experiment, alphas=(1e-3, 1.0), steps=(1, 40))
    rows = {row["method"]: row for row in experiment.examine(study, 4, preset)}
    assert rows[methods.PATHAK]["knobs"]["alpha"] == 1.0  # because it has much noise
    assert rows[methods.RAJKUMAR]["knobs"]["steps"] == 40  # because it has little noise
    assert rows[methods.CENTRAL]["knobs"] == rows[methods.MPC_GRAD]["knobs"]


def test_verdicts_compare_methods_by_their_standard_errors(experiment, methods):
    def row(method, gap, loss):
        spreads = {name: {"mean": value, "std": 0.1, "runs": 4} for name, value in (("gap", gap), ("loss", loss))}
        return {"dataset": "A", "parties": 3, "method": method, "is_regression": False} | spreads

    rows = [row(method, 1.0, 0.5) for method in methods.METHODS if method not in (methods.MPC_OUT, methods.MPC_GRAD)]
    rows += [row(methods.MPC_OUT, 0.5, 0.45), row(methods.MPC_GRAD, 2.0, 0.6)]
    found = {(v["method"], v["baseline"], v["measure"]): v for v in experiment.verdicts(rows)}
    far = found[methods.MPC_OUT, methods.PATHAK, "gap"]
    assert (far["is_better"], far["is_clear"]) == (True, True)
    near = found[methods.MPC_OUT, methods.PATHAK, "loss"]
    assert (near["is_better"], near["is_clear"]) == (True, False)
    worse = found[methods.MPC_GRAD, methods.LOCAL_OUT, "gap"]
    assert (worse["is_better"], worse["is_clear"]) == (False, True)
    assert experiment.closeness(rows)[0]["lost"] == pytest.approx(0.1)


# --------------------------------------------------------------------------------- the fast methods and the package's


@pytest.mark.parametrize("parties", [4, 240])
@pytest.mark.parametrize("seed", [None, 5])
def test_mpc_grad_p_is_the_simulated_protocol(experiment, methods, parties, seed):
    study = study_of(experiment)
    deal, knobs = methods.Deal(study, parties), methods.Knobs(0.01, 12, 2.0)
    found = methods.mpc_gradient(deal, BUDGET, knobs, seed and NoiseSource(seed), [12])
    joint = deal.joint(0.01)
    plan = gradient_plan(joint, BUDGET, steps=12)
    aggregator = SimulatedAggregator(plan, problems_of(study, parties, 0.01), seed and NoiseSource(seed))
    release = asyncio.run(joint_gradient_descent(joint, aggregator, delta=BUDGET.delta, step_size=2.0))
    # Sums in another order may very rarely round to the next point of the lattice.
    np.testing.assert_allclose(found.path[12], release.weights, atol=3 * 2.0 / (plan.scale * 240))
    assert found.epsilon == release.guarantee.epsilon
    assert found.noise_std == release.trace["noise_std"]


@pytest.mark.parametrize("parties", [4, 240])
def test_mpc_out_p_is_the_simulated_protocol(experiment, methods, parties):
    study = study_of(experiment)
    deal = methods.Deal(study, parties)
    found = methods.mpc_output(deal, BUDGET, methods.Knobs(0.05), NoiseSource(5))
    joint = deal.joint(0.05)
    plan = output_plan(joint, BUDGET)
    aggregator = SimulatedAggregator(plan, problems_of(study, parties, 0.05), NoiseSource(5))
    release = asyncio.run(joint_output_perturbation(joint, aggregator, delta=BUDGET.delta))
    # Both sets of minimisers are within the tolerance, 1 % of a record's influence.
    assert np.linalg.norm(found.path[1] - release.weights) < 0.02 / (deal.rows_each * 0.05)
    assert np.linalg.norm(found.path[1] - release.weights) < plan.noise_std
    fast = methods.output_plan_of(joint, BUDGET)
    assert fast.law == plan.law
    assert (fast.scale, fast.sensitivity, fast.largest) == pytest.approx(
        (plan.scale, plan.sensitivity, plan.largest), rel=1e-9
    )


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("LOCAL_OUT", "local_output_perturbation"),
        ("LOCAL_OBJ", "local_objective_perturbation"),
        ("PATHAK", "pathak"),
        ("LOCAL_GRAD", "local_gradient_descent"),
        ("RAJKUMAR", "rajkumar_agarwal"),
    ],
)
def test_shortened_methods_have_the_noise_and_the_epsilon_of_the_comparisons(experiment, methods, name, function):
    """On rows of zeros the weights are noise, here of 3000 coordinates."""
    parties, rows, alpha, steps = 4, 6, 0.03, 5
    study = of_zeros(experiment, parties * rows, 3000)
    is_descent = name in ("LOCAL_GRAD", "RAJKUMAR")
    knobs = methods.Knobs(alpha, steps, 1.0) if is_descent else methods.Knobs(alpha)
    options = {"steps": steps, "step_size": 1.0} if is_descent else {}
    found = methods.train(getattr(methods, name), methods.Deal(study, parties), BUDGET, knobs, NoiseSource(1))
    comparison = getattr(sys.modules["multiparty_comparisons"], function)
    release = comparison(problems_of(study, parties, alpha), BUDGET, source=NoiseSource(2), **options)
    assert found.path[knobs.steps].std() == pytest.approx(release.weights.std(), rel=0.08)
    assert found.epsilon == pytest.approx(release.guarantee.epsilon, rel=1e-6)


def test_the_central_descent_has_the_noise_of_the_solver(experiment, methods):
    deal = methods.Deal(study_of(experiment), 4)
    found = methods.train(methods.CENTRAL, deal, BUDGET, methods.Knobs(0.01, 9, 1.0), NoiseSource(1), [3])
    assert sorted(found.path) == [0, 3, 9]
    assert found.noise_std * 240 == pytest.approx(2 * 3 / gdp_mu(BUDGET), rel=1e-3)


def test_parties_of_unequal_size_are_refused(experiment, methods):
    with pytest.raises(ValueError, match="evenly"):
        methods.Deal(study_of(experiment), 7)


# ---------------------------------------------------------------------------------------------- minimisers, Table 6.1


@pytest.mark.parametrize("objective", [Logistic(), Huber(0.3)])
@pytest.mark.parametrize("rows", [1, 3, 20])
@pytest.mark.parametrize("is_tilted", [False, True])
def test_minimisers_are_those_of_the_solver(experiment, objective, rows, is_tilted):
    together = sys.modules["multiparty_minimisers"].minimisers
    study = study_of(experiment, n=60, is_regression=isinstance(objective, Huber))
    parties, alpha, tolerance = 60 // rows, 0.01, 1e-8
    tilts = np.random.default_rng(2).normal(size=(parties, 6)) * (0.3 if is_tilted else 0)
    found = together(objective, study.X, study.y, parties, alpha=alpha, tolerance=tolerance, tilts=tilts)
    for party in range(parties):
        part = slice(party * rows, (party + 1) * rows)
        problem = Problem(objective, L2(alpha), BoundedRows(study.X[part], 1.0), study.y[part])
        alone = minimise(problem, tolerance=tolerance, tilt=tilts[party])
        assert np.linalg.norm(found[party] - alone) <= 2.1 * tolerance / alpha
        if rows == 1 and not is_tilted:  # The minimiser is a multiple of the row.
            row = study.X[[party]].toarray()[0]
            assert abs(found[party] @ row) == pytest.approx(np.linalg.norm(found[party]) * np.linalg.norm(row))


def test_minimisers_that_do_not_settle_raise(experiment, monkeypatch):
    module = sys.modules["multiparty_minimisers"]
    monkeypatch.setattr(module, "_MOST_STEPS", 1)
    study = study_of(experiment)
    with pytest.raises(RuntimeError, match="did not settle"):
        module.minimisers(study.objective, study.X, study.y, 4, alpha=0.01, tolerance=1e-8)
    with pytest.raises(ValueError, match="evenly"):
        module.minimisers(study.objective, study.X, study.y, 7, alpha=0.01, tolerance=1e-8)


def test_noise_of_table_6_1_is_reproduced(experiment):
    lines = {line.method: line for line in sys.modules["multiparty_noise"].table()}
    output, gradient = lines["MPC Out-P"], lines["MPC Grad-P"]
    assert output.noise[0.0] == pytest.approx(0.0887, abs=5e-5)
    assert output.noise[1e-5] == pytest.approx(0.0281, abs=5e-5)
    assert output.true_epsilon[0.0] == pytest.approx(5.52, abs=5e-3)
    assert gradient.noise[1e-3] == pytest.approx(1.84e-3, abs=5e-6)
    assert gradient.true_epsilon == {1e-3: pytest.approx(2.05, abs=5e-3), 1e-5: pytest.approx(2.94, abs=5e-3)}
    assert lines["Pathak"].noise[1e-5] == pytest.approx(100 * output.noise[1e-5])
    assert lines["Local Out-P"].noise[1e-5] == pytest.approx(10 * output.noise[1e-5])
    assert lines["Local Grad-P"].noise[1e-3] == pytest.approx(10 * gradient.noise[1e-3])
    for line in (output, gradient):  # Rounding and noise of fair bits cost a little.
        for delta, std in line.protocol_noise.items():
            assert 1 < std / line.noise[delta] < 1.1


# ------------------------------------------------------------------------------------------------------ the real data


def loaded(experiment, name):
    file = experiment.FILES[name]
    if not (DATA / file).exists():
        pytest.skip(f"{file} is not in {DATA}: set PRIVET_DATA to the folder that holds it")
    return experiment.load(name)


@pytest.mark.parametrize("name", SHAPES)
def test_the_data_have_the_shapes_of_the_chapter(experiment, name):
    study = loaded(experiment, name)
    n, n_test, d = SHAPES[name]
    assert (study.X.shape, study.X_test.shape) == ((n, d), (n_test, d))
    lengths = np.sqrt(study.X.multiply(study.X).sum(axis=1))
    assert 0 < lengths.min() <= lengths.max() <= 1
    assert study.is_regression == (name == "Bike")
    assert np.abs(study.y).max() <= 1
    assert study.merit(np.zeros(d)) < 0.8
    assert all(n % parties == 0 for parties in sys.modules["multiparty_data"].party_counts(name))


def test_a_quick_run_on_bike_writes_its_results(experiment, tmp_path, capsys):
    loaded(experiment, "Bike")
    results = experiment.main(["--quick", "--datasets", "Bike", "--seeds", "1"])
    assert results["preset"] == "quick"
    assert "not the chapter's 1,500 steps" in capsys.readouterr().out
    assert (tmp_path / "results" / "multiparty_quick_part.md").exists()
    near = [row for row in results["against_central"] if row["parties"] == 1000]
    assert abs(near[0]["lost"]) < 0.01
    assert math.isfinite(sum(row["gap"]["mean"] for row in results["rows"]))


def test_missing_data_files_are_named(experiment, monkeypatch, tmp_path):
    monkeypatch.setenv("PRIVET_DATA", str(tmp_path))
    with pytest.raises(SystemExit, match=r"kddcup99_10_percent\.csv\.gz is not in"):
        experiment.main(["--quick"])


def test_the_published_file_of_kdd_cup_98_is_read_and_run(experiment, tmp_path, monkeypatch):
    """A small file with the names and kinds of the columns of cup98LRN.txt."""
    rng = np.random.default_rng(0)
    header = "ODATEDW,OSOURCE,STATE,PVASTATE,AGE,INCOME,GENDER,HIT,TARGET_B,TARGET_D,CONTROLN"
    lines = [
        f"{rng.integers(8301, 9701)},S{place},{rng.choice(['CA', 'TX'])},,{age or ''},{rng.integers(1, 8)},"
        f"{rng.choice(['F', 'M', 'U'])},{rng.integers(0, 50)},{place % 2},{20.0 * (place % 2)},{place}"
        for place, age in enumerate(rng.integers(0, 98, 300))
    ]
    (tmp_path / "cup98LRN.txt").write_text("\n".join([header, *lines]) + "\n")
    data = sys.modules["multiparty_data"]
    monkeypatch.setitem(data.SIZES, data.KDD98, (200, 100))
    monkeypatch.setattr(experiment, "party_counts", lambda name: (20,))
    results = experiment.main(["--quick", "--data", str(tmp_path)])
    assert {row["dataset"] for row in results["rows"]} == {"KDD Cup 98"}
    columns = {row["columns"] for row in results["rows"]}
    assert columns == {10}  # five numbers, STATE and GENDER by level; OSOURCE left out
    assert all(row["is_regression"] for row in results["rows"])
    assert (tmp_path / "results" / "multiparty_quick_kddcup98.json").exists()
