"""``privet audit``: measure what leaks and compare it with what was promised."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from privet.audit.distinguish import Distinguished
from privet.audit.estimators import audit_estimator
from privet.audit.membership import Membership
from privet.audit.one_run import OneRun, one_run
from privet.audit.row_scores import fit_of
from privet.commands.json_output import write_result
from privet.linear import TableModel
from privet.linear.table_model import TableEstimator
from privet.privacy import Guarantee, NoiseSource
from privet.progress import progress_bar
from privet.tables import RECOGNISED, FileForm, read_table


def run_model(
    model_path: Path,
    train: Path,
    holdout: Path,
    *,
    form: FileForm = RECOGNISED,
    confidence: float,
    output: Path | None,
    console: Console,
) -> bool:
    """Attack a saved model and return whether its guarantee is refuted.

    ``train`` is the table that the model was trained on. ``holdout`` has similar rows that it was not trained on.
    """
    if not model_path.is_file():
        raise ValueError(f"The model file {model_path} does not exist.")
    model = TableModel.load(model_path)
    inside, outside = (_fit(model, path, form) for path in (train, holdout))
    attack = Membership.of(inside, outside, confidence=confidence)
    proof = paired(inside, outside, model.guarantee, confidence=confidence)
    console.print(str(attack), highlight=False, soft_wrap=True)
    console.print(str(proof), highlight=False, soft_wrap=True)
    console.print(
        "The bound on epsilon assumes that rows were assigned to the two tables at random. A small bound proves "
        "little, because one model was attacked without worst-case rows. privet audit --estimator uses those.",
        highlight=False,
        soft_wrap=True,
    )
    write_result(output, {"model": str(model_path), "membership": attack.to_dict(), "audit": proof.to_dict()})
    return proof.is_violation


def paired(
    inside: NDArray[np.float64], outside: NDArray[np.float64], guarantee: Guarantee, *, confidence: float = 0.95
) -> OneRun:
    """Return a lower bound on epsilon from how well a single model fits the rows of two tables.

    Parameters
    ----------
    inside, outside : array
        Fit of the rows that the model was trained on, and of other rows. Higher values mean a better fit.
    guarantee : Guarantee
        The guarantee of the model.
    confidence : float
        Confidence of the bound.

    Formal guarantees
    -----------------
    Rows are paired at random, one from each table. If rows were assigned to the tables at random, a fair coin decided
    which row of a pair the model saw, and flipping one coin replaces one record. This is the setting of
    :func:`~privet.audit.one_run` under replace-one adjacency. The guess is that the row that fits better was inside.
    """
    source = NoiseSource()
    m = min(len(inside), len(outside))
    ins, outs = inside[source.permutation(len(inside))[:m]], outside[source.permutation(len(outside))[:m]]
    is_first = np.isin(np.arange(m), source.poisson_batch(m, 0.5))  # whether the first row of each pair was inside
    scores = np.where(is_first, ins - outs, outs - ins)
    return one_run(
        scores, is_first, delta=guarantee.delta, confidence=confidence, claimed=guarantee.epsilon, name="saved model"
    )


def run_estimator(
    estimator: TableEstimator,
    *,
    rows: int,
    columns: int,
    runs: int,
    confidence: float,
    output: Path | None,
    console: Console,
) -> bool:
    """Fit an estimator many times on worst-case neighbouring tables and return whether its guarantee is refuted."""
    with progress_bar("fits", is_shown=console.is_terminal, console=console) as progress:
        audits = audit_estimator(estimator, n=rows, d=columns, runs=runs, confidence=confidence, progress=progress)
    for audit in audits.values():
        console.print(str(audit), highlight=False, soft_wrap=True)
    worst = max(audits.values(), key=lambda audit: audit.lower_bound)
    console.print(_conclusion(list(audits.values()), worst, confidence), highlight=False, soft_wrap=True)
    write_result(output, {"audits": {name: audit.to_dict() for name, audit in audits.items()}})
    return any(audit.is_violation for audit in audits.values())


def _conclusion(audits: list[Distinguished], worst: Distinguished, confidence: float) -> str:
    violated = [audit for audit in audits if audit.is_violation]
    if violated:
        return violated[0].verdict
    return (
        f"consistent: over {len(audits)} pairs of tables, epsilon is at least {worst.lower_bound:.4g} with confidence "
        f"{confidence:g}, and {worst.claimed:.4g} is claimed. A larger --runs gives a sharper bound."
    )


def _fit(model: TableModel, path: Path, form: FileForm) -> NDArray[np.float64]:
    frame = read_table(path, model.schema, form=form)
    return fit_of(model.estimator, model.encode(frame), model.schema.encode_target(frame))
