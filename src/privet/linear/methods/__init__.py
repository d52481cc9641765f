"""The ways to train a linear model, one file per method.

Each file in this package whose name does not begin with an underscore defines one :class:`Method` with the decorator
:func:`method`. Estimators, error messages, docstrings, the tables in docs/ and the audit are built from ``METHODS``.
"""

from importlib import import_module
from pkgutil import iter_modules

from privet.linear.methods._base import METHODS, Method, Task, described, method, method_settings, named, usual_budget

for _module in iter_modules(__path__):
    if not _module.name.startswith("_"):
        import_module(f"{__name__}.{_module.name}")
for _name in sorted(METHODS):  # the order must not depend on which file imports which other one
    METHODS[_name] = METHODS.pop(_name)

__all__ = ["METHODS", "Method", "Task", "described", "method", "method_settings", "named", "usual_budget"]
