"""``privet plan``: compare the noise that a budget needs for each way of sampling and each analysis."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from rich.console import Console
from rich.table import Table

from privet.checks import count
from privet.plans import Descent, FixedOrder, FixedSize, FullBatch, GradientPlan, Poisson, SecretOrder
from privet.privacy import Adjacency, Budget, calibrate
from privet.privacy.analyses.accounting import epsilon as epsilon_of
from privet.privacy.analyses.closed_forms import (
    ClosedFormNoise,
    dp_fed_ls_noise_poisson,
    dp_fed_ls_noise_uniform,
    dp_lssgd_noise,
)
from privet.privacy.analyses.subsampling_lemmas import SideConditionError
from privet.privacy.events import Event


@dataclass(frozen=True)
class Row:
    """One line of the comparison.

    ``noise_multiplier`` is relative to the bound C of one record. It is None where the analysis does not apply, and
    ``remark`` then says why.
    """

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
    """Print the comparison, with one table per adjacency."""
    rows = list(compare(n, budget, epochs=epochs, batch_size=batch_size, noise_multiplier=noise_multiplier))
    batches = f"batches of {batch_size}" if batch_size else "full batch"
    goal = f"noise multiplier {noise_multiplier:g}" if noise_multiplier else f"epsilon {budget.epsilon:g}"
    console.print(f"n = {n:,}, {epochs} epochs, {batches}; {goal}, delta {budget.delta:.3g}", highlight=False)
    for adjacency in Adjacency:
        console.print(_table(adjacency, [row for row in rows if row.adjacency is adjacency]))
    analyst = "this analysis" if noise_multiplier else "the best analysis"
    console.print(
        "The noise multiplier is the standard deviation of the noise on the sum, divided by the bound C of one "
        "record's contribution. The noise of the mean is this noise divided by the batch size. The last column is the "
        f"epsilon that {analyst} certifies at that noise. The two adjacencies are different promises, so compare rows "
        "within one table only.",
        highlight=False,
        soft_wrap=True,
    )
    if batch_size:
        console.print(
            "* Amplification by iteration, for the worst record. It requires that only the last iterate is released, "
            "that the loss is convex and smooth, and that steps are at most 2/smoothness long. A strongly convex loss "
            "needs even less noise. A fixed order must not depend on the content of the records, as that of a sorted "
            "table does; estimators draw a random one.",
            highlight=False,
            soft_wrap=True,
        )


def _table(adjacency: Adjacency, rows: list[Row]) -> Table:
    table = Table(title=f"{adjacency} adjacency: {adjacency.in_words.format(unit='record')}", title_justify="left")
    for name in ("sampling", "analysis"):
        table.add_column(name, no_wrap=True)
    for name in ("steps", "noise multiplier", "noise of the mean", "epsilon"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(row.sampling, row.analysis, f"{row.steps:,}", *_numbers(row))
    return table


def compare(
    n: int, budget: Budget, *, epochs: int, batch_size: int | None = None, noise_multiplier: float | None = None
) -> Iterator[Row]:
    """Yield one row per analysis: its noise for the budget or, if ``noise_multiplier`` is given, its epsilon."""
    count("n", n)
    count("epochs", epochs)
    if budget.is_pure:
        raise ValueError(
            "privet plan compares Gaussian noise, which needs delta > 0. Set --delta, for instance to 1e-6."
        )
    for adjacency in FullBatch.adjacencies:
        yield _row(
            GradientPlan(FullBatch(), epochs, 1.0, 1.0, adjacency), n, "exact", "tightest", budget, noise_multiplier
        )
    if batch_size is None:
        return
    if count("batch size", batch_size) > n:
        raise ValueError(f"A batch of {batch_size} cannot be drawn from n = {n} records.")
    steps = math.ceil(epochs * n / batch_size)
    poisson, fixed = Poisson(batch_size / n), FixedSize(batch_size, n)
    analyses = (("PLD", "tightest"), ("RDP", "rdp"), ("no amplification", "unsampled"))
    for sampler in (poisson, fixed):
        for label, analysis in analyses:
            yield _row(GradientPlan(sampler, steps, 1.0, 1.0), n, label, analysis, budget, noise_multiplier)
    order, secret = FixedOrder(n, epochs, batch_size), SecretOrder(n, epochs, batch_size)
    yield _row(GradientPlan(order, None, 1.0, 1.0), n, "composition", "tightest", budget, noise_multiplier)
    for hidden_order in (order, secret):
        hidden = GradientPlan(hidden_order, None, 1.0, 1.0, release="last", descent=Descent(1.0, smoothness=1.0))
        yield _row(hidden, n, "last iterate *", "tightest", budget, noise_multiplier)
    if noise_multiplier is None:
        yield from _closed_forms(poisson, fixed, n, steps, budget)


def _row(plan: GradientPlan, n: int, label: str, analysis: str, budget: Budget, noise_multiplier: float | None) -> Row:
    """Return one analysis of one plan, at the given noise or at the noise that the analysis needs for the budget."""
    name, batch = plan.sampler.name, plan.sampler.nominal_size(n)

    def event_of(multiplier: float) -> Event:
        return replace(plan, noise_multiplier=multiplier).event

    if noise_multiplier is not None:
        found = epsilon_of(event_of(noise_multiplier), plan.adjacency, budget.delta, analysis=analysis)
        return Row(name, plan.adjacency, label, plan.steps, batch, noise_multiplier, found)
    try:
        multiplier = calibrate(event_of, plan.adjacency, budget, analysis=analysis)
    except ValueError as error:
        return Row(name, plan.adjacency, label, plan.steps, batch, None, None, str(error))
    certified = epsilon_of(event_of(multiplier), plan.adjacency, budget.delta)
    return Row(name, plan.adjacency, label, plan.steps, batch, multiplier, certified)


def _closed_forms(poisson: Poisson, fixed: FixedSize, n: int, steps: int, budget: Budget) -> Iterator[Row]:
    """Yield one row per closed form of the papers, with its noise or with the side condition that fails."""
    target = {"epsilon": budget.epsilon, "delta": budget.delta}
    forms = (
        (poisson, "DP-Fed-LS Thm 2", partial(dp_fed_ls_noise_poisson, poisson.rate, steps, clip=1.0)),
        (fixed, "DP-Fed-LS Thm 1", partial(dp_fed_ls_noise_uniform, n, fixed.size, steps, clip=1.0)),
        # Theorem 2 of DP-LSSGD states the noise on the mean. A Lipschitz constant of b gives the noise on the sum.
        (fixed, "DP-LSSGD Thm 2", partial(dp_lssgd_noise, n, fixed.size, steps, lipschitz=float(fixed.size))),
    )
    for sampler, label, form in forms:
        adjacency, batch = sampler.adjacencies[0], sampler.nominal_size(n)
        try:
            noise: ClosedFormNoise = form(**target)
        except SideConditionError as error:
            yield Row(sampler.name, adjacency, label, steps, batch, None, None, f"{error.condition} fails")
            continue
        certified = epsilon_of(sampler.event(noise.std, steps, adjacency), adjacency, budget.delta)
        yield Row(sampler.name, adjacency, label, steps, batch, noise.std, certified)


def _numbers(row: Row) -> tuple[str, str, str]:
    if row.noise_multiplier is None or row.epsilon is None:
        return row.remark, "-", "-"
    return f"{row.noise_multiplier:.4f}", f"{row.noise_multiplier / row.batch:.3g}", f"{row.epsilon:.4f}"
