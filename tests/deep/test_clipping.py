"""Gradient rules compared with vmap over random shapes; shared, unused and frozen parameters; rejected layers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="deep networks need torch: install the extra deep")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from privet.deep.clipping import batch_gradients, layers_of  # noqa: E402
from privet.deep.clipping import convolution as convolution_module  # noqa: E402
from privet.deep.clipping import gradients as gradients_module  # noqa: E402
from privet.deep.clipping import outer_products as outer_products_module  # noqa: E402
from privet.deep.clipping.contributions import together  # noqa: E402
from privet.deep.clipping.gradients import Direct, OuterSum, RowSum  # noqa: E402
from privet.deep.clipping.rules import has_rule  # noqa: E402
from privet.deep.clipping.summing import Summation  # noqa: E402


def squares(outputs, targets):
    return (outputs.flatten(1) - targets[:, None]).square().sum(1)


def by_vmap(model, inputs, targets, loss):
    """Return the gradient of every example, as torch computes it."""
    values = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}

    def one(values, example, target):
        return loss(torch.func.functional_call(model, values, (example[None],), tie_weights=True), target[None])[0]

    return torch.func.vmap(torch.func.grad(one), (None, 0, 0))(values, inputs, targets)


def check(model, inputs, loss=squares, targets=None, tolerance=1e-5):
    torch.manual_seed(1)
    targets = torch.randn(len(inputs)) if targets is None else targets
    found = batch_gradients(model, loss, (inputs,), targets)
    expected = by_vmap(model, inputs, targets, loss)
    norms = torch.stack([g.flatten(1).square().sum(1) for g in expected.values()]).sum(0).sqrt()
    torch.testing.assert_close(found.norms(), norms, rtol=tolerance, atol=1e-6, check_dtype=False)
    clip = float(norms.median()) or 1.0
    weights = (clip / norms.clamp_min(1e-12)).clamp_max(1.0)
    sums = found.clipped_sum(clip)
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            assert parameter not in sums
            continue
        reference = torch.einsum("b,b...->...", weights, expected[name])
        value = sums.get(parameter, torch.zeros_like(parameter))
        assert float((value - reference).norm()) <= tolerance * (float(reference.norm()) + 1e-3), name
    assert torch.equal(found.losses, loss(model(inputs), targets).detach())
    slots = {parameter: torch.zeros(parameter.numel(), dtype=torch.float64) for parameter in sums}
    assert not found.add_clipped_sum(clip, slots).any()
    for parameter, value in sums.items():
        assert float((slots[parameter] - value.flatten()).norm()) <= tolerance * (float(value.norm()) + 1e-3)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    st.integers(1, 5),
    st.lists(st.integers(1, 4), max_size=2),
    st.integers(1, 6),
    st.integers(1, 6),
    st.booleans(),
)
def test_linear_matches_vmap(batch, places, p, q, bias):
    torch.manual_seed(batch + p)
    check(nn.Linear(p, q, bias=bias), torch.randn(batch, *places, p))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.sampled_from([1, 2, 3]),
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(1, 2),
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(0, 2),
    st.integers(1, 2),
    st.sampled_from(["zeros", "reflect", "circular", "replicate"]),
    st.booleans(),
)
def test_convolutions_match_vmap(dimensions, batch, p, q, kernel, stride, padding, dilation, mode, bias):
    torch.manual_seed(dimensions)
    groups = 2 if batch % 2 else 1
    kind = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dimensions - 1]
    layer = kind(
        p * groups,
        q * groups,
        kernel,
        stride,
        padding,
        dilation,
        groups,
        bias,
        padding_mode=mode if padding else "zeros",
    )
    check(layer, torch.randn(batch, p * groups, *range(6, 6 + dimensions)))


def test_same_padding_and_long_kernels_match_vmap():
    check(nn.Conv2d(2, 3, (3, 2), padding="same", dilation=2), torch.randn(3, 2, 7, 6))
    check(nn.Conv1d(1, 40, 5), torch.randn(2, 1, 9))
    check(
        nn.Conv2d(8, 8, 3), torch.randn(2, 8, 4, 4)
    )  # With more channels than positions, inner products of positions are used.


@pytest.mark.parametrize("padding", [None, 0])
def test_embeddings_with_repeated_words_match_vmap(padding):
    model = nn.Sequential(nn.Embedding(7, 4, padding_idx=padding), nn.Flatten(), nn.Linear(20, 3))
    check(model, torch.randint(0, 7, (6, 5)))


@pytest.mark.parametrize("affine", [True, False])
def test_normalisations_match_vmap(affine):
    """The test uses double precision, because the gradients of normalised outputs nearly cancel."""
    front = nn.Conv2d(2, 4, 3)
    for layer in (nn.GroupNorm(2, 4, affine=affine), nn.InstanceNorm2d(4, affine=affine)):
        check(nn.Sequential(front, layer).double(), torch.randn(3, 2, 6, 6).double(), targets=torch.ones(3).double())
    for shape in (5, (3, 5)):
        model = nn.Sequential(nn.Linear(5, 5), nn.LayerNorm(shape, elementwise_affine=affine)).double()
        check(model, torch.randn(4, 3, 5).double(), targets=torch.ones(4).double())


class Twice(nn.Module):
    """A model with one layer that is used twice, one whose output the loss ignores, and one that is never used."""

    def __init__(self):
        super().__init__()
        self.inner, self.unseen, self.unused = nn.Linear(4, 4), nn.Linear(4, 2), nn.Linear(4, 2)

    def forward(self, x):
        self.unseen(x)
        return self.inner(torch.tanh(self.inner(x)))


def test_layers_that_are_used_twice_or_not_at_all_match_vmap():
    model = Twice()
    check(model, torch.randn(5, 4))
    check(model, torch.randn(5, 3, 4))
    assert model.unused.weight not in batch_gradients(model, squares, (torch.randn(2, 4),), torch.zeros(2)).parts


class Tied(nn.Module):
    """A model whose embedding table is also the weight of the last layer."""

    def __init__(self):
        super().__init__()
        self.table, self.last = nn.Embedding(9, 4), nn.Linear(4, 9, bias=False)
        self.last.weight = self.table.weight

    def forward(self, words):
        return self.last(torch.tanh(self.table(words).mean(1)))


def test_tied_weights_match_vmap():
    check(Tied(), torch.randint(0, 9, (5, 6)))


class Scale(nn.Module):
    """A layer without a rule."""

    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.randn(3))

    def forward(self, x):
        return x * self.factor + self.factor.sum()


def test_a_layer_without_a_rule_uses_the_general_rule():
    model = nn.Sequential(nn.Linear(4, 3), Scale(), nn.Linear(3, 2))
    assert not has_rule(model[1])
    check(model, torch.randn(5, 4))


class Other(nn.Linear):
    """A subclass that computes something else, so that the rule of its parent would be wrong."""

    def forward(self, x):
        return super().forward(x) * 2


def test_a_subclass_does_not_inherit_a_rule():
    assert not has_rule(Other(2, 2))
    check(nn.Sequential(Other(4, 3), nn.Linear(3, 2)), torch.randn(5, 4))


def test_frozen_layers_have_no_gradients():
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    model[0].weight.requires_grad_(False)
    check(model, torch.randn(5, 4))
    model[0].bias.requires_grad_(False)
    check(model, torch.randn(5, 4))
    assert [parameter.requires_grad for parameter in model.parameters()] == [False, False, True, True]


def test_cross_entropy_of_the_papers_network_matches_vmap():
    model = nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, padding=2), nn.Tanh(), nn.MaxPool2d(2, 1), nn.Conv2d(16, 32, 4, 2), nn.Tanh(),
        nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(512, 32), nn.Tanh(), nn.Linear(32, 10),
    )  # fmt: skip
    loss = nn.CrossEntropyLoss(reduction="none")
    check(model, torch.randn(9, 1, 28, 28), loss, torch.randint(0, 10, (9,)))


def test_clipping_bounds_the_norm_of_each_example():
    model, inputs = nn.Linear(3, 2), torch.randn(1, 3) * 1e4
    total = batch_gradients(model, squares, (inputs,), torch.zeros(1)).clipped_sum(0.5)
    assert float(torch.cat([value.flatten() for value in total.values()]).norm()) <= 0.5 * (1 + 1e-6)


def test_an_example_with_a_gradient_that_is_not_finite_contributes_zero():
    model = nn.Linear(3, 2)
    inputs = torch.randn(4, 3)
    clean = batch_gradients(model, squares, (inputs[:3],), torch.zeros(3)).clipped_sum(1.0)
    inputs[3, 0] = float("inf")
    dirty = batch_gradients(model, squares, (inputs,), torch.zeros(4)).clipped_sum(1.0)
    for parameter, value in clean.items():
        torch.testing.assert_close(dirty[parameter], value)


def test_parameters_and_hooks_are_restored():
    model = nn.Linear(3, 2)
    with pytest.raises(ValueError, match="one value per example"):
        batch_gradients(model, lambda outputs, targets: outputs.mean(), (torch.randn(4, 3),), torch.zeros(4))
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())
    assert not model._forward_hooks


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(3), nn.BatchNorm2d(3), nn.SyncBatchNorm(3)])
def test_layers_that_mix_examples_are_rejected_with_an_alternative(layer):
    with pytest.raises(ValueError, match=r"nn.GroupNorm"):
        layers_of(nn.Sequential(nn.Linear(3, 3), layer))


def test_embeddings_that_use_the_whole_batch_are_rejected():
    layer = nn.Embedding(4, 2, scale_grad_by_freq=True)
    with pytest.raises(ValueError, match="all examples at once"):
        batch_gradients(layer, squares, (torch.randint(0, 4, (3, 2)),), torch.zeros(3))


def test_other_unsupported_settings_are_rejected():
    running = nn.Sequential(nn.Conv1d(2, 2, 1), nn.InstanceNorm1d(2, affine=True, track_running_stats=True))
    with pytest.raises(ValueError, match="track_running_stats"):
        batch_gradients(running, squares, (torch.randn(3, 2, 4),), torch.zeros(3))


def test_outputs_may_be_changed_in_place():
    """As in ordinary training, a gradient belongs to a place in the graph, not to a tensor."""
    layers = (nn.Linear(3, 3), nn.ReLU(inplace=True), nn.Linear(3, 2), nn.Hardtanh(inplace=True))
    check(nn.Sequential(*layers), torch.randn(4, 3))


class WritesOver(nn.Module):
    """A model that changes the input of a layer after the layer was called."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 2)

    def forward(self, x):
        hidden = self.first(x)
        out = self.second(hidden)
        hidden.mul_(2)
        return out + hidden[:, :2]


def test_inputs_that_are_changed_in_place_are_rejected():
    with pytest.raises(ValueError, match="changed in place"):
        batch_gradients(WritesOver(), squares, (torch.randn(3, 3),), torch.zeros(3))


@pytest.mark.parametrize("moved", [0.1, 1e-3])
def test_differences_of_gradients_at_two_points_match_vmap(moved):
    """Norms and clipped sums of g - h are compared, also where the two gradients nearly cancel."""
    for model, inputs in (
        (nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)), torch.randn(5, 4)),
        (nn.Sequential(nn.Linear(9, 8), nn.Tanh(), nn.Linear(8, 7)), torch.randn(5, 2, 9)),
        (nn.Sequential(nn.Conv2d(2, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(12, 2)), torch.randn(5, 2, 4, 4)),
        (nn.Sequential(nn.Conv2d(8, 9, 3), nn.Tanh(), nn.Conv2d(9, 3, 1)), torch.randn(5, 8, 4, 4)),
        (nn.Sequential(nn.Embedding(7, 4), nn.Flatten(), nn.Linear(8, 2)), torch.randint(0, 7, (5, 2))),
        (Tied(), torch.randint(0, 9, (5, 6))),
    ):
        targets = torch.randn(5)
        here = batch_gradients(model, squares, (inputs,), targets)
        exact = [by_vmap(model.double(), _double(inputs), targets.double(), squares)]
        model.float()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(moved * torch.randn_like(parameter))
        there = batch_gradients(model, squares, (inputs,), targets)
        exact.append(by_vmap(model.double(), _double(inputs), targets.double(), squares))
        model.float()
        difference = here.minus(there)
        written = {name: exact[0][name] - exact[1][name] for name in exact[0]}
        norms = torch.stack([value.flatten(1).square().sum(1) for value in written.values()]).sum(0).sqrt()
        torch.testing.assert_close(difference.norms().double(), norms, rtol=1e-3, atol=1e-6)
        clip = float(norms.median())
        weights = (clip / norms).clamp_max(1.0)
        for name, parameter in model.named_parameters():
            expected = torch.einsum("b,b...->...", weights, written[name])
            error = difference.clipped_sum(clip)[parameter].double() - expected
            assert float(error.norm()) <= 2e-3 * float(norms.sum()), name


def random(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def patches(channels, outputs, size, groups=1, **options):
    layer = nn.Conv2d(channels, outputs, 3, groups=groups, bias=False, **options)
    inputs = random(9, channels, size, size)
    return convolution_module.PatchSum(layer, inputs, random(*layer(inputs).shape))


PARTS = {
    "direct": lambda: Direct(random(9, 4, 3)),
    "one place, wide": lambda: OuterSum(random(9, 1, 1, 5), random(9, 1, 1, 3), (3, 5)),
    "one place, tall": lambda: OuterSum(random(9, 1, 1, 3), random(9, 1, 1, 5), (5, 3)),
    "one place, groups": lambda: OuterSum(random(9, 2, 1, 3), random(9, 2, 1, 4), (8, 3)),
    "very few places": lambda: OuterSum(random(9, 1, 2, 12), random(9, 1, 2, 13), (13, 12)),
    "few places, groups": lambda: OuterSum(random(9, 2, 4, 10), random(9, 2, 4, 11), (22, 10)),
    "many places": lambda: OuterSum(random(9, 1, 7, 3), random(9, 1, 7, 4), (4, 3)),
    "rows": lambda: RowSum(torch.arange(36).reshape(9, 4) ** 2 % 5, random(9, 4, 3), (5, 3)),
    "large images": lambda: patches(2, 3, 9),
    "small images": lambda: patches(8, 9, 4),
    "small images, groups": lambda: patches(16, 18, 4, groups=2),
    "tiny images": lambda: patches(8, 9, 3),
    "strides": lambda: patches(3, 4, 9, stride=2, dilation=2),
}
SUMMATIONS = {
    "plain": Summation(9, 9, 1, False, 2.0**-24),
    "groups": Summation(9, 2, 2, False, 2.0**-24),
    "double": Summation(9, 2, 2, True, 2.0**-24),
}


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("chunk", [1, 40, 300, 1 << 18])
def test_norms_and_weighted_sums_are_those_of_written_out_gradients(name, chunk, monkeypatch):
    """This holds for every way of adding up, and for every number of examples that are processed at a time."""
    for module, constant in (
        (gradients_module, "CHUNK"),
        (outer_products_module, "CHUNK"),
        (convolution_module, "_CHUNK"),
    ):
        monkeypatch.setattr(module, constant, chunk)
    written = PARTS[name]().written_out().double()
    weights = torch.linspace(0.1, 1.0, 9, dtype=torch.float64)
    expected = torch.einsum("b,b...->...", weights, written)
    torch.testing.assert_close(PARTS[name]().squared_norms(), written.flatten(1).square().sum(1), rtol=1e-4, atol=0)
    for summation in SUMMATIONS.values():
        part = PARTS[name]()
        assert part.like().shape == expected.shape
        found = part.weighted_sum(weights, summation)
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
        assert found.dtype is (torch.float32 if summation.is_plain else torch.float64)
        slot = torch.full((expected.numel(),), 2.0, dtype=torch.float64)
        part.add_weighted_sum(weights, slot, summation)
        torch.testing.assert_close(slot, 2.0 + expected.flatten(), rtol=1e-5, atol=1e-5)
    chosen = weights > 0.45
    torch.testing.assert_close(PARTS[name]().only(chosen).written_out().double(), written[chosen])


@pytest.mark.parametrize("name", PARTS)
def test_differences_and_sums_of_gradients_are_those_of_written_out_ones(name):
    one, other = PARTS[name](), PARTS[name]().only(torch.arange(9).flip(0) >= 0)
    factor = "values" if isinstance(other, Direct) else "grads" if hasattr(other, "grads") else "right"
    object.__setattr__(other, factor, getattr(other, factor).flip(0) + 0.5)
    exact = one.written_out().double() - other.written_out().double()
    difference = one.minus(other)
    torch.testing.assert_close(difference.written_out().double(), exact, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(difference.squared_norms(), exact.flatten(1).square().sum(1), rtol=1e-4, atol=0)
    total = together([one, other])
    exact = one.written_out().double() + other.written_out().double()
    torch.testing.assert_close(total.written_out().double(), exact, rtol=1e-5, atol=1e-5)
    mixed = together([one, Direct(other.written_out())])
    torch.testing.assert_close(mixed.written_out().double(), exact, rtol=1e-5, atol=1e-5)
    assert together([one]) is one


def test_gradients_that_use_other_rows_are_subtracted_row_by_row():
    """A model may look up other rows of a table at other weights."""
    one, other, whole = (
        RowSum(torch.tensor([[0, 2], [1, 1]]), torch.randn(2, 2, 3), (4, 3)),
        RowSum(torch.tensor([[0, 3], [1, 1]]), torch.randn(2, 2, 3), (4, 3)),
        Direct(torch.randn(2, 4, 3)),
    )
    for subtracted in (other, whole):
        exact = one.written_out() - subtracted.written_out()
        torch.testing.assert_close(one.minus(subtracted).written_out(), exact)


def _double(inputs):
    return inputs.double() if inputs.is_floating_point() else inputs


@pytest.mark.parametrize("shape", [(2, 8, 4, 4), (2, 8, 9, 9)])
def test_memory_formats_do_not_change_gradients(shape):
    """Inputs and output gradients may have their channels last in memory."""
    model = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.Tanh(), nn.Conv2d(16, 9, 2, stride=2, groups=1))
    check(model, torch.randn(shape).to(memory_format=torch.channels_last))


def test_clipping_holds_when_large_terms_cancel():
    """The sum of cancelling positions may be smaller than the rounding of large terms. Clipping must still hold."""
    torch.manual_seed(0)
    model = nn.Linear(64, 64, bias=False)
    one = torch.randn(64, 1, 64) * 1e3
    inputs = torch.cat([one, one * (1 + 1e-6 * torch.randn_like(one))], dim=1)
    signs = torch.tensor([1.0, -1.0])[None, :, None]
    found = batch_gradients(model, lambda out, _: (signs * out).sum((1, 2)), (inputs,), torch.zeros(64))
    exact = by_vmap(model.double(), inputs.double(), torch.zeros(64).double(), lambda out, _: (signs * out).sum((1, 2)))
    norms = exact["weight"].flatten(1).norm(dim=1)
    weights = (1.0 / found.norms().double()).clamp_max(1.0)
    assert float((weights * norms).max()) <= 1.001


def test_relu_and_functional_activations_need_no_rule():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 2)

        def forward(self, x):
            return self.b(functional.gelu(self.a(x)))

    check(Net(), torch.randn(6, 4))
