"""The facts of a linear or additive estimator, and of a pipeline of private scalers and a linear estimator."""

from typing import Any

from sklearn.pipeline import Pipeline

from privet.linear.additive import PrivateAdditiveModel
from privet.linear.table_model import TableEstimator, TableModel
from privet.preprocessing.total import total_guarantee
from privet.privacy import Guarantee
from privet.report.facts import Facts
from privet.report.numbers import plain
from privet.report.shapes import NOTE, charts_of
from privet.report.sources.effects import effect_tables

CURATOR = (
    "The holder of the data ran the training and saw all records. Everybody who sees only what was released is covered "
    "by the promise."
)

ONE_HONEST = "at least one of them to be honest"
HONEST_MAJORITY = "all of them to follow the protocol, and fewer than half of them to combine what they see"

_MOST_CURVES = 8  # that a report shows
_KINDS = {
    "PrivateLogisticRegression": "logistic regression",
    "PrivateLinearSVC": "linear support vector machine",
    "PrivateRidge": "linear regression",
    "PrivateHuberRegressor": "linear regression with a Huber loss",
    "PrivateAbsoluteRegressor": "linear regression with an absolute loss",
    "PrivateSparseLogisticRegression": "sparse logistic regression",
    "PrivateSparseRegression": "sparse linear regression",
    "PrivateAdditiveClassifier": "additive classifier",
    "PrivateAdditiveRegressor": "additive regression",
}


def facts(model: Any) -> tuple[Guarantee, Facts]:
    """Return the guarantee and the facts of a fitted estimator or pipeline."""
    is_pipeline = isinstance(model, Pipeline)
    guarantee = total_guarantee(model) if is_pipeline else model.guarantee_
    estimator: TableEstimator = model.steps[-1][1] if is_pipeline else model
    effects, note = effect_tables(model)
    kind = describe(estimator)
    settings = settings_of(estimator)
    if is_pipeline:
        settings.insert(0, ("Steps", ", then ".join(type(step).__name__ for _, step in model.steps)))
    found = Facts(
        kind=kind,
        title=f"A private {kind}",
        purpose=f"is {_article(kind)} {kind} on {estimator.n_features_in_} columns",
        settings=settings,
        trust=CURATOR,
        effects=effects,
        effects_note=note,
        **drawn(model),
    )
    return guarantee, found


def _article(noun: str) -> str:
    return "an" if noun[0] in "aeiou" else "a"


def describe(estimator: TableEstimator) -> str:
    """Return what an estimator is, in words."""
    return _KINDS.get(type(estimator).__name__, "linear model")


def drawn(model: Any) -> dict[str, Any]:
    """Return the fields of the facts that draw an additive model. They are empty for other models."""
    estimator = model.estimator if isinstance(model, TableModel) else model
    if not isinstance(estimator, PrivateAdditiveModel):
        return {}
    return {"shapes": tuple(charts_of(model, _MOST_CURVES)), "shapes_note": NOTE}


def settings_of(estimator: TableEstimator) -> list[tuple[str, str]]:
    """Return how an estimator was trained."""
    settings: dict[str, Any] = estimator.get_params()
    found = [("Model", f"{describe(estimator)} ({type(estimator).__name__})")]
    reason = f" ({estimator.method_reason_})" if estimator.method_reason_ else ""
    found.append(("Method", f"{estimator.method_}{reason}"))
    if (n := getattr(estimator, "n_records_", None)) is not None:
        found.append(("Records", f"{n:,}"))
    found.append(("Steps", f"{estimator.n_iter_:,}"))
    for name, value in settings.items():
        if name in {"alpha", "clip_norm", "smoothing", "batch_size", "n_nonzero"} and value:
            found.append((name, plain(value)))
    return found
