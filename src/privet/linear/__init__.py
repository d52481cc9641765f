"""scikit-learn estimators of linear and sparse linear models.

An estimator checks its settings and data, and runs one of the methods in :mod:`privet.linear.methods`.
"""

from privet import names
from privet.linear import base
from privet.linear.classification import PrivateLogisticRegression
from privet.linear.effects import Effect, Effects, column_effects
from privet.linear.regression import PrivateAbsoluteRegressor, PrivateHuberRegressor, PrivateRidge
from privet.linear.sparse import PrivateSparseLogisticRegression, PrivateSparseRegression
from privet.linear.svc import PrivateLinearSVC
from privet.linear.table_model import TableModel
from privet.names import BY_TARGET
from privet.saving import load

__all__ = [
    "BY_TARGET",
    "MODELS",
    "Effect",
    "Effects",
    "PrivateAbsoluteRegressor",
    "PrivateHuberRegressor",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateRidge",
    "PrivateSparseLogisticRegression",
    "PrivateSparseRegression",
    "TableModel",
    "column_effects",
    "load",
]

MODELS: dict[str, type[base.PrivateLinearModel]] = {name: globals()[kind] for name, kind in names.MODELS.items()}
"""The linear models by the names that the command line and study files use."""
