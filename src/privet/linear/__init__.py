"""scikit-learn estimators of linear and sparse linear models.

An estimator checks its settings and data, and runs one of the methods in :mod:`privet.linear.methods`.
"""

from privet import names
from privet.linear.additive_classification import PrivateAdditiveClassifier
from privet.linear.additive_regression import PrivateAdditiveRegressor
from privet.linear.classification import PrivateLogisticRegression
from privet.linear.effects import Effect, Effects, column_effects
from privet.linear.regression import PrivateAbsoluteRegressor, PrivateHuberRegressor, PrivateRidge
from privet.linear.shapes import Shape
from privet.linear.sparse import PrivateSparseLogisticRegression, PrivateSparseRegression
from privet.linear.svc import PrivateLinearSVC
from privet.linear.table_model import TableEstimator, TableModel
from privet.names import BY_TARGET
from privet.saving import load

__all__ = [
    "BY_TARGET",
    "MODELS",
    "Effect",
    "Effects",
    "PrivateAbsoluteRegressor",
    "PrivateAdditiveClassifier",
    "PrivateAdditiveRegressor",
    "PrivateHuberRegressor",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateRidge",
    "PrivateSparseLogisticRegression",
    "PrivateSparseRegression",
    "Shape",
    "TableModel",
    "column_effects",
    "load",
]

MODELS: dict[str, type[TableEstimator]] = {name: globals()[kind] for name, kind in names.MODELS.items()}
"""The models of tables by the names that the command line and study files use."""
