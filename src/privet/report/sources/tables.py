"""The facts of a model of a table, also of one that several data owners trained."""

from typing import Any

from privet.linear import TableModel
from privet.privacy import Guarantee
from privet.report.facts import Facts
from privet.report.numbers import plain
from privet.report.sources.effects import effect_tables
from privet.report.sources.estimators import CURATOR, HONEST_MAJORITY, ONE_HONEST, describe, drawn, settings_of
from privet.tables import Categorical, Date, NumericTarget


def facts(model: TableModel) -> tuple[Guarantee, Facts]:
    """Return the guarantee and the facts of a fitted table model."""
    targets = [target.name for target in model.schema.targets]
    kind = describe(model.estimator)
    effects, note = effect_tables(model)
    settings = [("Predicted", "; ".join(_target(target) for target in model.schema.targets))]
    settings += settings_of(model.estimator)
    study = model.study
    found = Facts(
        kind=kind,
        title=f"A private model of {_listed(targets)}",
        purpose=f"predicts {_listed(targets)} from {_count(len(model.schema.features), 'column')} of a table",
        settings=[*settings, *_study_settings(study)] if study else settings,
        trust=_study_trust(study) if study else CURATOR,
        deployment="Federated" if study else "Central",
        inputs=[(feature.name, _declared(feature)) for feature in model.schema.features],
        effects=effects,
        effects_note=note,
        **drawn(model),
    )
    return model.guarantee, found


def _listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _target(target: Any) -> str:
    if isinstance(target, NumericTarget):
        return f"{target.name}, a number from {plain(target.low)} to {plain(target.high)}"
    return f"{target.name}: {', '.join(map(str, target.levels or ()))}"


def _declared(feature: Any) -> str:
    if isinstance(feature, Categorical):
        levels = [str(level) for level in feature.levels]
        return ", ".join(levels[:8]) + (f" and {len(levels) - 8} more" if len(levels) > 8 else "")
    if isinstance(feature, Date):
        return f"a date from {feature.low} to {feature.high}"
    return f"{plain(feature.low)} to {plain(feature.high)}"


def _study_settings(study: dict[str, Any]) -> list[tuple[str, str]]:
    found = [("Study", f"{study['name']}, digest {str(study['digest'])[:16]}…")]
    names = [str(party["name"]) for party in study.get("parties", study.get("party", ()))]
    if names:
        found.append(("Parties", ", ".join(names)))
    servers = [str(server["name"]) for server in study.get("servers", study.get("server", ()))]
    if servers:
        found.append(("Servers", f"{', '.join(servers)} (trust: {study.get('trust')})"))
    return found


def _study_trust(study: dict[str, Any]) -> str:
    if study.get("method") == "relay":
        return (
            "The data stayed with their owners, who passed the state of a noisy descent from one to the next. Each "
            "owner adds its own noise, and its neighbours see more than the public does."
        )
    if study.get("servers", study.get("server")):
        return (
            "The data stayed with their owners, who handed in shares to several servers, so that no server saw a row. "
            f"The promise needs {ONE_HONEST if study.get('trust') == 'one' else HONEST_MAJORITY}."
        )
    return (
        "The data stayed with their owners, who computed together on secret shares, so that no owner saw a row of "
        f"another. The promise needs {HONEST_MAJORITY}."
    )
