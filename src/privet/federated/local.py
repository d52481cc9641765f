"""Deprecated module. Import its names from :mod:`privet.federated`."""

from typing import Any

import privet.federated
from privet.deprecation import renamed

_NAMES = ("ClientTrainer", "LocalTraining", "order_source", "trained_weights", "with_weights")


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        renamed(f"privet.federated.local.{name}", f"privet.federated.{name}")
        return getattr(privet.federated, name)
    raise AttributeError(f"module 'privet.federated.local' has no attribute {name!r}")
