"""The linear models by the names that the command line and study files use. The names are those of privet.names."""

from privet.linear.base import PrivateLinearModel
from privet.linear.classification import PrivateLogisticRegression
from privet.linear.regression import PrivateAbsoluteRegressor, PrivateHuberRegressor, PrivateRidge
from privet.linear.sparse import PrivateSparseLogisticRegression, PrivateSparseRegression
from privet.linear.svc import PrivateLinearSVC
from privet.names import BY_TARGET
from privet.names import MODELS as NAMES

__all__ = ["BY_TARGET", "MODELS"]

_KINDS: tuple[type[PrivateLinearModel], ...] = (
    PrivateLogisticRegression,
    PrivateLinearSVC,
    PrivateRidge,
    PrivateHuberRegressor,
    PrivateAbsoluteRegressor,
    PrivateSparseLogisticRegression,
    PrivateSparseRegression,
)
_BY_CLASS = {kind.__name__: kind for kind in _KINDS}
MODELS = {name: _BY_CLASS[kind] for name, kind in NAMES.items()}
