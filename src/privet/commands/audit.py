"""``privet audit``: what leaks, measured, beside what was promised."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from privet.audit.distinguish import Distinguished
from privet.audit.estimators import audit_estimator
from privet.audit.membership import Membership, fit_of
from privet.audit.one_run import OneRun, one_run
from privet.commands.files import check_writable
from privet.linear import TableModel
from privet.linear.base import PrivateLinearModel
from privet.privacy import Guarantee, NoiseSource
from privet.progress import progress_bar
from privet.tables import read_table


def run_model(
    model_path: Path, train: Path, holdout: Path, *, confidence: float, output: Path | None, console: Console
) -> bool:
    """Attack a saved model with the table that it learned from and one that it did not; return whether it leaks."""
    if not model_path.is_file():
        raise ValueError(f"there is no model file {model_path}")
    if output is not None:
        check_writable(output)
    model = TableModel.load(model_path)
    inside, outside = (_fit(model, path) for path in (train, holdout))
    attack = Membership.of(inside, outside, confidence=confidence)
    proof = paired(inside, outside, model.guarantee, confidence=confidence)
    console.print(str(attack), highlight=False, soft_wrap=True)
    console.print(str(proof), highlight=False, soft_wrap=True)
    console.print(
        "The bound on epsilon assumes that rows were put into the two tables at random. A small one proves little: one "
        "model, attacked without worst-case rows. For those: privet audit --estimator.",
        highlight=False,
        soft_wrap=True,
    )
    _write(output, {"model": str(model_path), "membership": attack.to_dict(), "audit": proof.to_dict()})
    return proof.is_violation


def paired(
    inside: NDArray[np.float64], outside: NDArray[np.float64], guarantee: Guarantee, *, confidence: float = 0.95
) -> OneRun:
    """Return what the fit of rows inside and outside proves about epsilon, in one run; higher fits better.

    Formal guarantees
    -----------------
    Rows are paired at random, one of each table. If the split was random, a fair coin decided which row of a pair the
    model saw, and turning one coin replaces one record: the setting of :func:`~privet.audit.one_run.one_run`, under
    replace-one adjacency. A guess is right if the row that fits better was inside.
    """
    source = NoiseSource()
    m = min(len(inside), len(outside))
    ins, outs = inside[source.permutation(len(inside))[:m]], outside[source.permutation(len(outside))[:m]]
    is_first = np.isin(np.arange(m), source.poisson_batch(m, 0.5))  # of a pair's two rows, the first was inside
    scores = np.where(is_first, ins - outs, outs - ins)
    return one_run(
        scores, is_first, delta=guarantee.delta, confidence=confidence, claimed=guarantee.epsilon, name="saved model"
    )


def run_estimator(
    estimator: PrivateLinearModel,
    *,
    rows: int,
    columns: int,
    runs: int,
    confidence: float,
    output: Path | None,
    console: Console,
) -> bool:
    """Fit an estimator over and over on worst-case neighbouring tables; return whether its promise is refuted."""
    if output is not None:
        check_writable(output)
    with progress_bar("fits", is_shown=console.is_terminal, console=console) as progress:
        audits = audit_estimator(estimator, n=rows, d=columns, runs=runs, confidence=confidence, progress=progress)
    for audit in audits.values():
        console.print(str(audit), highlight=False, soft_wrap=True)
    worst = max(audits.values(), key=lambda audit: audit.lower_bound)
    console.print(_conclusion(list(audits.values()), worst, confidence), highlight=False, soft_wrap=True)
    _write(output, {"audits": {name: audit.to_dict() for name, audit in audits.items()}})
    return any(audit.is_violation for audit in audits.values())


def _conclusion(audits: list[Distinguished], worst: Distinguished, confidence: float) -> str:
    violated = [audit for audit in audits if audit.is_violation]
    if violated:
        return violated[0].verdict
    return (
        f"consistent: over {len(audits)} pairs of tables epsilon is at least {worst.lower_bound:.4g}, with confidence "
        f"{confidence:g}; {worst.claimed:.4g} is claimed. More --runs find more."
    )


def _fit(model: TableModel, path: Path) -> NDArray[np.float64]:
    frame = read_table(path)
    return fit_of(model.estimator, model.schema.encode(frame), model.schema.encode_target(frame))


def _write(output: Path | None, fields: dict[str, Any]) -> None:
    if output is not None:
        output.write_text(json.dumps(fields, indent=1) + "\n", encoding="utf-8")
