"""privet: differentially private training, stated in full, calibrated tightly.

Names are imported when they are first used, so that ``import privet`` and ``privet --help`` stay quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privet.linear import (
        PrivateHuberRegressor,
        PrivateLinearSVC,
        PrivateLogisticRegression,
        PrivateRidge,
        PrivateSparseLogisticRegression,
        PrivateSparseRegression,
        TableModel,
    )
    from privet.preprocessing import PrivateScaler, PublicScaler, total_guarantee
    from privet.saving import load, save

__version__ = "0.1.0"

__all__ = [
    "PrivateHuberRegressor",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateRidge",
    "PrivateScaler",
    "PrivateSparseLogisticRegression",
    "PrivateSparseRegression",
    "PublicScaler",
    "TableModel",
    "__version__",
    "load",
    "save",
    "total_guarantee",
]

_SCALING = ("PrivateScaler", "PublicScaler", "total_guarantee")
_HOMES = dict.fromkeys((name for name in __all__ if not name.startswith("_")), "privet.linear")
_HOMES.update(dict.fromkeys(_SCALING, "privet.preprocessing") | dict.fromkeys(("load", "save"), "privet.saving"))


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'privet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
