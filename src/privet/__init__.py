"""privet: training with differential privacy, with complete guarantees and tightly calibrated noise.

Names and subpackages are imported when they are first used, so ``import privet`` and ``privet --help`` are fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privet import (
        audit,
        deep,
        denoise,
        drafts,
        federated,
        linear,
        multiparty,
        objectives,
        plans,
        preprocessing,
        privacy,
        report,
        solvers,
        tables,
    )
    from privet.cautions import PrivetWarning
    from privet.linear import (
        PrivateAbsoluteRegressor,
        PrivateAdditiveClassifier,
        PrivateAdditiveRegressor,
        PrivateHuberRegressor,
        PrivateLinearSVC,
        PrivateLogisticRegression,
        PrivateRidge,
        PrivateSparseLogisticRegression,
        PrivateSparseRegression,
        TableModel,
    )
    from privet.preprocessing import PrivateScaler, PublicScaler, total_guarantee
    from privet.privacy import Adjacency, Budget, Guarantee, Ledger, NoiseSource, compose, spending
    from privet.saving import load, save
    from privet.tables import TableSchema

__version__ = "0.1.0"

__all__ = [
    "Adjacency",
    "Budget",
    "Guarantee",
    "Ledger",
    "NoiseSource",
    "PrivateAbsoluteRegressor",
    "PrivateAdditiveClassifier",
    "PrivateAdditiveRegressor",
    "PrivateHuberRegressor",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateRidge",
    "PrivateScaler",
    "PrivateSparseLogisticRegression",
    "PrivateSparseRegression",
    "PrivetWarning",
    "PublicScaler",
    "TableModel",
    "TableSchema",
    "__version__",
    "audit",
    "compose",
    "deep",
    "denoise",
    "drafts",
    "federated",
    "linear",
    "load",
    "multiparty",
    "objectives",
    "plans",
    "preprocessing",
    "privacy",
    "report",
    "save",
    "solvers",
    "spending",
    "tables",
    "total_guarantee",
]

# The module in which each name is defined. All other names in __all__ are subpackages.
_MODULES = {
    **dict.fromkeys(("Adjacency", "Budget", "Guarantee", "Ledger", "NoiseSource"), "privet.privacy"),
    **dict.fromkeys(("compose", "spending"), "privet.privacy"),
    **dict.fromkeys((name for name in __all__ if name.startswith("Private")), "privet.linear"),
    **dict.fromkeys(("PrivateScaler", "PublicScaler", "total_guarantee"), "privet.preprocessing"),
    **dict.fromkeys(("load", "save"), "privet.saving"),
    "PrivetWarning": "privet.cautions",
    "TableModel": "privet.linear",
    "TableSchema": "privet.tables",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    if name in __all__:
        try:
            return import_module(f".{name}", "privet")
        except ModuleNotFoundError as error:
            from privet.extras import with_remedy

            if (text := with_remedy(error)) is None or text == str(error):
                raise
            raise ModuleNotFoundError(f"privet.{name} cannot be imported. {text}", name=error.name) from error
    raise AttributeError(f"module 'privet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
