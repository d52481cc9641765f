"""Partitions of a dataset among simulated clients: each function returns one array of row numbers per client.

The randomness here has nothing to do with privacy, so the caller passes an ordinary numpy generator:
``iid(60_000, 1000, np.random.default_rng(0))``.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privet.checks import count, positive

Parts = list[NDArray[np.int64]]


def iid(n: int, clients: int, generator: "np.random.Generator") -> Parts:
    """Return a random partition into ``clients`` parts whose sizes differ by at most one."""
    if count("clients", clients) > count("n", n):
        raise ValueError(f"{n} examples are too few for {clients} clients: each client needs at least one.")
    return [np.sort(part) for part in np.array_split(generator.permutation(n), clients)]


def by_key(keys: ArrayLike, minimum: int = 1) -> Parts:
    """Return one part per key, in sorted order of the keys: the lines of a role, or the visits of a patient.

    Keys with fewer than ``minimum`` examples are left out. Whether a client takes part depends on its own data only,
    so neighbouring sets of clients remain neighbours.
    """
    named: NDArray[Any] = np.asarray(keys)
    if named.ndim != 1 or not named.size:
        raise ValueError(f"keys must be one-dimensional, with one key per example, got shape {named.shape}.")
    _, places, sizes = np.unique(named, return_inverse=True, return_counts=True)
    rows = np.argsort(places, kind="stable")
    parts = np.split(rows, np.cumsum(sizes)[:-1])
    kept = [part.astype(np.int64) for part in parts if len(part) >= count("minimum", minimum)]
    if not kept:
        raise ValueError(f"No key has minimum={minimum} examples. The largest has {int(sizes.max())}.")
    return kept


def dirichlet(labels: ArrayLike, clients: int, concentration: float, generator: "np.random.Generator") -> Parts:
    """Return parts of equal size whose label distributions are drawn from a Dirichlet distribution (label skew).

    Parameters
    ----------
    labels : array
        One label per example.
    clients : int
        Number of parts.
    concentration : float
        Parameter of the symmetric Dirichlet distribution. With 0.1 most clients have hardly more than one label; with
        100 all clients have almost the same distribution.
    generator : numpy.random.Generator
        Source of randomness.

    Notes
    -----
    Each client draws its label distribution, and then draws examples from the remaining ones. Labels without remaining
    examples are skipped. Sizes are those of :func:`iid`, so that skew and size are not confounded.
    """
    found: NDArray[Any] = np.asarray(labels)
    if found.ndim != 1:
        raise ValueError(f"labels must be one-dimensional, with one label per example, got shape {found.shape}.")
    sizes = [len(part) for part in np.array_split(np.arange(len(found)), count("clients", clients))]
    if not min(sizes):
        raise ValueError(f"{len(found)} examples are too few for {clients} clients: each client needs at least one.")
    positive("concentration", concentration)
    left = [list(generator.permutation(rows)) for rows in by_key(found)]
    return [_mixed(left, size, concentration, generator) for size in sizes]


def _mixed(
    left: list[list[np.int64]], size: int, concentration: float, generator: "np.random.Generator"
) -> NDArray[np.int64]:
    """Remove ``size`` examples from those that are left, with a newly drawn label distribution, and return them."""
    mixture = generator.dirichlet([concentration] * len(left))
    taken: list[np.int64] = []
    while len(taken) < size:
        available = np.array([len(rows) > 0 for rows in left])
        shares = np.where(available, mixture, 0.0)
        shares = shares / shares.sum() if shares.sum() > 0 else available / available.sum()
        for rows, wanted in zip(left, generator.multinomial(size - len(taken), shares), strict=True):
            cut = max(len(rows) - int(wanted), 0)
            taken += rows[cut:]
            del rows[cut:]
    return np.sort(np.array(taken, dtype=np.int64))
