"""Exact noise against floating-point noise, in one run, as ratios.

The peer is what privet did before its noise was exact: normal floats, by numpy if there are few and by a vectorised
ziggurat if there are many, times the standard deviation, plus the values. It is not private in all bits, but fast. The
same generator of random bits serves both. Fits and steps are timed with one and the other. Times are medians of ratios
of interleaved rounds, so that a busy machine slows both alike.

    python benchmarks/noise.py [--json]
"""

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from privet import PrivateLogisticRegression
from privet.privacy import NoiseSource
from privet.privacy.noise.bits import CHUNK, Keystream
from privet.privacy.noise.ziggurat import CHOICE_BITS, SHARES, ziggurat

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "experiments"))

MANY = 1 << 13
ROUNDS = 41
SECONDS = 0.02  # of a round


def float_normals(result: np.ndarray, std: float, bits: Keystream) -> None:
    """Fill a flat array with normal floats, as privet did before."""
    table = ziggurat()
    size = min(CHUNK, result.size)
    words, shares, draws = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size)
    places, signs = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for start in range(0, result.size, CHUNK):
        piece = result[start : start + CHUNK]
        words, shares, draws = words[: piece.size], shares[: piece.size], draws[: piece.size]
        bits.fill(words)
        np.bitwise_and(words, SHARES - 1, out=shares)
        np.take(table.units, shares, out=draws, mode="clip")
        np.multiply(draws, words, out=draws)
        np.multiply(draws, std, out=piece, casting="same_kind")
        outside = np.flatnonzero(shares >= table.boxes)
        places.append(outside + start)
        signs.append(words[outside])
    left = np.concatenate(places)
    result[left] = std * np.copysign(float_outside(left.size, bits), np.concatenate(signs))


def float_outside(size: int, bits: Keystream) -> np.ndarray:
    """Return positive draws from outside the rectangles, by rejection in floats."""
    table, kept = ziggurat(), [np.empty(0)]
    while size > 0:
        trials = min(2 * size + 16, CHUNK)
        choice, place, level = (bits.words(trials) * 2.0**-64 for _ in range(3))
        box = np.searchsorted(table.choices * 2.0**-CHOICE_BITS, choice, side="right")
        inside = np.minimum(box, table.boxes - 1)
        tail = np.sqrt(table.edges[0] ** 2 - 2.0 * np.log1p(-place))
        x = np.where(box == table.boxes, tail, table.edges[inside + 1] + table.widths[inside] * place)
        is_under = table.tops[inside] + table.heights[inside] * level < np.exp(-0.5 * x * x)
        is_kept = np.where(box == table.boxes, level * x < table.reach, is_under) & (box <= table.boxes)
        kept.append(x[is_kept][:size])
        size -= kept[-1].size
    return np.concatenate(kept)


def float_release(self: NoiseSource, values: np.ndarray, std: float, *_: Any, prepared: Any = None) -> np.ndarray:
    """Return values plus normal floats."""
    noise = np.empty(values.shape, values.dtype) if prepared is None else prepared
    if prepared is None:
        fill_floats(self, noise.reshape(-1), std)
    noise += values
    return noise


def fill_floats(self: NoiseSource, flat: np.ndarray, std: float) -> None:
    generator = self._live()
    if flat.size < MANY:
        np.multiply(generator.standard_normal(flat.size), std, out=flat, casting="same_kind")
    else:
        float_normals(flat, std, Keystream(generator.bytes(32)))


def prepared_floats(self: NoiseSource, size: int, std: float, grid: float | None = None) -> np.ndarray:
    noise = np.empty(size, np.float32)
    fill_floats(self, noise, std)
    return noise


@contextmanager
def float_noise() -> Iterator[None]:
    """Let every Gaussian release use floating-point noise."""
    exact = NoiseSource.add_gaussian, NoiseSource.normals

    def release(self: NoiseSource, values: Any, std: float, grid: Any = None, prepared: Any = None) -> Any:
        return float_release(self, values, std, prepared=prepared)

    NoiseSource.add_gaussian, NoiseSource.normals = release, prepared_floats  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        NoiseSource.add_gaussian, NoiseSource.normals = exact  # type: ignore[method-assign]


def seconds(call: Callable[[], Any], loops: int) -> float:
    start = time.perf_counter()
    for _ in range(loops):
        call()
    return (time.perf_counter() - start) / loops


def race(call: Callable[[], Any], rounds: int = ROUNDS) -> tuple[float, float, float]:
    """Return the ratio of exact to float time, as the median over interleaved rounds, and both shortest times."""
    loops = max(1, int(SECONDS / seconds(call, 3)))
    exact, floats = [], []
    for _ in range(rounds):
        exact.append(seconds(call, loops))
        with float_noise():
            floats.append(seconds(call, loops))
    ratio = statistics.median(one / other for one, other in zip(exact, floats, strict=True))
    return ratio, min(exact), min(floats)


def release_of(size: int, dtype: Any) -> Callable[[], Any]:
    source, values = NoiseSource(), np.random.default_rng(0).normal(size=size).astype(dtype)
    return lambda: source.add_gaussian(values, 1.5)


def linear_fit(n: int, d: int) -> Callable[[], Any]:
    generator = np.random.default_rng(0)
    X = generator.normal(size=(n, d)) / np.sqrt(d)
    y = X[:, 0] > 0
    return lambda: PrivateLogisticRegression(1.0, 1e-6).fit(X, y)


def network_step(batch: int, *sizes: int) -> Callable[[], Any]:
    import torch
    from torch import nn
    from torch.utils.data import TensorDataset

    from privet.deep import make_private

    torch.manual_seed(0)
    layers = [layer for pair in itertools.pairwise(sizes) for layer in (nn.Linear(*pair), nn.ReLU())]
    model = nn.Sequential(*layers[:-1])
    data = TensorDataset(torch.randn(60_000, sizes[0]), torch.randint(sizes[-1], (60_000,)))
    private = make_private(
        model,
        torch.optim.SGD(model.parameters(), lr=0.01),
        data,
        loss=nn.CrossEntropyLoss(),
        budget=(8.0, 1e-6),
        epochs=100,
        batch_size=batch,
        clip_norm=1.0,
    )
    batches = iter(private.batches())
    return lambda: private.step(*next(batches))


CASES: dict[str, tuple[Callable[[], Callable[[], Any]], float]] = {
    "release of 10^6 float64 numbers": (lambda: release_of(10**6, np.float64), 1 / 0.7),
    "release of 10^6 float32 numbers": (lambda: release_of(10**6, np.float32), 1 / 0.7),
    "release of 100 numbers": (lambda: release_of(100, np.float64), 2.0),
    "logistic regression, 32,000 x 123": (lambda: linear_fit(32_000, 123), 1.03),
    "MLP 784-512-512-10, batch 256": (lambda: network_step(256, 784, 512, 512, 10), 1.10),
    "MLP 784-512-512-10, batch 2048": (lambda: network_step(2048, 784, 512, 512, 10), 1.03),
}


def main() -> None:
    """Time all cases and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="write docs/results/noise_benchmark.json")
    options = parser.parse_args()
    results = {}
    print(f"{'':40} {'exact/float':>12} {'at most':>8} {'exact':>10} {'float':>10}")
    for name, (make, limit) in CASES.items():
        ratio, exact, floats = race(make(), ROUNDS if "release" in name else 15)
        results[name] = {"ratio": ratio, "at_most": limit, "exact_seconds": exact, "float_seconds": floats}
        print(f"{name:40} {ratio:12.3f} {limit:8.2f} {exact * 1e6:8.1f}us {floats * 1e6:8.1f}us", flush=True)
    if options.json:
        from support import write_results

        write_results("noise_benchmark", results)


if __name__ == "__main__":
    main()
