import copy
import itertools
import math
import multiprocessing
import os
import pickle
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import stats

from privet.privacy import NoiseSource
from privet.privacy.noise import bits

# A correct sampler fails one such test in a million, and the wrong scales that must be rejected fail it clearly.
CHANCE = 1e-6
SEEDS = [7, None]
seeded_or_not = pytest.mark.parametrize("seed", SEEDS, ids=["seeded", "secure"])


def accepts(draws, distribution):
    return stats.kstest(np.asarray(draws, dtype=np.float64).ravel(), distribution.cdf).pvalue > CHANCE


def gaussian(source, shape, std, dtype=np.float64):
    return source.add_gaussian(np.zeros(shape, dtype), std)


def k_norm(source, shape, scale, dtype=np.float64):
    return source.add_k_norm(np.zeros(shape, dtype), scale)


def assert_only_this_scale(draws, scaled):
    """Assert that the draws fit the right scale, but neither 2/3 nor 3/2 of it."""
    assert accepts(draws, scaled(1.0))
    assert not accepts(draws, scaled(2 / 3))
    assert not accepts(draws, scaled(3 / 2))


def assert_frequencies(counts, probabilities):
    expected = np.asarray(probabilities) * np.sum(counts)
    assert stats.chisquare(counts, expected).pvalue > CHANCE


# --- Gaussian -----------------------------------------------------------------------------------------------------


@seeded_or_not
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("std", [1e-3, 1.0, 250.0])
def test_gaussian_has_its_scale_and_no_other(seed, dtype, std):
    draws = gaussian(NoiseSource(seed), (200, 100), std, dtype)
    assert draws.dtype == dtype
    assert draws.shape == (200, 100)
    assert_only_this_scale(draws, lambda factor: stats.norm(scale=std * factor))


@seeded_or_not
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gaussian_coordinates_are_independent(seed, dtype):
    draws = gaussian(NoiseSource(seed), (20_000, 4), 1.0, dtype).astype(np.float64)
    deviations = np.corrcoef(draws, rowvar=False)[np.triu_indices(4, 1)] * math.sqrt(20_000)
    lagged = np.corrcoef(draws[:-1, 0], draws[1:, 0])[0, 1] * math.sqrt(20_000)
    assert np.all(np.abs([*deviations, lagged]) < 6)


MANY = 1 << 20  # far more than are drawn from a pool


@seeded_or_not
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_many_draws_have_the_same_law(seed, dtype):
    std = 0.7
    draws = gaussian(NoiseSource(seed), (MANY // 8, 8), std, dtype).astype(np.float64) / std
    assert draws.shape == (MANY // 8, 8)
    assert_only_this_scale(draws, lambda factor: stats.norm(scale=factor))
    assert abs(draws.var() - 1) * math.sqrt(MANY / 2) < 6
    flat = draws.ravel()
    for values in (flat, flat**2):
        assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) * math.sqrt(MANY) < 6


@pytest.mark.parametrize("size", [1, 1023, 1024, 1025, (1 << 15) - 1, 1 << 15, (1 << 15) + 1, (1 << 18) + 5])
def test_a_seed_repeats_draws_of_any_size_and_float32_is_rounded(size):
    drawn = gaussian(NoiseSource(6), size, 0.3)
    np.testing.assert_array_equal(gaussian(NoiseSource(6), size, 0.3), drawn)
    np.testing.assert_array_equal(gaussian(NoiseSource(6), (1, size), 0.3, np.float32)[0], drawn.astype(np.float32))
    source = NoiseSource(6)
    first, second = gaussian(source, size, 0.3), gaussian(source, size, 0.3)
    np.testing.assert_array_equal(first, drawn)
    assert np.mean(first == second) < 1e-3


def test_large_float32_noise_does_not_repeat_from_piece_to_piece():
    draws = gaussian(NoiseSource(3), (1 << 19) + 17, 1.0, np.float32)
    pieces = draws[: 1 << 18], draws[1 << 18 : 1 << 19]
    assert not np.array_equal(*pieces)
    assert abs(np.corrcoef(*pieces)[0, 1]) < 6 / math.sqrt(1 << 18)
    assert accepts(draws[-50_000:], stats.norm())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gaussian_tails_are_not_cut(dtype):
    draws = np.abs(gaussian(NoiseSource(11), 8_000_000, 1.0, dtype))
    for tail in (3.0, 4.0, 5.0):
        count = int(np.sum(draws > tail))
        assert stats.binomtest(count, draws.size, 2 * stats.norm.sf(tail)).pvalue > CHANCE


def test_empty_shapes_are_empty_and_a_number_is_a_number():
    assert gaussian(NoiseSource(), (0, 5), 1.0).shape == (0, 5)
    assert gaussian(NoiseSource(), (), 1.0).shape == ()


# --- whole numbers ------------------------------------------------------------------------------------------------


@seeded_or_not
@pytest.mark.parametrize("bound", [1, 2, 7])
def test_whole_numbers_below_a_bound_are_equally_likely(seed, bound):
    source = NoiseSource(seed)
    counts = np.bincount([source.below(bound) for _ in range(7000)], minlength=bound)
    assert counts.size == bound
    if bound > 1:
        assert_frequencies(counts, np.full(bound, 1 / bound))


def test_large_whole_numbers_are_drawn():
    source = NoiseSource(1)
    drawn = np.array([source.below(10**15) for _ in range(1000)])
    assert drawn.min() >= 0
    assert 10**14 * 9 < drawn.max() < 10**15
    assert accepts(drawn / 1e15, stats.uniform())


# --- the l2 K-norm ------------------------------------------------------------------------------------------------


@seeded_or_not
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [1, 2, 5, 100])
def test_k_norm_radius_is_gamma_with_its_scale_and_no_other(seed, dtype, d):
    source, scale = NoiseSource(seed), 0.4
    draws = np.array([k_norm(source, d, scale, dtype) for _ in range(3000)])
    assert draws.dtype == dtype
    radii = np.linalg.norm(draws.astype(np.float64), axis=1)
    assert_only_this_scale(radii, lambda factor: stats.gamma(d, scale=scale * factor))


@seeded_or_not
@pytest.mark.parametrize("d", [1, 2, 5, 100])
def test_k_norm_direction_is_uniform_and_independent_of_the_radius(seed, d):
    source = NoiseSource(seed)
    draws = np.array([k_norm(source, d, 1.0) for _ in range(4000)])
    radii = np.linalg.norm(draws, axis=1)
    directions = draws / radii[:, None]
    if d == 1:
        assert_frequencies([np.sum(draws > 0), np.sum(draws < 0)], [0.5, 0.5])
    else:
        # A coordinate of a uniform direction, squared, is Beta(1/2, (d-1)/2); so is that along the diagonal.
        for along in (directions[:, 0], directions[:, -1], directions @ np.ones(d) / math.sqrt(d)):
            assert accepts(along**2, stats.beta(0.5, (d - 1) / 2))
            assert_frequencies([np.sum(along > 0), np.sum(along < 0)], [0.5, 0.5])
    assert abs(stats.spearmanr(radii, directions[:, 0]).statistic) * math.sqrt(4000) < 6


def test_k_norm_in_one_dimension_is_laplace():
    source = NoiseSource(5)
    draws = [k_norm(source, 1, 2.0)[0] for _ in range(5000)]
    assert_only_this_scale(draws, lambda factor: stats.laplace(scale=2 * factor))


def test_k_norm_counts_every_coordinate_of_its_shape():
    source = NoiseSource(9)
    radii = [np.linalg.norm(k_norm(source, (4, 5), 1.0)) for _ in range(2000)]
    assert_only_this_scale(radii, lambda factor: stats.gamma(20, scale=factor))
    assert k_norm(source, (0, 3), 1.0).shape == (0, 3)


# --- the exponential mechanism, and a random place -----------------------------------------------------------------


@seeded_or_not
def test_the_exponential_mechanism_chooses_by_its_weights(seed):
    source, scores, scale = NoiseSource(seed), np.array([0.0, 1.0, -2.0, 0.5]), 0.8
    chosen = [int(source.top(scores, scale)[0]) for _ in range(3000)]
    weights = np.exp(scores / scale)
    assert_frequencies(np.bincount(chosen, minlength=4), weights / weights.sum())


@seeded_or_not
@pytest.mark.parametrize("weights", [[1, 1, 1, 1], [0.1, 2.0, 0.7], [1e-200, 3e-200], [1e200, 3e200, 2e200], [5.0]])
def test_an_index_is_drawn_in_proportion_to_its_weight(seed, weights):
    source = NoiseSource(seed)
    places = [source.index(np.array(weights)) for _ in range(4000)]
    assert isinstance(places[0], int)
    counts = np.bincount(places, minlength=len(weights))
    assert counts.size == len(weights)
    if len(weights) > 1:
        shares = np.array(weights) / max(weights)
        assert_frequencies(counts, shares / shares.sum())


def test_an_index_without_weight_is_never_drawn():
    source = NoiseSource(3)
    weights = np.array([0.0, 1.0, 0.0, 0.0, 2.0, 0.0])
    assert {source.index(weights) for _ in range(2000)} == {1, 4}


@pytest.mark.parametrize(
    "weights", [[], [0.0, 0.0], [1.0, -1e-9], [-1.0, 3.0], [1.0, math.nan], [1.0, math.inf], [1e308, 1e308]], ids=str
)
def test_impossible_weights_are_refused(weights):
    with (
        pytest.raises(ValueError, match="weights must be a nonempty list"),
        np.errstate(over="ignore"),
    ):
        NoiseSource().index(np.array(weights))


# --- batches ------------------------------------------------------------------------------------------------------


@seeded_or_not
@pytest.mark.parametrize(("n", "rate"), [(12, 0.3), (40, 0.05), (30_000, 0.001)])
def test_poisson_batches_are_sorted_sets_of_binomial_size(seed, n, rate):
    source = NoiseSource(seed)
    batches = [source.poisson_batch(n, rate) for _ in range(4000)]
    for batch in batches[:200]:
        assert batch.dtype == np.int64
        assert np.all(np.diff(batch) > 0)
        assert batch.size == 0 or (batch[0] >= 0 and batch[-1] < n)
    sizes = np.array([batch.size for batch in batches])
    law = stats.binom(n, rate)
    low, high = int(law.ppf(0.01)), int(law.ppf(0.99))
    counts = [np.sum(sizes <= low), *(np.sum(sizes == k) for k in range(low + 1, high)), np.sum(sizes >= high)]
    assert_frequencies(counts, [law.cdf(low), *law.pmf(range(low + 1, high)), law.sf(high - 1)])


@seeded_or_not
def test_poisson_takes_each_unit_at_its_rate_and_each_pair_independently(seed):
    source, n, rate, rounds = NoiseSource(seed), 8, 0.3, 8000
    taken = np.zeros((rounds, n))
    for row in taken:
        row[source.poisson_batch(n, rate)] = 1
    deviation = math.sqrt(rate * (1 - rate) / rounds)
    assert np.all(np.abs(taken.mean(axis=0) - rate) < 6 * deviation)
    correlations = np.corrcoef(taken, rowvar=False)[np.triu_indices(n, 1)]
    assert np.all(np.abs(correlations) * math.sqrt(rounds) < 6)
    # A rate of 2/3 or 3/2 of this one would be seen.
    assert 6 * deviation < rate / 3


def test_poisson_over_a_large_table_reaches_all_of_it():
    source, n = NoiseSource(2), 50_000
    indices = np.concatenate([source.poisson_batch(n, 0.001) for _ in range(400)])
    assert accepts((indices + 0.5) / n, stats.uniform())


@seeded_or_not
@pytest.mark.parametrize(("n", "size"), [(5, 2), (5, 4), (6, 1), (4, 3)])
def test_fixed_batches_are_uniform_over_all_subsets(seed, n, size):
    source = NoiseSource(seed)
    subsets = list(itertools.combinations(range(n), size))
    counts = dict.fromkeys(subsets, 0)
    for _ in range(3000):
        counts[tuple(source.fixed_batch(n, size).tolist())] += 1
    assert_frequencies(list(counts.values()), [1 / len(subsets)] * len(subsets))


@pytest.mark.parametrize(("n", "size"), [(20_000, 3), (20_000, 19_990), (10**9, 5)])
def test_fixed_batches_of_large_tables_are_uniform_too(n, size):
    source = NoiseSource(4)
    batches = [source.fixed_batch(n, size) for _ in range(600)]
    assert all(np.all(np.diff(batch) > 0) and batch.size == size for batch in batches)
    if size < 10:
        assert accepts((np.concatenate(batches) + 0.5) / n, stats.uniform())
    else:
        left_out = np.concatenate([np.delete(np.arange(n), batch) for batch in batches])
        assert accepts((left_out + 0.5) / n, stats.uniform())


def test_an_empty_table_gives_an_empty_batch_and_rate_one_gives_all_units():
    source = NoiseSource()
    assert source.poisson_batch(0, 0.5).size == 0
    np.testing.assert_array_equal(source.poisson_batch(50, 1), np.arange(50))
    np.testing.assert_array_equal(source.fixed_batch(50, 50), np.arange(50))


@pytest.mark.parametrize(("n", "rate"), [(0, 0.5), (0, 1.0), (5, 1e-300), (20_000, 1e-300), (5, 1.0)])
def test_the_indices_of_an_empty_batch_have_the_type_of_all_others(n, rate):
    """An empty array of floats would not be an index."""
    batch = NoiseSource().poisson_batch(n, rate)
    assert batch.dtype == np.int64
    assert batch.size == (n if rate == 1.0 else 0)
    assert np.ones((n, 2))[batch].shape == (batch.size, 2)


# --- the stream: secure, and never shared -------------------------------------------------------------------------


def fingerprint(source):
    return gaussian(source, 8, 1.0).tobytes()


def large_fingerprint(source):
    return gaussian(source, 10_000, 1.0)[:8].tobytes()


either_size = pytest.mark.parametrize("fingerprint", [fingerprint, large_fingerprint], ids=["small", "large"])


def chacha20_block(key, counter):
    """Return one 64-byte block of ChaCha20 as published by Bernstein (64-bit counter, zero nonce)."""

    def rotate(x, by):
        return ((x << by) | (x >> (32 - by))) & 0xFFFFFFFF

    def quarter(s, a, b, c, d):
        for one, two, other, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            s[one] = (s[one] + s[two]) & 0xFFFFFFFF
            s[other] = rotate(s[other] ^ s[one], by)

    start = [*struct.unpack("<4I", b"expand 32-byte k"), *struct.unpack("<8I", key), counter, 0, 0, 0]
    state = list(start)
    for _ in range(10):
        for column in range(4):
            quarter(state, column, column + 4, column + 8, column + 12)
        for diagonal in range(4):
            quarter(state, diagonal, 4 + (diagonal + 1) % 4, 8 + (diagonal + 2) % 4, 12 + (diagonal + 3) % 4)
    return struct.pack("<16I", *((x + y) & 0xFFFFFFFF for x, y in zip(state, start, strict=True)))


@pytest.mark.system_noise
def test_the_stream_is_chacha20_under_all_256_bits_of_the_systems_key(monkeypatch):
    key = bytes(range(100, 132))
    monkeypatch.setattr(os, "urandom", lambda size: key[:size])
    generator = NoiseSource()._generator.bit_generator
    drawn = np.asarray(generator.random_raw(16), dtype="<u8").tobytes()
    assert drawn == chacha20_block(key, 0) + chacha20_block(key, 1)


@pytest.mark.system_noise
def test_normal_draws_use_chacha20_under_all_256_bits_of_a_key_from_the_stream(monkeypatch):
    key = bytes(range(50, 82))
    monkeypatch.setattr(os, "urandom", lambda size: key[:size])
    words = NoiseSource()._normals()._bits.words
    inner = chacha20_block(key, 0)[:32]
    assert words(16).astype("<u8").tobytes() == chacha20_block(inner, 0) + chacha20_block(inner, 1)
    assert words(16).astype("<u8").tobytes() == chacha20_block(inner, 2) + chacha20_block(inner, 3)  # and goes on


def test_a_key_is_replaced_by_bits_of_its_own_stream(monkeypatch):
    key = bytes(range(32))
    monkeypatch.setattr(bits, "_PER_KEY", 16)
    stream = bits.Keystream(key)
    assert stream.words(16).astype("<u8").tobytes() == chacha20_block(key, 0) + chacha20_block(key, 1)
    assert stream.words(8).astype("<u8").tobytes() == chacha20_block(chacha20_block(key, 2)[:32], 0)


@either_size
def test_seeds_repeat_and_differ(fingerprint):
    prints = {seed: fingerprint(NoiseSource(seed)) for seed in [0, 1, 2, 2**32, 2**64, 2**64 + 1, 2**1000, 10**400]}
    assert len(set(prints.values())) == len(prints)
    assert all(fingerprint(NoiseSource(seed)) == value for seed, value in prints.items())
    assert fingerprint(NoiseSource(np.int64(2))) == prints[2]


def test_a_seed_repeats_every_kind_of_draw():
    def draws(source):
        return [
            gaussian(source, 3, 1.0, np.float32).tolist(),
            k_norm(source, 3, 1.0).tolist(),
            source.top(np.arange(30.0), 9.0, 4).tolist(),
            source.index(np.ones(1000)),
            source.poisson_batch(100, 0.2).tolist(),
            source.fixed_batch(100, 5).tolist(),
        ]

    assert draws(NoiseSource(42)) == draws(NoiseSource(42))
    assert draws(NoiseSource()) != draws(NoiseSource())


@either_size
def test_purposes_differ(fingerprint):
    prints = [fingerprint(NoiseSource(seed, purpose)) for seed in (1, 12) for purpose in ("", "a", "2a", "b")]
    assert len(set(prints)) == len(prints)


@either_size
@pytest.mark.system_noise
def test_sources_of_one_process_differ(fingerprint):
    assert len({fingerprint(NoiseSource()) for _ in range(200)}) == 200


@pytest.mark.system_noise
def test_processes_differ():
    code = "from privet.privacy import NoiseSource; print(NoiseSource().below(10**15))"
    running = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert len({process.communicate(timeout=60)[0] for process in running}) == 3


def in_fork(action):
    """Run ``action`` in a real fork of this process and return its result as bytes."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, action())
        except BaseException as error:
            os.write(writing, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        result = pipe.read()
    os.waitpid(child, 0)
    return result


@either_size
@pytest.mark.system_noise
def test_forks_of_a_secure_source_draw_different_noise(fingerprint):
    source = NoiseSource()
    fingerprint(source)
    prints = [in_fork(lambda: fingerprint(source)) for _ in range(3)]
    prints += [in_fork(lambda: in_fork(lambda: fingerprint(source))), fingerprint(source)]
    assert all(len(value) == 64 for value in prints)
    assert len(set(prints)) == len(prints)


@pytest.mark.system_noise
def test_a_fork_with_the_process_id_of_its_parent_draws_other_noise():
    """Process ids repeat in containers, so the id alone does not tell a fork from its parent."""
    source = NoiseSource()
    source.below(10)

    def draw_as_parent():
        source._process = os.getpid()
        return str(source.below(10**15)).encode()

    assert in_fork(draw_as_parent) != str(source.below(10**15)).encode()


DRAWS = {
    "gaussian": lambda source: gaussian(source, 2, 1.0).tobytes(),
    "many gaussian": lambda source: gaussian(source, 10_000, 1.0)[:2].tobytes(),
    "k_norm": lambda source: k_norm(source, 2, 1.0).tobytes(),
    "top": lambda source: source.top(np.arange(9.0), 9.0, 4).tobytes(),
    "real gaussian": lambda source: source.real_gaussian((2,), 1.0)[0].tobytes(),
    "real k_norm": lambda source: source.real_k_norm((2,), 1.0)[0].tobytes(),
    "index": lambda source: bytes([source.index(np.ones(99))]),
    "poisson": lambda source: source.poisson_batch(99, 0.5).tobytes(),
    "fixed": lambda source: source.fixed_batch(99, 5).tobytes(),
}


@pytest.mark.parametrize("kind", DRAWS)
def test_a_fork_of_a_seeded_source_refuses_every_draw(kind):
    source = NoiseSource(1)
    assert b"RuntimeError" in in_fork(lambda: DRAWS[kind](source))
    assert b"another seed" in in_fork(lambda: DRAWS[kind](source))
    DRAWS[kind](source)  # the parent goes on


SHARED = NoiseSource()


def shared_fingerprint(_):
    return os.getpid(), fingerprint(SHARED)


@pytest.mark.system_noise
def test_workers_of_a_fork_pool_never_draw_the_same():
    with multiprocessing.get_context("fork").Pool(3) as pool:
        drawn = pool.map(shared_fingerprint, range(30), chunksize=1)
    prints = [value for _, value in drawn] + [fingerprint(SHARED)]
    assert len(set(prints)) == len(prints)


@pytest.mark.parametrize("size", [2000, 40_000])
def test_threads_sharing_a_source_never_repeat_numbers(size):
    source = NoiseSource(3)
    with ThreadPoolExecutor(8) as pool:
        drawn = list(pool.map(lambda _: gaussian(source, size, 1.0), range(40)))
    prints = {numbers.tobytes() for numbers in drawn}
    assert len(prints) == len(drawn)
    overlaps = [np.mean(one == other) for one, other in itertools.pairwise(drawn)]
    assert max(overlaps) < 1e-2


@seeded_or_not
@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy], ids=lambda f: f.__name__)
def test_a_source_cannot_be_duplicated(seed, duplicate):
    with pytest.raises(TypeError, match="would repeat its noise"):
        duplicate(NoiseSource(seed))


def test_the_guarantee_states_its_source_of_randomness():
    assert NoiseSource().assumption().is_enforced
    assert "ChaCha20" in NoiseSource().assumption().text
    assert not NoiseSource(1).assumption().is_enforced
    assert "seed" in NoiseSource(1).assumption().text


def test_the_seed_is_not_printed():
    assert "8675309" not in repr(NoiseSource(8675309))


# --- bad input ----------------------------------------------------------------------------------------------------

NOT_POSITIVE = [0, -1, math.nan, math.inf, True, "1", None]
NOT_COUNTS = [0, -1, 1.5, math.nan, True, "3", None]


@pytest.mark.parametrize(
    ("name", "call", "values"),
    [
        ("the seed", NoiseSource, [-1, 1.5, math.nan, True, "3"]),
        ("std", lambda v: gaussian(NoiseSource(), 3, v), NOT_POSITIVE),
        ("scale", lambda v: k_norm(NoiseSource(), 3, v), NOT_POSITIVE),
        ("scale", lambda v: NoiseSource().top(np.zeros(3), v), NOT_POSITIVE),
        ("number", lambda v: NoiseSource().top(np.zeros(3), 1.0, v), NOT_COUNTS),
        ("bound", lambda v: NoiseSource().below(v), NOT_COUNTS),
        ("n", lambda v: NoiseSource().poisson_batch(v, 0.5), [-1, 1.5, math.nan, True, "3", None]),
        ("rate", lambda v: NoiseSource().poisson_batch(10, v), [*NOT_POSITIVE, 1.01]),
        ("n", lambda v: NoiseSource().fixed_batch(v, 1), NOT_COUNTS),
        ("size", lambda v: NoiseSource().fixed_batch(10, v), NOT_COUNTS),
    ],
)
def test_bad_numbers_are_named(name, call, values):
    for value in values:
        with pytest.raises(ValueError, match=rf"^{name}[^\n]* must [^\n]*$"):
            call(value)


def test_a_batch_larger_than_the_data_is_refused():
    with pytest.raises(ValueError, match="size 11 cannot be drawn from n = 10"):
        NoiseSource().fixed_batch(10, 11)


@pytest.mark.parametrize("dtype", [np.float16, np.int64, complex, object])
@pytest.mark.parametrize("add", [gaussian, k_norm])
def test_other_types_are_refused(add, dtype):
    with pytest.raises(ValueError, match="noise is added to numbers of type float32 or float64"):
        add(NoiseSource(), 3, 1.0, dtype)


@pytest.mark.parametrize("add", [gaussian, k_norm])
@pytest.mark.parametrize("scale", [1e-291, 1e291])
def test_a_scale_out_of_range_is_refused(add, scale):
    with pytest.raises(ValueError, match="cannot be drawn exactly"):
        add(NoiseSource(1), 10, scale)
