"""scikit-learn estimators of linear and sparse linear models.

An estimator checks its settings and data, and runs one of the methods in :mod:`privet.linear.methods`.
"""

from privet.linear.classification import PrivateLogisticRegression
from privet.linear.effects import Effect, Effects, column_effects
from privet.linear.models import BY_TARGET, MODELS
from privet.linear.regression import PrivateAbsoluteRegressor, PrivateHuberRegressor, PrivateRidge
from privet.linear.sparse import PrivateSparseLogisticRegression, PrivateSparseRegression
from privet.linear.svc import PrivateLinearSVC
from privet.linear.table_model import TableModel
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
