"""Random orders, and seeds for random layers, on which no guarantee rests: those of the local training of a client."""

import hashlib

import numpy as np
from numpy.typing import NDArray

from privet.checks import count, whole
from privet.privacy.noise import source, watch


class OrderSource:
    """Uniformly random orders with little overhead, where privacy does not rest on them (a client's local order).

    Parameters
    ----------
    seed : int or None
        None takes a 256-bit key from the operating system. A nonnegative integer makes the orders repeatable.
    purpose : str
        What the orders are for. Orders with the same seed and different purposes are independent.
    unit : int or None
        The number of the unit, such as a client, that the orders belong to. It replaces the braces in ``purpose``.

    Notes
    -----
    A :class:`NoiseSource` takes ten times as long to construct. The orders are secure as well: they sort the words that
    SHAKE-256 derives from the key (two of n words are equal with probability n^2 / 2^65). But the source is not a
    stream. It returns the same orders again, also in a copy or after a fork, which must never happen to noise.
    """

    def __init__(self, seed: int | None = None, purpose: str = "", unit: int | None = None) -> None:
        drawn = watch.secret(source._system_key).hex() if seed is None else str(whole("the seed (random_state)", seed))
        meant = purpose if unit is None else purpose.format(watch.unit(unit))
        self._key = f"privet orders\x00{drawn}\x00{meant}".encode()

    def orders(self, rows: int, n: int) -> NDArray[np.int64]:
        """Return 0, ..., n - 1 in ``rows`` independent orders, one per row."""
        shape = count("rows", rows), count("n", n)
        words = hashlib.shake_256(self._key).digest(8 * rows * n)
        return np.frombuffer(words, dtype="<u8").reshape(shape).argsort(axis=1)

    def seed(self) -> int:
        """Return a seed of 63 bits for generators of other libraries, independent of the orders."""
        return int.from_bytes(hashlib.sha256(b"seed\x00" + self._key).digest()[:8], "little") >> 1
