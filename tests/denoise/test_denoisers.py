import math
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from privet.denoise import (
    Denoiser,
    JamesStein,
    LaplacianSmoothing,
    SoftThreshold,
    beta,
    cycle,
    effective_dimension,
    gamma,
    laplacian_smoothing,
)

lengths = st.integers(1, 300)
strengths = st.one_of(st.just(0.0), st.floats(0, 10), st.floats(0, 1e4), st.floats(-12, 4).map(lambda e: 10.0**e))
seeds = st.integers(0, 2**32 - 1)


def vector(d: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(d)


def dense(d: int, sigma: float) -> np.ndarray:
    """I - sigma L with both neighbours counted, also where they are one and the same node."""
    shift = np.roll(np.eye(d), 1, axis=0)
    return (1 + 2 * sigma) * np.eye(d) - sigma * (shift + shift.T)


def eigenvalues(d: int, sigma: float) -> np.ndarray:
    return 1 / (1 + 2 * sigma * (1 - np.cos(2 * np.pi * np.arange(d) / d)))


# The operator


@settings(max_examples=300, deadline=None)
@given(lengths, strengths, seeds)
def test_smoothing_equals_the_dense_solve(d, sigma, seed):
    v = vector(d, seed)
    expected = np.linalg.solve(dense(d, sigma), v)
    assert np.abs(laplacian_smoothing(v, sigma) - expected).max() <= 1e-10 * np.abs(v).max()


@settings(max_examples=200, deadline=None)
@given(lengths, strengths, seeds)
def test_smoothing_on_a_device_equals_smoothing_on_the_cpu(d, sigma, seed):
    v = vector(d, seed)
    on_device = cycle.smooth_on_device(torch.from_numpy(v), sigma).numpy()
    assert np.abs(on_device - laplacian_smoothing(v, sigma)).max() <= 1e-13 * np.abs(v).max()


def test_tensors_on_a_device_stay_there():
    v = torch.empty(3, 4, dtype=torch.bfloat16, device="meta")
    out = laplacian_smoothing(v, 1.0)
    assert (out.device.type, out.dtype, out.shape) == ("meta", torch.bfloat16, (3, 4))


@pytest.mark.parametrize("d", [65_536, 65_537, 100_003])
@pytest.mark.parametrize("sigma", [1.0, 3.0, 1e4])
def test_smoothed_long_vectors_equal_the_fft_form(d, sigma):
    v = vector(d)
    expected = np.fft.irfft(np.fft.rfft(v) * eigenvalues(d, sigma)[: d // 2 + 1], d)
    np.testing.assert_allclose(laplacian_smoothing(v, sigma), expected, rtol=0, atol=1e-12)


def test_small_cases_agree_with_values_computed_by_hand():
    np.testing.assert_array_equal(laplacian_smoothing(np.array([3.0]), 7.0), [3.0])
    np.testing.assert_allclose(laplacian_smoothing(np.array([1.0, 0.0]), 2.0), [5 / 9, 4 / 9], rtol=1e-15)
    np.testing.assert_allclose(laplacian_smoothing(np.array([1.0, 0.0, 0.0]), 1.0), [0.5, 0.25, 0.25], rtol=1e-15)
    assert laplacian_smoothing(np.empty(0), 1.0).shape == (0,)


@pytest.mark.parametrize("sigma", [0.0, 1e-320, 1e-17])
def test_vanishing_strength_changes_nothing(sigma):
    v = vector(50)
    np.testing.assert_allclose(laplacian_smoothing(v, sigma), v, rtol=1e-15)


@pytest.mark.parametrize("sigma", [1e8, 1e100, sys.float_info.max])
@pytest.mark.parametrize("d", [2, 3, 100])
def test_huge_strength_tends_to_the_mean(d, sigma):
    v = vector(d) + 5
    for out in (laplacian_smoothing(v, sigma), cycle.smooth_on_device(torch.from_numpy(v), sigma)):
        np.testing.assert_allclose(out, v.mean(), rtol=d**2 / sigma + 1e-13)


@settings(max_examples=100, deadline=None)
@given(lengths, strengths, seeds, st.integers(-400, 400))
def test_smoothing_is_a_symmetric_circulant_that_keeps_constants(d, sigma, seed, shift):
    u, v = vector(2 * d, seed).reshape(2, d)
    su, sv = laplacian_smoothing([u, v], sigma)
    close = {"rtol": 0, "atol": 1e-11}
    np.testing.assert_allclose(laplacian_smoothing(2 * u - 3 * v, sigma), 2 * su - 3 * sv, **close)
    np.testing.assert_allclose(laplacian_smoothing(np.roll(u, shift), sigma), np.roll(su, shift), **close)
    np.testing.assert_allclose(laplacian_smoothing(np.full(d, 2.5), sigma), 2.5, **close)
    np.testing.assert_allclose(laplacian_smoothing(u[::-1], sigma), su[::-1], **close)
    assert su @ v == pytest.approx(u @ sv, abs=1e-11 * d)
    assert su.mean() == pytest.approx(u.mean(), abs=1e-11)


@settings(max_examples=100, deadline=None)
@given(lengths, st.floats(0, 100), seeds)
def test_the_norm_identity_that_corrects_remark_14(d, sigma, seed):
    g = vector(d, seed)
    s = laplacian_smoothing(g, sigma)
    difference = np.roll(s, -1) - s
    laplacian = np.roll(s, -1) - 2 * s + np.roll(s, 1)
    total = s @ s + 2 * sigma * difference @ difference + sigma**2 * laplacian @ laplacian
    assert total == pytest.approx(g @ g, rel=1e-9)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 5.0])
def test_white_noise_keeps_beta_of_its_variance(sigma):
    d, draws = 50, 4000
    noise = vector(d * draws).reshape(draws, d)
    smoothed = np.array(laplacian_smoothing(list(noise), sigma))
    # the eigenvalues give the spread of this estimate exactly
    spread = math.sqrt(2 * (eigenvalues(d, sigma) ** 4).sum() / draws) / d
    assert abs((smoothed**2).mean() - beta(d, sigma)) < 5 * spread


# Input and output


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.dtype(">f8"), np.longdouble])
def test_numpy_dtype_is_kept(dtype):
    v = vector(400).astype(dtype)
    out = laplacian_smoothing(v, 3.0)
    assert out.dtype == dtype
    exact = laplacian_smoothing(v.astype(np.float64), 3.0)
    np.testing.assert_allclose(out.astype(np.float64), exact, rtol=0, atol=float(np.finfo(dtype).eps) + 1e-16)


@pytest.mark.parametrize("sigma", [1.0, 1e4, 1e8])
def test_single_precision_loses_no_more_than_one_rounding(sigma):
    v = vector(1000).astype(np.float32)
    exact = laplacian_smoothing(v.astype(np.float64), sigma)
    np.testing.assert_array_equal(laplacian_smoothing(v, sigma), exact.astype(np.float32))


@pytest.mark.parametrize("denoiser", [LaplacianSmoothing(2.0), JamesStein(), SoftThreshold()])
@pytest.mark.parametrize("v", [np.arange(7), np.array([True, False, True]), torch.arange(7)])
def test_integers_become_double(denoiser, v):
    out = denoiser(v, 0.1)
    assert str(out.dtype).removeprefix("torch.") == "float64"
    np.testing.assert_allclose(out, denoiser(np.asarray(v, dtype=float), 0.1), rtol=1e-15)


@pytest.mark.parametrize("denoiser", [LaplacianSmoothing(2.0), JamesStein(), JamesStein(False), SoftThreshold(0.3)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_torch_equals_numpy(denoiser, dtype):
    v = torch.from_numpy(vector(600).reshape(20, 30)).to(dtype).requires_grad_()
    out = denoiser(v, 0.7)
    assert (out.dtype, out.shape, out.device, out.requires_grad) == (dtype, v.shape, v.device, False)
    expected = denoiser(v.detach().double().numpy(), 0.7)
    np.testing.assert_allclose(out.double(), expected, rtol=0, atol=4 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("denoiser", [LaplacianSmoothing(2.0), LaplacianSmoothing(0.0), JamesStein(), SoftThreshold()])
@pytest.mark.parametrize("as_layer", [np.array, torch.tensor])
def test_layers_are_denoised_separately(denoiser, as_layer):
    layers = [as_layer(vector(d, d)) for d in (1, 2, 5, 100)]
    for container in (list, tuple):
        out = denoiser(container(layers), 0.5)
        assert type(out) is container
        for got, layer in zip(out, layers, strict=True):
            assert type(got) is type(layer)
            np.testing.assert_array_equal(got, denoiser(layer, 0.5))
    assert denoiser([]) == []


@pytest.mark.parametrize("denoiser", [LaplacianSmoothing(2.0), JamesStein(), SoftThreshold()])
def test_any_shape_is_read_in_row_major_order(denoiser):
    v = vector(60)
    flat = denoiser(v, 0.5)
    np.testing.assert_array_equal(denoiser(v.reshape(3, 4, 5), 0.5), flat.reshape(3, 4, 5))
    np.testing.assert_array_equal(denoiser(np.asfortranarray(v.reshape(6, 10)), 0.5), flat.reshape(6, 10))
    np.testing.assert_array_equal(denoiser(np.repeat(v, 2)[::2], 0.5), flat)
    t = torch.from_numpy(v)
    np.testing.assert_allclose(denoiser(t.repeat_interleave(2)[::2], 0.5), flat, rtol=1e-14)
    np.testing.assert_allclose(denoiser(t.reshape(6, 10).T.contiguous().T, 0.5), flat.reshape(6, 10), rtol=1e-14)
    assert denoiser(np.array(2.0), 0.5) == 2.0 and denoiser(np.array(2.0)).shape == ()
    assert denoiser(torch.tensor(2.0), 0.5) == 2.0


@pytest.mark.parametrize("denoiser", [LaplacianSmoothing(2.0), LaplacianSmoothing(0.0), JamesStein(), SoftThreshold()])
@pytest.mark.parametrize("d", [1, 2, 30])
def test_the_input_is_neither_modified_nor_shared(denoiser, d):
    v = vector(d)
    v.flags.writeable = False
    assert not np.shares_memory(denoiser(v), v)
    t = torch.from_numpy(vector(d))
    assert denoiser(t).data_ptr() != t.data_ptr()
    assert torch.equal(t, torch.from_numpy(vector(d)))


def test_smoothing_on_a_device_does_not_share_its_input():
    t = torch.ones(4)
    assert cycle.smooth_on_device(t, 0.0).data_ptr() != t.data_ptr()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("position", [0, 10, 499])
def test_a_non_finite_entry_makes_all_entries_non_finite(bad, position):
    v = vector(500)
    v[position] = bad
    assert not np.isfinite(laplacian_smoothing(v, 1.0)).any()


@pytest.mark.parametrize("sigma", [-1.0, -1e-300, math.nan, math.inf])
def test_invalid_strengths_are_refused(sigma):
    for use in (lambda: laplacian_smoothing(np.ones(3), sigma), lambda: LaplacianSmoothing(sigma)):
        with pytest.raises(ValueError, match=r"^sigma must (be finite|not be negative)"):
            use()
    for constant in (gamma, beta, effective_dimension):
        with pytest.raises(ValueError, match=r"^sigma must (be finite|not be negative)"):
            constant(10, sigma)
    with pytest.raises(ValueError, match=r"^scale must (be finite|not be negative)"):
        SoftThreshold(sigma)
    for denoiser in (JamesStein(), SoftThreshold()):
        with pytest.raises(ValueError, match=r"^noise_std must (be finite|not be negative)"):
            denoiser(np.ones(3), sigma)


@pytest.mark.parametrize("denoiser", [LaplacianSmoothing(2.0), JamesStein(), SoftThreshold()])
@pytest.mark.parametrize(
    "v", [1.0, [1.0, 2.0], "abc", None, np.array([1j]), np.array(["a"]), torch.tensor([1j]), [np.ones(2), None]]
)
def test_other_input_is_refused(denoiser, v):
    with pytest.raises(TypeError, match="expected a real numpy array or torch tensor"):
        denoiser(v)


@pytest.mark.parametrize("d", [0, -3])
def test_invalid_dimensions_are_refused(d):
    with pytest.raises(ValueError, match="d must be at least 1"):
        gamma(d, 1.0)
    with pytest.raises(TypeError):
        beta(2.5, 1.0)


# The constants of the papers


@pytest.mark.parametrize("d", [1000, 10_000, 100_000])
def test_constants_agree_with_tables_3_and_4_of_the_paper(d):
    assert [round(gamma(d, s), 3) for s in range(1, 6)] == [0.447, 0.333, 0.277, 0.243, 0.218]
    assert [round(beta(d, s), 3) for s in range(1, 6)] == [0.268, 0.185, 0.149, 0.128, 0.114]


@settings(max_examples=300, deadline=None)
@given(lengths, strengths)
def test_constants_are_means_over_the_eigenvalues(d, sigma):
    values = eigenvalues(d, sigma)
    assert gamma(d, sigma) == pytest.approx(values.mean(), rel=1e-11)
    assert beta(d, sigma) == pytest.approx((values**2).mean(), rel=1e-11)
    assert effective_dimension(d, sigma) == pytest.approx(values.sum(), rel=1e-11)


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 40), st.floats(0.5, 10))
def test_constants_equal_the_closed_forms_of_propositions_5_and_8(d, sigma):
    root = math.sqrt(4 * sigma + 1)
    w, xi = (2 * sigma + 1 - root) / (2 * sigma), -root / sigma
    numerator = 2 * w ** (2 * d + 1) - xi * w ** (2 * d) + 2 * xi * d * w**d - 2 * w + xi
    assert gamma(d, sigma) == pytest.approx((1 + w**d) / ((1 - w**d) * root), rel=1e-10)
    assert beta(d, sigma) == pytest.approx(numerator / (sigma**2 * xi**3 * (1 - w**d) ** 2), rel=1e-8)


def test_constants_for_no_and_for_extreme_smoothing():
    for d in (1, 2, 1000):
        assert gamma(d, 0.0) == beta(d, 0.0) == 1.0
        assert gamma(d, 1e300) == pytest.approx(1 / d) and beta(d, 1e300) == pytest.approx(1 / d)
    assert gamma(1, 3.0) == pytest.approx(1.0) and beta(1, 3.0) == pytest.approx(1.0)
    assert gamma(10**9, 2.0) == pytest.approx(1 / 3), "tends to 1 / sqrt(4 sigma + 1), not to 0"


# Shrinkage


def test_james_stein_agrees_with_values_computed_by_hand():
    y = np.array([3.0, 0.0, 4.0, 0.0])
    np.testing.assert_allclose(JamesStein()(y, 2.0), (1 - 2 * 4 / 25) * y)
    np.testing.assert_array_equal(JamesStein()(y, 10.0), np.zeros(4))
    np.testing.assert_allclose(JamesStein(positive_part=False)(y, 10.0), (1 - 2 * 100 / 25) * y)
    np.testing.assert_array_equal(JamesStein()(y), y)
    for positive_part in (True, False):
        np.testing.assert_array_equal(JamesStein(positive_part)(np.zeros(5), 1.0), np.zeros(5))
        np.testing.assert_array_equal(JamesStein(positive_part)(y[:2], 9.0), y[:2])
        np.testing.assert_array_equal(JamesStein(positive_part)(y[:1], 9.0), y[:1])


@pytest.mark.parametrize("d", [3, 10, 100])
@pytest.mark.parametrize("length", [0.0, 2.0, 20.0])
def test_james_stein_dominates_the_noisy_vector(d, length):
    draws, std = 4000, 0.5
    truth = np.full(d, length * std / math.sqrt(d))
    noisy = truth + std * vector(d * draws, seed=d).reshape(draws, d)
    raw, plain, positive = (
        ((np.array(estimate) - truth) ** 2).sum(axis=1)
        for estimate in (noisy, JamesStein(False)(list(noisy), std), JamesStein()(list(noisy), std))
    )
    for better, worse in ((plain, raw), (positive, plain)):
        gain = worse - better
        assert gain.mean() >= -3 * gain.std() / math.sqrt(draws)
    assert positive.mean() < raw.mean()


def test_soft_threshold_agrees_with_values_computed_by_hand():
    y = np.array([-3.0, -0.5, 0.0, 1.0, 5.0])
    level = 0.7 * math.sqrt(2 * math.log(5))
    np.testing.assert_allclose(SoftThreshold()(y, 0.7), np.sign(y) * np.maximum(np.abs(y) - level, 0), atol=1e-15)
    np.testing.assert_allclose(SoftThreshold(2.0)(y, 0.35), SoftThreshold()(y, 0.7), atol=1e-15)
    np.testing.assert_array_equal(SoftThreshold()(y), y)
    np.testing.assert_array_equal(SoftThreshold()(y[:1], 9.0), y[:1])
    np.testing.assert_allclose(SoftThreshold()(np.array([5.0, 0.1]), 1.0), [5 - math.sqrt(2 * math.log(2)), 0.0])
    assert SoftThreshold()(np.empty(0), 1.0).shape == (0,)


@settings(deadline=None)
@given(st.integers(2, 200), seeds, st.floats(0.01, 10), st.floats(0, 3))
def test_soft_threshold_shrinks_and_keeps_signs(d, seed, std, scale):
    y = vector(d, seed)
    out = SoftThreshold(scale)(y, std)
    assume(np.all(y != 0))
    assert (np.abs(out) <= np.abs(y)).all() and (out * y >= 0).all()


# The classes and the module


@pytest.mark.parametrize("denoiser", [LaplacianSmoothing(2.0), JamesStein(False), SoftThreshold(0.5)])
def test_denoisers_compare_and_hash_by_value(denoiser):
    typed: Denoiser = denoiser
    copy = pickle.loads(pickle.dumps(typed))
    assert copy == denoiser and hash(copy) == hash(denoiser)
    assert denoiser != type(denoiser)(1.0)
    field = next(iter(vars(denoiser)))
    with pytest.raises(AttributeError):
        setattr(denoiser, field, 1.0)
    assert field in repr(denoiser)


def test_smoothing_ignores_the_noise_level():
    v = vector(10)
    np.testing.assert_array_equal(LaplacianSmoothing(2)(v, 3.0), laplacian_smoothing(v, 2.0))


def test_importing_the_module_does_not_import_torch():
    code = (
        "import sys, numpy as np, privet.denoise as m;"
        "m.laplacian_smoothing([np.ones(3)], 1.0); sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
