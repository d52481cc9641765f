"""One format for everything that privet saves: JSON files that hold settings, learned values and guarantees.

A file names a kind, and a registry maps each kind to the function that reads it. Estimators, scalers and pipelines name
their class under ``estimator``; a table model is recognised by its ``schema`` and ``model``. Nothing in a file is
executed: a kind is looked up among the registered ones, and arrays, guarantees and sparse matrices are tagged values.
"""

import math
import os
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from privet.files import read_json, write_json
from privet.privacy import Guarantee

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
    write_json(path, to_dict(model))


def register(kind: str, reader: Callable[[Mapping[str, Any]], Any]) -> None:
    """Register the function that restores objects of a kind. The first registration of a kind stays in force."""
    _READERS.setdefault(kind, reader)


def to_dict(model: Any) -> dict[str, Any]:
    """Return a model in the form in which it is saved."""
    if hasattr(model, "to_dict"):
        fields: dict[str, Any] = model.to_dict()
        return fields
    if isinstance(model, _pipeline_class()):
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


class SavedEstimator:
    """Mixin for estimators that are saved as their settings and the attributes that a fit learned.

    Every subclass is registered under its name.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        register(cls.__name__, cls.from_dict)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a fitted estimator to a JSON file, completely or not at all. :func:`privet.load` reads it."""
        write_json(path, self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Return a fitted estimator as a JSON-ready dictionary.

        The random seed is left out, because it would reveal the noise.
        """
        check_is_fitted(self)
        settings: Mapping[str, Any] = self.get_params()  # type: ignore[attr-defined]
        plain = {name: to_plain(value) for name, value in settings.items() if name != "random_state"}
        if "random_state" in settings:
            plain["random_state"] = None
        learned = {name: to_plain(value) for name, value in vars(self).items() if name.endswith("_")}
        return {"privet_format": FORMAT, "estimator": type(self).__name__, "settings": plain, "learned": learned}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Restore an estimator from :meth:`to_dict`."""
        try:
            check_format(fields)
            if fields["estimator"] != cls.__name__:
                raise ValueError(f"it is a {fields['estimator']}, not a {cls.__name__}")
            model = cls(**_restored_all(fields["settings"]))
            for name, value in _restored_all(fields["learned"]).items():
                if not name.endswith("_") or hasattr(type(model), name):
                    raise ValueError(f"{name!r} is not an attribute that a fit learns")
                setattr(model, name, value)
            check_is_fitted(model)
            model._check_learned()
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError, NotFittedError) as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise ValueError(f"It is not a valid privet model: {type(error).__name__}: {reason}") from error
        return model

    def _check_learned(self) -> None:
        """Raise if the attributes that were read from a file do not fit together."""
        guarantee = getattr(self, "guarantee_", None)
        if guarantee is not None and not guarantee.epsilon >= guarantee.epsilon_at(guarantee.delta) * (1 - 1e-6):
            certified = guarantee.epsilon_at(guarantee.delta)
            raise ValueError(f"it states epsilon = {guarantee.epsilon:g}, but its noise gives {certified:g}")


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


# ------------------------------------------------------------------------------------------------------ tagged values


def to_plain(value: Any) -> Any:
    """Return a value as JSON can hold it. Arrays, guarantees and mappings are tagged, so that they can be restored."""
    if isinstance(value, Guarantee):
        return {"__guarantee__": value.to_dict()}
    if isinstance(value, np.ndarray):
        return {"__array__": value.tolist(), "dtype": "object" if value.dtype.kind == "O" else value.dtype.str}
    if sparse.issparse(value):
        value = sparse.csr_array(value)
        parts = {name: to_plain(getattr(value, name)) for name in ("data", "indices", "indptr")}
        return {"__csr__": parts, "shape": list(value.shape)}
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("A model with non-finite numbers cannot be saved.")
    if hasattr(value, "items"):  # a dictionary or a pandas Series
        return {"__mapping__": [[to_plain(name), to_plain(item)] for name, item in value.items()]}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [to_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def from_plain(value: Any) -> Any:
    """Return the value that :func:`to_plain` was given. Sequences come back as lists, and a Series as a dictionary."""
    if not isinstance(value, dict):
        return value
    if "__guarantee__" in value:
        return Guarantee.from_dict(value["__guarantee__"])
    if "__array__" in value:
        return np.array(value["__array__"], dtype=value["dtype"])
    if "__csr__" in value:
        parts = _restored_all(value["__csr__"])
        matrix = sparse.csr_array((parts["data"], parts["indices"], parts["indptr"]), shape=tuple(value["shape"]))
        matrix.check_format(full_check=True)
        return matrix
    if "__mapping__" in value:
        return {name: from_plain(item) for name, item in value["__mapping__"]}
    return value


def _restored_all(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: from_plain(value) for name, value in fields.items()}
