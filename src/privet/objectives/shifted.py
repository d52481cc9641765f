"""A loss of scores that start elsewhere than at zero."""

from privet.objectives.glm import Floats, GeneralisedLinear


class Shifted(GeneralisedLinear):
    """A loss of one score a record, to which a public number is added first: constants stay as they are."""

    def __init__(self, objective: GeneralisedLinear, offset: float) -> None:
        self.objective = objective
        self.offset = offset
        self.residual_bound = objective.residual_bound
        self.curvature_bound = objective.curvature_bound

    def loss(self, scores: Floats, targets: Floats) -> Floats:
        """Return the loss of each record."""
        return self.objective.loss(scores + self.offset, targets)

    def residuals(self, scores: Floats, targets: Floats) -> Floats:
        """Return the derivative of each record's loss by its score."""
        return self.objective.residuals(scores + self.offset, targets)

    def check_targets(self, targets: Floats) -> None:
        """Raise on targets for which the constants do not hold."""
        self.objective.check_targets(targets)

    def start(self, dimension: int) -> Floats:
        """Return the zero weights."""
        return self.objective.start(dimension)

    @property
    def start_curvature(self) -> float:
        """That of the loss."""
        return self.objective.start_curvature
