"""Hugging Face models with random weights compared with single examples: sharing, LoRA, ties, dropout, autocast."""

import copy
import os
import warnings

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch", reason="deep networks need torch: install the extra deep")
transformers = pytest.importorskip("transformers", reason="Hugging Face models come with the extra test")
peft = pytest.importorskip("peft", reason="adapters come with the extra test")
from peft import LoraConfig, PrefixTuningConfig, PromptTuningConfig, get_peft_model  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

from privet.deep import make_private  # noqa: E402
from privet.deep.batch_sums import BatchSums  # noqa: E402
from privet.deep.clipping import batch_gradients, normalisation  # noqa: E402
from privet.deep.clipping.rules import _RULES  # noqa: E402
from privet.deep.clipping.shared import Shared  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:Model has `tie_word_embeddings=True`"),
    pytest.mark.filterwarnings("ignore:fan_in_fan_out is set to False", "ignore:.*use_cache=True"),
]

only_long = pytest.mark.skipif(os.environ.get("PRIVET_AUDIT") != "long", reason="takes a minute: PRIVET_AUDIT=long")

# ------------------------------------------------------------------------------------------------------------- models

SIZE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
TEXT = SIZE | {"vocab_size": 31, "max_position_embeddings": 20, "pad_token_id": 0}


MODELS = {}
"""Functions that return a model, by its name."""


def small(function):
    MODELS[function.__name__] = function
    return function


@small
def bert(attention="sdpa"):
    config = transformers.BertConfig(**TEXT, num_labels=3, attn_implementation=attention)
    return transformers.BertForSequenceClassification(config)


@small
def masked_bert():
    return transformers.BertForMaskedLM(transformers.BertConfig(**TEXT))


@small
def distilbert():
    config = transformers.DistilBertConfig(
        vocab_size=31, max_position_embeddings=20, dim=16, hidden_dim=24, n_layers=2, n_heads=2, num_labels=3
    )
    return transformers.DistilBertForSequenceClassification(config)


@small
def roberta():
    return transformers.RobertaForSequenceClassification(transformers.RobertaConfig(**TEXT, num_labels=3))


@small
def gpt2(attention="sdpa"):
    config = transformers.GPT2Config(
        vocab_size=31, n_positions=20, n_embd=16, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=1,
        attn_implementation=attention,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


@small
def llama():
    config = transformers.LlamaConfig(**TEXT, num_key_value_heads=1, bos_token_id=1, eos_token_id=2)
    return transformers.LlamaForCausalLM(config)


@small
def tied_llama():
    config = transformers.LlamaConfig(
        **TEXT, num_key_value_heads=1, bos_token_id=1, eos_token_id=2, tie_word_embeddings=True
    )
    return transformers.LlamaForCausalLM(config)


@small
def t5(dropout=0.1):
    config = transformers.T5Config(
        dropout_rate=dropout,
        vocab_size=31, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2, relative_attention_num_buckets=8,
        decoder_start_token_id=0,
    )  # fmt: skip
    return transformers.T5ForConditionalGeneration(config)


@small
def vit():
    config = transformers.ViTConfig(**SIZE, image_size=8, patch_size=4, num_channels=3, num_labels=3)
    return transformers.ViTForImageClassification(config)


class Words(nn.Module):
    """A model of texts, which takes token ids and a mask as positional arguments."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, mask):
        if self.model.config.is_encoder_decoder:
            return self.model(input_ids=ids, attention_mask=mask, decoder_input_ids=ids.flip(1))
        return self.model(input_ids=ids, attention_mask=mask)


class Images(nn.Module):
    """A model of images."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, pixels):
        return self.model(pixel_values=pixels)


def padded(size=4, length=6):
    """Return texts of different lengths, padded on the right, with their mask."""
    ids = torch.randint(3, 31, (size, length))
    lengths = torch.randint(2, length + 1, (size,))
    lengths[0] = length
    mask = (torch.arange(length) < lengths[:, None]).long()
    return ids * mask, mask


def batch_for(model, size=4, length=6):
    """Return a wrapped model and inputs for it."""
    if model.config.model_type == "vit":
        return Images(model), (torch.randn(size, 3, 8, 8),)
    return Words(model), padded(size, length)


def waves(outputs, targets):
    """Return a nonlinear loss that depends on every logit."""
    flat = outputs.logits.flatten(1)
    return (flat.sin() * torch.linspace(0.5, 1.5, flat.shape[1], dtype=flat.dtype)).sum(1) * targets


def with_lora(model, targets, **options):
    """Return a model with LoRA whose second factor is not zero, so that both factors have gradients."""
    found = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=targets, lora_dropout=0.0, **options))
    for name, parameter in found.named_parameters():
        if "lora_" in name:
            nn.init.normal_(parameter, std=0.3)
    return found


def one_by_one(model, inputs, targets, loss=waves):
    """Return the gradient of every example, by autograd on batches of one."""
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    found = []
    for i in range(len(targets)):
        value = loss(model(*(x[i : i + 1] for x in inputs)), targets[i : i + 1]).sum()
        grads = torch.autograd.grad(value, list(trained.values()), allow_unused=True)
        found.append([torch.zeros_like(p) if g is None else g for p, g in zip(trained.values(), grads, strict=True)])
    return {name: torch.stack(grads) for name, grads in zip(trained, zip(*found, strict=True), strict=True)}


def worst_error(model, inputs, loss=waves, dtype=torch.float64):
    """Return the largest difference of a per-example gradient, relative to the largest norm, and its parameter."""
    model.to(dtype)
    inputs = tuple(x.to(dtype) if x.is_floating_point() else x for x in inputs)
    targets = torch.linspace(0.5, 2.0, len(inputs[0]), dtype=dtype)
    found = batch_gradients(model, loss, inputs, targets)
    expected = one_by_one(model, inputs, targets, loss)
    scale = max(float(each.norm()) for each in expected.values())
    errors = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            part = found.parts.get(parameter)
            written = torch.zeros_like(expected[name]) if part is None else part.written_out()
            errors[name] = float((written - expected[name]).norm()) / scale
    squares = sum(each.flatten(1).square().sum(1) for each in expected.values())
    errors["norms"] = float((found.norms() - squares.sqrt()).norm()) / scale
    name = max(errors, key=errors.get)
    return errors[name], name


LORA = {
    "bert": ["query", "value"],
    "distilbert": ["q_lin"],
    "gpt2": ["c_attn", "wte", "lm_head"],
    "llama": ["q_proj", "gate_proj", "embed_tokens"],
    "roberta": ["query"],
    "t5": ["q", "v"],
    "vit": ["q_proj"],
}


def assert_exact(model, tolerance=1e-12, **sizes):
    """Compare all per-example gradients with those of single examples, in double precision."""
    torch.manual_seed(1)
    wrapped, inputs = batch_for(model, **sizes)
    error, name = worst_error(wrapped, inputs)
    assert error < tolerance, name


# --------------------------------------------------------------------------------------------------- exact gradients


@pytest.mark.parametrize("name", MODELS)
def test_models_have_the_gradients_of_single_examples(name):
    """Texts are padded, with a mask. There are as many examples as words, which must not confuse rows."""
    torch.manual_seed(0)
    assert_exact(MODELS[name]().eval(), 1e-6 if name == "t5" else 1e-12, size=6, length=6)  # T5 norms use float32.


@only_long
@pytest.mark.parametrize("size", [1, 3, 6])
@pytest.mark.parametrize("name", MODELS)
def test_models_have_the_gradients_of_single_examples_for_other_sizes(name, size):
    torch.manual_seed(size)
    assert_exact(MODELS[name]().eval(), 1e-6 if name == "t5" else 1e-12, size=size, length=8 - size)


@pytest.mark.parametrize("name", ["bert", "gpt2", pytest.param("all", marks=only_long)])
def test_lora_has_the_gradients_of_single_examples(name):
    """The adapted layers of GPT-2 include an embedding and the layer that is tied to it."""
    for each in LORA if name == "all" else [name]:
        torch.manual_seed(0)
        model = with_lora(MODELS[each]().eval(), LORA[each])
        assert 0 < sum(p.requires_grad for p in model.parameters()) < len(list(model.parameters()))
        assert_exact(model, 1e-6 if each == "t5" else 1e-12, size=6, length=6)


@only_long
@pytest.mark.parametrize("options", [{"use_dora": True}, {"use_rslora": True, "bias": "all"}, {"task_type": "SEQ_CLS"}])
def test_kinds_of_lora_have_the_gradients_of_single_examples(options):
    assert_exact(with_lora(MODELS["bert"]().eval(), ["query"], **options))


@only_long
@pytest.mark.parametrize("config", [PromptTuningConfig, PrefixTuningConfig])
def test_learned_prompts_have_the_gradients_of_single_examples(config):
    assert_exact(get_peft_model(MODELS["gpt2"]().eval(), config(task_type="CAUSAL_LM", num_virtual_tokens=3)))


@pytest.mark.parametrize("name", ["vit", pytest.param("bert", marks=only_long)])
def test_a_head_on_a_frozen_model_has_the_gradients_of_single_examples(name):
    model = MODELS[name]().eval()
    model.base_model.requires_grad_(False)
    assert_exact(model)


def test_partly_frozen_models_have_the_gradients_of_single_examples():
    model = MODELS["bert"]().eval()
    model.bert.encoder.layer[0].requires_grad_(False)
    model.bert.embeddings.word_embeddings.requires_grad_(False)
    assert_exact(model)


@pytest.mark.parametrize("name", ["t5", pytest.param("llama", marks=only_long), pytest.param("vit", marks=only_long)])
def test_activation_checkpointing_changes_no_gradient(name):
    model = MODELS["t5"](dropout=0.0) if name == "t5" else MODELS[name]()
    if name == "vit":
        assert model.config.hidden_dropout_prob == 0
    model.gradient_checkpointing_enable()
    assert_exact(model.train(), 1e-6)


class Shares(nn.Module):
    """A model with what all examples share: a token, positions, a scale, queries, a tied weight and an average."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(11, 8), nn.Embedding(9, 8)
        self.first, self.scale = nn.Parameter(torch.randn(1, 1, 8)), nn.Parameter(torch.randn(8))
        self.queries, self.mixed = nn.Parameter(torch.randn(2, 8)), nn.Parameter(torch.randn(8, 8))
        self.look, self.norm = nn.MultiheadAttention(8, 2, batch_first=True), nn.RMSNorm(8)
        self.kinds = nn.Embedding(2, 8)

    def forward(self, words):
        size, length = words.shape
        x = self.words(words)
        x += self.kinds(torch.zeros(size, length, dtype=torch.long))
        x = torch.cat([self.first.expand(size, -1, -1), x], 1)
        x += self.places(torch.arange(length + 1)).tanh()
        x = self.norm(x * (1 + self.scale)) @ self.mixed.T
        queries = self.queries.repeat(size, 1, 1) + self.places(torch.arange(2))[None]
        x = self.look(queries, x, x)[0]
        return functional.linear(x, self.words.weight, self.scale.mean().expand(11))


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_what_examples_share_has_the_gradients_of_single_examples(size):
    """Sizes coincide with other dimensions."""
    torch.manual_seed(0)
    model, words = Shares(), torch.randint(0, 11, (size, 7))

    def loss(outputs, targets):
        return outputs.flatten(1).sin().sum(1) * targets

    error, name = worst_error(model, (words,), loss)
    assert error < 1e-12, name


def test_shared_values_that_change_in_place_after_their_use_are_rejected():
    def twice(model, words):
        shift = model[0].weight[0] * 3
        found = model(words) + shift
        shift *= 2
        return found + shift

    model, words = nn.Sequential(nn.Embedding(5, 4)), torch.randint(0, 5, (4, 2))
    with pytest.raises(ValueError, match="A value that all examples share was changed in place"):
        batch_gradients(model, lambda _, t: twice(model, words).flatten(1).sum(1) * t, (words,), torch.ones(4))


class Distances(nn.Module):
    """A model whose own parameters meet examples in a function without a rule."""

    def __init__(self):
        super().__init__()
        self.words, self.table = nn.Embedding(5, 4), nn.Parameter(torch.randn(3, 4))

    def forward(self, words, power=2.0):
        return torch.cdist(self.words(words), self.table[None], p=power)


def test_shared_values_in_unknown_functions_use_the_general_rule_or_are_rejected():
    torch.manual_seed(0)
    words = torch.randint(0, 5, (4, 2))

    def loss(outputs, targets):
        return outputs.flatten(1).sum(1) * targets

    with pytest.warns(UserWarning, match="no gradient rule for Distances"):  # The whole model is one layer then.
        error, name = worst_error(Distances(), (words,), loss)
    assert error < 1e-12, name
    with pytest.raises(ValueError, match="Distances has parameters but no gradient rule"):
        batch_gradients(Distances(), loss, (words, 2.0), torch.ones(4))
    model = nn.Sequential(nn.Embedding(5, 4))
    with pytest.raises(ValueError, match=r"0\.weight took part in cdist\(\) outside the forward of the layer"):
        batch_gradients(model, lambda x, t: loss(torch.cdist(x, model[0].weight[None]), t), (words,), torch.ones(4))


# ------------------------------------------------------------------------------------------------------------ training


class Logits(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model, self.config = model, model.config

    def forward(self, ids, mask):
        return self.model(input_ids=ids, attention_mask=mask).logits


def texts(n=24):
    torch.manual_seed(0)
    ids, mask = padded(n)
    return TensorDataset(ids, mask, torch.arange(n) % 3)


def last_word(outputs, targets):
    return functional.cross_entropy(outputs[:, -1] if outputs.ndim == 3 else outputs, targets, reduction="none")


def prepared(model, dataset=None, **options):
    optimizer = options.pop("optimizer", None) or torch.optim.SGD(model.parameters(), lr=options.pop("lr", 0.5))
    settings = {"loss": last_word, "noise_multiplier": 1.0, "delta": 1e-5, "epochs": 1, "batch_size": 8}
    settings |= {"clip_norm": 1.0, "random_state": 0, **options}
    return make_private(model, optimizer, texts() if dataset is None else dataset, **settings)


def train(private):
    for batch in private.batches():
        private.step(*batch)


@pytest.mark.parametrize("name", ["gpt2", *(pytest.param(each, marks=only_long) for each in LORA if each != "gpt2")])
def test_models_train_with_dropout_and_pass_the_replay(name):
    torch.manual_seed(0)
    model = MODELS[name]().train()
    if name == "vit":
        model = Images(model)
        data = TensorDataset(torch.randn(24, 3, 8, 8), torch.arange(24) % 3)
        private = prepared(model, data, loss=lambda outputs, targets: last_word(outputs.logits, targets))
    elif name == "t5":
        model = Words(model)
        private = prepared(model, loss=lambda outputs, targets: last_word(outputs.logits, targets))
    else:
        private = prepared(model := Logits(model))
    assert name == "llama" or any(isinstance(each, nn.Dropout) for each in model.modules())
    before = {each: parameter.detach().clone() for each, parameter in model.named_parameters()}
    assert len(private.check(steps=2, examples=3)) > 3
    train(private)
    assert all(not torch.equal(before[each], parameter) for each, parameter in model.named_parameters())


def test_lora_trains_although_its_first_gradient_is_zero():
    torch.manual_seed(0)
    model = get_peft_model(
        MODELS["bert"](), LoraConfig(r=2, target_modules=["query"], lora_dropout=0.1, task_type="SEQ_CLS")
    )
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(prepared(Logits(model)))
    for name, parameter in model.named_parameters():
        assert torch.equal(before[name], parameter) != parameter.requires_grad, name


def test_an_optimizer_from_before_lora_is_rejected():
    model = Logits(MODELS["bert"]())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.model = get_peft_model(model.model, LoraConfig(r=2, target_modules=["query"]))
    with pytest.raises(ValueError, match=r"does not hold .*lora_A.* after get_peft_model\(\)"):
        prepared(model, optimizer=optimizer)


def test_an_adapter_added_after_the_start_is_rejected():
    model = Logits(MODELS["bert"]())
    private = prepared(model)
    model.model = get_peft_model(model.model, LoraConfig(r=2, target_modules=["query"]))
    with pytest.raises(ValueError, match=r"no longer those that make_private\(\) received"):
        train(private)
    assert private.steps_done == 0


def test_parameters_that_the_optimizer_does_not_move_are_named():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))
    groups = [{"params": model[0].parameters(), "lr": 1e-30}, {"params": model[1].parameters(), "lr": 0.1}]
    data = TensorDataset(torch.randn(24, 4), torch.arange(24) % 3)
    with pytest.warns(UserWarning, match=r"did not change 0\.weight, 0\.bias, although the private gradient"):
        train(prepared(model, data, optimizer=torch.optim.SGD(groups)))
    groups = [{"params": model[0].parameters(), "lr": 0.0}, {"params": model[1].parameters(), "lr": 0.1}]
    with warnings.catch_warnings():  # A schedule may begin with 0.
        warnings.simplefilter("error")
        train(prepared(model, data, optimizer=torch.optim.SGD(groups)))


@pytest.mark.parametrize("name", ["gpt2"])
def test_a_dictionary_with_labels_trains(name):
    """The loss is the model's own, with one value per example."""
    torch.manual_seed(0)
    ids, mask = padded(24)
    data = [
        {"input_ids": one, "attention_mask": other, "labels": one.masked_fill(other == 0, -100)}
        for one, other in zip(ids, mask, strict=True)
    ]
    model = MODELS[name]()
    private = prepared(model, data, loss="model")
    for batch in private.batches():
        private.step(batch)
    assert private.steps_done == 3


# ------------------------------------------------------------------------------------------------------ planted errors


def sums_rows(self, func, given, dimensions):
    """Expand nothing: the gradient of a shared value is that of the whole batch, counted for the first example."""
    label = self._label(given)
    whole = given.detach().requires_grad_()

    def gradients(grads):
        of_first = torch.zeros(self.size, *grads.shape)
        of_first[0] = grads
        return self.of_parameters(label.roots[0].tensor, normalisation.Direct(of_first))

    self.keep(whole, self.size, gradients)
    return whole


def loses_rows(self, func, given, dimensions):
    """Drop the gradients of shared values."""
    return given.detach()


@pytest.mark.parametrize("planted", [sums_rows, loses_rows])
def test_a_shared_embedding_that_is_counted_wrongly_is_found(planted, monkeypatch):
    monkeypatch.setattr(Shared, "expanded", planted)
    with pytest.raises(ValueError, match="is not what torch computes for one example at a time"):
        train(prepared(Logits(MODELS["gpt2"]())))


class Places(nn.Module):
    """A model of which only positions are trained, with gradients that are as large as the inputs."""

    def __init__(self):
        super().__init__()
        self.places = nn.Embedding(3, 4)

    def forward(self, x):
        return (x[:, None] * self.places(torch.arange(3))).mean(1)[:, :3]


def test_the_replay_finds_a_shared_embedding_that_is_counted_once_per_batch(monkeypatch):
    """Also if the check of the first batch is blind."""
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(24, 4), torch.arange(24) % 3)
    prepared(Places(), data).check(steps=2, examples=3)
    monkeypatch.setattr(Shared, "expanded", sums_rows)
    monkeypatch.setattr(BatchSums, "check", lambda *_: True)
    with pytest.raises(ValueError, match=r"moved by 1\.\d+ times the bound"):
        prepared(Places(), data, clip_norm=0.01).check(steps=2, examples=3)


def test_a_wrong_rule_of_rms_norm_is_found(monkeypatch):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.RMSNorm(6), nn.Linear(6, 3))
    data = TensorDataset(torch.randn(24, 4), torch.arange(24) % 3)
    train(prepared(copy.deepcopy(model), data))

    def without_norm(layer, inputs, grads):
        return {"weight": normalisation.Direct(inputs * grads)}

    monkeypatch.setitem(_RULES, nn.RMSNorm, without_norm)
    with pytest.raises(ValueError, match=r"gradient of 1\.weight is not what torch computes"):
        train(prepared(model, data))


# ------------------------------------------------------------------------------------------------ randomness and causes


class Drops(nn.Module):
    """Drops whole examples, as stochastic depth does, with a mask per example."""

    def __init__(self, draw):
        super().__init__()
        self.first, self.last, self.draw = nn.Linear(4, 4), nn.Linear(4, 3), draw

    def forward(self, x):
        return self.last(x + self.draw(len(x)) * self.first(x))


DRAWS = {
    "rand": lambda n: (torch.rand(n, 1) < 0.5) * 2.0,
    "bernoulli": lambda n: torch.empty(n, 1).bernoulli_(0.5),
    "randn": lambda n: torch.randn(n, 4),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_other_random_masks_are_the_same_for_all_examples_in_the_check(draw):
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(24, 4), torch.arange(24) % 3)
    private = prepared(Drops(draw), data)
    private.check(steps=2, examples=3)
    train(private)


class Centred(nn.Module):
    def forward(self, x):
        return x - x.mean(0)


def test_errors_name_the_likely_cause():
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(24, 4), torch.arange(24) % 3)
    model = nn.Sequential(nn.Linear(4, 3), Centred())
    with pytest.raises(ValueError, match=r"output of 1 \(Centred\) for an example depends on the others"):
        train(prepared(model, data))
    gumbel = Drops(lambda n: functional.gumbel_softmax(torch.zeros(n, 4)))
    with pytest.raises(ValueError, match=r"draws random numbers .* Use nn\.Dropout"):
        train(prepared(gumbel, data))

    def by_batch(outputs, targets):
        losses = last_word(outputs, targets)
        return losses / losses.detach().mean()

    with pytest.raises(ValueError, match=r"outputs of the model do not, so the cause is the loss"):
        train(prepared(nn.Linear(4, 3), data, loss=by_batch))


# ----------------------------------------------------------------------------------------------- formats and wrappers


def test_gradients_under_autocast_have_float32_norms_and_sums():
    torch.manual_seed(0)
    model = Logits(MODELS["bert"]().eval())
    *inputs, y = texts(6).tensors
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = batch_gradients(model, last_word, tuple(inputs), y)
        norms, sums = found.norms(), found.clipped_sum(0.1)
        alone = [batch_gradients(model, last_word, (*(x[i : i + 1] for x in inputs),), y[i : i + 1]) for i in range(6)]
    assert norms.dtype == torch.float64
    assert {each.dtype for each in sums.values()} <= {torch.float32, torch.float64}
    total = torch.cat([each.double().flatten() for each in sums.values()])
    assert float(total.norm()) <= 0.6 * (1 + 2.0**-15)
    exact = batch_gradients(model, last_word, tuple(inputs), y).norms()
    assert float((norms / exact - 1).abs().max()) < 0.1 and not torch.equal(norms, exact)
    # A sum is that of the examples' own numbers, clipped in float32.
    parts = [{parameter: part.written_out()[0].double() for parameter, part in each.parts.items()} for each in alone]
    mine = [torch.cat([part[each].flatten() for each in sums]) for part in parts]
    expected = sum(each * min(1.0, 0.1 / float(each.norm())) for each in mine)
    assert float((total - expected).norm()) < 0.02 * float(expected.norm())


def test_training_under_autocast_works_and_large_values_contribute_zero():
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(24, 4), torch.arange(24) % 3)
    data.tensors[0][:3] = 3e38  # Overflows in the first product.
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 3))
    private = prepared(model, data, sampling="poisson", batch_size=12)
    with pytest.warns(UserWarning, match="contribute zero"):
        for batch in private.batches():
            with torch.autocast("cpu", dtype=torch.bfloat16):
                private.step(*batch)
    assert all(bool(each.isfinite().all()) for each in model.parameters())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        images = TensorDataset(torch.randn(24, 1, 12, 12), torch.arange(24) % 3)
        train(prepared(nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(400, 3)), images))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.norm, self.again = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x):
        return (x + self.again(self.second(self.norm(self.first(x)).relu()))).relu()


def resnet():
    """Return a residual network, whose statistics come from other images."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), Block(4), nn.Flatten(), nn.Linear(144, 3))
    model(torch.randn(64, 1, 8, 8))
    return model


def frozen(model):
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.requires_grad_(False).eval()
    return model


def test_a_residual_network_with_frozen_batch_normalisation_trains():
    images = TensorDataset(torch.randn(24, 1, 8, 8), torch.arange(24) % 3)
    model = frozen(resnet())
    error, name = worst_error(
        copy.deepcopy(model), images.tensors[:1], lambda outputs, targets: outputs.sin().sum(1) * targets
    )
    assert error < 1e-12, name
    private, before = prepared(model, images), model[1].running_mean.clone()
    batches = private.batches()
    private.step(*next(batches))
    assert torch.equal(before, model[1].running_mean)
    model.train()
    with pytest.raises(ValueError, match=r"BatchNorm2d normalises over the batch.*layer\.eval\(\) after each model"):
        private.step(*next(batches))
    assert torch.equal(before, model[1].running_mean)


def test_batch_normalisation_in_train_mode_is_named_before_the_first_step_too():
    """torch would only say that one example is too few."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    model[2].requires_grad_(False).eval()
    private = prepared(model, TensorDataset(torch.randn(24, 4), torch.arange(24) % 3))
    model.train()
    with pytest.raises(ValueError, match=r"BatchNorm1d normalises over the batch.*layer\.eval\(\) after each model"):
        private.step(*next(private.batches()))


@pytest.mark.parametrize("change", ["train", "thaw", "forget"])
def test_batch_normalisation_is_rejected_unless_it_is_fixed(change):
    model = frozen(resnet())
    if change == "train":
        model[2].norm.train()
    elif change == "thaw":
        model[2].norm.requires_grad_(True)
    else:
        model[2].norm.running_mean = model[2].norm.running_var = None
    with pytest.raises(ValueError, match="BatchNorm2d normalises over the batch"):
        prepared(model, TensorDataset(torch.randn(24, 1, 8, 8), torch.arange(24) % 3))


@pytest.mark.parametrize("how", ["whole", "in place", "a part"])
def test_compiled_models_train_as_if_they_were_not(how):
    data = TensorDataset(torch.randn(24, 4, generator=torch.Generator().manual_seed(0)), torch.arange(24) % 3)
    weights = []
    for is_compiled in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.Linear(4, 3))
        given = model
        if is_compiled and how == "whole":
            given = torch.compile(model)
        elif is_compiled and how == "in place":
            model.compile()
        elif is_compiled:
            given = nn.Sequential(torch.compile(model[0]), model[1])
        train(prepared(given, data))
        weights.append([each.detach().clone() for each in model.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*weights, strict=True))


def test_reentrant_checkpoints_are_rejected():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, x):
            return torch.utils.checkpoint.checkpoint(self.second, self.first(x), use_reentrant=True)

    with pytest.raises(ValueError, match="use_reentrant=False"):
        batch_gradients(Model(), last_word, (torch.randn(3, 4),), torch.arange(3))
