"""Gradient steps that contract, as amplification by iteration requires."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from privet.checks import finite, nonnegative, positive

ROUNDING = 2.0**-11
"""What a run that releases only its last iterate is charged for rounding errors, relative to its mu: 0.05 %."""


@dataclass(frozen=True)
class Descent:
    """Projected gradient steps on a convex and smooth objective, of which only the last iterate is released.

    Parameters
    ----------
    step_size : float or sequence of floats
        One size for all steps, or one size per step; at most 2/smoothness.
    smoothness, strong_convexity : float
        Constants beta and m of the objective, including the regulariser.
    diameter : float or None
        Diameter of the ball around zero onto which iterates are projected; None for no projection.

    Formal guarantees
    -----------------
    For a convex and beta-smooth function f and eta <= 2/beta, w -> w - eta grad f(w) is Lipschitz with the constant
    max(|1 - eta m|, |1 - eta beta|) <= 1 ("Privacy Amplification by Iteration", Proposition 18), and a projection onto
    a convex set preserves this. If the function is not convex or the step is longer, steps may drive points apart, and
    earlier noise then hides nothing later. Both are refused.
    """

    step_size: float | tuple[float, ...]
    smoothness: float
    strong_convexity: float = 0.0
    diameter: float | None = None

    def __post_init__(self) -> None:
        positive("smoothness", self.smoothness)
        if finite("strong_convexity", self.strong_convexity) < 0:
            raise ValueError(
                "amplification by iteration needs a convex objective, because only then gradient steps contract. This "
                'objective is not convex: release all iterates (release="all"), or use a convex regulariser'
            )
        if nonnegative("strong_convexity", self.strong_convexity) > self.smoothness:
            raise ValueError("strong_convexity cannot exceed smoothness")
        if isinstance(self.step_size, Sequence):
            object.__setattr__(self, "step_size", tuple(positive("step_size", size) for size in self.step_size))
            if not self.step_sizes:
                raise ValueError("step_size needs one number per step, got an empty sequence")
        else:
            object.__setattr__(self, "step_size", positive("step_size", self.step_size))
        if max(self.step_sizes) > 2 / self.smoothness:
            raise ValueError(
                f"a step size of {max(self.step_sizes):.6g} exceeds 2/smoothness = {2 / self.smoothness:.6g}. Such "
                "steps do not contract, so privacy is not amplified: use smaller steps, or release all iterates "
                '(release="all")'
            )
        if self.diameter is not None:
            positive("diameter", self.diameter)

    @property
    def step_sizes(self) -> tuple[float, ...]:
        """The step sizes as a tuple, of length 1 if all steps have the same size."""
        return self.step_size if isinstance(self.step_size, tuple) else (self.step_size,)

    def truncated(self, steps: int) -> "Descent":
        """Return the first ``steps`` steps alone."""
        return replace(self, step_size=self.step_size[:steps]) if isinstance(self.step_size, tuple) else self

    @cached_property
    def contraction(self) -> float | tuple[float, ...]:
        """Lipschitz constants of the steps: one number, or a tuple if ``step_size`` is one."""
        factors = tuple(
            min(max(abs(1 - size * self.strong_convexity), abs(1 - size * self.smoothness)), 1.0)
            for size in self.step_sizes
        )
        return factors if isinstance(self.step_size, tuple) else factors[0]

    def in_words(self) -> str:
        """Return a phrase for the guarantee that states the argument."""
        shown = f"{min(self.step_sizes):.4g}" + (
            f" to {max(self.step_sizes):.4g}" if min(self.step_sizes) < max(self.step_sizes) else ""
        )
        ball = "" if self.diameter is None else f", projected onto a ball of diameter {self.diameter:.4g}"
        convex = f"{self.strong_convexity:.4g}-strongly convex" if self.strong_convexity else "convex"
        return (
            f"steps of size {shown} on a {convex}, {self.smoothness:.4g}-smooth objective{ball}: they move no two "
            f"points further apart, except by rounding errors, for which {ROUNDING:.2%} of mu is charged"
        )
