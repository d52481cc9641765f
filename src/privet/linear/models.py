"""The linear models by the names that the command line and study files use."""

from privet.linear.base import PrivateLinearModel
from privet.linear.classification import PrivateLogisticRegression
from privet.linear.regression import PrivateAbsoluteRegressor, PrivateHuberRegressor, PrivateRidge
from privet.linear.sparse import PrivateSparseLogisticRegression, PrivateSparseRegression
from privet.linear.svc import PrivateLinearSVC

MODELS: dict[str, type[PrivateLinearModel]] = {
    "logistic": PrivateLogisticRegression,
    "svm": PrivateLinearSVC,
    "ridge": PrivateRidge,
    "huber": PrivateHuberRegressor,
    "absolute": PrivateAbsoluteRegressor,
    "sparse_logistic": PrivateSparseLogisticRegression,
    "sparse_regression": PrivateSparseRegression,
}
BY_TARGET: dict[str, tuple[str, str]] = {
    "auto": ("logistic", "ridge"),
    "sparse": ("sparse_logistic", "sparse_regression"),
}
"""Names that stand for one model if the target is a class, and for another one if it is a number."""
