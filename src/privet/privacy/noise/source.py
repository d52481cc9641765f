"""The only module that draws privacy noise, and the random samples on which a guarantee relies.

A :class:`NoiseSource` is a ChaCha20 stream (randomgen) keyed with 256 bits from the operating system. Numpy's and
torch's generators are not cryptographic: whoever sees enough of their output can predict the rest, and thus the noise.
Seeded sources exist for tests and repeatable experiments; the guarantee then says so.

Noise is drawn exactly and added on a grid: a release is the ideal real-valued release, rounded to a multiple of a
public step (:mod:`privet.privacy.noise.release`). No method returns noise by itself, except approximate draws for the
linear term of objective perturbation. The laws of samples are exact, too. All of this assumes that ChaCha20's output
cannot be distinguished from ideal random bits.
"""

import hashlib
import math
import os
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.checks import count, positive, probability, whole
from privet.privacy.guarantees.guarantee import Assumption, assumed, enforced
from privet.privacy.noise import choices, release, sampling, watch
from privet.privacy.noise.bits import Keystream
from privet.privacy.noise.law import Draws, NoiseLaw
from privet.privacy.noise.normals import ERROR, PIECE, Normals, NormalStream
from privet.privacy.noise.watch import Claim, Request, Tilted

Indices = NDArray[np.int64]

_FLOATS = (np.dtype(np.float64), np.dtype(np.float32))
_MOST_PREPARED = 1 << 22  # numbers that are drawn in advance, 16 bytes each


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
        self.purpose = purpose
        self._start()
        _SOURCES.add(self)

    def _start(self) -> None:
        from randomgen import ChaCha

        if self._seed is None:
            key = _system_key()
        else:
            key = hashlib.sha256(f"privet noise key\x00{self._seed}\x00{self.purpose}".encode()).digest()
        self._process = os.getpid()
        self._is_forked = False
        self._generator = np.random.Generator(ChaCha(key=int.from_bytes(key, "little"), rounds=20))
        self._bits: Keystream | None = None
        self._stream: NormalStream | None = None

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

    def add_gaussian(
        self,
        values: NDArray[Any],
        std: float,
        grid: float | None = None,
        prepared: Normals | None = None,
        claim: Claim | None = None,
    ) -> NDArray[Any]:
        """Return the values plus independent N(0, std^2) noise, rounded to multiples of a public step.

        Parameters
        ----------
        values : array of float32 or float64
            Finite numbers.
        std : float
            Standard deviation of the noise, above 0.
        grid : float or None
            Step of the grid, a power of two; None for :func:`~privet.privacy.noise.release.grid_step`.
        prepared : Normals or None
            The first draws, from :meth:`normals`, each of which may be used once.
        claim : Claim or None
            What the plan says about the values, for audits.

        Formal guarantees
        -----------------
        The result is round((values + N) / grid) * grid for an ideal real N, drawn exactly. For values of l2 sensitivity
        D it is therefore (D/std)-GDP, in all of its bits. A float32 result is rounded once more.
        """
        step = release.checked_grid(std, grid, "std")
        request = Request(self, "Gaussian noise", values, std, claim)
        return watch.release(request, lambda: self._rounded_gaussian(values, std, step, prepared))

    def without_noise(self, values: NDArray[Any], claim: Claim | None = None) -> NDArray[Any]:
        """Return a copy of the values, without noise and without privacy, for a plan whose noise multiplier is 0.

        Audits see it like any other release.
        """
        release.check_finite(_flat_pair(values)[0])
        return watch.release(Request(self, "no noise", values, 0.0, claim), values.copy)

    def _rounded_gaussian(
        self, values: NDArray[Any], std: float, step: float, prepared: Normals | None
    ) -> NDArray[Any]:
        flat, result = _flat_pair(values)
        stream, done = self._normals(), 0
        if prepared is not None and prepared.stream is stream:  # not after a fork, which starts a new stream
            done = len(prepared)
            if done > flat.size:
                raise ValueError(f"{done} draws were prepared for {flat.size} values. Prepare at most one per value.")
            release.add_gaussian(flat[:done], result[:done], prepared, std, step)
        for start in range(done, flat.size, PIECE):
            some = flat[start : start + PIECE]
            drawn = stream.take(some.size, std / step)
            release.add_gaussian(some, result[start : start + PIECE], drawn, std, step)
        return result.reshape(values.shape)

    def normals(self, size: int, std: float, grid: float | None = None) -> Normals:
        """Return the draws that :meth:`add_gaussian` needs for ``size`` numbers, or the first of them if they are many.

        They do not depend on the values, so they can be made while these are computed.
        """
        size = min(count("size", size, at_least=0), _MOST_PREPARED)
        return self._normals().take(size, std / release.checked_grid(std, grid, "std"))

    def add_k_norm(self, values: NDArray[Any], scale: float, claim: Claim | None = None) -> NDArray[Any]:
        """Return the values plus a vector with density proportional to exp(-||z||_2 / scale), rounded to a grid.

        Formal guarantees
        -----------------
        For values of l2 sensitivity D with scale = D/epsilon: pure epsilon-DP in all bits, for every epsilon > 0 (the
        K-norm mechanism of Hardt and Talwar, "On the Geometry of Differential Privacy", for the Euclidean ball). The
        vector is scale * ||G'|| * G with independent standard normal vectors G, of d entries, and G', of d + 1
        (docs/proofs.md, section 26), drawn exactly. The step of the grid depends on scale and d only.
        """
        scale = positive("scale", scale)
        request = Request(self, "K-norm noise", values, scale, claim)
        return watch.release(request, lambda: self._rounded_k_norm(values, scale))

    def _rounded_k_norm(self, values: NDArray[Any], scale: float) -> NDArray[Any]:
        flat, result = _flat_pair(values)
        step = release.grid_step(scale * math.sqrt(flat.size + 1))
        release.add_k_norm(flat, result, self._normals(), scale, release.checked_grid(scale, step))
        return result.reshape(values.shape)

    def real_gaussian(
        self, shape: tuple[int, ...], std: float, claim: Claim | None = None, objective: Tilted | None = None
    ) -> tuple[NDArray[np.float64], float]:
        """Return approximate N(0, std^2) draws, and a bound on their l2 distance to ideal draws.

        Adding them to private numbers would not be private. They are for the linear term of objective perturbation.
        ``claim`` says how far its sum of gradients can move; an audit by replay needs the ``objective`` as well.
        """
        request = Request(self, "Gaussian noise", None, std, claim, objective)
        return watch.tilt(request, lambda: self._real_gaussian(shape, std))

    def real_k_norm(
        self, shape: tuple[int, ...], scale: float, claim: Claim | None = None, objective: Tilted | None = None
    ) -> tuple[NDArray[np.float64], float]:
        """Return one approximate draw of K-norm noise, and a bound on its l2 distance to the ideal draw."""
        request = Request(self, "K-norm noise", None, scale, claim, objective)
        return watch.tilt(request, lambda: self._real_k_norm(shape, scale))

    def _real_gaussian(self, shape: tuple[int, ...], std: float) -> tuple[NDArray[np.float64], float]:
        drawn = self._normals().take(math.prod(shape)).spend_filled()
        error = ERROR * math.sqrt(drawn.size) + 2.0**-51 * float(np.linalg.norm(drawn))
        return drawn.reshape(shape) * positive("std", std), std * error

    def _real_k_norm(self, shape: tuple[int, ...], scale: float) -> tuple[NDArray[np.float64], float]:
        norm, norm_error = release.approximate_norm(self._normals().take(math.prod(shape) + 1).spend_filled())
        drawn, error = self._real_gaussian(shape, 1.0)
        longest = float(np.linalg.norm(drawn)) + error
        error = 2 * (norm_error * longest + error * norm + 2.0**-52 * norm * longest)
        return drawn * (positive("scale", scale) * norm), scale * error

    def lattice(self, size: int, law: NoiseLaw) -> NDArray[np.int64]:
        """Return integers distributed by ``law``, which parties can also draw jointly if the law has a recipe."""
        return law.draw(count("size", size), Draws(self._words(), self._live().integers, self._normals))

    def add_lattice(self, values: NDArray[np.int64], law: NoiseLaw, claim: Claim | None = None) -> NDArray[np.int64]:
        """Return integers plus noise that is distributed by ``law``, modulo 2^64."""
        request = Request(self, law.kind, values, law.std, claim)
        return watch.release(request, lambda: values + self.lattice(values.size, law))

    def top(self, scores: NDArray[Any], scale: float, number: int = 1, claim: Claim | None = None) -> Indices:
        """Return the sorted indices of the largest of scores plus ideal Gumbel noise: the exponential mechanism.

        See :func:`privet.privacy.noise.choices.race`.
        """
        request = Request(self, "choice", scores, scale, claim)
        return watch.release(request, lambda: choices.race(scores, scale, number, self._words()))

    def top_point(
        self, starts: Indices, scores: NDArray[Any], end: int, scale: float, claim: Claim | None = None
    ) -> int:
        """Return one of the integers from ``starts[0]`` to ``end - 1`` by the exponential mechanism.

        The integers from ``starts[i]`` up to the next start, or to the end, all have the score ``scores[i]``.
        """
        sizes = np.diff(starts, append=end)

        def draw() -> int:
            run = int(choices.race(scores, scale, 1, self._words(), sizes)[0])
            return int(starts[run]) + int(self._live().integers(sizes[run]))

        return watch.release(Request(self, "choice of a point", (starts, scores), scale, claim), draw)

    def index(self, weights: NDArray[Any]) -> int:
        """Return an index drawn with probability proportional to its weight, for instance of a random stop."""
        return watch.sample(self, "index", len(weights), lambda: sampling.weighted_index(weights, self._words()))

    def below(self, bound: int) -> int:
        """Return one of the integers 0, ..., bound - 1, all equally likely."""
        return watch.sample(self, "number", count("bound", bound), lambda: int(self._live().integers(bound)))

    def key(self) -> bytes:
        """Return a new key of 32 bytes, from which two processes can expand the same uniform numbers."""
        return self._live().bytes(32)

    @staticmethod
    def expanded(key: bytes, size: int) -> NDArray[np.uint64]:
        """Return ``size`` words of 64 bits that follow from a key, and look random to everyone who does not know it."""
        return Keystream(key).words(size)

    def uniform(self, shape: int | tuple[int, ...], bound: int) -> NDArray[np.uint64]:
        """Return independent integers from 0 to bound - 1, all equally likely, for instance to hide a secret."""
        drawn: NDArray[np.uint64] = self._live().integers(
            0, count("bound", bound, at_most=1 << 63), shape, dtype=np.uint64
        )
        return drawn

    def poisson_batch(self, n: int, rate: float) -> Indices:
        """Return the sorted indices of a batch that contains each of n units independently with probability ``rate``.

        The law is exact. If the batch is a small part of many units, the time is proportional to the batch.
        """
        n, rate = count("n", n, at_least=0), probability("rate", rate)
        return watch.sample(
            self, "Poisson batch", n, lambda: sampling.poisson_sample(n, rate, self._words(), self._subset)
        )

    def fixed_batch(self, n: int, size: int) -> Indices:
        """Return the sorted indices of a uniformly random set of ``size`` of n units, without replacement."""
        if count("size", size) > count("n", n):
            raise ValueError(f"a batch of size {size} cannot be drawn from n = {n} units without replacement")
        return watch.sample(self, "batch", n, lambda: self._subset(n, size))

    def permutation(self, n: int) -> Indices:
        """Return 0, ..., n - 1 in a uniformly random order."""
        return watch.sample(
            self, "order", count("n", n), lambda: np.asarray(self._live().permutation(n), dtype=np.int64)
        )

    def _subset(self, n: int, size: int) -> Indices:
        chosen = self._live().choice(n, size=size, replace=False, shuffle=False)
        return np.sort(chosen).astype(np.int64, copy=False)

    def _words(self) -> Callable[[int], NDArray[np.uint64]]:
        """Return a function that returns random words, from a keystream with a key of its own."""
        generator = self._live()
        if self._bits is None:
            self._bits = Keystream(generator.bytes(32))
        return self._bits.words

    def _normals(self) -> NormalStream:
        """Return the stream of normal numbers, which has a key of its own."""
        generator = self._live()
        if self._stream is None:
            self._stream = NormalStream(Keystream(generator.bytes(32)))
        return self._stream

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


# Process ids can repeat, in containers and after an overflow, so forks are also recorded here.
_SOURCES: "weakref.WeakSet[NoiseSource]" = weakref.WeakSet()


def _mark_forked() -> None:
    for source in _SOURCES:
        source._is_forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_mark_forked)


def _flat_pair(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the values as a flat array, and an empty array for the result."""
    if type(values) is not np.ndarray:
        raise ValueError(f"noise is added to plain numpy arrays, not to {type(values).__name__}")
    if values.dtype not in _FLOATS:
        raise ValueError(f"noise is added to numbers of type float32 or float64, not {values.dtype}")
    flat = values.reshape(-1)
    return flat, np.empty_like(flat)
