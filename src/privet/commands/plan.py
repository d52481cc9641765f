"""``privet plan``: compare the noise that a budget needs for each way of sampling and each analysis."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from privet.checks import count
from privet.commands.json_output import write_result
from privet.commands.plan_papers import print_advice
from privet.plans import (
    Descent,
    FixedOrder,
    FixedSize,
    FullBatch,
    GradientPlan,
    Poisson,
    RecursivePlan,
    Sampler,
    SecretOrder,
)
from privet.plans.recursive import balanced_ratio
from privet.privacy import Adjacency, AttackRate, Budget, calibrate
from privet.privacy.analyses.accounting import epsilon as epsilon_of
from privet.privacy.analyses.closed_forms import (
    ClosedFormNoise,
    dp_fed_ls_noise_poisson,
    dp_fed_ls_noise_uniform,
    dp_lssgd_noise,
    dp_srm_noise,
)
from privet.privacy.analyses.gaussian import rate_budget
from privet.privacy.analyses.subsampling_lemmas import SideConditionError
from privet.privacy.budget import stated_delta
from privet.privacy.events import Event
from privet.report.plan_page import MOST_BATCHES, least_batch, write_plan_page

# Recursive momentum: the weight of fresh gradients, and the bound on their changes relative to that on gradients.
REFRESH, CHANGE = 0.3, 0.1
USED = 0.999
"""The share of the budget's epsilon that is used, so that the noise that is shown is right to three digits."""


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
    n: int,
    budget: Budget | AttackRate,
    *,
    epochs: int,
    batch_size: int | None,
    noise_multiplier: float | None,
    dimension: int | None = None,
    output: Path | None = None,
    console: Console,
) -> None:
    """Print the comparison, with one table per adjacency and, if ``dimension`` is given, what the papers would take."""
    rows = list(compare(n, budget, epochs=epochs, batch_size=batch_size, noise_multiplier=noise_multiplier))
    batches = f"batches of {batch_size}" if batch_size else "full batch"
    if isinstance(budget, AttackRate):
        goal = str(budget)
    else:
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
    console.print(
        f"† DP-SRM: each step after the first measures {REFRESH:.0%} of the gradients and {1 - REFRESH:.0%} of their "
        f"changes, which are clipped to {CHANGE:g} C. The noise is that of these steps; the first one has "
        f"{_first_noise_ratio():.1f} times as much. The momentum "
        f"keeps noise of earlier steps, so that its noise is up to {1 / math.sqrt(1 - (1 - REFRESH) ** 2):.1f} times "
        "that of a step.",
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
    found: dict[str, Any] = {"n": n, "epochs": epochs, "batch_size": batch_size, "delta": budget.delta}
    if isinstance(budget, AttackRate):
        found["fpr"], found["tpr"] = budget.fpr, budget.tpr
    found["rows"] = [asdict(row) for row in rows]
    if dimension is not None:
        gaussian = rate_budget(budget) if isinstance(budget, AttackRate) else budget
        found["papers"] = [asdict(each) for each in print_advice(n, dimension, gaussian, batch_size, console)]
    write_result(output, found)


def write_page(path: Path, n: int, budget: Budget, *, epochs: int, batch_size: int | None, console: Console) -> None:
    """Write the page in which sliders move these settings, and say where it is."""
    write_plan_page(path, n, budget, epochs=epochs, batch_size=batch_size)
    console.print(f"Page written to {path}. Open it in a browser: it needs no server.", highlight=False, soft_wrap=True)
    if batch_size is not None and batch_size < (least := least_batch(n)):
        console.print(
            f"Its batches have at least 1/{MOST_BATCHES} of the records. It starts at {least}, not at {batch_size}.",
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
    n: int,
    budget: Budget | AttackRate,
    *,
    epochs: int,
    batch_size: int | None = None,
    noise_multiplier: float | None = None,
) -> Iterator[Row]:
    """Yield one row per analysis: its noise for the budget or, if ``noise_multiplier`` is given, its epsilon."""
    count("n", n)
    count("epochs", epochs)
    if budget.delta == 0:
        raise ValueError(
            "privet plan compares Gaussian noise, which needs delta > 0. Set --delta, for instance to 1e-6."
        )
    for adjacency in FullBatch.adjacencies:
        yield _row(
            GradientPlan(FullBatch(), epochs, 1.0, 1.0, adjacency), n, "exact", "tightest", budget, noise_multiplier
        )
        yield from _recursive(FullBatch(), epochs, n, budget, noise_multiplier, adjacency)
    if batch_size is None:
        return
    if count("batch size", batch_size) > n:
        raise ValueError(f"A batch of {batch_size} cannot be drawn from n = {n} records.")
    steps = math.ceil(epochs * n / batch_size)
    poisson, fixed = Poisson(batch_size / n), FixedSize(batch_size, n)
    analyses = [("PLD", "tightest"), ("RDP", "rdp"), ("no amplification", "unsampled")]
    if isinstance(budget, AttackRate):
        del analyses[1]  # Renyi divergences and the papers' theorems bound an epsilon, not the rates of attacks.
    for sampler in (poisson, fixed):
        for label, analysis in analyses:
            yield _row(GradientPlan(sampler, steps, 1.0, 1.0), n, label, analysis, budget, noise_multiplier)
        yield from _recursive(sampler, steps, n, budget, noise_multiplier)
    order, secret = FixedOrder(n, epochs, batch_size), SecretOrder(n, epochs, batch_size)
    yield _row(GradientPlan(order, None, 1.0, 1.0), n, "composition", "tightest", budget, noise_multiplier)
    for hidden_order in (order, secret):
        hidden = GradientPlan(hidden_order, None, 1.0, 1.0, release="last", descent=Descent(1.0, smoothness=1.0))
        yield _row(hidden, n, "last iterate *", "tightest", budget, noise_multiplier)
    if noise_multiplier is None and isinstance(budget, Budget):
        yield from _closed_forms(poisson, fixed, n, steps, budget)


def _row(
    plan: GradientPlan, n: int, label: str, analysis: str, budget: Budget | AttackRate, noise_multiplier: float | None
) -> Row:
    """Return one analysis of one plan, at the given noise or at the noise that the analysis needs for the budget."""
    name, batch = plan.sampler.name, plan.sampler.nominal_size(n)
    delta = stated_delta(None, budget.delta)

    def event_of(multiplier: float) -> Event:
        return replace(plan, noise_multiplier=multiplier).event

    if noise_multiplier is not None:
        found = epsilon_of(event_of(noise_multiplier), plan.adjacency, delta, analysis=analysis)
        return Row(name, plan.adjacency, label, plan.steps, batch, noise_multiplier, found)
    try:
        multiplier = calibrate(event_of, plan.adjacency, budget, analysis=analysis, used=USED)
    except ValueError as error:
        return Row(name, plan.adjacency, label, plan.steps, batch, None, None, str(error))
    certified = epsilon_of(event_of(multiplier), plan.adjacency, delta)
    return Row(name, plan.adjacency, label, plan.steps, batch, multiplier, certified)


def _recursive(
    sampler: Sampler,
    steps: int,
    n: int,
    budget: Budget | AttackRate,
    noise_multiplier: float | None,
    adjacency: Adjacency | None = None,
) -> Iterator[Row]:
    """Yield the row of recursive momentum, whose noise is that of the steps after the first. It needs two steps."""
    if steps < 2:
        return
    draft = _recursive_draft(sampler, steps, adjacency)
    ratio = balanced_ratio(draft)

    def plan_of(multiplier: float) -> RecursivePlan:
        # Multipliers of the table are relative to C, those of the plan to what a record adds to a later sum.
        own = multiplier / draft.contribution_norm
        return replace(draft, noise_multiplier=own, first_noise_multiplier=own * ratio)

    if noise_multiplier is None:
        noise_multiplier = calibrate(lambda z: plan_of(z).event, draft.adjacency, budget, used=USED)
    certified = epsilon_of(plan_of(noise_multiplier).event, draft.adjacency, stated_delta(None, budget.delta))
    batch = sampler.nominal_size(n)
    yield Row(sampler.name, draft.adjacency, "DP-SRM †", steps, batch, noise_multiplier, certified)


def _recursive_draft(sampler: Sampler, steps: int, adjacency: Adjacency | None = None) -> RecursivePlan:
    return RecursivePlan(sampler, steps, 1.0, CHANGE, REFRESH, 1.0, adjacency=adjacency)


def _first_noise_ratio() -> float:
    """Return the noise of the first sum of recursive momentum divided by that of later ones, for equal batches."""
    draft = _recursive_draft(FullBatch(), 2)
    return balanced_ratio(draft) / draft.contribution_norm


def _closed_forms(poisson: Poisson, fixed: FixedSize, n: int, steps: int, budget: Budget) -> Iterator[Row]:
    """Yield one row per closed form of the papers, with its noise or with the side condition that fails."""
    target = {"epsilon": budget.epsilon, "delta": budget.delta}
    forms = (
        (poisson, "DP-Fed-LS Thm 2", partial(dp_fed_ls_noise_poisson, poisson.rate, steps, clip=1.0)),
        (fixed, "DP-Fed-LS Thm 1", partial(dp_fed_ls_noise_uniform, n, fixed.size, steps, clip=1.0)),
        # Theorem 2 of DP-LSSGD states the noise on the mean. A Lipschitz constant of b gives the noise on the sum.
        (fixed, "DP-LSSGD Thm 2", partial(dp_lssgd_noise, n, fixed.size, steps, lipschitz=float(fixed.size))),
    )
    yield _recursive_closed_form(fixed, n, steps, budget)
    for sampler, label, form in forms:
        adjacency, batch = sampler.adjacencies[0], sampler.nominal_size(n)
        try:
            noise: ClosedFormNoise = form(**target)
        except SideConditionError as error:
            yield Row(sampler.name, adjacency, label, steps, batch, None, None, f"{error.condition} fails")
            continue
        certified = epsilon_of(sampler.event(noise.std, steps, adjacency), adjacency, budget.delta)
        yield Row(sampler.name, adjacency, label, steps, batch, noise.std, certified)


def _recursive_closed_form(fixed: FixedSize, n: int, steps: int, budget: Budget) -> Row:
    """Return the row of the closed form for DP-SRM, with the settings of the row of the accountant."""
    fields = (fixed.name, Adjacency.REPLACE_ONE, "DP-SRM Thm 4.5.1", steps, fixed.nominal_size(n))
    size = float(fixed.size)  # The theorem states the noise on the mean. Bounds times b give the noise on the sum.
    try:
        noise = dp_srm_noise(
            n,
            fixed.size,
            fixed.size,
            steps,
            gradient_bound=size,
            difference_bound=CHANGE * size,
            momentum=REFRESH,
            epsilon=budget.epsilon,
            delta=budget.delta,
        )
    except SideConditionError as error:
        return Row(*fields, None, None, f"{error.condition} fails")
    draft = _recursive_draft(fixed, max(steps, 2))
    own = noise.later.std / draft.contribution_norm
    plan = replace(draft, noise_multiplier=own, first_noise_multiplier=noise.first.std)
    return Row(*fields, noise.later.std, epsilon_of(plan.event, plan.adjacency, budget.delta))


def _numbers(row: Row) -> tuple[str, str, str]:
    if row.noise_multiplier is None or row.epsilon is None:
        return row.remark, "-", "-"
    return f"{row.noise_multiplier:.4f}", f"{row.noise_multiplier / row.batch:.3g}", f"{row.epsilon:.4f}"
