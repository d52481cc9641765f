"""Losses inside models of transformers, and their Trainer with private steps, on small random models."""

import warnings

import pytest

torch = pytest.importorskip("torch", reason="deep networks need torch: install the extra deep")
transformers = pytest.importorskip("transformers", reason="PrivateTrainer needs transformers")
pytest.importorskip("accelerate", reason="PrivateTrainer needs accelerate")
from torch import nn  # noqa: E402
from torch.utils.data import Dataset  # noqa: E402

from privet.deep import PrivateTrainer, make_private  # noqa: E402
from privet.deep.objective import Objective  # noqa: E402

SIZES = {"vocab_size": 23, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2}
LLAMA = SIZES | {"num_key_value_heads": 1, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
T5 = {
    "vocab_size": 23,
    "d_model": 8,
    "d_kv": 4,
    "d_ff": 12,
    "num_layers": 1,
    "num_heads": 2,
    "decoder_start_token_id": 0,
}
N = 40


class Texts(Dataset):
    """Token sequences of different lengths, with labels of some kind."""

    def __init__(self, label):
        self.label = label

    def __len__(self):
        return N

    def __getitem__(self, index):
        words = 3 + torch.arange(3 + index % 5) * (index + 1) % 19
        return {"input_ids": words, **self.label(words, index)}


def padded(rows):
    batch = {}
    for key in rows[0]:
        values = [torch.as_tensor(row[key]) for row in rows]
        if values[0].ndim:
            batch[key] = nn.utils.rnn.pad_sequence(values, True, -100 if key == "labels" else 0)
        else:
            batch[key] = torch.stack(values)
    lengths = torch.tensor([len(row["input_ids"]) for row in rows])
    batch["attention_mask"] = (torch.arange(batch["input_ids"].shape[1]) < lengths[:, None]).long()
    return batch


def words(tokens, index):
    return {"labels": torch.where(tokens % 4 == 0, -100, tokens)}


def classes(tokens, index):
    return {"labels": index % 3}


MODELS = {
    "causal": (lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA)), words),
    "masked": (lambda: transformers.BertForMaskedLM(transformers.BertConfig(**SIZES)), words),
    "encoder-decoder": (lambda: transformers.T5ForConditionalGeneration(transformers.T5Config(**T5)), words),
    "classes": (
        lambda: transformers.BertForSequenceClassification(transformers.BertConfig(**SIZES, num_labels=3)),
        classes,
    ),
    "number": (
        lambda: transformers.BertForSequenceClassification(transformers.BertConfig(**SIZES, num_labels=1)),
        lambda tokens, index: {"labels": index / 10},
    ),
    "several labels": (
        lambda: transformers.BertForSequenceClassification(
            transformers.BertConfig(**SIZES, num_labels=3, problem_type="multi_label_classification")
        ),
        lambda tokens, index: {"labels": torch.tensor([1.0, index % 2, 0.0])},
    ),
    "token classes": (
        lambda: transformers.BertForTokenClassification(transformers.BertConfig(**SIZES, num_labels=23)),
        words,
    ),
    "spans": (
        lambda: transformers.BertForQuestionAnswering(transformers.BertConfig(**SIZES)),
        lambda tokens, index: {"start_positions": index % 3, "end_positions": 2 + index % 2},
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_loss_of_an_example_is_that_of_the_model_for_it_alone(name):
    torch.manual_seed(0)
    make, label = MODELS[name]
    model, data = make().eval(), Texts(label)
    rows = [data[index] for index in (1, 3, 6)]
    objective = Objective.of("model", model)
    batch = padded(rows)
    with torch.no_grad():
        found = objective(model(**batch), batch)
        alone = torch.stack([model(**{key: each[i : i + 1] for key, each in batch.items()}).loss for i in range(3)])
    torch.testing.assert_close(found, alone.float(), rtol=1e-4, atol=1e-5)


def prepared(model, label, **options):
    torch.manual_seed(0)
    made = model()
    settings = {"loss": "model", "noise_multiplier": 1.0, "epochs": 1, "batch_size": 10, "clip_norm": 1.0} | options
    optimizer = torch.optim.AdamW([each for each in made.parameters() if each.requires_grad], lr=1e-2)
    return make_private(made, optimizer, Texts(label), collate_fn=padded, random_state=0, **settings)


@pytest.mark.parametrize("name", ["causal", "classes"])
def test_a_model_trains_on_its_own_loss(name):
    private = prepared(*MODELS[name])
    before = [each.detach().clone() for each in private.model.parameters()]
    private.fit()
    assert private.steps_done == 4
    assert all(not torch.equal(one, other) for one, other in zip(before, private.model.parameters(), strict=True))


def test_a_model_with_another_loss_is_refused():
    class Smoothed(transformers.LlamaForCausalLM):
        def forward(self, *args, **kwargs):
            outputs = super().forward(*args, **kwargs)
            outputs.loss = 2 * outputs.loss
            return outputs

    class Deeper(transformers.LlamaForCausalLM):
        def forward(self, *args, **kwargs):
            outputs = super().forward(*args, **kwargs)
            outputs.logits = outputs.logits[..., None]
            return outputs

    with pytest.raises(ValueError, match="differs from that of the model"):
        prepared(lambda: Smoothed(transformers.LlamaConfig(**LLAMA)), words).fit()
    with pytest.raises(ValueError, match="has no config"):
        prepared(lambda: nn.Linear(2, 2), words)
    with pytest.raises(ValueError, match="needs the labels of the examples"):
        prepared(MODELS["causal"][0], lambda tokens, index: {}).fit()
    with pytest.raises(ValueError, match="cannot compute the loss of single examples"):
        prepared(lambda: Deeper(transformers.LlamaConfig(**LLAMA)), words).fit()


# ------------------------------------------------------------------------------------------------------- PrivateTrainer


def trainer(path, *, kind=PrivateTrainer, **options):
    torch.manual_seed(0)
    make, label = MODELS["causal"]
    private = {"clip_norm": 1.0, "noise_multiplier": 1.0, "random_state": 0}
    private |= {name: options.pop(name) for name in ("clip_norm", "budget", "loss", "class_weight") if name in options}
    if "budget" in private:
        del private["noise_multiplier"]
    arguments = {
        "per_device_train_batch_size": 5,
        "gradient_accumulation_steps": 2,
        "num_train_epochs": 2,
        "learning_rate": 1e-2,
        "logging_steps": 2,
        "save_steps": 3,
        "eval_strategy": "epoch",
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
    } | options
    return kind(
        make(),
        transformers.TrainingArguments(str(path), **arguments),
        train_dataset=Texts(label),
        eval_dataset=Texts(label),
        data_collator=padded,
        **private,
    )


def test_the_trainer_takes_the_usual_arguments_and_states_its_guarantee(tmp_path):
    found = trainer(tmp_path, budget=(3.0, 1e-5))
    before = [each.detach().clone() for each in found.model.parameters()]
    result = found.train()
    assert result.global_step == found.state.global_step == found.private.plan.steps == 8
    assert found.private.plan.sampler.rate == 10 / N
    assert found.private._sums.max_batch == 5
    assert 2.9 < found.guarantee.epsilon <= 3.0
    assert result.metrics == {"epsilon": found.guarantee.epsilon, "delta": 1e-5}
    assert found.optimizer.param_groups[0]["lr"] == 0  # A linear schedule ends at zero.
    logged = {key for entry in found.state.log_history for key in entry}
    assert {"learning_rate", "epsilon", "eval_loss"} <= logged
    assert not {"loss", "train_loss", "grad_norm"} & logged
    assert any(not torch.equal(one, other) for one, other in zip(before, found.model.parameters(), strict=True))
    assert found.evaluate()["eval_loss"] > 0


def test_the_trainer_takes_the_same_steps_as_make_private(tmp_path):
    found = trainer(tmp_path, lr_scheduler_type="constant", weight_decay=0.0, max_steps=3)
    found.train()
    torch.manual_seed(0)
    make, label = MODELS["causal"]
    model = make()
    private = make_private(
        model,
        torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0),
        Texts(label),
        loss="model",
        noise_multiplier=1.0,
        epochs=3 / 4,
        batch_size=10,
        clip_norm=1.0,
        collate_fn=padded,
        random_state=0,
    )
    private.fit()
    for one, other in zip(found.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_a_checkpoint_resumes_with_what_was_spent(tmp_path):
    class Stop(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            control.should_training_stop = state.global_step == 5

    first = trainer(tmp_path)
    first.add_callback(Stop())
    first.train()
    assert first.private.steps_spent == 5
    second = trainer(tmp_path)
    second.train(resume_from_checkpoint=True)
    # The file was written after three steps, and the two lost steps remain spent.
    assert (second.private.steps_done, second.private.steps_spent) == (6, 8)
    assert second.guarantee.epsilon == second.private.plan.guarantee(second.guarantee.delta).epsilon
    assert second.state.log_history[0]["step"] == 2
    assert (tmp_path / "checkpoint-3" / "training.privet").exists()


def test_old_checkpoints_are_deleted_and_bf16_trains(tmp_path):
    found = trainer(tmp_path, save_total_limit=1, bf16=True, eval_strategy="no")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found.train()
    assert [each.name for each in tmp_path.glob("checkpoint-*")] == ["checkpoint-8"]


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ({"label_smoothing_factor": 0.1}, "label_smoothing_factor=0.1"),
        ({"auto_find_batch_size": True}, "auto_find_batch_size"),
        ({"load_best_model_at_end": True, "save_steps": 1, "eval_strategy": "steps", "eval_steps": 1}, "load_best"),
    ],
)
def test_arguments_without_effect_are_refused(options, cause, tmp_path):
    with pytest.raises(ValueError, match=f"does not support {cause}"):
        trainer(tmp_path, **options)


def test_balanced_classes_are_refused(tmp_path):
    with pytest.raises(ValueError, match="class_weight='balanced' is not supported here"):
        trainer(tmp_path, class_weight="balanced")


def test_a_loss_of_ones_own_and_no_guarantee_before_training(tmp_path):
    def by_hand(outputs, batch):
        return outputs.logits.float().square().mean((1, 2))

    found = trainer(tmp_path, loss=by_hand, max_steps=1, eval_strategy="no")
    with pytest.raises(AttributeError, match="no guarantee before"):
        found.guarantee  # noqa: B018
    with pytest.raises(TypeError, match="does not support trial"):
        found.train(trial=1)
    found.train()
    assert found.private.steps_done == 1
