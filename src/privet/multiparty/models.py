"""The models that several parties can train together, and what each needs of a study."""

from typing import Any

from privet import linear
from privet.linear.classification import PrivateClassifier
from privet.multiparty.participants import StudyError
from privet.objectives import Huber
from privet.tables import NumericTarget, Target

MODELS = {name: kind for name, kind in linear.MODELS.items() if name in ("logistic", "ridge", "huber")}
METHODS = ("gradient", "output", "relay")


def check_model(study: Any) -> None:
    """Raise unless the model, the method, the target and the threshold of a study are compatible."""
    target = study.table.target
    if study.model not in MODELS:
        raise StudyError(
            f"model must be one of {', '.join(MODELS)}, got {study.model!r}. Parties cannot train other models "
            "together."
        )
    if study.method not in METHODS:
        raise StudyError(f"method must be one of {', '.join(METHODS)}, got {study.method!r}")
    if study.table.others:
        raise StudyError(
            f"Parties train a model of one target together, but the table has {len(study.table.targets)}. Name one "
            "column, and run one study per target."
        )
    if target is None:
        raise StudyError('The table has no target. Add target = "column" under [table].')
    if issubclass(MODELS[study.model], PrivateClassifier):
        if not isinstance(target, Target) or target.levels is None or len(target.levels) != 2:
            raise StudyError(
                f"The model {study.model} needs a target with two declared classes. Add target_levels = [a, b]."
            )
    elif not isinstance(target, NumericTarget):
        raise StudyError(f"The model {study.model} needs a numeric target. Add target_bounds = [low, high].")
    if study.threshold is not None and MODELS[study.model]._loss is not Huber:
        raise StudyError(f"The threshold is a setting of the model huber, but the model is {study.model}. Remove it.")
    if study.method == "output" and not study.objective().has_bounded_gradient:
        raise StudyError(
            f"The method output needs a loss with bounded gradients, but the model is {study.model}. Use huber."
        )
