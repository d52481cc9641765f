"""A mixin for all scikit-learn estimators of this package: row validation, and a clean state after a failed fit."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np


class EstimatorChecks:
    """Mixin for scikit-learn estimators: row validation with short errors, and a clean state around ``fit``."""

    @contextmanager
    def _fitting(self) -> Iterator[None]:
        """Remove attributes of an earlier fit first, and those of this fit if it fails, so that they never mix."""
        settings = dict(vars(self))
        for name in vars(self):
            if name.endswith("_") and not name.startswith("_"):
                del settings[name]
        self.__dict__ = dict(settings)
        try:
            yield
        except BaseException:
            self.__dict__ = settings
            raise

    def _validated(self, *data: Any, reset: bool, **checks: Any) -> Any:
        """Return the rows, and the targets if given, as scikit-learn validates them. Errors fit on one line."""
        from sklearn.utils.validation import validate_data

        try:
            accepted = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], **checks}
            return validate_data(self, *data, reset=reset, **accepted)
        except ValueError as error:
            first, *rest = str(error).strip().splitlines()
            if "NaN" in first:  # scikit-learn goes on to recommend imputation, which would cost privacy
                rest = ["Drop such rows, or fill them with a public constant."]
            raise ValueError(" ".join([first, *rest])) from error
