import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from privet.cli import app
from privet.commands.plan import Row, compare, run
from privet.plans import FullBatch, GradientPlan, RecursivePlan
from privet.privacy import Adjacency, AttackRate, Budget

BUDGET = Budget(1.0, 1e-5)


def find(rows: list[Row], sampling: str, analysis: str, adjacency: Adjacency) -> Row:
    (row,) = (r for r in rows if (r.sampling, r.analysis, r.adjacency) == (sampling, analysis, adjacency))
    return row


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return list(compare(50_000, BUDGET, epochs=20, batch_size=256))


def test_no_row_exceeds_the_budget(rows: list[Row]) -> None:
    certified = [row.epsilon for row in rows if row.epsilon is not None]
    assert len(certified) >= 8
    assert max(certified) <= BUDGET.epsilon


def test_the_full_batch_row_is_the_plan_a_solver_would_run(rows: list[Row]) -> None:
    plan = GradientPlan.for_budget(BUDGET, sampler=FullBatch(), steps=20, clip_norm=1.0)
    row = find(rows, "full batch", "exact", Adjacency.REPLACE_ONE)
    assert row.noise_multiplier == plan.noise_multiplier


def test_tighter_analyses_need_less_noise(rows: list[Row]) -> None:
    pld, rdp, plain = (
        find(rows, "Poisson", name, Adjacency.ADD_OR_REMOVE) for name in ("PLD", "RDP", "no amplification")
    )
    assert pld.noise_multiplier < rdp.noise_multiplier < plain.noise_multiplier


def test_recursive_momentum_is_the_plan_a_solver_would_run(rows: list[Row]) -> None:
    plan = RecursivePlan.for_budget(
        BUDGET, sampler=FullBatch(), steps=20, clip_norm=1.0, difference_norm=0.1, refresh=0.3
    )
    row = find(rows, "full batch", "DP-SRM †", Adjacency.REPLACE_ONE)
    assert row.noise_multiplier == pytest.approx(plan.later_plan.noise_std, rel=1e-6)
    for sampling, adjacency in (("fixed size", Adjacency.REPLACE_ONE), ("Poisson", Adjacency.ADD_OR_REMOVE)):
        descent, recursive = find(rows, sampling, "PLD", adjacency), find(rows, sampling, "DP-SRM †", adjacency)
        assert 0.97 < recursive.epsilon <= 1.0
        # Contributions of 0.37 C need about 0.37 times the noise.
        assert 0.3 < recursive.noise_multiplier / descent.noise_multiplier < 0.5


def test_recursive_momentum_with_a_given_noise_has_the_epsilon_of_its_plan() -> None:
    row = find(list(compare(1000, BUDGET, epochs=8, noise_multiplier=2.0)), "full batch", "DP-SRM †", "replace-one")
    fields = {"clip_norm": 1.0, "difference_norm": 0.1, "refresh": 0.3}
    own = 2.0 / 0.37
    plan = RecursivePlan(
        FullBatch(), 8, **fields, noise_multiplier=own, first_noise_multiplier=own * 0.37**0.5, delta=1e-5
    )
    assert row.epsilon == pytest.approx(plan.guarantee().epsilon, rel=1e-9)


def test_one_step_has_no_momentum() -> None:
    assert {row.analysis for row in compare(1000, BUDGET, epochs=1)} == {"exact"}


def test_closed_forms_that_do_not_hold_say_which_condition_fails(rows: list[Row]) -> None:
    row = find(rows, "fixed size", "DP-LSSGD Thm 2", Adjacency.REPLACE_ONE)
    assert row.noise_multiplier is None
    assert row.remark == "order condition fails"


def test_closed_forms_that_hold_need_more_noise_than_accountants() -> None:
    rows = list(compare(500, Budget(8.0, 1e-3), epochs=2, batch_size=25))
    for adjacency, sampling, form, best in (
        (Adjacency.ADD_OR_REMOVE, "Poisson", "DP-Fed-LS Thm 2", "PLD"),
        (Adjacency.REPLACE_ONE, "fixed size", "DP-Fed-LS Thm 1", "RDP"),
        (Adjacency.REPLACE_ONE, "fixed size", "DP-LSSGD Thm 2", "RDP"),
        (Adjacency.REPLACE_ONE, "fixed size", "DP-SRM Thm 4.5.1", "DP-SRM †"),
    ):
        closed, accountant = find(rows, sampling, form, adjacency), find(rows, sampling, best, adjacency)
        assert closed.noise_multiplier > accountant.noise_multiplier
        assert closed.epsilon < 8.0


def test_every_analysis_reports_its_epsilon_at_a_given_noise() -> None:
    rows = list(compare(50_000, BUDGET, epochs=20, batch_size=256, noise_multiplier=1.0))
    assert {row.noise_multiplier for row in rows} == {1.0}
    pld, rdp = (find(rows, "Poisson", name, Adjacency.ADD_OR_REMOVE).epsilon for name in ("PLD", "RDP"))
    assert 1.7 < pld < 1.8 < rdp < 2.0


def test_every_row_for_a_rate_meets_it_and_the_papers_are_left_out() -> None:
    rate = AttackRate(0.01, 0.05, 1e-5)
    rows = list(compare(2000, rate, epochs=2, batch_size=100))
    assert all(row.noise_multiplier is not None for row in rows)
    assert not any("Thm" in row.analysis or row.analysis == "RDP" for row in rows)
    row = find(rows, "full batch", "exact", Adjacency.REPLACE_ONE)
    plan = GradientPlan(FullBatch(), 2, 1.0, row.noise_multiplier)
    assert 0.0499 < plan.guarantee(1e-5).tpr(0.01) <= 0.05
    assert row.epsilon == pytest.approx(plan.guarantee(1e-5).epsilon)


def test_the_printed_comparison_names_the_rate(tmp_path) -> None:
    printed, output = io.StringIO(), tmp_path / "plan.json"
    run(
        500,
        AttackRate(0.01, 0.05, 1e-5),
        epochs=2,
        batch_size=None,
        noise_multiplier=None,
        dimension=10,
        output=output,
        console=Console(file=printed, width=200),
    )
    assert "a true-positive rate of at most 0.05 at a false-positive rate of 0.01, delta 1e-05" in printed.getvalue()
    assert (json.loads(output.read_text())["fpr"], json.loads(output.read_text())["tpr"]) == (0.01, 0.05)


@pytest.mark.parametrize("option", [["--noise-multiplier", "2"], ["--tpr", "0.01:0.05"]])
def test_a_page_with_a_slider_for_epsilon_is_not_written_for_another_goal(option: list[str], tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    done = CliRunner().invoke(app, ["plan", "--n", "100", *option, "--html", str(page)])
    assert done.exit_code == 1
    assert not page.exists()
