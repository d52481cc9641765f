"""A loss of classes in which each class has a public, constant weight."""

from collections.abc import Sequence

import numpy as np

from privet.objectives.glm import Floats, GeneralisedLinear


class ClassWeighted(GeneralisedLinear):
    """The given loss of classes, multiplied by the weight of the class of each record.

    The loss, its derivative and its curvature at a record are multiplied by at most the largest weight, and so are the
    constants. A weighted residual has the sign of the residual, so a one-sided loss remains one-sided. The weights must
    be public: they must not have been computed from the private labels.

    Parameters
    ----------
    objective : GeneralisedLinear
        A loss of classes.
    weights : sequence of float
        One positive number per class, in the order of the class numbers.
    """

    def __init__(self, objective: GeneralisedLinear, weights: Sequence[float]) -> None:
        self.weights = np.array(weights, dtype=np.float64)
        if not (objective.predicts_classes and self.weights.ndim == 1 and len(self.weights) > 1):
            raise ValueError("class weights need a loss of classes, and one weight per class")
        if not (np.isfinite(self.weights).all() and (self.weights > 0).all()):
            raise ValueError(f"class weights must be finite and positive, got {self.weights.tolist()}")
        self.objective = objective
        self.largest_weight = float(self.weights.max())
        self.residual_bound = objective.residual_bound * self.largest_weight
        self.curvature_bound = objective.curvature_bound * self.largest_weight
        self.has_bounded_gradient = objective.has_bounded_gradient
        self.is_one_sided = objective.is_one_sided
        self.predicts_classes = True

    def loss(self, scores: Floats, targets: Floats) -> Floats:
        """Return the loss of each record."""
        return np.asarray(self.objective.loss(scores, targets) * self._of(targets))

    def residuals(self, scores: Floats, targets: Floats) -> Floats:
        """Return the derivative of each record's loss with respect to its scores."""
        residuals, weights = self.objective.residuals(scores, targets), self._of(targets)
        return np.asarray(residuals * (weights if residuals.ndim == 1 else weights[:, None]))

    def check_targets(self, targets: Floats) -> None:
        """Raise ValueError for targets that the loss does not accept, or that have no weight."""
        self.objective.check_targets(targets)
        if targets.size and int(targets.max()) >= len(self.weights):
            raise ValueError(f"there are {len(self.weights)} class weights, but a target is {int(targets.max())}")

    def start(self, dimension: int) -> Floats:
        """Return zero weights."""
        return self.objective.start(dimension)

    def with_bounded_gradient(self, target_bound: float) -> GeneralisedLinear:
        """Return the same weights on the relative of the given loss that has bounded gradients."""
        return type(self)(self.objective.with_bounded_gradient(target_bound), self.weights.tolist())

    @property
    def start_residual_bound(self) -> float:
        """Largest norm of a residual at scores of zero."""
        return self.objective.start_residual_bound * self.largest_weight

    @property
    def start_curvature(self) -> float:
        """Typical second derivative at scores of zero, if the classes are equally frequent."""
        return self.objective.start_curvature * float(self.weights.mean())

    def _of(self, targets: Floats) -> Floats:
        return np.asarray(self.weights[targets.astype(np.intp)])


class BalancedClasses(ClassWeighted):
    """A loss of classes with weights of which the largest is 1, and whose constants do not depend on the others.

    For weights that are released privately. Plans that are made from its constants are the same for all weights.
    """

    def __init__(self, objective: GeneralisedLinear, weights: Sequence[float]) -> None:
        super().__init__(objective, weights)
        if self.largest_weight != 1.0:
            raise ValueError(f"the largest weight must be 1, got {self.weights.tolist()}")

    @property
    def start_curvature(self) -> float:
        """Typical second derivative at scores of zero, if all weights are 1."""
        return self.objective.start_curvature
