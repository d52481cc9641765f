"""What classifiers share: labels, fitting, scores and predictions."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from privet.linear.base import PrivateLinearModel
from privet.objectives import GeneralisedLinear
from privet.privacy import Assumption, assumed, enforced


class PrivateClassifier(ClassifierMixin, PrivateLinearModel):
    """Base of the classifiers: subclasses declare the parameters and choose the loss."""

    classes: Sequence[Any] | None

    @abstractmethod
    def _objective(self, n_classes: int) -> GeneralisedLinear:
        """Return the loss for that many classes."""

    def fit(self, X: Any, y: Any, X_public: Any = None, y_public: Any = None, **refused: Any) -> "PrivateClassifier":
        """Fit to rows ``X`` (array, DataFrame or sparse) and labels ``y``; spends the budget once.

        ``X_public`` and ``y_public`` are records that need no protection, for ``method="iteration"``.
        """
        self._refuse(refused)
        with self._fitting():
            self._check_settings()
            X, y = self._validated(X, y, reset=True)
            self.classes_, codes, labels_are = self._encode(y)
            objective = self._objective(len(self.classes_))
            targets = codes.astype(np.float64) if len(self.classes_) == 2 else codes
            known = self._check_public(X_public, y_public, lambda labels: self._codes(labels).astype(targets.dtype))
            release = self._train(X, targets, objective, public=(labels_are,), known=known)
            self.coef_, self.intercept_ = self._split(release.weights.astype(X.dtype))
        return self

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Return scores: one for the second class in the binary case, else one a class."""
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the likeliest label of each row."""
        scores = self.decision_function(X)
        codes = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[codes])

    def _encode(self, y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], Assumption]:
        """Return the classes, each label's place among them, and what the guarantee says of them."""
        found, codes = _distinct("y", y)
        check_classification_targets(y)
        if self.classes is None:
            if len(found) < 2:
                raise ValueError(f"y has one class only ({found.tolist()[0]!r}): a classifier needs at least two")
            return found, codes, assumed("the set of class labels, read from y, is public")
        declared, _ = _distinct("classes", np.asarray(self.classes))
        if len(declared) < 2:
            raise ValueError("classes must name at least two labels")
        unknown = np.setdiff1d(found, declared)
        if len(unknown):
            raise ValueError(f"y has the label {unknown.tolist()[0]!r}, which is not among the declared classes")
        return declared, np.searchsorted(declared, found)[codes], enforced("the class labels were declared beforehand")

    def _codes(self, y: NDArray[Any]) -> NDArray[Any]:
        """Return the place of each public label among the classes."""
        found, codes = _distinct("y_public", y)
        unknown = np.setdiff1d(found, self.classes_)
        if len(unknown):
            raise ValueError(
                f"y_public has the label {unknown.tolist()[0]!r}, which y has not: declare all labels in classes"
            )
        return np.asarray(np.searchsorted(self.classes_, found)[codes])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # scikit-learn's checks fit a few dozen rows; noise drowns them
        return tags


def _distinct(name: str, labels: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the sorted distinct labels and each label's place among them."""
    if labels.ndim != 1:
        raise ValueError(f"{name} must be a plain list of labels, not an array of {labels.ndim} dimensions")
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        raise ValueError(f"{name} has a label that is not a number (NaN)")
    try:
        found, codes = np.unique(labels, return_inverse=True)
    except TypeError as error:
        raise ValueError(f"{name} mixes kinds of labels that cannot be ordered ({error})") from error
    return found, codes
