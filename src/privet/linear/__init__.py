"""scikit-learn estimators: thin. They choose a plan and a solver, and store what comes back."""

from privet.linear.logistic import PrivateLogisticRegression
from privet.linear.regression import PrivateHuberRegressor, PrivateRidge
from privet.linear.sparse import PrivateSparseLogisticRegression, PrivateSparseRegression
from privet.linear.svc import PrivateLinearSVC
from privet.linear.table_model import TableModel
from privet.saving import load

__all__ = [
    "PrivateHuberRegressor",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateRidge",
    "PrivateSparseLogisticRegression",
    "PrivateSparseRegression",
    "TableModel",
    "load",
]
