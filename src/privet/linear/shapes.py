"""Shapes: what each column of an additive model adds to its score, with the noise that privacy added."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Shape:
    """The curve of one column, or the joint term of two columns.

    Parameters
    ----------
    name : str
        The column, or both columns joined by " x ".
    values : array of shape (bins,) or (bins, outputs)
        What each bin adds to the score. On average over the records, by noisy counts, it is zero.
    noise : array of shape (bins,)
        Standard deviation of the noise in each value, estimated from the noise, the steps and the noisy counts alone.
    shares : array of shape (bins,)
        The noisy share of the records in each bin.
    edges : array of shape (bins + 1,), or None
        The ends of the bins of a number: bin ``i`` is from ``edges[i]`` to ``edges[i + 1]``.
    levels : tuple of str, or None
        The names of the bins of a category or of a pair.
    """

    name: str
    values: Floats
    noise: Floats
    shares: Floats
    edges: Floats | None = None
    levels: tuple[str, ...] | None = None

    @property
    def importance(self) -> float:
        """The root mean square of the values over the records, by noisy counts."""
        squares = self.values.reshape(len(self.values), -1) ** 2
        return float(np.sqrt((self.shares @ squares).max()))

    def band(self, width: float = 2.0) -> tuple[Floats, Floats]:
        """Return the values minus and plus ``width`` standard deviations of the noise."""
        noise = width * self.noise.reshape(-1, *[1] * (self.values.ndim - 1))
        return self.values - noise, self.values + noise


def by_importance(shapes: "list[Shape]") -> "list[Shape]":
    """Return the shapes, the most important first."""
    return sorted(shapes, key=lambda shape: -shape.importance)


def monotone(values: Floats, shares: Floats, direction: int) -> Floats:
    """Return the nearest values that only rise (direction 1) or only fall (-1), with the same mean. Post-processing."""
    from sklearn.isotonic import isotonic_regression

    columns = np.asarray(values).reshape(len(values), -1)
    rising = direction > 0
    fitted = [isotonic_regression(column, sample_weight=shares, increasing=rising) for column in columns.T]
    return np.asarray(np.column_stack(fitted).reshape(values.shape))


def shape_of(fields: dict[str, Any]) -> Shape:
    """Return a shape from what an estimator stores of it."""
    levels = fields.get("levels")
    return Shape(
        fields["name"],
        fields["values"],
        fields["noise"],
        fields["shares"],
        fields.get("edges"),
        None if levels is None else tuple(map(str, levels)),
    )
