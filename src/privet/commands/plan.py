"""``privet plan``: what a budget costs in noise, for each way of sampling and each analysis, side by side."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from rich.console import Console
from rich.table import Table

from privet.checks import count
from privet.plans import FixedOrder, FixedSize, FullBatch, Poisson, Sampler
from privet.privacy import Adjacency, Budget, calibrate
from privet.privacy.accounting import epsilon as epsilon_of
from privet.privacy.closed_forms import (
    ClosedFormNoise,
    SideConditionError,
    dp_fed_ls_noise_poisson,
    dp_fed_ls_noise_uniform,
    dp_lssgd_noise,
)


@dataclass(frozen=True)
class Row:
    """One line of the comparison; ``noise_multiplier`` is relative to one record's bound C, None if not applicable."""

    sampling: str
    adjacency: Adjacency
    analysis: str
    steps: int
    batch: float
    noise_multiplier: float | None
    epsilon: float | None
    remark: str = ""


def run(
    n: int, budget: Budget, *, epochs: int, batch_size: int | None, noise_multiplier: float | None, console: Console
) -> None:
    """Print the comparison, one table for each promise."""
    rows = list(compare(n, budget, epochs=epochs, batch_size=batch_size, noise_multiplier=noise_multiplier))
    batches = f"batches of {batch_size}" if batch_size else "full batch"
    goal = f"noise multiplier {noise_multiplier:g}" if noise_multiplier else f"epsilon {budget.epsilon:g}"
    console.print(f"n = {n:,}, {epochs} epochs, {batches}; {goal}, delta {budget.delta:.3g}", highlight=False)
    for adjacency in Adjacency:
        console.print(_table(adjacency, [row for row in rows if row.adjacency is adjacency]))
    analyst = "this analysis" if noise_multiplier else "the best analysis"
    console.print(
        "noise multiplier: standard deviation of the noise on a sum of bounded contributions, over their bound C; in "
        f"the next column, of the noise on their mean. epsilon: what {analyst} certifies at that noise. The two "
        "adjacencies are different promises: compare within one table.",
        highlight=False,
        soft_wrap=True,
    )


def _table(adjacency: Adjacency, rows: list[Row]) -> Table:
    table = Table(title=f"{adjacency} adjacency: {adjacency.in_words.format(unit='record')}", title_justify="left")
    for name in ("sampling", "analysis"):
        table.add_column(name, no_wrap=True)
    for name in ("steps", "noise multiplier", "on the mean", "epsilon"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(row.sampling, row.analysis, f"{row.steps:,}", *_numbers(row))
    return table


def compare(
    n: int, budget: Budget, *, epochs: int, batch_size: int | None = None, noise_multiplier: float | None = None
) -> Iterator[Row]:
    """Yield the rows: each analysis' noise for the budget, or with ``noise_multiplier`` each one's epsilon at it."""
    count("n", n)
    count("epochs", epochs)
    if budget.is_pure:
        raise ValueError(
            "privet plan compares Gaussian noise, which needs delta > 0: give --delta, for instance 1/n^1.1"
        )
    full = FullBatch()
    for adjacency in full.adjacencies:
        yield _row(full, n, epochs, adjacency, "exact", "tightest", budget, noise_multiplier)
    if batch_size is None:
        return
    if count("batch size", batch_size) > n:
        raise ValueError(f"a batch of {batch_size} cannot be drawn from n = {n} records")
    steps = math.ceil(epochs * n / batch_size)
    poisson, fixed, order = Poisson(batch_size / n), FixedSize(batch_size, n), FixedOrder(n, epochs, batch_size)
    sampled = partial(_row, n=n, steps=steps, budget=budget, noise_multiplier=noise_multiplier)
    yield sampled(poisson, adjacency=Adjacency.ADD_OR_REMOVE, label="PLD", analysis="tightest")
    yield sampled(poisson, adjacency=Adjacency.ADD_OR_REMOVE, label="RDP", analysis="rdp")
    yield sampled(poisson, adjacency=Adjacency.ADD_OR_REMOVE, label="no amplification", analysis="unsampled")
    yield sampled(fixed, adjacency=Adjacency.REPLACE_ONE, label="RDP", analysis="tightest")
    yield sampled(fixed, adjacency=Adjacency.REPLACE_ONE, label="no amplification", analysis="unsampled")
    yield _row(order, n, order.implied_steps, Adjacency.REPLACE_ONE, "exact", "tightest", budget, noise_multiplier)
    if noise_multiplier is None:
        yield from _closed_forms(poisson, fixed, n, steps, budget)


def _row(
    sampler: Sampler,
    n: int,
    steps: int,
    adjacency: Adjacency,
    label: str,
    analysis: str,
    budget: Budget,
    noise_multiplier: float | None,
) -> Row:
    """Return one analysis of one sampler."""
    batch = sampler.nominal_size(n)
    if noise_multiplier is not None:
        event = sampler.event(noise_multiplier, steps, adjacency)
        found = epsilon_of(event, adjacency, budget.delta, analysis=analysis)
        return Row(_name(sampler), adjacency, label, steps, batch, noise_multiplier, found)
    try:
        multiplier = calibrate(lambda z: sampler.event(z, steps, adjacency), adjacency, budget, analysis=analysis)
    except ValueError as error:
        return Row(_name(sampler), adjacency, label, steps, batch, None, None, str(error))
    certified = epsilon_of(sampler.event(multiplier, steps, adjacency), adjacency, budget.delta)
    return Row(_name(sampler), adjacency, label, steps, batch, multiplier, certified)


def _closed_forms(poisson: Poisson, fixed: FixedSize, n: int, steps: int, budget: Budget) -> Iterator[Row]:
    """Yield the papers' closed forms, or the side condition that fails."""
    target = {"epsilon": budget.epsilon, "delta": budget.delta}
    forms = (
        (poisson, "DP-Fed-LS Thm 2", partial(dp_fed_ls_noise_poisson, poisson.rate, steps, clip=1.0)),
        (fixed, "DP-Fed-LS Thm 1", partial(dp_fed_ls_noise_uniform, n, fixed.size, steps, clip=1.0)),
        # Theorem 2 of DP-LSSGD states noise on the mean of the batch; a Lipschitz constant of b puts it on the sum.
        (fixed, "DP-LSSGD Thm 2", partial(dp_lssgd_noise, n, fixed.size, steps, lipschitz=float(fixed.size))),
    )
    for sampler, label, form in forms:
        adjacency, batch = sampler.adjacencies[0], sampler.nominal_size(n)
        try:
            noise: ClosedFormNoise = form(**target)
        except SideConditionError as error:
            yield Row(_name(sampler), adjacency, label, steps, batch, None, None, f"{error.condition} fails")
            continue
        certified = epsilon_of(sampler.event(noise.std, steps, adjacency), adjacency, budget.delta)
        yield Row(_name(sampler), adjacency, label, steps, batch, noise.std, certified)


def _name(sampler: Sampler) -> str:
    names = {FullBatch: "full batch", Poisson: "Poisson", FixedSize: "fixed size", FixedOrder: "fixed order"}
    return names[type(sampler)]


def _numbers(row: Row) -> tuple[str, str, str]:
    if row.noise_multiplier is None or row.epsilon is None:
        return row.remark, "-", "-"
    return f"{row.noise_multiplier:.4f}", f"{row.noise_multiplier / row.batch:.3g}", f"{row.epsilon:.4f}"
