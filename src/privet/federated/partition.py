"""How examples are given to clients: each partitioner returns one array of row numbers a client.

It is no privacy noise that is drawn here, so the caller gives an ordinary generator:
``iid(60_000, 1000, np.random.default_rng(0))``.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privet.checks import count, positive

Parts = list[NDArray[np.int64]]


def iid(n: int, clients: int, generator: "np.random.Generator") -> Parts:
    """Return parts of a random order, of equal size; where n is no multiple of ``clients``, some have one more."""
    if count("clients", clients) > count("n", n):
        raise ValueError(f"{n} examples cannot be given to {clients} clients: some would have none")
    return [np.sort(part) for part in np.array_split(generator.permutation(n), clients)]


def by_key(keys: ArrayLike, minimum: int = 1) -> Parts:
    """Return one part a key, in sorted order of keys: the lines of a role, the visits of a patient.

    Keys with fewer than ``minimum`` examples are left out. Whether a client takes part then depends on that client
    alone, so that neighbouring sets of clients stay neighbours.
    """
    named: NDArray[Any] = np.asarray(keys)
    if named.ndim != 1 or not named.size:
        raise ValueError(f"keys must be a list with one key an example, got the shape {named.shape}")
    _, places, sizes = np.unique(named, return_inverse=True, return_counts=True)
    rows = np.argsort(places, kind="stable")
    parts = np.split(rows, np.cumsum(sizes)[:-1])
    kept = [part.astype(np.int64) for part in parts if len(part) >= count("minimum", minimum)]
    if not kept:
        raise ValueError(f"no key has {minimum} examples: the largest has {int(sizes.max())}")
    return kept


def dirichlet(labels: ArrayLike, clients: int, concentration: float, generator: "np.random.Generator") -> Parts:
    """Return parts of equal size whose mixture of labels is drawn from a Dirichlet law: label skew.

    Parameters
    ----------
    labels : array
        One label an example.
    clients : int
        How many parts.
    concentration : float
        Of the symmetric Dirichlet law: 0.1 gives clients with hardly more than one label, 100 almost the same
        mixture to all.
    generator : numpy.random.Generator
        Where chance comes from.

    Notes
    -----
    Each client draws its mixture, and then its examples one label at a time, of those that are left; labels that have
    run out are left out of the mixture. Sizes are those of :func:`iid`, so that skew and size are not confounded.
    """
    found: NDArray[Any] = np.asarray(labels)
    if found.ndim != 1:
        raise ValueError(f"labels must be a list with one label an example, got the shape {found.shape}")
    sizes = [len(part) for part in np.array_split(np.arange(len(found)), count("clients", clients))]
    if not min(sizes):
        raise ValueError(f"{len(found)} examples cannot be given to {clients} clients: some would have none")
    positive("concentration", concentration)
    left = [list(generator.permutation(rows)) for rows in by_key(found)]
    return [_mixed(left, size, concentration, generator) for size in sizes]


def _mixed(
    left: list[list[np.int64]], size: int, concentration: float, generator: "np.random.Generator"
) -> NDArray[np.int64]:
    """Take so many examples out of those that are left, by a mixture of labels drawn anew."""
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
