"""One format for everything that privet saves: JSON files that hold settings, learned values and guarantees.

A file names a kind, and a registry maps each kind to the function that reads it. Estimators, scalers and pipelines name
their class under ``estimator``; a table model is recognised by its ``schema`` and ``model``. Nothing in a file is
executed: a kind is looked up among the registered ones, and arrays, guarantees and sparse matrices are tagged values.
"""

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from privet.files import read_json, write_json

FORMAT = 1

# Importing these modules registers the kinds that they own. They are imported when a file asks for an unknown kind.
_OWNERS = ("privet.linear", "privet.preprocessing")
_READERS: dict[str, Callable[[Mapping[str, Any]], Any]] = {}


def load(path: str | os.PathLike[str]) -> Any:
    """Read a model, scaler or pipeline from a JSON file that privet wrote.

    Parameters
    ----------
    path : str or path
        A file written by ``save`` of an estimator, a scaler or a :class:`~privet.TableModel`, by :func:`save`, by
        ``privet fit`` or by ``privet party``.

    Returns
    -------
    object
        What was saved. A file of ``privet fit`` or ``privet party`` gives a :class:`~privet.TableModel`.

    Notes
    -----
    Nothing in the file is executed. The signatures in a file of ``privet party`` are not verified here: use
    ``privet party verify`` for that.
    """
    fields = read_json(path)
    try:
        return from_dict(fields)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} cannot be loaded. {error}") from error


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator, scaler, table model or pipeline to a JSON file, which :func:`load` reads.

    The file is written completely or not at all. A scikit-learn ``Pipeline`` can be saved if privet can save each of
    its steps. The random seed is left out, because it would reveal the noise.
    """
    write(path, to_dict(model))


def write(path: str | os.PathLike[str], fields: Mapping[str, Any]) -> None:
    """Write a model in the form in which it is saved, with the version of privet that writes it.

    The file does not contain the time, so that a run that is repeated with the same seed gives the same file.
    """
    from privet import __version__

    write_json(path, {"privet_version": __version__, **fields})


def register(kind: str, reader: Callable[[Mapping[str, Any]], Any]) -> None:
    """Register the function that restores objects of a kind. The first registration of a kind stays in force."""
    _READERS.setdefault(kind, reader)


def to_dict(model: Any) -> dict[str, Any]:
    """Return a model in the form in which it is saved."""
    if hasattr(model, "to_dict"):
        fields: dict[str, Any] = model.to_dict()
        return fields
    if isinstance(model, _pipeline_class()):
        seeds = [
            seed for name, seed in model.get_params().items() if name.endswith("random_state") and seed is not None
        ]
        if len(set(seeds)) < len(seeds):
            raise ValueError(
                "Two steps of the pipeline have the same random_state, so their noise is not independent. The file "
                "does not contain it, so total_guarantee could not notice that after loading. Give each step its own."
            )
        steps = [[name, step if step in (None, "passthrough") else to_dict(step)] for name, step in model.steps]
        return {"privet_format": FORMAT, "estimator": "Pipeline", "steps": steps}
    raise ValueError(
        f"{type(model).__name__} cannot be saved. privet saves its own estimators, scalers and table models, and "
        "pipelines of these."
    )


def from_dict(fields: Mapping[str, Any]) -> Any:
    """Restore a model from the form in which it is saved."""
    # Signatures in a file of ``privet party`` cover its schema and its model. No other field may take their place.
    kind = "TableModel" if {"schema", "model"} <= fields.keys() else fields.get("estimator")
    if not isinstance(kind, str):
        raise ValueError("It is not a privet model: it does not name an estimator, and has no schema and model.")
    for owner in _OWNERS:
        if kind in _READERS:
            break
        import_module(owner)
    if kind not in _READERS:
        raise ValueError(f"It is not a privet model: {kind!r} is not among the kinds that privet saves.")
    return _READERS[kind](fields)


def check_format(fields: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` unless the fields have the format of this version."""
    if "privet_format" not in fields:
        raise ValueError("It is not a privet model: it has no privet_format.")
    if fields["privet_format"] != FORMAT:
        raise ValueError(
            f"It is not a privet model that this version can read: its privet_format is {fields['privet_format']!r}, "
            f"not {FORMAT}."
        )


def _pipeline(fields: Mapping[str, Any]) -> Any:
    """Restore a scikit-learn pipeline from its saved steps."""
    check_format(fields)
    try:
        steps = [(str(name), from_dict(step) if isinstance(step, dict) else step) for name, step in fields["steps"]]
    except (KeyError, TypeError) as error:
        raise ValueError(f"It is not a valid privet model: its steps cannot be read ({error}).") from error
    return _pipeline_class()(steps)


def _pipeline_class() -> Any:
    from sklearn.pipeline import Pipeline

    return Pipeline


register("Pipeline", _pipeline)
