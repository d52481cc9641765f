"""Attacks on clipping and summing in machine arithmetic. Section 24 of docs/proofs.md states what must hold."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="deep networks need torch: install the extra deep")
from torch import nn  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

from privet.deep import make_private  # noqa: E402
from privet.deep.clipping import outer_products as outer_products_module  # noqa: E402
from privet.deep.clipping.batch import BatchGradients, batch_gradients  # noqa: E402
from privet.deep.clipping.gradients import Direct, OuterSum, RowSum  # noqa: E402
from privet.deep.clipping.outer_products import (  # noqa: E402
    allowing_for_cancellation,
    places_are_few,
    squared_norms_by_places,
)
from privet.deep.clipping.summing import SHARE, Summation, full_precision, reserved_share, room  # noqa: E402
from privet.deep.training import PrivateTraining  # noqa: E402
from privet.networks.norms import lengths  # noqa: E402
from privet.plans import GradientPlan, Poisson  # noqa: E402

CLIP = 0.7
UNIT = 2.0**-24


def linear_loss(outputs, targets):
    """The gradient of the weights is the input, times the target."""
    return outputs.flatten(1).sum(1) * targets


def prepared(model, inputs, loss=linear_loss, expected=2048, **options):
    targets = torch.ones(len(inputs), dtype=next(model.parameters()).dtype)
    plan = GradientPlan(Poisson(0.5), 3, CLIP, 1.0, public_n=2 * expected, delta=1e-5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    dataset = TensorDataset(inputs, targets)
    return PrivateTraining(model, optimizer, dataset, plan=plan, loss=loss, random_state=0, **options)


def moved_by(model, inputs, other, **options):
    """Return how far apart the sums over two batches are."""
    private = prepared(model, inputs, **options)
    sums = [private._total((each,), torch.ones(len(each), dtype=each.dtype))[0].double() for each in (inputs, other)]
    return float((sums[0] - sums[1]).norm())


# ------------------------------------------------------------------------------------------------------ half precision


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_record_moves_a_large_sum_in_half_precision_by_at_most_the_clip(dtype):
    """A sum of 4088 vectors of norm C has a spacing of 16 C in bfloat16, and of 2 C in float16."""
    model = nn.Linear(2, 1, bias=False, dtype=dtype)
    for n in (4087, 4088):
        inputs = torch.full((n + 1, 2), 4.0, dtype=dtype)
        assert moved_by(model, inputs, inputs[:n]) <= CLIP


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_networks_in_half_precision_are_clipped_and_trained(dtype):
    torch.manual_seed(0)
    tokens = nn.Sequential(nn.Embedding(7, 6), nn.LayerNorm(6), Last(nn.LSTM(6, 5, batch_first=True)), nn.Linear(5, 2))
    images = nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.PReLU(), nn.Flatten(), nn.Linear(36, 2))
    attention = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
    for model, inputs in (
        (tokens, torch.randint(0, 7, (40, 5))),
        (images, torch.randn(40, 1, 5, 5).to(dtype)),
        (nn.Sequential(attention, nn.Flatten(), nn.Linear(12, 2)), torch.randn(40, 3, 4).to(dtype)),
    ):
        private = make_private(
            model.to(dtype),
            torch.optim.SGD(model.parameters(), lr=0.1),
            TensorDataset(inputs, torch.randint(0, 2, (40,))),
            loss=nn.CrossEntropyLoss(),
            budget=(3.0, 1e-5),
            epochs=1,
            batch_size=20,
            clip_norm=0.01,
        )
        for batch in private.batches():
            private.step(*batch)
        alone = [float(private._total((inputs[i : i + 1],), torch.zeros(1).long())[0].norm()) for i in range(3)]
        assert alone == pytest.approx([0.01 * room(20, torch.float32)] * 3, rel=1e-3)
        assert all(each.dtype is dtype and bool(torch.isfinite(each).all()) for each in model.parameters())


class Last(nn.Module):
    """A recurrent layer, of which only the last output is used."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0][:, -1]


def test_mixed_precision_and_fast_products_do_not_reach_the_sums():
    inputs = torch.rand(300, 40, generator=torch.Generator().manual_seed(0)) + 0.5
    model = nn.Linear(40, 3)
    found = batch_gradients(model, linear_loss, (inputs,), torch.ones(300))
    exact = found.clipped_sum(CLIP)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        with torch.autocast("cpu", dtype=torch.bfloat16):
            sums = found.clipped_sum(CLIP)
            private = prepared(nn.Linear(40, 3), inputs)
            with_all, _ = private._total((inputs,), torch.ones(300))
            without, _ = private._total((inputs[1:],), torch.ones(299))
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    for parameter, total in exact.items():
        torch.testing.assert_close(sums[parameter], total)
    assert float((with_all - without).double().norm()) <= CLIP


# ------------------------------------------------------------------------------------------ extreme values, long norms


def squares(outputs, targets):
    return (outputs.flatten(1) - targets[:, None]).square().sum(1) / 2


@pytest.mark.parametrize("width", [1, 30])
def test_extreme_features_do_not_get_past_the_clip(width):
    """Clipping factors become subnormal at 10^22.4. Scaled factors do even where the factor itself is normal."""
    model = nn.Linear(width, 2)
    with torch.no_grad():
        model.weight.fill_(1.0)
    private = prepared(model, torch.ones(1, width), loss=squares)
    for exponent in (*np.linspace(15, 38, 93), 22.4, 22.5, *np.linspace(-44, -15, 30)):
        total, _ = private._total((torch.full((1, width), 10.0**exponent),), torch.zeros(1))
        assert float(total.double().norm()) <= CLIP, exponent


@pytest.mark.parametrize("places", [1, 2, 40])
def test_huge_and_tiny_factors_do_not_get_past_the_clip(places):
    """The product of the factors is moderate, but one of them underflows when it is scaled."""
    parameter = nn.Parameter(torch.zeros(1))
    for large in np.linspace(0, 38, 39):
        for product in (0.01, 1.0, 1e4):
            left = torch.full((1, 1, places, 9), 10.0**large)
            right = torch.full((1, 1, places, 8), product * 10.0**-large)
            for part in (OuterSum(left, right, (8, 9)), OuterSum(right, left, (9, 8))):
                found = BatchGradients(torch.zeros(1), {parameter: part})
                assert float(found.clipped_sum(CLIP)[parameter].double().norm()) <= CLIP * (1 + 2**-15)


def test_factors_below_the_normal_range_become_zero():
    parameter = nn.Parameter(torch.zeros(1))
    values = torch.full((2, 3), 1e-20)
    values[0] = 1e19
    found = BatchGradients(torch.zeros(2), {parameter: Direct(values)})
    weights = found.clipped(1e-21).weights
    assert weights[0] == 0
    assert 0 < weights[1] < 1
    assert float(found.clipped_sum(1e-21)[parameter].double().norm()) <= 1e-21 * (1 + 2**-15)


@pytest.mark.parametrize("size", [1, 127, 128, 129, 784, 131, 16_000_000])
def test_norms_are_right_to_one_in_a_hundred_thousand(size):
    generator = torch.Generator().manual_seed(size)
    for values in (torch.full((size,), 0.37), torch.rand(size, generator=generator), torch.full((size,), 1e-21)):
        exact = float(np.linalg.norm(values.numpy().astype(np.float64)))
        assert float(lengths(values)) == pytest.approx(exact, rel=5e-6)
        assert float(Direct(values[None]).squared_norms()) == pytest.approx(exact**2, rel=1e-5)


def test_clip_norms_that_float32_cannot_represent_well_are_rejected():
    for clip_norm in (1e-13, 1e26):
        plan = GradientPlan(Poisson(0.5), 3, clip_norm, 1.0, public_n=10, delta=1e-5)
        model = nn.Linear(2, 1)
        with pytest.raises(ValueError, match=r"clip_norm = .* between 1e-12 and 1e\+25"):
            PrivateTraining(model, torch.optim.SGD(model.parameters()), [], plan=plan, loss=squares)


# ---------------------------------------------------------------------------------------------------- sums over batches


def hovering(n, width, last=1.0):
    """Return rows whose running sum climbs to n / 2 and stays there, where each addition is rounded up or down."""
    rows = torch.ones(n, width)
    rows[n // 2 :] = 1 - 2**-10
    rows[n // 2 + 1 :: 2] *= -1
    rows[n // 2 :: 2] += 2**-13 * 1.01
    return rows * (last / 1.001 / math.sqrt(width))


FORMS = {
    "direct": Direct,
    "wide": lambda rows: OuterSum(rows[:, None, None], torch.ones(len(rows), 1, 1, 1), (1, rows.shape[1])),
    "tall": lambda rows: OuterSum(torch.ones(len(rows), 1, 1, 1), rows[:, None, None], (rows.shape[1], 1)),
    "groups": lambda rows: OuterSum(
        rows[:, None, None].expand(-1, 2, -1, -1), torch.full((len(rows), 2, 1, 1), 0.5**0.5), (2, rows.shape[1])
    ),
    "places": lambda rows: OuterSum(
        torch.stack([rows + 50, -50 + rows], 1)[:, None] / 2, torch.ones(len(rows), 1, 2, 1), (1, rows.shape[1])
    ),
    "table": lambda rows: RowSum(torch.zeros(len(rows), 1).long(), rows[:, None], (3, rows.shape[1])),
}


@pytest.mark.parametrize("n", [300, 1024, 2048, 4096, 6000])
@pytest.mark.parametrize("form", FORMS)
def test_the_rounding_of_a_sum_stays_within_its_share(form, n):
    """A plain sum of float32 numbers errs by up to 0.16 C here."""
    parameter = nn.Parameter(torch.zeros(1))
    for width in (1, 8, 300):
        part = FORMS[form](hovering(n, width))
        total = BatchGradients(torch.zeros(n), {parameter: part}).clipped_sum(1.0)[parameter].double().flatten()
        exact = part.written_out().double().sum(0).flatten()
        assert float((total - exact).norm()) <= SHARE / 2


@pytest.mark.parametrize("width", [8, 300])
def test_a_batch_much_larger_than_expected_is_added_up_within_the_smaller_share(width):
    """Summing within the largest share, which is the default, errs by up to four times as much here."""
    n, error = 300, reserved_share(20, torch.float32) / 2
    assert error < SHARE / 50
    rows, model, slot = hovering(n, width), nn.Linear(width, 1, bias=False), torch.zeros(width, dtype=torch.float64)
    found = batch_gradients(model, linear_loss, (rows,), torch.ones(n), Summation.within(error, n))
    found.add_clipped_sum(1.0, {model.weight: slot})
    assert float((slot - rows.double().sum(0)).norm()) <= error


@pytest.mark.parametrize("max_batch", [None, 700])
@pytest.mark.parametrize("n", [256, 2048, 4096])
def test_one_more_record_moves_a_sum_by_at_most_the_clip(n, max_batch):
    """The record comes first and pushes the running sum across a power of two, also in the neighbour's later sums."""
    for width in (1, 300):
        rows = hovering(n, width, CLIP)
        other = torch.cat([rows[:1] * 2, rows])
        for model in (nn.Linear(width, 1, bias=False), nn.Sequential(nn.Linear(width, 1), Times(3.0))):
            assert 0.98 * CLIP <= moved_by(model, rows, other, max_batch=max_batch) <= CLIP
            assert moved_by(model, rows, other, max_batch=max_batch, expected=200) <= CLIP


class Times(nn.Module):
    """Multiplies by a number."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor


def test_the_bound_on_sums_holds_for_adversarial_values_in_any_order():
    """Brute force: float32 sums, sequential or along random trees, in a different order for each coordinate."""
    random = np.random.default_rng(0)
    worst = 0.0
    for _ in range(300):
        n, d = int(random.integers(2, 60)), int(random.integers(1, 6))
        rows = random.normal(size=(n, d)) * random.choice([0, 1, 1e-3], (n, d)) + random.choice([0.0, 1.0])
        rows = (rows / np.linalg.norm(rows, axis=1).max()).astype(np.float32)
        exact = rows.astype(np.float64).sum(0)
        found = np.empty(d)
        for column in range(d):
            values = list(random.permutation(rows[:, column]))
            is_tree = random.random() < 0.5
            while len(values) > 1:
                first = values.pop(int(random.integers(len(values))) if is_tree else 0)
                second = values.pop(int(random.integers(len(values))) if is_tree else 0)
                values.insert(0, np.float32(first + second))
            found[column] = values[0]
        worst = max(worst, np.linalg.norm(found - exact) / (UNIT * n * (2 * n + 8) / 3))
    assert 0.05 < worst <= 1


def test_batches_far_larger_than_expected_are_added_up_in_double_precision():
    rows = hovering(50_000, 2, CLIP)
    for expected in (20, 50_000):
        private = prepared(nn.Linear(2, 1, bias=False), rows[:1], expected=expected)
        totals = [private._total((each,), torch.ones(len(each)))[0] for each in (rows, rows[1:])]
        assert totals[0].dtype is torch.float64
        assert 0.98 * CLIP <= float((totals[0] - totals[1]).norm()) <= CLIP
        private.step(*next(private.batches()))
        assert private.model.weight.grad.dtype is torch.float32


def test_the_reserved_share_covers_every_batch_size():
    def growth(terms):
        return (2 * terms + 8) / 3

    for dtype, unit in ((torch.float32, UNIT), (torch.float64, 2.0**-53)):
        for expected in (1, 30, 128, 256, 2048, 1e6):
            share = reserved_share(expected, dtype)
            assert 0 < share <= 0.01
            for n in (1, 10, 50, 100, 290, 340, 400, 1000, 2048, 4096, 10_000, 10**6):
                for processes in (1, 2, 7):
                    error = share / 2 / processes
                    if n == 10**6 and dtype is torch.float32 and 2.0**-53 * n * growth(n) > error:
                        with pytest.raises(ValueError, match=f"A batch has {n} examples, far more than expected"):
                            Summation.within(error, n, dtype)
                        continue
                    found = Summation.within(error, n, dtype)
                    per_product = min(n, found.per_product)
                    spent = growth(n) if found.is_plain else growth(per_product) + growth(found.per_group)
                    if found.is_double:
                        assert 2.0**-53 * n * growth(n) <= error
                    else:
                        assert unit * n * (spent + 2) <= error
    assert reserved_share(2048, torch.float32) == SHARE
    assert reserved_share(20, torch.float32) < 5e-4
    assert reserved_share(1e4, torch.float64) == 1e-6
    assert 1 / room(2048, torch.float32) < 1.0101
    for expected in (32, 100, 150):  # twice as many are added up in one product
        assert Summation.within(reserved_share(expected, torch.float32) / 2, 2 * expected, torch.float32).is_plain


def test_norms_allow_for_the_rounding_of_every_term_that_cancels():
    """The three outer products cancel exactly, so that only the allowances are left."""
    places, p, q = 3, 8, 9
    left, right = torch.ones(1, 1, places, p), torch.ones(1, 1, places, q)
    right[:, :, 1], right[:, :, 2] = -0.25, -0.75
    sizes = 2 * math.sqrt(p * q)
    in_double = math.sqrt((p + q + places**2 + 4) * 2.0**-52) * sizes
    in_single = (places + 4) * 2.0**-23 * sizes
    found = squared_norms_by_places(left, right).item()
    assert found == pytest.approx((in_double + in_single) ** 2, rel=1e-6, abs=0)


@pytest.mark.parametrize("places", [1, 2, 7])
def test_a_norm_grows_by_its_rounding_error_if_that_is_more_than_a_hundred_thousandth(places):
    sizes = 1e-5 / ((places + 4) * 2.0**-23)  # the norms of the terms of a sum of norm 1, up to which it is accurate
    norms = torch.tensor([1.0, 1.0, 4.0, 0.0], dtype=torch.float64)
    sizes = sizes * torch.tensor([0.99, 1.01, 2.0, 1.0], dtype=torch.float64)
    found = allowing_for_cancellation(norms.square(), sizes, places).sqrt()
    assert found.tolist() == pytest.approx([1.0, 1 + 1.01e-5, 4.0, 1e-5], rel=1e-9, abs=0)
    assert allowing_for_cancellation(-norms[:1], sizes[:1], places).sqrt().item() == pytest.approx(
        0.99e-5, rel=1e-9, abs=0
    )


def test_norms_by_places_are_those_of_the_written_out_products(monkeypatch):
    """They are computed for a few examples at a time, whose number has no influence."""
    generator = torch.Generator().manual_seed(0)
    left, right = torch.randn(7, 2, 3, 5, generator=generator), torch.randn(7, 2, 3, 4, generator=generator)
    exact = torch.einsum("bgtq,bgtp->bgqp", right.double(), left.double()).square().sum((1, 2, 3))
    for chunk in (1, 54, 108, 200, 1 << 17):
        monkeypatch.setattr(outer_products_module, "CHUNK", chunk)
        torch.testing.assert_close(squared_norms_by_places(left, right), exact, rtol=1e-5, atol=0)


def test_factors_out_of_range_count_as_infinite_by_either_criterion():
    """Products of norm above 1e30 overflow when they are added. Beside a square above 1e200 others may underflow."""
    ones = torch.ones(1, 1, 2, 3, dtype=torch.float64)
    other = ones.clone()
    other[0, 0, 1] *= 1e105
    for left, right in ((other, 1e-150 * ones), (1e-150 * ones, other)):
        assert squared_norms_by_places(left, right).item() == math.inf
    assert squared_norms_by_places(5e14 * ones, 5e14 * ones).item() == math.inf
    for left, right in ((4e14 * ones, 4e14 * ones), (1e90 * ones, 1e-90 * ones)):
        exact = float((left[0, 0].T @ right[0, 0]).square().sum())
        assert squared_norms_by_places(left, right).item() == pytest.approx(exact, rel=1e-4)


@pytest.mark.parametrize(("places", "p", "q", "are_few"), [(1, 4, 4, True), (2, 4, 4, False), (2, 8, 3, True)])
def test_places_are_few_if_their_inner_products_are_cheaper(places, p, q, are_few):
    """T^2 (p + q) operations against T p q."""
    assert places_are_few(places, p, q) is are_few
    assert not places_are_few(p + q, p, q)


# ------------------------------------------------------------------------------------------------- how sums are made


@pytest.mark.parametrize(("dtype", "unit"), [(torch.float32, 2.0**-24), (torch.float64, 2.0**-53)])
def test_the_reserved_share_is_counted_by_hand(dtype, unit):
    """Twice u n ((2 n + 8) / 3 + 2) for twice the expected examples, at least 64, between 1e-6 and 1 %."""
    for expected, n in ((1, 64), (32, 64), (100, 200), (150.5, 301), (10**5, 2 * 10**5)):
        share = min(0.01, max(1e-6, 2 * unit * n * ((2 * n + 8) / 3 + 2)))
        assert reserved_share(expected, dtype) == pytest.approx(share, rel=1e-12, abs=0)
        assert room(expected, dtype) == pytest.approx(1 / ((1 + share) * (1 + 2.0**-15)), rel=1e-12)


@pytest.mark.parametrize("clip_norm", [1e-12, 1e25])
def test_the_smallest_and_the_largest_clip_norm_are_accepted(clip_norm):
    for factor in (1.0, 0.99 if clip_norm < 1 else 1.01):
        plan = GradientPlan(Poisson(0.5), 3, factor * clip_norm, 1.0, public_n=10, delta=1e-5)
        model = nn.Linear(2, 1)
        if factor == 1:
            PrivateTraining(model, torch.optim.SGD(model.parameters()), [], plan=plan, loss=squares)
            continue
        with pytest.raises(ValueError, match="clip_norm"):
            PrivateTraining(model, torch.optim.SGD(model.parameters()), [], plan=plan, loss=squares)


def test_no_product_could_be_larger_within_the_allowed_error():
    for n in (400, 1000, 4096, 10_000):
        found = Summation.within(SHARE / 2, n)
        spent = [(2 * found.per_product + 8 + extra) / 3 + (2 * found.per_group + 8) / 3 + 2 for extra in (0, 4)]
        assert UNIT * n * spent[0] <= SHARE / 2 < UNIT * n * spent[1]
        assert not found.is_plain
    assert Summation.within(0.01, 0) == Summation.within(0.01, 1) == Summation(1, 1, 1, False, UNIT)
    assert Summation.within(1e-9, 100, torch.float64) == Summation(100, 100, 1, False, 2.0**-53)


SINGLE, DOUBLE = torch.float32, torch.float64


@pytest.mark.parametrize(
    ("summation", "parts", "expected"),
    [
        (Summation(4, 4, 1, False, UNIT), 1, SINGLE),
        (Summation(4, 4, 1, False, UNIT), 2, SINGLE),
        (Summation(12, 4, 3, False, UNIT), 1, SINGLE),
        (Summation(12, 4, 3, False, UNIT), 2, DOUBLE),
        (Summation(13, 4, 3, False, UNIT), 1, DOUBLE),
        (Summation(3, 4, 3, True, UNIT), 1, DOUBLE),
    ],
)
def test_a_sum_of_several_groups_or_parts_is_in_double_precision(summation, parts, expected):
    assert summation.slot_dtype(SINGLE, parts) is expected
    assert summation.slot_dtype(DOUBLE, parts) is DOUBLE


@pytest.mark.parametrize("slot_dtype", [SINGLE, DOUBLE])
@pytest.mark.parametrize(
    ("summation", "kind", "slices"),
    [
        (Summation(10, 10, 1, False, UNIT), SINGLE, [(0, 10)]),
        (Summation(10, 3, 2, True, UNIT), DOUBLE, [(0, 10)]),
        (Summation(10, 3, 2, False, 2.0**-53), DOUBLE, [(0, 10)]),
        (Summation(10, 3, 2, False, UNIT), SINGLE, [(0, 3), (3, 6), (6, 9), (9, 10)]),
        (Summation(10, 4, 9, False, UNIT), SINGLE, [(0, 4), (4, 8), (8, 10)]),
    ],
)
def test_examples_are_added_up_in_products_and_groups(summation, kind, slices, slot_dtype):
    """Gradients in a wider unit than the plan of the sum was made for are added in double precision."""
    values, seen = torch.arange(1.0, 11.0)[:, None].expand(-1, 2), []

    def add(chosen, out, beta):
        seen.append((chosen.start, chosen.stop))
        assert out.dtype is kind
        out.mul_(beta).add_(values[chosen].sum(0).to(out.dtype)) if beta else out.copy_(values[chosen].sum(0))

    start = 0.0 if slot_dtype is SINGLE else 100.0
    slot = torch.full((2,), start, dtype=slot_dtype)
    summation.add_sum(slot, 10, values, add)
    assert slot.tolist() == [start + 55.0] * 2
    assert seen == slices


def test_no_examples_add_nothing():
    for summation in (
        Summation(10, 10, 1, False, UNIT),
        Summation(10, 3, 2, True, UNIT),
        Summation(9, 3, 2, False, UNIT),
    ):
        slot = torch.ones(2)
        summation.add_sum(slot, 0, torch.zeros(0, 2), None)
        assert slot.tolist() == [1, 1]


@pytest.mark.parametrize("chosen", ["medium", "highest"])
def test_products_have_full_precision_within_the_context_only(chosen):
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision(chosen)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            with full_precision("cpu"):
                assert torch.get_float32_matmul_precision() == "highest"
                assert not torch.is_autocast_enabled("cpu")
            assert torch.is_autocast_enabled("cpu")
        assert torch.get_float32_matmul_precision() == chosen
    finally:
        torch.set_float32_matmul_precision(before)


def test_the_norm_of_an_example_does_not_depend_on_the_size_of_its_batch():
    generator = torch.Generator().manual_seed(0)
    gradients = [torch.randn(33, 7, generator=generator) for _ in range(40)]
    plan = Summation.within(0.01, 33)

    def norms(size):
        parts = {number: Direct(each[:size]) for number, each in enumerate(gradients)}
        return BatchGradients(torch.zeros(size), parts, plan).norms()

    whole = norms(33)
    for size in range(1, 34):
        assert torch.equal(norms(size), whole[:size])


@pytest.mark.parametrize("clip", [1e-9, 1e-4])
def test_a_factor_whose_squares_underflow_beside_a_huge_one_does_not_get_past_the_clip(clip):
    left = torch.full((1, 1, 20, 400), 1.2e-162, dtype=torch.float64)
    right = torch.zeros(1, 1, 20, 400, dtype=torch.float64)
    right[..., 0] = 1.3e154
    slot = torch.zeros(160_000, dtype=torch.float64)
    found = BatchGradients(
        torch.zeros(1), {0: OuterSum(left, right, (400, 400))}, Summation.within(1e-6, 1, slot.dtype)
    )
    found.add_clipped_sum(clip, {0: slot})
    assert float(slot.norm()) <= clip


def test_precisions_that_were_chosen_by_the_newer_settings_are_overridden_and_restored():
    settings = torch.backends.mkldnn.matmul
    before = settings.fp32_precision
    settings.fp32_precision = "bf16"
    try:
        with full_precision("cpu"):
            assert settings.fp32_precision == "ieee"
        assert settings.fp32_precision == "bf16"
    finally:
        settings.fp32_precision = before
