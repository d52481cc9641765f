import math
import warnings

import numpy as np
import pytest
import torch

from privet.denoise import cycle, laplacian_smoothing
from privet.denoise.blocks import numpy_product, smooth_in_blocks, torch_product
from privet.denoise.spectrum import decay_rate

PRODUCTS = [numpy_product, torch_product]
TOLERANCE = {np.float32: 6e-7, np.float64: 2e-15}  # of the largest entry: a few roundings
BLOCK = {np.float32: 16, np.float64: 24}

both_products = pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.__name__)
both_kinds = pytest.mark.parametrize("kind", [np.float32, np.float64], ids=["single", "double"])


def vector(d, kind=np.float64, seed=0):
    return np.random.default_rng(seed).standard_normal(d).astype(kind)


def by_fft(v, sigma):
    d = len(v)
    eigenvalues = 1 + 2 * sigma * (1 - np.cos(2 * np.pi * np.arange(d // 2 + 1) / d))
    return np.fft.irfft(np.fft.rfft(v.astype(np.float64)) / eigenvalues, d)


def response(d, place, sigma):
    """Return what a one in some place becomes, in closed form."""
    rate = decay_rate(sigma)
    distance = np.abs(np.arange(d) - place)
    around = np.exp(-rate * distance) + np.exp(-rate * (d - distance))
    return math.tanh(0.5 * rate) * around / -math.expm1(-d * rate)


@both_products
@both_kinds
@pytest.mark.parametrize("sigma", [1e-12, 0.1, 1.0, 3.0, 10.0, 100.0])
@pytest.mark.parametrize("extra", [0, 1, 7, 15, 16, 23])
def test_blocks_equal_the_fft_form_for_any_length_of_the_last_block(product, kind, sigma, extra):
    v = vector(48 * 20 + extra, kind)
    out = smooth_in_blocks(v, sigma, product)
    assert out.dtype == kind
    assert np.abs(out - by_fft(v, sigma)).max() <= TOLERANCE[kind] * np.abs(v).max()


@both_products
@both_kinds
@pytest.mark.parametrize("d", [8192, 100_003, 401_408])
@pytest.mark.parametrize("sigma", [0.1, 1.0, 10.0, 1e4])
def test_blocks_equal_the_tridiagonal_solver_on_long_vectors(product, kind, d, sigma):
    v = vector(d, kind)
    out = smooth_in_blocks(v, sigma, product)
    expected = cycle.smooth_on_path(v.astype(np.float64), sigma)
    assert np.abs(out - expected).max() <= TOLERANCE[kind] * np.abs(v).max()


@both_products
@both_kinds
@pytest.mark.parametrize("sigma", [0.3, 2.0, 30.0])
@pytest.mark.parametrize("extra", [0, 1, 5])
def test_a_unit_vector_becomes_the_kernel_and_wraps_around_both_ends(product, kind, sigma, extra):
    size = BLOCK[kind]
    d = 40 * size + extra
    for place in [0, 1, size - 1, size, size + 1, 20 * size, d - size, d - 2, d - 1]:
        one = np.zeros(d, kind)
        one[place] = 1
        out = smooth_in_blocks(one, sigma, product)
        np.testing.assert_allclose(out, response(d, place, sigma), rtol=0, atol=TOLERANCE[kind])


@both_products
@both_kinds
def test_smoothing_in_blocks_is_symmetric_and_keeps_constants_and_means(product, kind):
    d, sigma, tolerance = 10_007, 3.0, TOLERANCE[kind]
    u, v = vector(d, kind, 1), vector(d, kind, 2)
    su, sv = smooth_in_blocks(u, sigma, product), smooth_in_blocks(v, sigma, product)
    assert np.dot(su.astype(float), v) == pytest.approx(np.dot(u.astype(float), sv), abs=tolerance * d)
    assert su.mean(dtype=float) == pytest.approx(u.mean(dtype=float), abs=tolerance)
    np.testing.assert_allclose(smooth_in_blocks(np.full(d, 2.5, kind), sigma, product), 2.5, rtol=tolerance)
    np.testing.assert_allclose(smooth_in_blocks(u[::-1].copy(), sigma, product), su[::-1], rtol=0, atol=4 * tolerance)
    rolled = smooth_in_blocks(np.roll(u, 4321), sigma, product)
    np.testing.assert_allclose(rolled, np.roll(su, 4321), rtol=0, atol=4 * tolerance)


@both_products
@both_kinds
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 5000, 9999, 10_000])
def test_a_non_finite_entry_makes_all_entries_non_finite_without_a_warning(product, kind, bad, place):
    v = vector(10_001, kind)
    v[place] = bad
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not np.isfinite(smooth_in_blocks(v, 1.0, product)).any()


@both_products
@both_kinds
def test_large_and_small_numbers_stay_in_range(product, kind):
    v = vector(10_000, kind)
    v /= np.abs(v).max()
    smoothed = smooth_in_blocks(v, 1.0, product)
    for power in (np.finfo(kind).maxexp - 1, np.finfo(kind).minexp + 40):
        scaled = smooth_in_blocks(np.ldexp(v, power), 1.0, product)
        np.testing.assert_allclose(np.ldexp(scaled, -power), smoothed, rtol=0, atol=TOLERANCE[kind])


@both_kinds
def test_the_input_is_not_changed(kind):
    v = vector(10_000, kind)
    v.flags.writeable = False
    assert not np.shares_memory(smooth_in_blocks(v, 1.0), v)


# The way that a vector takes


@pytest.mark.parametrize("as_layer", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
@both_kinds
@pytest.mark.parametrize("d", [8191, 8192, 8193])
@pytest.mark.parametrize("sigma", [1.0, 4.8e4, 5.0e4, 1e9])  # between the second and third the reach passes the limit
def test_both_algorithms_agree_at_the_length_where_they_switch(as_layer, kind, d, sigma):
    v = vector(d, kind)
    expected = cycle.smooth_on_path(v.astype(np.float64), sigma)
    out = laplacian_smoothing(as_layer(v), sigma)
    np.testing.assert_allclose(out, expected, rtol=0, atol=TOLERANCE[kind] * np.abs(v).max())


def test_only_long_vectors_are_smoothed_in_blocks(monkeypatch):
    taken = []
    monkeypatch.setattr(cycle, "smooth_in_blocks", lambda x, *rest: taken.append(len(x)) or smooth_in_blocks(x, *rest))
    for d in (100, 8191, 8192, 100_000):
        for sigma in (0.0, 1.0, 1e9):
            laplacian_smoothing(vector(d, np.float32), sigma)
            laplacian_smoothing(torch.from_numpy(vector(d)), sigma)
    assert taken == [8192, 8192, 100_000, 100_000]


@pytest.mark.parametrize("dtype", [np.float16, np.dtype(">f4"), np.dtype(">f8"), np.longdouble, np.int32])
def test_long_vectors_of_other_types(dtype):
    v = (100 * vector(9000)).astype(dtype)
    out = laplacian_smoothing(v, 1.0)
    assert out.dtype == (dtype if np.dtype(dtype).kind == "f" else np.float64)
    rounding = float(np.finfo(out.dtype).eps) + 2e-15
    expected = by_fft(v, 1.0)
    np.testing.assert_allclose(out.astype(float), expected, rtol=0, atol=2 * rounding * np.abs(v).max().astype(float))


def test_long_vectors_of_any_layout():
    v = vector(20_000, np.float32)
    flat = laplacian_smoothing(v[::2].copy(), 1.0)
    np.testing.assert_array_equal(laplacian_smoothing(v[::2], 1.0), flat)
    t = torch.from_numpy(v)[::2].requires_grad_()
    np.testing.assert_allclose(laplacian_smoothing(t, 1.0), flat, rtol=0, atol=1e-6)
    square = v[:10_000].reshape(100, 100)
    np.testing.assert_array_equal(
        laplacian_smoothing(np.asfortranarray(square), 1.0), laplacian_smoothing(square.ravel(), 1.0).reshape(100, 100)
    )
    half = laplacian_smoothing(torch.from_numpy(v).to(torch.bfloat16), 1.0)
    assert half.dtype is torch.bfloat16 and half.shape == (20_000,)
