"""What the noise of a descent with momentum leaves in the average of its last iterates, near a quadratic minimum."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def noise_of_average(curvatures: Floats, step_size: float, momentum: float, steps: int, n_tail: int) -> Floats:
    """Return the variance of the average of the last iterates per unit variance of the noise in one gradient.

    Parameters
    ----------
    curvatures : array
        Second derivatives along the directions.
    step_size, momentum : float
        Of the heavy-ball method: ``direction = momentum * direction + gradient``.
    steps, n_tail : int
        Number of steps, and of the iterates at the end that are averaged.

    Notes
    -----
    The recursion is linear, so the average is a sum over the steps of their noise times a response. The response to
    the noise of a step is the mean of those iterates of the averaged ones that come after it, in a run without any
    other noise.
    """
    point, direction = np.zeros_like(curvatures), np.ones_like(curvatures)
    reached = np.zeros((steps + 1, len(curvatures)))  # sums of the points after 0, 1, ... steps
    for t in range(steps):
        point = point - step_size * direction
        reached[t + 1] = reached[t] + point
        direction = momentum * direction + curvatures * point
    later = np.arange(steps, 0, -1)  # how many points come after the noise of each step
    responses = reached[later] - reached[np.maximum(later - n_tail, 0)]
    return np.asarray((responses * responses).sum(axis=0) / n_tail**2)
