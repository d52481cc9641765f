"""The entry of a release in OpenDP's registry of deployments, at its most complete tier.

The registry asks for what software cannot know, too, such as the intended use. Whatever :class:`About` does not answer
is marked in the entry as ``TO BE COMPLETED``, and the entry has the status of a draft.
"""

import math
import os
import re
from pathlib import Path
from typing import Any

from privet.extras import remedy
from privet.files import check_writable, written_whole
from privet.privacy import Adjacency, Guarantee
from privet.report.numbers import percent_up, plain, up, upper
from privet.report.page import text_of
from privet.report.report import Report
from privet.report.sections.evaluation import floating_point
from privet.report.sections.software import versions

OPEN = "TO BE COMPLETED"
SCHEMA = "deployments-schema.yaml"


def write_entry(report: Report, path: str | os.PathLike[str]) -> list[str]:
    """Write the entry of a report to a YAML file, and return the names of the fields that are left open."""
    target = Path(path)
    check_writable(target)
    found = entry(report)
    check_entry(found)
    text = _to_yaml(found)
    with written_whole(target, is_public=True) as file:
        file.write(text.encode())
    return open_fields(found)


def check_entry(found: dict[str, Any]) -> None:
    """Raise ``ValueError`` unless an entry follows the schema of the registry."""
    try:
        import jsonschema
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"Entries are checked. {remedy('jsonschema')}", name="jsonschema") from error
    schema = _yaml().safe_load(text_of(SCHEMA))
    checker = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
    for problem in checker.iter_errors(found):
        place = ".".join(str(step) for step in problem.absolute_path)
        raise ValueError(f"The entry does not follow the schema of the registry: {place}: {problem.message}")


def open_fields(found: Any, place: str = "") -> list[str]:
    """Return the places of an entry that are marked as open."""
    if isinstance(found, dict):
        return [name for key, value in found.items() for name in open_fields(value, f"{place}.{key}" if place else key)]
    texts = found if isinstance(found, list) else [found]
    return [place] if any(isinstance(text, str) and OPEN in text for text in texts) else []


def entry(report: Report) -> dict[str, Any]:
    """Return the entry of a report, in the order of the schema."""
    about, facts = report.about, report.facts
    name = about.name or report.title
    basic = {
        "name": name,
        "data_curators": list(about.curators) or [OPEN],
        "intended_use": about.intended_use or OPEN,
        "data_product_type": "Machine learning model",
        "data_product_region": about.region or OPEN,
        "description": about.description or f"A {facts.kind} that {facts.purpose}.",
        "publication_date": report.made.isoformat(),
    }
    if about.sector:
        basic["data_product_sector"] = about.sector
    administrative: dict[str, Any] = {"registry_authors": list(about.authors) or [OPEN]}
    administrative |= {key: text for key in ("sources", "notes") if (text := getattr(about, key))}
    return {
        "url_slug": "-".join(re.findall(r"[a-z0-9]+", f"{name} {report.made.year}".lower())),
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": basic,
            "dp_variant": _variant(report),
            "privacy_loss": _privacy_loss(report.guarantee),
            "deployment_model": _deployment(report),
            "accounting": _accounting(report),
            "implementation": _implementation(report),
            "administrative": administrative,
        },
    }


def _variant(report: Report) -> dict[str, Any]:
    guarantee, inputs = report.guarantee, report.facts.inputs
    columns = "; ".join(f"{name}: {declared}" for name, declared in inputs)
    domain = f"Tables with these columns: {columns}." if columns else f"All data sets of {guarantee.unit}s."
    is_public = guarantee.adjacency is Adjacency.REPLACE_ONE
    number = f"The number of {guarantee.unit}s is public. " if is_public else ""
    return {
        "variant_name": "Pure DP" if guarantee.delta == 0 else "Approximate DP",
        "data_domain": domain,
        "unprotected_quantities": (
            f"{number}Bounds, levels and settings are taken as public. The holder of the data vouches that they were "
            "not chosen by looking at the data."
        ),
    }


def _privacy_loss(guarantee: Guarantee) -> dict[str, Any]:
    change = guarantee.adjacency.in_words.format(unit=guarantee.unit)
    found: dict[str, Any] = {
        "privacy_unit": f"One {guarantee.unit}",
        "privacy_unit_details": f"Adjacent data sets arise from each other by {change} ({guarantee.adjacency}).",
    }
    if not guarantee.is_private:
        return found | {"privacy_parameters_details": "The release has no noise, so epsilon is infinite."}
    found["privacy_parameters"] = {
        "epsilon": upper(guarantee.epsilon, 6),
        "delta": guarantee.delta,
    }
    mu = f"It is Gaussian DP with mu = {up(guarantee.mu, 4)}. " if math.isfinite(guarantee.mu) else ""
    found["privacy_parameters_details"] = (
        f"{mu}The best guess whether a {guarantee.unit} was used is right with probability at most "
        f"{percent_up(guarantee.best_guess)}; at 1 % false alarms, at most "
        f"{percent_up(guarantee.tpr(0.01))} are recognised."
    )
    return found


def _deployment(report: Report) -> dict[str, Any]:
    facts = report.facts
    plans = "Other releases from the same data are possible. They are booked in a ledger." if report.spent else OPEN
    return {
        "model_name": facts.deployment,
        "model_name_details": facts.trust,
        "actors": f"- {facts.trust}\n- Recipients of the model, who need not be trusted: they see only the release.",
        "release_type": "One release",
        "release_type_details": f"Released: {report.guarantee.released}. Plans for further releases: {plans}",
        "data_source_type": "Static",
        "data_source_type_details": report.about.collection or OPEN,
        "access_type": "Non-interactive",
        "access_type_details": "Recipients get the model itself, and may use it without limit.",
    }


def _accounting(report: Report) -> dict[str, Any]:
    composed = (
        "The total is computed from the events of all steps, by Gaussian DP, privacy loss distributions or Renyi DP."
    )
    if report.spent and (total := report.spent[-1].total) is not None and math.isfinite(total):
        at_delta = f"epsilon {up(total, 4)} at delta {plain(report.spent[-1].delta, 3)}"
        composed += f" All releases from these data together spend {at_delta}."
    return {
        "post_processing": "Predictions, effects and everything else that is computed from the released model.",
        "composition": composed,
    }


def _implementation(report: Report) -> dict[str, Any]:
    about, facts = report.about, report.facts
    settings = "\n".join(f"- {name}: {value}" for name, value in facts.settings)
    enforced = "\n".join(f"- {each.text}" for each in report.guarantee.assumptions if each.is_enforced)
    software = ", ".join(f"{name} {version}" for name, version in versions(report))
    return {
        "preprocessing_and_hyperparameter_tuning": (
            "Columns are scaled by public bounds only, which costs no privacy. How settings were chosen: "
            f"{about.tuning or OPEN}\n{settings}"
        ),
        "mechanisms": (
            f"Mechanisms and what the software enforces:\n{enforced}\n\nSoftware: {software}.\n\nFloating point: "
            f"{floating_point(report.guarantee)}\n\nTiming and other side channels: {about.side_channels or OPEN}\n\n"
            f"Security of the data and access to them: {about.security or OPEN}"
        ),
        "justification": about.justification or OPEN,
    }


def _to_yaml(found: dict[str, Any]) -> str:
    """Return an entry as YAML, in which texts of several lines keep their lines."""
    yaml = _yaml()
    Dumper: Any = type("Dumper", (yaml.SafeDumper,), {})  # a copy, so that the dumper of others stays as it is

    def represent(dumper: Any, text: str) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)

    Dumper.add_representer(str, represent)
    return str(yaml.dump(found, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100))


def _yaml() -> Any:
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"Entries are YAML. {remedy('yaml')}", name="yaml") from error
    return yaml
