"""The interactive plan: a page with sliders that computes the noise of a budget by itself, without a server."""

import math
import os
from pathlib import Path

from privet.files import check_writable, written_whole
from privet.privacy import Budget
from privet.report.page import fill, text_of
from privet.report.sections.attacker import empty_trade_off_chart

SLIDERS = (
    ("n", "Records (n)", "Number of records in the data."),
    ("epsilon", "Epsilon", "The privacy budget of all steps together. Below 1 is strong, above 10 promises little."),
    ("delta", "Delta", "Well below 1/n."),
    ("epochs", "Epochs", "Passes over the data."),
    ("batch", "Batch size", "At the right end, every step uses all records."),
)
LEAST_DELTA, MOST_DELTA = 1e-10, 0.1
MOST_BATCHES = 500
"""A batch has at least this part of all records. The numbers of smaller ones were not compared with those of privet."""

SCHEMES = (
    ("full-replace", "All records", "replace-one"),
    ("full-add", "All records", "add-or-remove"),
    ("poisson", "Poisson batches", "add-or-remove"),
    ("fixed", "Batches of fixed size", "replace-one"),
)


def write_plan_page(
    path: str | os.PathLike[str], n: int, budget: Budget, *, epochs: int, batch_size: int | None = None
) -> Path:
    """Write the page. Its sliders start at the given settings, or at the smallest batch size that the page has."""
    if not MOST_DELTA >= budget.delta >= LEAST_DELTA:
        raise ValueError(
            f"The page computes with deltas from {LEAST_DELTA:g} to {MOST_DELTA:g}, got {budget.delta:g}. Give another "
            "delta, or leave the page out."
        )
    target = Path(path)
    check_writable(target)
    start = {
        "n": n,
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "epochs": epochs,
        "batch": n if batch_size is None else max(batch_size, least_batch(n)),
        "batches": MOST_BATCHES,
    }
    text = fill(
        "plan.html",
        sliders=SLIDERS,
        schemes=SCHEMES,
        chart=empty_trade_off_chart(),
        start=start,
        style=text_of("report.css") + text_of("plan.css"),
        script=text_of("plan.js"),
    )
    with written_whole(target, is_public=True) as file:
        file.write(text.encode())
    return target


def least_batch(n: int) -> int:
    """Return the smallest batch size of the page."""
    return math.ceil(n / MOST_BATCHES)
