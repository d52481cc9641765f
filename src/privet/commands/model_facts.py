"""What is known about a saved model without any data: what it is, its guarantee, its columns and their effects."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

from sklearn.pipeline import Pipeline

from privet import names
from privet.files import read_json
from privet.linear import Effects, TableModel, column_effects
from privet.linear.base import PrivateLinearModel
from privet.preprocessing import total_guarantee
from privet.privacy import Guarantee
from privet.run_files import read_header
from privet.saving import load
from privet.tables import Categorical, Date, NumericTarget, TableSchema


@dataclass(frozen=True)
class ColumnFacts:
    """What is declared about a column: its kind, its bounds or levels, and what its missing cells are."""

    name: str
    kind: str
    bounds: tuple[Any, Any] | None = None
    levels: tuple[str, ...] = ()
    missing: str | None = None


@dataclass(frozen=True)
class TargetFacts:
    """What is predicted: classes with their levels, or a number with its bounds if they are known."""

    name: str | None
    levels: tuple[str, ...] = ()
    bounds: tuple[float, float] | None = None


@dataclass(frozen=True)
class ModelFacts:
    """Everything that a file says about its model.

    Parameters
    ----------
    kind : str
        The class of what was saved, or the classes of the steps of a pipeline.
    guarantee : Guarantee or None
        None if it costs no privacy.
    saved : datetime
        The time at which the file was last changed, which is not part of its content.
    version : str or None
        The version of privet that wrote the file, if it says so.
    method, reason : str or None
        The training method, and why it was chosen.
    steps, rows : int or None
        The number of steps of the training, and of the rows, if it is public.
    study : str or None
        The study of several owners of data whose result it is.
    details : tuple of pairs
        Further facts, with their names.
    targets, columns, effects : tuples
        Empty if they are not known.
    """

    kind: str
    guarantee: Guarantee | None
    saved: datetime
    version: str | None = None
    method: str | None = None
    reason: str | None = None
    steps: int | None = None
    rows: int | None = None
    study: str | None = None
    details: tuple[tuple[str, str], ...] = ()
    targets: tuple[TargetFacts, ...] = ()
    columns: tuple[ColumnFacts, ...] = ()
    effects: tuple[Effects, ...] = ()


def model_facts(path: Path) -> ModelFacts:
    """Return what a file says about its model. Raise ValueError if privet cannot read it."""
    saved = datetime.fromtimestamp(path.stat().st_mtime).astimezone()
    if is_zipfile(path):
        return _of_run(path, saved)
    model, fields = load(path), read_json(path)
    last = _last_step(model)
    version = fields.get("privet_version")
    return ModelFacts(
        kind=_kind(model),
        guarantee=_guarantee(model),
        saved=saved,
        version=version if isinstance(version, str) else None,
        method=getattr(last, "method_", getattr(last, "method", None)),
        reason=getattr(last, "method_reason_", None),
        steps=getattr(last, "n_iter_", None),
        rows=getattr(last, "n_records_", None),
        study=_study(fields),
        targets=tuple(_targets(model, last)),
        columns=tuple(_columns(model)),
        effects=column_effects(model) if isinstance(last, PrivateLinearModel) else (),
    )


def _flat(model: Any) -> list[Any]:
    """Return the steps of a pipeline, including those of pipelines in it, or a list with another model."""
    if not isinstance(model, Pipeline):
        return [] if model in (None, "passthrough") else [model]
    return [part for _, step in model.steps for part in _flat(step)]


def _last_step(model: Any) -> Any:
    steps = _flat(model)
    last = steps[-1] if steps else None
    return last.estimator if isinstance(last, TableModel) else last


def _kind(model: Any) -> str:
    kinds = [type(step.estimator if isinstance(step, TableModel) else step).__name__ for step in _flat(model)]
    options = {kind: f"{kind} (--model {name})" for name, kind in names.MODELS.items()}
    return ", then ".join(options.get(kind, kind) for kind in kinds) or "a pipeline without steps"


def _guarantee(model: Any) -> Guarantee | None:
    """Return the guarantee of all steps together, or None if no step learned anything from rows."""
    if not isinstance(model, Pipeline):
        found: Guarantee | None = model.guarantee_
        return found
    if all(step.guarantee_ is None for step in _flat(model)):
        return None
    return total_guarantee(model)


def _study(fields: Mapping[str, Any]) -> str | None:
    """Return the study that a file of ``privet party`` names, in words."""
    study, signatures = fields.get("study"), fields.get("signatures")
    if not isinstance(study, dict):
        return None
    signed = len(signatures) if isinstance(signatures, list) else 0
    checked = ", which privet party verify checks" if signed else ""
    return f"{study.get('name')!r}, with {signed} signature{'' if signed == 1 else 's'}{checked}"


def _targets(model: Any, last: Any) -> Iterator[TargetFacts]:
    if isinstance(model, TableModel):
        for target in model.schema.targets:
            bounds = (target.low, target.high) if isinstance(target, NumericTarget) else None
            yield TargetFacts(target.name, target.levels or (), bounds)
    elif isinstance(last, PrivateLinearModel):
        parts = last.models_by_target() or [last]
        for place, part in enumerate(parts):
            given = [str(name) for name in getattr(last, "target_names_", ())]
            name = given[place] if given else f"target {place}" if len(parts) > 1 else None
            labels = tuple(str(label) for label in getattr(part, "classes_", ()))
            bound = None if labels else getattr(part, "target_bound", None)
            yield TargetFacts(name, labels, None if bound is None else (-bound, bound))


def _columns(model: Any) -> Iterator[ColumnFacts]:
    if isinstance(model, TableModel):
        yield from _declared(model.schema)
        return
    steps = _flat(model)
    first: Any = steps[0] if steps else None
    given = [str(name) for name in getattr(first, "feature_names_in_", ())]
    for place in range(getattr(first, "n_features_in_", 0)):
        name = given[place] if given else f"column {place}"
        bounds = (float(first.lower_[place]), float(first.upper_[place])) if hasattr(first, "lower_") else None
        yield ColumnFacts(name, "number", bounds)


def _declared(schema: TableSchema) -> Iterator[ColumnFacts]:
    for feature in schema.features:
        missing = str(feature.missing)
        if isinstance(feature, Categorical):
            yield ColumnFacts(feature.name, "category", levels=feature.levels, missing=missing)
        else:
            kind = "date" if isinstance(feature, Date) else "number"
            yield ColumnFacts(feature.name, kind, (feature.low, feature.high), missing=missing)
    for name in schema.ids:
        yield ColumnFacts(name, "ID, never used")


# ---------------------------------------------------------------------------- files of deep and federated runs


def _of_run(path: Path, saved: datetime) -> ModelFacts:
    """Return what the file of a run says. Its guarantee covers what was released when the file was written."""
    form, state, sizes = read_header(path)
    tests: tuple[tuple[str, str], ...] = ()
    try:
        if form.startswith("privet federated run"):
            fields = state["state"]
            guarantee = Guarantee.from_dict(fields["guarantee"])
            done, unit, kind = fields["rounds_done"], "round", "the model of a federated run"
            parameters = sizes["model"]
            tests = tuple(_scores(fields.get("extra")))
        elif form.startswith("privet training"):
            fields = dict(state["dict"])
            guarantee = Guarantee.from_dict(json.loads(fields["guarantee"]))
            done, unit, kind = fields["steps_done"], "step", "a training of a deep network"
            parameters = sum(sizes[value["tensor"]] for _, value in fields["model"]["dict"])
        else:
            raise ValueError(f"its format is {form!r}")
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path} is not a run that this version of privet can show ({error}).") from error
    progress = f"{done:,} {unit}{'' if done == 1 else 's'} when the file was written"
    return ModelFacts(
        kind=kind,
        guarantee=guarantee,
        saved=saved,
        details=(
            ("Parameters", f"{parameters:,}"),
            ("Progress", f"{progress}. The guarantee covers what was released until then."),
            *tests,
            ("Plan", str(fields["plan"])),
        ),
    )


def _scores(history: Any) -> Iterator[tuple[str, str]]:
    """Yield the last test figure in a history that ``simulate`` saved: lists of a round, its score and what is spent.

    Other callers may have saved something else with a run.
    """
    rounds = [each for each in history if isinstance(each, list)] if isinstance(history, list) else []
    scored = [each for each in rounds if len(each) == 3 and isinstance(each[0], int) and isinstance(each[1], float)]
    if scored:
        number, score, _ = scored[-1]
        rests = "What evaluate returned, which must use public data only."
        yield "Test", f"score {score:.4g} after round {number:,}. {rests}"
