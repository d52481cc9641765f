"""What the classifiers share: encoding of labels, decisions and predictions."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from privet.linear.base import PrivateLinearModel, Targets
from privet.objectives import GeneralisedLinear
from privet.privacy import assumed, enforced


class PrivateClassifier(ClassifierMixin, PrivateLinearModel):
    """Base of the classifiers. Subclasses declare the parameters and choose the loss."""

    _is_binary: ClassVar[bool] = True  # whether two classes are all that it supports
    classes: Sequence[Any] | None

    def _objective(self, n_classes: int) -> GeneralisedLinear:
        """Return the loss for a number of classes."""
        if n_classes > 2:
            raise ValueError(
                f"Only binary classification is supported. y has {n_classes} classes. Use PrivateLogisticRegression, "
                "which supports several classes."
            )
        return self._loss()

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Return the scores of rows: that of the second class for two classes, else one column per class."""
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most likely label of each row."""
        scores = self.decision_function(X)
        codes = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[codes])

    def _targets(self, y: NDArray[Any]) -> Targets:
        found, codes = _distinct("y", y)
        check_classification_targets(y)
        if self.classes is None:
            if len(found) < 2:
                raise ValueError(f"y has only one class ({found.tolist()[0]!r}), but a classifier needs at least two.")
            condition = assumed("the set of class labels, read from y, is public")
            self.classes_ = found
        else:
            self.classes_, _ = _distinct("classes", np.asarray(self.classes))
            if len(self.classes_) < 2:
                raise ValueError("classes must name at least two labels")
            codes = self._places("y", found, "is not among the declared classes")[codes]
            condition = enforced("the class labels were declared beforehand")
        # Losses of two classes take numbers, and losses of several classes take indices.
        values = np.asarray(codes, dtype=np.float64 if len(self.classes_) == 2 else np.intp)
        return Targets(values, self._objective(len(self.classes_)), (condition,))

    def _public_targets(self, y: NDArray[Any]) -> NDArray[Any]:
        found, codes = _distinct("y_public", y)
        codes = self._places("y_public", found, "does not occur in y. Declare all labels in classes")[codes]
        return np.asarray(codes, dtype=np.float64 if len(self.classes_) == 2 else np.intp)

    def _places(self, name: str, labels: NDArray[Any], reason: str) -> NDArray[Any]:
        """Return the position of each label among the classes."""
        unknown = np.setdiff1d(labels, self.classes_)
        if len(unknown):
            raise ValueError(f"{name} has the label {unknown.tolist()[0]!r}, which {reason}.")
        return np.asarray(np.searchsorted(self.classes_, labels))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = not self._is_binary
        tags.classifier_tags.poor_score = True  # on the few dozen rows of scikit-learn's checks, noise dominates
        return tags


def _distinct(name: str, labels: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the sorted distinct labels, and the position of each label among them."""
    if labels.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got an array of {labels.ndim} dimensions")
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        raise ValueError(f"{name} has a label that is not a number (NaN)")
    try:
        found, codes = np.unique(labels, return_inverse=True)
    except TypeError as error:
        raise ValueError(f"{name} mixes kinds of labels that cannot be ordered ({error})") from error
    return found, codes
