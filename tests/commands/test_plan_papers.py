"""The table of ``privet plan --dimension``: what the papers would take."""

import re

from typer.testing import CliRunner

from privet.cli import app
from privet.commands.plan_papers import LIPSCHITZ, RADIUS, SMOOTHNESS, advice
from privet.plans.prescriptions import output_descent
from privet.privacy import Budget


def test_the_command_prints_the_number_of_steps_of_theorem_3(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    shown = CliRunner().invoke(
        app, ["plan", "--n", "45000", "--epsilon", "0.5", "--delta", "1e-5", "--dimension", "20"]
    )
    assert shown.exit_code == 0, shown.output
    steps = output_descent(
        45_000, 20, Budget(0.5, 1e-5), lipschitz=LIPSCHITZ, smoothness=SMOOTHNESS, radius=RADIUS
    ).steps
    line = next(line for line in shown.output.splitlines() if "3: output, convex" in line)
    assert re.search(rf"T = {steps:,}\b", line)
    assert "needs --batch-size" in shown.output


def test_a_theorem_that_does_not_apply_says_why():
    rows = {row.theorem: row for row in advice(50, 1000, Budget(0.01, 1e-6), 10)}
    assert "It needs more records" in rows["4.5.4: DP-SRM"].steps
    assert rows["3: records as clients"].steps.startswith("T = 1 rounds")
    generous = {row.theorem: row for row in advice(1000, 5, Budget(20.0, 1e-6), 10)}
    assert "epsilon <= log(1/delta)" in generous["3: records as clients"].steps
