"""Mixins for the scikit-learn estimators: row validation, a clean state after a failed fit, and saving."""

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted, validate_data

from privet.privacy import Guarantee
from privet.saving import FORMAT, check_format, register, write


class EstimatorChecks:
    """Mixin for scikit-learn estimators: row validation with short errors, and a clean state around ``fit``."""

    @contextmanager
    def _fitting(self) -> Iterator[None]:
        """Remove attributes of an earlier fit first, and those of this fit if it fails, so that they never mix."""
        settings = dict(vars(self))
        for name in vars(self):
            if name.endswith("_") and not name.startswith("_"):
                del settings[name]
        self.__dict__ = dict(settings)
        try:
            yield
        except BaseException:
            self.__dict__ = settings
            raise

    def _validated(self, *data: Any, reset: bool, **checks: Any) -> Any:
        """Return the rows, and the targets if given, as scikit-learn validates them. Errors fit on one line."""
        try:
            accepted = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], **checks}
            return validate_data(self, *data, reset=reset, **accepted)
        except ValueError as error:
            first, *rest = str(error).strip().splitlines()
            if "NaN" in first:  # scikit-learn goes on to recommend imputation, which would cost privacy
                rest = ["Drop such rows, or fill them with a public constant."]
            if first.startswith("could not convert string") and (name := _column_of_text(data[0])):
                first = f"The column {name} of X contains text: {first}."
                rest = ["Encode it as numbers, or declare it as categorical in a TableSchema and use a TableModel."]
            raise ValueError(" ".join([first, *rest])) from error


def _column_of_text(X: Any) -> str | None:
    """Return the name or number of the first column that cannot be converted to numbers, or None if there is none."""
    names = getattr(X, "columns", None)
    values = np.asarray(X)
    for j in range(values.shape[1] if values.ndim == 2 else 0):
        try:
            values[:, j].astype(float)
        except ValueError:
            return str(j) if names is None else repr(names[j])
        except TypeError:
            continue
    return None


class SavedEstimator:
    """Mixin for estimators that are saved as their settings and the attributes that a fit learned.

    Every subclass is registered under its name.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        register(cls.__name__, cls.from_dict)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a fitted estimator to a JSON file, completely or not at all. :func:`privet.load` reads it."""
        write(path, self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Return a fitted estimator as a JSON-ready dictionary.

        The random seed is left out, because it would reveal the noise, and so is the ledger.
        """
        check_is_fitted(self)
        settings: dict[str, Any] = {}
        learned: dict[str, Any] = {}
        given: Mapping[str, Any] = self.get_params()  # type: ignore[attr-defined]
        for name, value in given.items():
            if name not in {"random_state", "ledger"}:
                settings[name] = to_plain(value)
        if "random_state" in given:
            settings["random_state"] = None
        for name, value in vars(self).items():
            if name.endswith("_"):
                learned[name] = to_plain(value)
        return {"privet_format": FORMAT, "estimator": type(self).__name__, "settings": settings, "learned": learned}

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
        """Raise if the attributes that were read from a file do not fit together.

        A guarantee compares its epsilon with its event when it is read.
        """
        if not isinstance(getattr(self, "guarantee_", None), Guarantee | None):
            raise ValueError("its guarantee_ is not a guarantee")


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
        return [from_plain(item) for item in value] if isinstance(value, list) else value
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
