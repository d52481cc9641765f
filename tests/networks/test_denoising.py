"""Layers are denoised separately, and convolutions in the chosen order of their weights."""

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from privet.denoise import JamesStein, LaplacianSmoothing, SoftThreshold, laplacian_smoothing  # noqa: E402
from privet.networks import ORDERS, LayerDenoiser, layer_denoiser  # noqa: E402


@pytest.mark.parametrize("order", ORDERS)
def test_a_convolution_is_smoothed_in_the_given_order(order):
    """Compared with loops by hand, in which the last letter of the order varies fastest."""
    shape = {"O": 3, "I": 2, "H": 4, "W": 5}
    layer = np.random.default_rng(0).normal(size=tuple(shape.values()))
    places = list(itertools.product(*(range(shape[letter]) for letter in order)))
    cycle = [tuple(place[order.index(letter)] for letter in "OIHW") for place in places]
    expected = np.empty_like(layer)
    for place, value in zip(cycle, laplacian_smoothing(np.array([layer[place] for place in cycle]), 1.5), strict=True):
        expected[place] = value
    found = LayerDenoiser(LaplacianSmoothing(1.5), order)(layer, 0.1)
    assert np.allclose(found, expected, atol=1e-13)
    others = [LayerDenoiser(LaplacianSmoothing(1.5), other)(layer, 0.1) for other in ORDERS]
    assert sum(np.allclose(found, other) for other in others) == 1
    tensor = LayerDenoiser(LaplacianSmoothing(1.5), order)(torch.from_numpy(layer), 0.1)
    assert tensor.is_contiguous()
    assert np.allclose(tensor.numpy(), expected, atol=1e-13)


@pytest.mark.parametrize("denoiser", [LaplacianSmoothing(1.0), JamesStein(), SoftThreshold()])
@pytest.mark.parametrize("shape", [(4, 5), (30,), (2, 3, 4), (2, 2, 2, 2, 2)])
def test_other_layers_are_read_as_they_are(denoiser, shape):
    layer = np.random.default_rng(1).normal(size=shape)
    found = layer_denoiser(denoiser, "OHWI")(layer, 0.2)
    assert np.array_equal(found, denoiser(layer, 0.2))
    assert not np.allclose(found, layer)


def test_an_unknown_order_is_refused_even_without_a_denoiser():
    assert layer_denoiser(None, "OHWI") is None
    for denoiser in (None, LaplacianSmoothing(1.0)):
        with pytest.raises(ValueError, match=r"order must be one of OIHW, .*, got 'IOHW'"):
            layer_denoiser(denoiser, "IOHW")
