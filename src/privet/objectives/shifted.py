"""A loss of scores that start from a public offset instead of zero."""

from privet.objectives.glm import Floats, GeneralisedLinear


class Shifted(GeneralisedLinear):
    """The given loss, evaluated at score + offset, for losses with one score per record.

    The offset is a public number. The bounds on the first and second derivatives hold for every score, so they are the
    same as those of the given loss.
    """

    def __init__(self, objective: GeneralisedLinear, offset: float) -> None:
        self.objective = objective
        self.offset = offset
        self.residual_bound = objective.residual_bound
        self.curvature_bound = objective.curvature_bound
        self.has_bounded_gradient = objective.has_bounded_gradient
        self.is_one_sided = objective.is_one_sided
        self.predicts_classes = objective.predicts_classes

    def loss(self, scores: Floats, targets: Floats) -> Floats:
        """Return the loss of each record."""
        return self.objective.loss(scores + self.offset, targets)

    def residuals(self, scores: Floats, targets: Floats) -> Floats:
        """Return the derivative of each record's loss with respect to its score."""
        return self.objective.residuals(scores + self.offset, targets)

    def check_targets(self, targets: Floats) -> None:
        """Raise ValueError for targets that the loss does not accept."""
        self.objective.check_targets(targets)

    def start(self, dimension: int) -> Floats:
        """Return zero weights."""
        return self.objective.start(dimension)

    def with_bounded_gradient(self, target_bound: float) -> GeneralisedLinear:
        """Return the same shift of the relative of the given loss that has bounded gradients."""
        return Shifted(self.objective.with_bounded_gradient(target_bound), self.offset)

    @property
    def start_curvature(self) -> float:
        """Typical second derivative of the loss at scores of zero."""
        return self.objective.start_curvature
