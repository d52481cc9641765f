"""The linear models by the names that the command line and study files use."""

from privet.linear.base import PrivateLinearModel
from privet.linear.logistic import PrivateLogisticRegression
from privet.linear.regression import PrivateHuberRegressor, PrivateRidge
from privet.linear.svc import PrivateLinearSVC

MODELS: dict[str, type[PrivateLinearModel]] = {
    "logistic": PrivateLogisticRegression,
    "svm": PrivateLinearSVC,
    "ridge": PrivateRidge,
    "huber": PrivateHuberRegressor,
}
