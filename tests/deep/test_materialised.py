"""Gradients that are materialised for a few examples at a time: their sums are those of written-out gradients."""

import pytest

torch = pytest.importorskip("torch", reason="deep networks need torch: install the extra deep")
from torch import nn  # noqa: E402

from privet.deep.clipping import batch_gradients, materialised  # noqa: E402
from privet.deep.clipping.materialised import Materialised  # noqa: E402
from privet.deep.clipping.summing import MARGIN, Summation  # noqa: E402

UNIT = 2.0**-24
CLIP = 0.5


def network():
    """Return a model whose convolutions and linear layer have more positions than inner products pay for."""
    convolutions = nn.Conv2d(2, 4, 3, padding=1, groups=2), nn.Tanh(), nn.Conv2d(4, 3, 3, padding=1)
    return nn.Sequential(*convolutions, nn.Flatten(2), nn.Linear(36, 5), nn.Tanh(), nn.Flatten(), nn.Linear(15, 1))


def loss(outputs, targets):
    return outputs[:, 0] * targets


def gradients(model, inputs, targets, summation=None):
    return batch_gradients(model, loss, (inputs,), targets, summation)


def added(found, clip=CLIP, dtype=torch.float32):
    """Return the sum as a flat vector, and which examples contribute zero."""
    slots = {parameter: torch.zeros(parameter.numel(), dtype=dtype) for parameter in found.parts}
    is_zero = found.add_clipped_sum(clip, slots)
    return torch.cat([slot.double() for slot in slots.values()]), is_zero


def written(found):
    return torch.cat([part.written_out().flatten(1).double() for part in found.parts.values()], 1)


@pytest.mark.parametrize("buffer", [1, 300, 1 << 20])
@pytest.mark.parametrize("room", [1, 240, 1 << 20])
@pytest.mark.parametrize(
    "summation",
    [
        Summation(11, 11, 1, False, UNIT),
        Summation(11, 3, 2, False, UNIT),
        Summation(11, 4, 9, False, UNIT),
        Summation(11, 3, 2, True, UNIT),
    ],
)
def test_sums_do_not_depend_on_how_many_examples_are_materialised_at_a_time(buffer, room, summation, monkeypatch):
    monkeypatch.setattr(materialised, "_BUFFER", buffer)
    monkeypatch.setattr(materialised, "CHUNK", room)
    torch.manual_seed(0)
    model, inputs, targets = network(), torch.randn(11, 2, 6, 6), torch.linspace(0.1, 4.0, 11)
    found = gradients(model, inputs, targets, summation)
    sizes = [part.row_size for part in Materialised.of(found.parts).parts.values()]
    assert sizes == {1: [180], 240: [180, 36], 1 << 20: [180, 108, 36]}[room]
    rows = written(found)
    factors = (CLIP / rows.norm(dim=1)).clamp_max(1.0)
    assert 0 < int((factors < 1).sum()) < 11
    expected = factors @ rows
    kind = summation.slot_dtype(torch.float32, 1)
    total, is_zero = added(found, dtype=kind)
    assert not is_zero.any()
    assert float((total - expected).norm()) <= 1e-6 * float(expected.norm())


@pytest.mark.parametrize("huge", [float("inf"), float("nan"), 1e38, 1e25])
@pytest.mark.parametrize("buffer", [1, 1 << 20])
def test_examples_without_a_finite_gradient_contribute_zero_and_change_no_other(huge, buffer, monkeypatch):
    monkeypatch.setattr(materialised, "_BUFFER", buffer)
    torch.manual_seed(0)
    model, inputs, targets = network(), torch.randn(5, 2, 6, 6), torch.linspace(1.0, 4.0, 5)
    expected, _ = added(gradients(model, inputs[1:4], targets[1:4]))
    targets[0] = targets[4] = huge
    total, is_zero = added(gradients(model, inputs, targets), clip=CLIP)
    if is_zero[0]:
        assert is_zero.tolist() == [True, False, False, False, True]
        assert float((total - expected).norm()) <= 1e-6 * float(expected.norm())
    else:  # The factor is tiny, but in the normal range.
        assert float((total - expected).norm()) <= 2 * CLIP * (1 + MARGIN) + 1e-6
    assert bool(total.isfinite().all())


@pytest.mark.parametrize("scale", [1e-30, 1e-8, 1.0, 1e8, 1e20, 1e30])
def test_no_example_contributes_more_than_the_clip(scale):
    torch.manual_seed(1)
    model = network()
    for _ in range(3):
        found = gradients(model, torch.randn(1, 2, 6, 6), torch.full((1,), scale))
        total, _ = added(found, CLIP)
        assert float(total.norm()) <= CLIP * (1 + MARGIN)


def test_gradients_that_are_not_materialised_have_no_rows():
    found = gradients(nn.Sequential(nn.Flatten(), nn.Linear(8, 1)), torch.randn(3, 2, 4), torch.ones(3))
    assert not Materialised.of(found.parts).parts
    part = next(iter(found.parts.values()))
    assert part.row_size == 0
