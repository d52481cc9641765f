"""Privacy amplification by iteration for any schedule: the privacy of the last iterate of noisy contractive steps.

"Privacy Amplification by Iteration" bounds the last iterate by letting the distance between the iterates of two
neighbouring datasets shrink step by step under the noise, where each step pays for its part of the reduction. Here the
payments are optimal, and they are counted in Gaussian differential privacy: docs/proofs.md, sections 16 and 17.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import isotonic_regression

from privet.checks import nonnegative, positive

Floats = NDArray[np.float64]

MARGIN = 1 + 2e-10  # exceeds the rounding errors of a bounded number of sums, products and functions
_UNIT_ROUNDOFF = 2.0**-53
_LEAST_RISE, _LEAST_ROOM = 1e-300, 1e-290
_MOST_RESTARTS = 64


def last_iterate_mu(
    shifts: ArrayLike,
    noise: ArrayLike,
    contraction: ArrayLike = 1.0,
    start: float = 0.0,
    diameter: float | None = None,
) -> float:
    """Return the least mu for which the last iterate is known to be mu-GDP.

    Parameters
    ----------
    shifts : array of T numbers
        How far apart the maps of step t on the two datasets can send the same point.
    noise : float or array of T numbers
        Standard deviation, per coordinate, of the Gaussian noise that follows the map of step t.
    contraction : float or array of T numbers
        Lipschitz constant of the map of step t.
    start : float
        Distance between the two starting points.
    diameter : float or None
        Diameter of a ball (or any convex set) onto which the iterates are projected before each map.

    Formal guarantees
    -----------------
    Let X_t = phi_t(X_{t-1}) + N(0, v_t^2 I), and X'_t likewise with phi'_t, where ||phi_t - phi'_t|| <= s_t everywhere
    and one map of each pair is c_t-Lipschitz. For any a_t >= 0 such that z_t = c_t z_{t-1} + s_t - a_t >= 0 and
    z_T = 0, X_T and X'_T are at least as hard to distinguish as N(mu, 1) and N(0, 1), with mu^2 = sum a_t^2/v_t^2. The
    returned mu is the least of these, rounded up. With a diameter D it is the least over all chains that begin at any
    step with z = D.

    Notes
    -----
    With w_t = c_{t+1} ... c_T, the sums of w_t a_t must stay below those of w_t s_t and reach them at the end, at a
    cost of (w_t a_t)^2 / (w_t v_t)^2: a taut string, that is the greatest convex minorant of the sums of w_t s_t over
    those of (w_t v_t)^2. Its slopes are an isotonic regression, found in linear time.
    """
    s, v, c = _schedule(shifts, noise, contraction)
    if s.size == 0:
        raise ValueError("a schedule needs at least one step")
    s = s.copy()
    s[0] += c[0] * nonnegative("start", start)
    apart = None if diameter is None else positive("diameter", diameter) * c
    if (noisy := np.flatnonzero(v)).size == 0:
        return math.inf if s.any() else 0.0
    last = int(noisy[-1])
    if s[last + 1 :].any():  # shifts after the last noise are not hidden
        return math.inf
    s, v, c = s[: last + 1], v[: last + 1], c[: last + 1]
    with np.errstate(divide="ignore", over="ignore"):
        log_w = np.append(_running_sums(np.log(c)[::-1])[::-1][1:], 0.0)  # w_t = c_{t+1} ... c_T
        unit = float(np.max(log_w + np.log(v)))  # distances are in units of the largest weighted noise
        rise, room = _scaled(log_w + np.log(s) - unit), np.exp(2 * (log_w + np.log(v) - unit))
        room[room < _LEAST_ROOM] = 0.0  # negligible noise is ignored
        # The second candidate pays for each shift in the step in which it occurs, which is always possible.
        best = min(_string(rise, room), float(np.sum(_ratio(s, v) ** 2)))
        if apart is not None:
            best = _with_restarts(rise, room, _scaled(log_w + np.log(apart[: last + 1]) - unit), best)
    first = int(np.argmax((room > 0) | (rise > _LEAST_RISE)))  # what comes before is negligible
    return math.sqrt(best) * (MARGIN + _margin_of_sums(log_w[first:]))


def _running_sums(values: Floats) -> Floats:
    """Return the cumulative sums, added in blocks, so that each is rounded at most 2 sqrt(T) + 2 times."""
    width = math.isqrt(values.size) + 1
    blocks = np.cumsum(np.append(values, np.zeros(-values.size % width)).reshape(-1, width), axis=1)
    blocks[1:] += np.cumsum(blocks[:-1, -1])[:, None]
    return np.asarray(blocks.ravel()[: values.size])


def _margin_of_sums(log_w: Floats) -> float:
    """Return a bound on the relative error of mu that comes from sums over the steps with these logarithms.

    Sums of T positive numbers err by at most T roundings each, of which mu contains the equivalent of two. A logarithm
    that errs makes rise and room err by as much, and by twice as much.
    """
    steps, logs = log_w.size, np.abs(log_w[np.isfinite(log_w)])
    in_logs = (2 * math.isqrt(steps) + 8) * float(logs.max(initial=0.0))
    return 2.02 * _UNIT_ROUNDOFF * (steps + in_logs)


def _schedule(shifts: ArrayLike, noise: ArrayLike, contraction: ArrayLike) -> tuple[Floats, Floats, Floats]:
    """Return the three arrays, checked and of the same length."""
    s = np.atleast_1d(np.asarray(shifts, dtype=np.float64))
    if s.ndim != 1:
        raise ValueError(f"shifts must be a one-dimensional array, got shape {s.shape}")
    arrays = [s]
    for name, values in (("noise", noise), ("contraction", contraction)):
        array = np.asarray(values, dtype=np.float64)
        if array.ndim > 1 or (array.ndim == 1 and array.shape != s.shape):
            raise ValueError(f"{name} must be a number or as long as shifts ({s.size}), got shape {array.shape}")
        arrays.append(np.broadcast_to(array, s.shape))
    for name, array in zip(("shifts", "noise", "contraction"), arrays, strict=True):
        if not (np.isfinite(array).all() and (array >= 0).all()):
            raise ValueError(f"{name} must be finite numbers of at least 0")
    return arrays[0], arrays[1], arrays[2]


def _scaled(logs: Floats) -> Floats:
    """Return the exponentials. A positive distance is never rounded down to zero."""
    return np.where(logs > -np.inf, np.maximum(np.exp(logs), _LEAST_RISE), 0.0)


def _ratio(s: Floats, v: Floats) -> Floats:
    """Return s/v, and 0 where both are 0."""
    return np.divide(s, v, out=np.where(s > 0, np.inf, 0.0), where=v > 0)


def _string(rise: Floats, room: Floats) -> float:
    """Return the cost of the taut string: sum of (dS)^2/(d tau) over the edges of the greatest convex minorant."""
    noisy = np.flatnonzero(room > 0)
    if noisy.size == 0 or rise[noisy[-1] + 1 :].any() or not np.isfinite(rise).all():
        return math.inf if rise.any() else 0.0
    # A step with no or negligible noise passes its shift on to the next step.
    starts = np.concatenate(([0], noisy[:-1] + 1))
    rise, room = np.add.reduceat(rise[: noisy[-1] + 1], starts), room[noisy]
    slopes = isotonic_regression(rise / room, weights=room).x
    return float(slopes @ (slopes * room))


def _with_restarts(rise: Floats, room: Floats, distance: Floats, best: float) -> float:
    """Return the least cost of a chain that restarts before some step t with the (weighted) distance ``distance[t]``.

    A straight line from there to the end is a lower bound, because it ignores that payments cannot be made in advance.
    Restarts are tried in the order of that bound until it exceeds the least cost so far, nearly always at once.
    """
    total_rise, total_room = np.cumsum(rise[::-1])[::-1], np.cumsum(room[::-1])[::-1]
    bounds = np.where(total_room > 0, (distance + total_rise) ** 2 / np.maximum(total_room, 1e-300), np.inf)
    order = np.argsort(bounds)[:_MOST_RESTARTS]
    for t in order:
        if not bounds[t] < best * (1 - 1e-12):
            break
        best = min(best, _string(np.concatenate(([distance[t] + rise[t]], rise[t + 1 :])), room[t:]))
    return best
