"""The names of models and methods, and the range of each setting, without any heavy import.

The command line reads them to refuse a mistake at once, to complete names and to show its help.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from privet.checks import (
    LARGEST_NORM,
    SMALLEST_NORM,
    choice,
    count,
    delta_value,
    nonnegative,
    positive,
    rate_pair,
    whole,
    within,
)

MODELS = {
    "logistic": "PrivateLogisticRegression",
    "svm": "PrivateLinearSVC",
    "ridge": "PrivateRidge",
    "huber": "PrivateHuberRegressor",
    "absolute": "PrivateAbsoluteRegressor",
    "sparse_logistic": "PrivateSparseLogisticRegression",
    "sparse_regression": "PrivateSparseRegression",
    "additive_classifier": "PrivateAdditiveClassifier",
    "additive_regressor": "PrivateAdditiveRegressor",
}
"""The classes of models of tables, by the names that the command line and study files use."""
BY_TARGET: dict[str, tuple[str, str]] = {
    "auto": ("logistic", "ridge"),
    "sparse": ("sparse_logistic", "sparse_regression"),
    "additive": ("additive_classifier", "additive_regressor"),
}
"""Names that stand for one model if the target is a class, and for another one if it is a number."""

_SPARSE = ("sparse_logistic", "sparse_regression")
_ADDITIVE = ("additive_classifier", "additive_regressor")
_DENSE = tuple(name for name in MODELS if name not in (*_SPARSE, *_ADDITIVE))
USERS: dict[str, tuple[str, ...]] = {
    "threshold": ("huber",),
    "corner_width": ("absolute",),
    "loss": ("svm", "additive_regressor"),
    "n_nonzero": _SPARSE,
    **dict.fromkeys(("smoothing", "secret", "batch_size"), _DENSE),
    **dict.fromkeys(("clip_norm", "noise_multiplier"), (*_DENSE, *_ADDITIVE)),
}
"""The models that have a setting, for those settings of the command line that not all models have."""
SECRETS = ("order", "stop", "skip")
"""What method ``iteration`` can keep secret besides the iterates."""
HINGES = ("parabola", "gaussian")
"""How the corner of the hinge can be smoothed."""
ADDITIVE_LOSSES = ("squared", "huber", "poisson")
"""The losses of additive regression."""

_norm = partial(within, least=SMALLEST_NORM, most=LARGEST_NORM)
_size = partial(within, least=1e-100, most=1e100)

# How each parameter of a linear estimator is checked. The value is given with its name. A parameter whose default is
# None may be None, which leaves the choice to the estimator.
PARAMETERS: dict[str, Callable[[str, Any], object]] = {
    "epsilon": positive,
    "delta": lambda _, value: delta_value(value),
    "alpha": nonnegative,
    "feature_norm": _norm,
    "entry_bound": _norm,
    "target_bound": _size,
    "intercept_scaling": partial(within, least=1e-6, most=1e6),
    "smoothing": nonnegative,
    "clip_norm": _size,
    "threshold": _size,
    "hinge_width": positive,
    "corner_width": _size,
    "secret": partial(choice, choices=SECRETS),
    "loss": partial(choice, choices=(*HINGES, *ADDITIVE_LOSSES)),
    "noise_multiplier": nonnegative,
    "tpr": rate_pair,
    "batch_size": count,
    "n_nonzero": count,
    "max_iter": count,
    "random_state": whole,
}


def given_noise(settings: Mapping[str, Any]) -> list[str]:
    """Return which setting determines the noise, if one is given. Raise ValueError for several of them."""
    given = [name for name in ("epsilon", "noise_multiplier", "tpr") if settings.get(name) is not None]
    if len(given) > 1:
        one, other = (f"--{name.replace('_', '-')}" for name in given[:2])
        raise ValueError(f"{one} and {other} cannot be given together. Leave one of them out.")
    return given


def methods() -> tuple[str, ...]:
    """Return the names of all methods, each of which is a file of ``privet.linear.methods``."""
    folder = Path(__file__).parent / "linear" / "methods"
    return tuple(module.name for module in iter_modules([str(folder)]) if not module.name.startswith("_"))


def method_value(name: str, value: str) -> str:
    """Return ``value`` if it is auto or the name of a method, else raise ValueError."""
    return choice(name, value, ("auto", *methods()))
