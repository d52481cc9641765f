"""privet: differentially private training, stated in full, calibrated tightly.

Names are imported when they are first used, so that ``import privet`` and ``privet --help`` stay quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privet.linear import PrivateLogisticRegression, TableModel, load

__version__ = "0.1.0"

__all__ = ["PrivateLogisticRegression", "TableModel", "__version__", "load"]

_HOMES = dict.fromkeys(("PrivateLogisticRegression", "TableModel", "load"), "privet.linear")


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'privet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
