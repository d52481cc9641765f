"""The linear models by the names that the command line and study files use."""

from privet.linear.base import PrivateLinearModel
from privet.linear.classification import PrivateLinearSVC, PrivateLogisticRegression
from privet.linear.regression import PrivateHuberRegressor, PrivateRidge

MODELS: dict[str, type[PrivateLinearModel]] = {
    "logistic": PrivateLogisticRegression,
    "svm": PrivateLinearSVC,
    "ridge": PrivateRidge,
    "huber": PrivateHuberRegressor,
}
