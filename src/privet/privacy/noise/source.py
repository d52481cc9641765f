"""The only module that draws privacy noise, and the random samples on which a guarantee relies.

A :class:`NoiseSource` is a ChaCha20 stream (randomgen) keyed with 256 bits from the operating system. Numpy's and
torch's generators are not cryptographic: whoever sees enough of their output can predict the rest, and thus the noise.
Seeded sources exist for tests and repeatable experiments; the guarantee then says so.

Normal variates are drawn in float64 by the ziggurat method and rounded to the requested type: by numpy if there are
few, and by :mod:`privet.privacy.noise.ziggurat`, which is four times as fast, if there are many. The latter uses the
ChaCha20 of OpenSSL (through cryptography) with a 256-bit key that the source's stream provides for this one draw. The
variates are floating-point numbers, so the attack of Mironov ("On Significance of the Least Significant Bits for
Differential Privacy") on the exact bits of a release is not prevented here. See docs/sharp_edges.md.
"""

import hashlib
import os
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from privet.checks import count, nonnegative, positive, probability, whole
from privet.privacy.guarantees.guarantee import Assumption, assumed, enforced
from privet.privacy.noise.lattice import LatticeLaw
from privet.privacy.noise.ziggurat import CHUNK, Words, fill_normals

Indices = NDArray[np.int64]

_MANY = 1 << 13  # from this number on the vectorised ziggurat is faster than numpy
_ZEROS = memoryview(bytes(8 * CHUNK))  # encrypting zeros gives the keystream


def _system_key() -> bytes:
    return os.urandom(32)


class NoiseSource:
    """A stream of cryptographically secure random numbers.

    Parameters
    ----------
    seed : int or None
        None takes the key from the operating system. A nonnegative integer makes the stream repeatable, which is for
        experiments and tests only, because whoever knows the seed can subtract the noise.
    purpose : str
        What the noise is for. Sources with the same seed and different purposes are independent. Otherwise two
        mechanisms with the same seed would share their noise, and the difference of their results would reveal data.

    Notes
    -----
    Two processes never share a stream. After a fork an unseeded source takes a new key in the child, and a seeded one
    raises an error because it would repeat the noise of its parent. For the same reason sources cannot be pickled or
    copied.
    """

    def __init__(self, seed: int | None = None, purpose: str = "") -> None:
        self._seed = None if seed is None else whole("the seed (random_state)", seed)
        self._purpose = purpose
        self._start()
        _SOURCES.add(self)

    def _start(self) -> None:
        from randomgen import ChaCha

        if self._seed is None:
            key = _system_key()
        else:
            key = hashlib.sha256(f"privet noise key\x00{self._seed}\x00{self._purpose}".encode()).digest()
        self._process = os.getpid()
        self._is_forked = False
        self._generator = np.random.Generator(ChaCha(key=int.from_bytes(key, "little"), rounds=20))

    @property
    def is_seeded(self) -> bool:
        """Whether the stream is repeatable."""
        return self._seed is not None

    def assumption(self) -> Assumption:
        """Return the condition of a guarantee on the source of its randomness."""
        if self._seed is not None:
            return assumed(
                "the random seed stays secret, and is used for this run only: whoever knows it, or sees another run "
                "with the same seed on similar data, can subtract the noise"
            )
        return enforced("noise and sampling come from a ChaCha20 generator keyed by the operating system", detail=True)

    def gaussian(self, shape: int | tuple[int, ...], std: float, dtype: DTypeLike = np.float64) -> NDArray[Any]:
        """Return independent N(0, std^2) draws of the given shape, drawn in float64 and rounded to ``dtype``."""
        std = nonnegative("std", std)
        return self._normals(shape, std, _float_type(dtype, std))

    def _normals(self, shape: int | tuple[int, ...], std: float, kind: np.dtype[Any]) -> NDArray[Any]:
        """Return N(0, std^2) draws, for Gaussian noise and for the direction of K-norm noise."""
        result: NDArray[Any] = np.empty(shape, dtype=kind)
        flat = result.reshape(-1)
        generator = self._live()
        if flat.size < _MANY:
            np.multiply(generator.standard_normal(flat.size), std, out=flat, casting="same_kind")
        else:
            fill_normals(flat, std, _keystream(generator.bytes(32)))
        return result

    def k_norm(self, shape: int | tuple[int, ...], scale: float, dtype: DTypeLike = np.float64) -> NDArray[Any]:
        """Return one vector with density proportional to exp(-||z||_2 / scale), in the given shape.

        Formal guarantees
        -----------------
        Added to a value of l2 sensitivity D with scale = D/epsilon: pure epsilon-DP, for every epsilon > 0 (the K-norm
        mechanism of Hardt and Talwar, "On the Geometry of Differential Privacy", for the Euclidean ball). The radius is
        Gamma(d, scale), the direction uniform.
        """
        scale = positive("scale", scale)
        kind = _float_type(dtype, scale)
        direction = self._normals(shape, 1.0, np.dtype(np.float64))
        if direction.size == 0:
            return np.asarray(direction, dtype=kind)
        length = float(np.linalg.norm(direction))
        radius = float(self._live().gamma(direction.size, scale))
        return np.asarray(direction * (radius / length), dtype=kind)

    def lattice(self, size: int, law: LatticeLaw) -> NDArray[np.int64]:
        """Return independent integers distributed by ``law``, which parties can also draw jointly, bit by bit."""
        generator, step = self._live(), 1 << law.bits
        coarse = generator.binomial(law.coarse, 0.5, count("size", size)).astype(np.int64)
        fine = generator.integers(0, step, (law.fine, size), dtype=np.int64).sum(axis=0)
        drawn: NDArray[np.int64] = step * coarse + fine - law.reach
        return drawn

    def gumbel(self, size: int, scale: float) -> NDArray[np.float64]:
        """Return independent Gumbel draws. Scores plus Gumbel noise have the argmax of the exponential mechanism."""
        return self._live().gumbel(0.0, positive("scale", scale), count("size", size))

    def index(self, weights: NDArray[Any]) -> int:
        """Return an index drawn with probability proportional to its weight, for instance of a random stop."""
        weights = np.asarray(weights, dtype=np.float64)
        shares = np.cumsum(weights)
        if weights.ndim != 1 or not shares.size or weights.min() < 0 or not 0 < shares[-1] < np.inf:
            raise ValueError("weights must be a nonempty list of finite, nonnegative numbers that are not all 0")
        place = int(np.searchsorted(shares, self._live().random() * shares[-1], side="right"))
        return min(place, int(np.flatnonzero(weights)[-1]))  # rounding may carry the product up to the total

    def below(self, bound: int) -> int:
        """Return one of the integers 0, ..., bound - 1, all equally likely."""
        return int(self._live().integers(count("bound", bound)))

    def poisson_batch(self, n: int, rate: float) -> Indices:
        """Return the sorted indices of a batch that contains each of n units independently with probability ``rate``.

        The number of units is drawn from a binomial law, then a uniform set of that size. The law is the same, and the
        time is proportional to the batch rather than to n.
        """
        n, rate = count("n", n, at_least=0), probability("rate", rate)
        if n == 0:
            return np.empty(0, dtype=np.int64)
        return self._subset(n, int(self._live().binomial(n, rate)))

    def fixed_batch(self, n: int, size: int) -> Indices:
        """Return the sorted indices of a uniformly random set of ``size`` of n units, without replacement."""
        if count("size", size) > count("n", n):
            raise ValueError(f"a batch of size {size} cannot be drawn from n = {n} units without replacement")
        return self._subset(n, size)

    def permutation(self, n: int) -> Indices:
        """Return 0, ..., n - 1 in a uniformly random order."""
        return np.asarray(self._live().permutation(count("n", n)), dtype=np.int64)

    def _subset(self, n: int, size: int) -> Indices:
        chosen = self._live().choice(n, size=size, replace=False, shuffle=False)
        return np.sort(chosen).astype(np.int64, copy=False)

    def _live(self) -> np.random.Generator:
        """Return the generator, after making sure that no other process continues the same stream."""
        if os.getpid() != self._process or self._is_forked:
            if self.is_seeded:
                raise RuntimeError(
                    "a seeded NoiseSource was used in a forked process, where it would repeat the noise of its parent. "
                    "Create a source with another seed in the child process."
                )
            self._start()
        return self._generator

    def __reduce__(self) -> Any:
        raise TypeError(
            "a NoiseSource cannot be pickled or copied, because the copy would repeat its noise. Create a new one."
        )

    def __repr__(self) -> str:
        return f"NoiseSource({'seeded' if self.is_seeded else 'secure'})"


class OrderSource:
    """Uniformly random orders with little overhead, where privacy does not rest on them (a client's local order).

    Parameters
    ----------
    seed : int or None
        None takes a 256-bit key from the operating system. A nonnegative integer makes the orders repeatable.
    purpose : str
        What the orders are for. Orders with the same seed and different purposes are independent.

    Notes
    -----
    A :class:`NoiseSource` takes ten times as long to construct. The orders are secure as well: they sort the words that
    SHAKE-256 derives from the key (two of n words are equal with probability n^2 / 2^65). But the source is not a
    stream. It returns the same orders again, also in a copy or after a fork, which must never happen to noise.
    """

    def __init__(self, seed: int | None = None, purpose: str = "") -> None:
        secret = _system_key().hex() if seed is None else str(whole("the seed (random_state)", seed))
        self._key = f"privet orders\x00{secret}\x00{purpose}".encode()

    def orders(self, rows: int, n: int) -> Indices:
        """Return 0, ..., n - 1 in ``rows`` independent orders, one per row."""
        shape = count("rows", rows), count("n", n)
        words = hashlib.shake_256(self._key).digest(8 * rows * n)
        return np.frombuffer(words, dtype="<u8").reshape(shape).argsort(axis=1)


# Process ids can repeat, in containers and after an overflow, so forks are also recorded here.
_SOURCES: "weakref.WeakSet[NoiseSource]" = weakref.WeakSet()


def _mark_forked() -> None:
    for source in _SOURCES:
        source._is_forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_mark_forked)


def _keystream(key: bytes) -> Callable[[Words], None]:
    """Return a function that fills arrays with the ChaCha20 stream of a key, from the beginning of the stream.

    Each key is used for one draw. Its stream provides 256 GB before the block counter overflows.
    """
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

    stream = Cipher(algorithms.ChaCha20(key, nonce=bytes(16)), mode=None).encryptor()

    def fill(words: Words) -> None:
        stream.update_into(_ZEROS[: words.nbytes], words.view(np.uint8).data)

    return fill


def _float_type(dtype: DTypeLike, scale: float) -> np.dtype[Any]:
    kind = np.dtype(dtype)
    if kind not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise ValueError(f"noise must be float32 or float64, got {kind}")
    if kind == np.float32 and scale > 1e30:
        raise ValueError(f"noise of scale {scale:g} does not fit into float32: use float64")
    return kind
