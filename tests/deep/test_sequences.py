"""Recurrent layers and attention compared with autograd on single examples; recording; rejected models."""

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="deep networks need torch: install the extra deep")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.nn.utils.rnn import pack_padded_sequence  # noqa: E402

from privet.deep.clipping import batch_gradients, layers_of  # noqa: E402
from privet.deep.clipping.recording import recorded  # noqa: E402
from privet.deep.clipping.rules import has_rule  # noqa: E402

MANY = settings(max_examples=25, deadline=None, derandomize=True)


def waves(outputs, targets):
    """Return a nonlinear loss that depends on every value of every output."""
    flat = outputs.flatten(1)
    return (flat.sin() * torch.linspace(0.5, 1.5, flat.shape[1], dtype=flat.dtype)).sum(1) * targets


def one_by_one(model, inputs, targets, loss=waves):
    """Return the gradient of every example, by autograd on batches of one."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    found = []
    for i in range(len(targets)):
        value = loss(model(*(x[i : i + 1] for x in inputs)), targets[i : i + 1]).sum()
        grads = torch.autograd.grad(value, trained, allow_unused=True)
        found.append([torch.zeros_like(p) if g is None else g for p, g in zip(trained, grads, strict=True)])
    return {p: torch.stack(grads) for p, grads in zip(trained, zip(*found, strict=True), strict=True)}


def check(model, *inputs, loss=waves):
    """Compare norms, clipped sums and losses in double and in single precision."""
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 1e-5)):
        network = copy.deepcopy(model).to(dtype)
        given = tuple(x.to(dtype) if x.is_floating_point() else x for x in inputs)
        targets = torch.linspace(0.2, 2.0, len(inputs[0]), dtype=dtype)
        found, expected = batch_gradients(network, loss, given, targets), one_by_one(network, given, targets, loss)
        norms = torch.stack([g.flatten(1).square().sum(1) for g in expected.values()]).sum(0).sqrt()
        torch.testing.assert_close(found.norms(), norms, rtol=tolerance, atol=tolerance, check_dtype=False)
        clip = float(norms.median())
        sums, weights = found.clipped_sum(clip), (clip / norms.clamp_min(1e-12)).clamp_max(1.0)
        for name, parameter in network.named_parameters():
            if not parameter.requires_grad:
                assert parameter not in sums
                continue
            reference = torch.einsum("b,b...->...", weights, expected[parameter])
            assert not any(value.requires_grad for value in (sums.get(parameter, reference), found.norms()))
            error = float((sums.get(parameter, torch.zeros_like(parameter)) - reference).norm())
            assert error <= tolerance * (float(reference.norm()) + 0.1 * clip), name
        torch.testing.assert_close(found.losses, loss(network(*given), targets).detach(), rtol=tolerance, atol=1e-6)
        assert all("forward" not in vars(layer) for layer in network.modules())
        slots = {parameter: torch.zeros(parameter.numel(), dtype=torch.float64) for parameter in sums}
        assert not found.add_clipped_sum(clip, slots).any()
        for parameter, value in sums.items():
            assert float((slots[parameter] - value.flatten()).norm()) <= tolerance * (float(value.norm()) + 0.1 * clip)


class Reads(nn.Module):
    """A recurrent layer whose outputs all enter the loss, examples first."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, *states):
        hx = tuple(state.transpose(0, 1) for state in states)
        hx = hx if len(hx) > 1 else hx[0] if hx else None
        outputs, last = self.layer(x if self.layer.batch_first else x.transpose(0, 1), hx)
        outputs = outputs if self.layer.batch_first else outputs.transpose(0, 1)
        last = (last,) if isinstance(last, torch.Tensor) else last
        return torch.cat([outputs.flatten(1), *(state.transpose(0, 1).flatten(1) for state in last)], 1)


def projecting(size, hidden, **options):
    return nn.LSTM(size, hidden + 1, proj_size=hidden, **options)


def kinked(size, hidden, **options):
    return nn.RNN(size, hidden, nonlinearity="relu", **options)


@MANY
@given(
    st.sampled_from([nn.LSTM, projecting, nn.GRU, nn.RNN, kinked]),
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 3),
    *[st.booleans()] * 4,
)
def test_recurrent_layers_match_autograd(
    kind, batch, length, p, h, layers, bias, batch_first, bidirectional, is_started
):
    torch.manual_seed(length)
    layer = kind(p, h, num_layers=layers, bias=bias, batch_first=batch_first, bidirectional=bidirectional)
    states = []
    if is_started:
        runs = layers * (1 + bidirectional)
        states.append(torch.randn(batch, runs, h))
        if isinstance(layer, nn.LSTM):
            states.append(torch.randn(batch, runs, layer.hidden_size))
    check(Reads(layer), torch.randn(batch, length, p), *states)


class Doubles(nn.Module):
    """An LSTM whose outputs and last cell state are changed, in place or not (torch's own LSTM only allows not)."""

    def __init__(self, in_place):
        super().__init__()
        self.layer, self.in_place = nn.LSTM(3, 4, batch_first=True), in_place

    def forward(self, x):
        outputs, (_, cell) = self.layer(x)
        outputs, cell = (outputs.mul_(2.0), cell.add_(1.0)) if self.in_place else (outputs * 2.0, cell + 1.0)
        return torch.cat([outputs.flatten(1), cell[0]], 1)


def test_the_outputs_of_an_lstm_may_be_changed_in_place():
    torch.manual_seed(0)
    model, inputs, targets = Doubles(in_place=False), torch.randn(4, 3, 3), torch.ones(4)
    check(model, inputs)
    expected = batch_gradients(model, waves, (inputs,), targets).clipped_sum(1.0)
    model.in_place = True
    found = batch_gradients(model, waves, (inputs,), targets).clipped_sum(1.0)
    assert all(torch.equal(found[parameter], value) for parameter, value in expected.items())


class Steps(nn.Module):
    """A cell in a loop that the user wrote, whose first state comes from another layer."""

    def __init__(self, cell, size, hidden):
        super().__init__()
        self.cell, self.start = cell, nn.Linear(size, hidden)

    def forward(self, x):
        state = self.start(x[:, 0])
        state = (state, state.tanh()) if isinstance(self.cell, nn.LSTMCell) else state
        for each in x.unbind(1):
            state = self.cell(each, state)
        return torch.cat(state, 1) if isinstance(state, tuple) else state


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
@pytest.mark.parametrize("bias", [True, False])
def test_cells_match_autograd(kind, bias):
    check(Steps(kind(3, 4, bias=bias), 3, 4), torch.randn(5, 3, 3))
    layer = kind(3, 4)
    check(layer, torch.randn(5, 3), loss=lambda out, t: waves(out if isinstance(out, torch.Tensor) else out[0], t))


class Attends(nn.Module):
    """Attention of one sequence to others, whose output and weights enter the loss."""

    def __init__(self, layer, **options):
        super().__init__()
        self.layer, self.options = layer, options

    def forward(self, *given, **masks):
        query, key, value = (given * 3)[:3] if len(given) == 1 else given if len(given) == 3 else (*given, given[1])
        if not self.layer.batch_first:
            turned = {id(x): x.transpose(0, 1) for x in (query, key, value)}
            query, key, value = (turned[id(x)] for x in (query, key, value))
        output, weights = self.layer(query, key, value, **self.options, **masks)
        output = output if self.layer.batch_first else output.transpose(0, 1)
        return output.flatten(1) if weights is None else torch.cat([output.flatten(1), weights.flatten(1)], 1)


class Masked(nn.Module):
    """Attention with a mask per example: of padded keys, or of pairs for each example and head."""

    def __init__(self, attends):
        super().__init__()
        self.attends = attends

    def forward(self, mask, *given):
        name = "key_padding_mask" if mask.ndim == 2 else "attn_mask"
        return self.attends(*given, **{name: mask if mask.ndim == 2 else mask.flatten(0, 1)})


@MANY
@given(
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(1, 5),
    st.integers(1, 2),
    st.sampled_from(["self", "memory", "three", "other widths"]),
    *[st.booleans()] * 6,
)
def test_attention_matches_autograd(
    batch, length, other, heads, form, bias, batch_first, weights, averaged, learned, zero
):
    torch.manual_seed(length)
    width = 2 * heads
    kdim, vdim = (3, 5) if form == "other widths" else (width, width)
    layer = nn.MultiheadAttention(
        width, heads, bias=bias, add_bias_kv=learned, add_zero_attn=zero, kdim=kdim, vdim=vdim, batch_first=batch_first
    )
    query, key, value = (torch.randn(batch, *shape) for shape in ((length, width), (other, kdim), (other, vdim)))
    given = {"self": (query,), "memory": (query, key)}.get(form, (query, key, value))
    attends = Attends(layer, need_weights=weights, average_attn_weights=averaged)
    check(attends, *given)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("is_float", [True, False])
def test_masks_match_autograd(need_weights, is_float):
    torch.manual_seed(0)
    batch, length, heads = 3, 5, 2

    def mask(*shape):
        hidden = torch.rand(*shape) < 0.4
        hidden[..., 0] = False  # At least one key stays visible.
        return torch.randn(*shape) if is_float else hidden

    x, memory = torch.randn(batch, length, 4), torch.randn(batch, 4, 4)
    for layer in (
        nn.MultiheadAttention(4, heads, batch_first=True),
        nn.MultiheadAttention(4, heads, add_bias_kv=True, add_zero_attn=True),
    ):
        pairs = mask(length, length)
        both = Attends(layer, need_weights=need_weights, attn_mask=pairs)
        if not is_float:
            check(both, x)
            check(Masked(both), mask(batch, length), x)
        plain = Attends(layer, need_weights=need_weights)
        check(Masked(plain), mask(batch, length), x)
        check(Masked(plain), mask(batch, heads, length, length), x)
        check(Masked(plain), mask(batch, 4), x, memory)
        check(Masked(plain), mask(batch, heads, length, 4), x, memory)
        causal = torch.ones(length, length).triu(1).bool()
        check(Attends(layer, need_weights=need_weights, attn_mask=causal, is_causal=True), x)


def test_recorded_layers_return_the_usual_outputs():
    """This includes training mode, in which only dropout differs between runs."""
    torch.manual_seed(0)
    x = torch.randn(4, 6, 8)
    float_mask = nn.Transformer.generate_square_subsequent_mask(6)
    for layer in (
        nn.LSTM(8, 5, 2, batch_first=True, bidirectional=True),
        nn.LSTM(8, 5, proj_size=3),
        nn.GRU(8, 5, 2),
        nn.RNN(8, 5, nonlinearity="relu"),
        nn.MultiheadAttention(8, 2, batch_first=True),
    ):
        given = (x, x, x) if isinstance(layer, nn.MultiheadAttention) else (x,)
        options = {"attn_mask": float_mask, "is_causal": True} if len(given) == 3 else {}
        for mode in (True, False):
            layer.train(mode)
            expected = layer(*given, **options)
            with recorded(layer, [layer], given, 3) as record, record.observed():
                found = layer(*given, **options)
            assert record.calls
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_dropout_drops_in_training_mode_only():
    x = torch.randn(3, 4, 6)
    for layer in (
        nn.LSTM(6, 6, 2, dropout=0.5, batch_first=True),
        nn.MultiheadAttention(6, 2, dropout=0.5, batch_first=True),
    ):
        model = Reads(layer) if isinstance(layer, nn.LSTM) else Attends(layer, need_weights=False)
        first, second = (batch_gradients(model, waves, (x,), torch.ones(3)).losses for _ in range(2))
        assert not torch.equal(first, second)
        check(model.eval(), x)


@pytest.mark.parametrize("norm_first", [True, False])
def test_transformers_match_autograd(norm_first):
    """This includes evaluation mode, in which torch has a fast path that bypasses all layers."""
    torch.manual_seed(0)
    options = {"dim_feedforward": 12, "dropout": 0.0, "batch_first": True, "norm_first": norm_first}
    x, memory = torch.randn(4, 5, 8), torch.randn(4, 3, 8)
    hidden = torch.zeros(4, 5, dtype=torch.bool)
    hidden[1, 3:] = hidden[2, 1:] = True
    encoder = nn.TransformerEncoderLayer(8, 2, **options)
    check(encoder, x)
    check(encoder.eval(), x)
    check(nn.TransformerDecoderLayer(8, 2, **options), x, memory)

    class Padded(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(9, 8, padding_idx=0)
            self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, **options), 2)

        def forward(self, x, hidden):
            seen = self.encoder(self.words(x), src_key_padding_mask=hidden)
            return seen.masked_fill(hidden[:, :, None], 0.0).sum(1)

    words = torch.randint(1, 9, (4, 5)).masked_fill(hidden, 0)
    check(Padded(), words, hidden)
    check(Padded().eval(), words, hidden)


class Shared(nn.Module):
    """A model with layers that are used twice, and one that also belongs to another part."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 4, batch_first=True)
        self.look = nn.MultiheadAttention(4, 2, batch_first=True)
        self.last = nn.Linear(4, 2)
        self.again = nn.Sequential(nn.Tanh(), self.last)

    def forward(self, x):
        once, (h, c) = self.lstm(x)
        twice, _ = self.lstm(once.flip(1), (h, c))
        seen, _ = self.look(twice, twice, twice)
        seen, _ = self.look(seen, x, x)
        return torch.cat([self.last(seen), self.again(seen)], 2)


def test_layers_that_are_used_twice_match_autograd():
    check(Shared(), torch.randn(3, 5, 4))


def test_partly_frozen_layers_match_autograd():
    torch.manual_seed(0)
    model = Shared()
    for parameter in (model.lstm.weight_hh_l0, model.lstm.bias_ih_l0, model.look.in_proj_weight, model.last.weight):
        parameter.requires_grad_(False)
    check(model, torch.randn(3, 5, 4))
    model.lstm.requires_grad_(False)
    check(model, torch.randn(3, 5, 4))
    assert not model.lstm.weight_ih_l0.requires_grad and model.look.out_proj.weight.requires_grad
    model.requires_grad_(False)
    model.lstm.bias_hh_l0.requires_grad_(True)
    check(model, torch.randn(3, 5, 4))


def test_a_language_model_with_words_and_positions_matches_autograd():
    class Model(nn.Module):
        def __init__(self, expand):
            super().__init__()
            self.expand, self.words, self.places = expand, nn.Embedding(11, 6), nn.Embedding(7, 6)
            self.lstm, self.last = nn.LSTM(6, 6, 2, batch_first=True), nn.Linear(6, 11, bias=False)
            self.last.weight = self.words.weight

        def forward(self, words):
            places = torch.arange(words.shape[1])
            places = places.expand_as(words) if self.expand else places
            return self.last(self.lstm(self.words(words) + self.places(places))[0])

    words = torch.randint(0, 11, (7, 7))  # As many examples as positions.

    def loss(outputs, targets):
        return functional.cross_entropy(outputs.transpose(1, 2), words[: len(outputs)], reduction="none").sum(1)

    for expand in (True, False):
        for size in (1, 4, 7):
            check(Model(expand), words[:size], loss=lambda outputs, targets: waves(outputs.log_softmax(2), targets))
        assert batch_gradients(Model(expand), loss, (words,), torch.zeros(7)).norms().shape == (7,)


@pytest.mark.filterwarnings("ignore:There is no gradient rule")
def test_a_model_may_read_inputs_that_are_not_tensors():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.letters, self.bend, self.last = nn.Embedding(26, 4), nn.PReLU(), nn.Linear(4, 2)

        def forward(self, words):
            letters = self.letters(torch.tensor([[ord(x) - 97 for x in word] for word in words]))
            return self.last(self.bend(letters).tanh().sum(1))

    model, words, targets = Model(), ["abba", "adam", "beat"], torch.ones(3)
    expected = one_by_one(model, (words,), targets)
    found = batch_gradients(model, waves, (words,), targets)
    for parameter in model.parameters():
        torch.testing.assert_close(found.parts[parameter].written_out(), expected[parameter])


def test_a_model_with_its_own_parameters_uses_the_general_rule():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Parameter(torch.randn(1, 1, 4))
            self.encoder = nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, batch_first=True)

        def forward(self, x):
            return self.encoder(torch.cat([self.first.expand(len(x), -1, -1), x], 1))[:, 0]

    check(Model(), torch.randn(3, 2, 4))
    check(Model().eval(), torch.randn(3, 2, 4))


def test_activation_checkpoints_are_not_counted_twice():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.GRU(4, 4, batch_first=True)

        def forward(self, x):
            x = torch.utils.checkpoint.checkpoint(lambda x: self.first(x).tanh(), x, use_reentrant=False)
            return torch.utils.checkpoint.checkpoint(lambda x: self.second(x)[0], x, use_reentrant=False)

    check(Model(), torch.randn(3, 2, 4))


def test_layers_called_without_gradients_have_none():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x):
            with torch.no_grad():
                x = self.first(x)
            return self.second(x)

    model = Model()
    check(model, torch.randn(3, 4))
    assert set(batch_gradients(model, waves, (torch.randn(3, 4),), torch.ones(3)).parts) == {*model.second.parameters()}


class Outside(nn.Module):
    """A model that uses the weight of a layer directly."""

    def __init__(self):
        super().__init__()
        self.inner, self.other, self.third = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        x = functional.linear(self.inner(x), self.other.weight)
        return functional.linear(x, self.third.weight)


def test_parameters_used_outside_their_layers_are_rejected():
    """If their gradients were switched off, they would silently have none."""
    model = Outside()
    x = torch.randn(3, 4)
    with pytest.raises(ValueError, match=r"other\.weight, third\.weight took part in the loss outside"):
        batch_gradients(model, waves, (x,), torch.ones(3))
    model.other.requires_grad_(False)
    model.third.requires_grad_(False)
    check(model, x)
    plain = nn.Linear(4, 2)
    with pytest.raises(ValueError, match="weight_decay"):
        batch_gradients(
            plain, lambda out, t: waves(out, t) + plain.weight.square().sum(), (torch.randn(3, 4),), torch.ones(3)
        )


def test_reading_shapes_or_detached_values_is_allowed():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 2)

        def forward(self, x):
            kind = next(self.parameters())
            return self.inner(x.to(kind)) / (1 + kind.detach().norm()) + torch.ones_like(kind).sum()

    check(Scaled(), torch.randn(3, 4))


class Elsewhere(nn.LSTM):
    """A subclass, which may compute something else than its parent."""


def test_subclasses_and_replaced_forwards_do_not_inherit_rules():
    assert has_rule(nn.LSTM(3, 3)) and not has_rule(Elsewhere(3, 3))
    x = torch.randn(4, 2, 3)
    with pytest.raises(ValueError, match="no gradient rule, and has more than one input"):
        batch_gradients(Reads(Elsewhere(3, 3, batch_first=True)), waves, (x,), torch.ones(4))
    layer = nn.Linear(3, 3)
    own = layer.forward
    layer.forward = lambda x: 2 * own(x)
    assert not has_rule(layer)
    batch_gradients(layer, waves, (x,), torch.ones(4))
    assert vars(layer)["forward"](x).equal(2 * own(x))


def test_layers_with_several_tensors_and_no_rule_are_rejected():
    with pytest.raises(ValueError, match="no gradient rule, and has more than one input"):
        batch_gradients(nn.Bilinear(3, 3, 2), waves, (torch.randn(4, 3), torch.randn(4, 3)), torch.ones(4))


def test_errors_name_a_remedy():
    x = torch.randn(4, 3, 2)
    packed = pack_padded_sequence(x, torch.tensor([3, 2, 2, 1]), batch_first=True)
    lstm, look = nn.LSTM(2, 2, batch_first=True), nn.MultiheadAttention(2, 1, batch_first=True)

    def loss(outputs, targets):
        return waves(outputs[0], targets)

    for layer, inputs, message in (
        (lstm, (packed,), "pad_sequence"),
        (lstm, (x[0],), "whole batch"),
        (nn.LSTMCell(2, 2), (x[0, 0],), "whole batch"),
        (look, (x[0],) * 3, "whole batch"),
        (look, (torch.nested.nested_tensor(list(x)),) * 3, "enable_nested_tensor=False"),
        (look, (x, x, x, None, False, None, True, True), "only a hint"),
        (nn.GRU(2, 2), (x,), "batch_first=True"),
        (nn.Linear(2, 2), (x.flatten(0, 1),), "do not merge other"),
    ):
        with pytest.raises(ValueError, match=message):
            batch_gradients(layer, loss if message != "do not merge other" else merged, inputs, torch.ones(4))
        assert "forward" not in vars(layer) and all(parameter.requires_grad for parameter in layer.parameters())
    with pytest.raises(ValueError, match="batch_first=True"):
        layers_of(nn.TransformerEncoderLayer(4, 2))


def merged(outputs, targets):
    return waves(outputs.reshape(len(targets), -1), targets)


def test_layers_that_mix_examples_are_found_inside_models_with_their_own_parameters():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    model.shift = nn.Parameter(torch.zeros(3))
    with pytest.raises(ValueError, match=r"nn\.GroupNorm"):
        layers_of(model)


def test_inputs_changed_in_place_are_rejected():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(3, 3, batch_first=True)

        def forward(self, x, h, c):
            outputs, _ = self.lstm(x, (h, c))
            h.zero_()
            return outputs

    with pytest.raises(ValueError, match="The input of LSTM was changed in place"):
        batch_gradients(Model(), waves, (torch.randn(4, 2, 3), torch.ones(1, 4, 3), torch.ones(1, 4, 3)), torch.ones(4))
