"""The options of ``privet plan``."""

from pathlib import Path
from typing import Annotated

import typer

from privet.cautions import about_budget
from privet.checks import count, delta_value, positive
from privet.cli.options import Delta, Json, OptionalEpsilon, Quiet, Tpr, rates
from privet.commands.json_output import console_for
from privet.files import check_writable
from privet.names import given_noise


def plan(
    n: Annotated[int, typer.Option(help="Number of records.")],
    epsilon: OptionalEpsilon = None,
    delta: Delta = None,
    epochs: Annotated[int, typer.Option(help="Number of passes over the data.")] = 10,
    batch_size: Annotated[int | None, typer.Option(help="Batch size. Without it, every step uses all records.")] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Fix the noise instead of epsilon, and show the epsilon of each analysis.")
    ] = None,
    dimension: Annotated[
        int | None, typer.Option(help="Number of weights. With it, also show what the papers' theorems would take.")
    ] = None,
    tpr: Tpr = None,
    html: Annotated[
        Path | None, typer.Option(help="Also write a page with sliders for these settings, which needs no server.")
    ] = None,
    json: Json = None,
    quiet: Quiet = False,
) -> None:
    """Show how much noise training needs with each sampling scheme and each privacy analysis."""
    count("n", n)
    given_noise({"epsilon": epsilon, "noise_multiplier": noise_multiplier, "tpr": tpr})
    wanted = rates(tpr)
    if epsilon is not None:
        positive("epsilon", epsilon)
    if delta is not None:
        delta_value(delta)
    for name, value in {"epochs": epochs, "batch_size": batch_size, "dimension": dimension}.items():
        if value is not None:
            count(name, value)
    if batch_size is not None and batch_size > n:
        raise ValueError(f"A batch of {batch_size} cannot be drawn from n = {n} records.")
    if noise_multiplier is not None:
        positive("noise multiplier", noise_multiplier)
    if html is not None:
        check_writable(html)
        if wanted is not None:
            raise ValueError("--html writes a page with a slider for epsilon. Give --epsilon in place of --tpr.")
        if noise_multiplier is not None:
            raise ValueError(
                "--html writes a page with a slider for epsilon. Give --epsilon in place of --noise-multiplier."
            )
    console = console_for(json)
    from privet.commands import plan as command
    from privet.privacy import AttackRate, Budget
    from privet.privacy.budget import default_delta

    delta = default_delta(n) if delta is None else delta
    budget = Budget(1.0 if epsilon is None else epsilon, delta) if wanted is None else AttackRate(*wanted, delta)
    if noise_multiplier is None and isinstance(budget, Budget):
        about_budget(budget.epsilon, budget.delta, n)
    command.run(
        n,
        budget,
        epochs=epochs,
        batch_size=batch_size,
        noise_multiplier=noise_multiplier,
        dimension=dimension,
        output=json,
        console=console,
    )
    if html is not None and isinstance(budget, Budget):
        command.write_page(html, n, budget, epochs=epochs, batch_size=batch_size, console=console)
