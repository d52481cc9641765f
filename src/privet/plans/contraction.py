"""The steps of a descent whose iterates stay hidden: their sizes, and what makes them contract."""

from collections.abc import Sequence
from dataclasses import dataclass

from privet.checks import finite, nonnegative, positive


@dataclass(frozen=True)
class Descent:
    """Projected gradient steps on a convex and smooth objective, of which only the last iterate is released.

    Parameters
    ----------
    step_size : float or sequence of floats
        One for all steps, or one a step; at most 2/smoothness.
    smoothness, strong_convexity : float
        beta and m of the objective that a step descends, regulariser included.
    diameter : float or None
        Of the ball around zero onto which iterates are projected; None for no projection.

    Formal guarantees
    -----------------
    For a convex and beta-smooth function f and eta <= 2/beta, w -> w - eta grad f(w) is Lipschitz with the constant
    max(|1 - eta m|, |1 - eta beta|) <= 1 ("Privacy Amplification by Iteration", Proposition 18), and so it is after a
    projection onto a convex set. A function that is not convex, or a longer step, may drive points apart, and noise
    added earlier then hides nothing later: both are refused.
    """

    step_size: float | tuple[float, ...]
    smoothness: float
    strong_convexity: float = 0.0
    diameter: float | None = None

    def __post_init__(self) -> None:
        positive("smoothness", self.smoothness)
        if finite("strong_convexity", self.strong_convexity) < 0:
            raise ValueError(
                "amplification by iteration needs a convex objective, whose gradient steps contract: this one is not. "
                'Release all iterates (release="all"), or take a convex regulariser'
            )
        if nonnegative("strong_convexity", self.strong_convexity) > self.smoothness:
            raise ValueError("strong_convexity cannot exceed smoothness")
        if isinstance(self.step_size, Sequence):
            object.__setattr__(self, "step_size", tuple(positive("step_size", size) for size in self.step_size))
            if not self.step_sizes:
                raise ValueError("step_size needs one number for each step, got none")
        else:
            object.__setattr__(self, "step_size", positive("step_size", self.step_size))
        if max(self.step_sizes) > 2 / self.smoothness:
            raise ValueError(
                f"a step size of {max(self.step_sizes):.6g} exceeds 2/smoothness = {2 / self.smoothness:.6g}: such "
                "steps do not contract, and nothing is amplified; take smaller ones, or release all iterates "
                '(release="all")'
            )
        if self.diameter is not None:
            positive("diameter", self.diameter)

    @property
    def step_sizes(self) -> tuple[float, ...]:
        """The step sizes, as a tuple even if there is one for all."""
        return self.step_size if isinstance(self.step_size, tuple) else (self.step_size,)

    @property
    def contraction(self) -> float | tuple[float, ...]:
        """Lipschitz constants of the steps, in the form of ``step_size``."""
        factors = tuple(
            min(max(abs(1 - size * self.strong_convexity), abs(1 - size * self.smoothness)), 1.0)
            for size in self.step_sizes
        )
        return factors if isinstance(self.step_size, tuple) else factors[0]

    def in_words(self) -> str:
        """Return the argument in one line."""
        shown = f"{min(self.step_sizes):.4g}" + (
            f" to {max(self.step_sizes):.4g}" if min(self.step_sizes) < max(self.step_sizes) else ""
        )
        ball = "" if self.diameter is None else f", projected onto a ball of diameter {self.diameter:.4g}"
        convex = f"{self.strong_convexity:.4g}-strongly convex" if self.strong_convexity else "convex"
        return (
            f"steps of size {shown} on a {convex}, {self.smoothness:.4g}-smooth objective{ball}: they bring no two "
            "points further apart"
        )
