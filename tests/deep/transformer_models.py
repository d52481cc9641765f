"""Small Hugging Face models with random weights, built from configurations, and gradients of one example at a time."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import peft
import torch
import transformers
from torch import nn

SIZE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
TEXT = SIZE | {"vocab_size": 31, "max_position_embeddings": 20, "pad_token_id": 0}


def bert(attention="sdpa"):
    config = transformers.BertConfig(**TEXT, num_labels=3, attn_implementation=attention)
    return transformers.BertForSequenceClassification(config)


def masked_bert():
    return transformers.BertForMaskedLM(transformers.BertConfig(**TEXT))


def distilbert():
    config = transformers.DistilBertConfig(
        vocab_size=31, max_position_embeddings=20, dim=16, hidden_dim=24, n_layers=2, n_heads=2, num_labels=3
    )
    return transformers.DistilBertForSequenceClassification(config)


def roberta():
    return transformers.RobertaForSequenceClassification(transformers.RobertaConfig(**TEXT, num_labels=3))


def gpt2(attention="sdpa"):
    config = transformers.GPT2Config(
        vocab_size=31, n_positions=20, n_embd=16, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=1,
        attn_implementation=attention,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


def llama():
    config = transformers.LlamaConfig(**TEXT, num_key_value_heads=1, bos_token_id=1, eos_token_id=2)
    return transformers.LlamaForCausalLM(config)


def tied_llama():
    config = transformers.LlamaConfig(
        **TEXT, num_key_value_heads=1, bos_token_id=1, eos_token_id=2, tie_word_embeddings=True
    )
    return transformers.LlamaForCausalLM(config)


def t5():
    config = transformers.T5Config(
        vocab_size=31, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2, relative_attention_num_buckets=8,
        decoder_start_token_id=0,
    )  # fmt: skip
    return transformers.T5ForConditionalGeneration(config)


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


def texts(size=4, length=6):
    """Return texts of different lengths, padded on the right, with their mask."""
    ids = torch.randint(3, 31, (size, length))
    lengths = torch.randint(2, length + 1, (size,))
    lengths[0] = length
    mask = (torch.arange(length) < lengths[:, None]).long()
    return ids * mask, mask


def batch_for(model, size=4, length=6):
    """Return a wrapped model and inputs for it."""
    config = model.config
    if getattr(config, "model_type", "") == "vit":
        return Images(model), (torch.randn(size, 3, 8, 8),)
    return Words(model), texts(size, length)


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
    from privet.deep.clipping import batch_gradients

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
