"""The loop as people write it: epochs, one call, schedulers, checkpoints, averages; and losses with a reduction."""

import copy
import random
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="deep networks need torch: install the extra deep")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from privet.deep import make_private  # noqa: E402
from privet.plans import PlanError  # noqa: E402


def dataset(n=200):
    X = torch.randn(n, 5, generator=torch.Generator().manual_seed(0))
    return TensorDataset(X, (X[:, 0] > 0).long())


def prepared(data=None, *first, **options):
    torch.manual_seed(0)
    model = nn.Sequential(*first, nn.Linear(5, 2))
    settings = {
        "loss": functional.cross_entropy,
        "budget": 3.0,
        "epochs": 3,
        "batch_size": 40,
        "clip_norm": 1.0,
        "random_state": 0,
    } | options
    return make_private(model, torch.optim.SGD(model.parameters(), lr=0.5), data or dataset(), **settings)


def weights(private):
    return torch.cat([each.detach().flatten() for each in private.model.parameters()])


def test_epochs_take_the_same_steps_as_batches_and_cover_the_plan():
    one, other = prepared(), prepared()
    for batch in one.batches():
        one.step(*batch)
    sizes = []
    for epoch in other.epochs():
        sizes.append((epoch.number, len(epoch)))
        for X, y in epoch:
            other.step(X, y)
    assert sizes == [(0, 5), (1, 5), (2, 5)]
    assert other.steps_per_epoch == 5
    assert torch.equal(weights(one), weights(other))
    assert one.guarantee.epsilon == other.guarantee.epsilon


def test_the_last_epoch_of_a_fraction_is_shorter():
    private = prepared(epochs=1.4)
    lengths = []
    for epoch in private.epochs():
        lengths.append(len(epoch))
        for batch in epoch:
            private.step(batch)
    assert lengths == [5, 2]


def test_a_second_loop_over_batches_names_epochs():
    private = prepared()
    private.step(next(private.batches()))
    with pytest.raises(PlanError, match=r"for epoch in private\.epochs\(\)"):
        next(private.batches())


def test_an_epoch_that_is_not_used_is_an_error_rather_than_an_endless_loop():
    private = prepared()
    with pytest.raises(PlanError, match="An epoch was not used"):
        for _ in private.epochs():
            pass


def test_a_batch_that_is_not_used_is_an_error_in_epochs_too():
    private = prepared()
    with pytest.raises(PlanError, match="drawn and not used"):
        for epoch in private.epochs():
            for _ in epoch:
                pass


def test_leaving_an_epoch_early_continues_with_the_next_and_spends_no_more_than_the_plan():
    private = prepared()
    for epoch in private.epochs():
        for batch in epoch:
            private.step(batch)
            break
    assert private.steps_spent <= private.plan.steps
    assert [epoch.number for epoch in private.epochs()] == []


def test_a_training_resumes_within_an_epoch_with_its_scheduler_and_average(tmp_path):
    first = prepared(average=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(first.optimizer, 1, 0.5)
    for epoch in first.epochs():
        for batch in epoch:
            first.step(batch)
            if first.steps_done == 7:
                first.save(tmp_path / "run", extra=scheduler.state_dict())
                break
        if first.steps_done == 7:
            break
        scheduler.step()
    first._files.close()
    second = prepared(average=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(second.optimizer, 1, 0.5)
    scheduler.load_state_dict(second.resume(tmp_path / "run"))
    assert second.optimizer.param_groups[0]["lr"] == 0.25
    for one, other in zip(first._average._values, second._average._values, strict=True):
        assert torch.equal(one, other)
    left = [(epoch.number, sum(1 for batch in epoch if second.step(batch) is not None)) for epoch in second.epochs()]
    assert left == [(1, 3), (2, 5)]
    assert second.steps_spent == second.plan.steps == 15


def test_fit_trains_validates_schedules_and_saves(tmp_path):
    private, seen = prepared(), []
    private.model.train()
    scheduler = torch.optim.lr_scheduler.StepLR(private.optimizer, 1, 0.5)

    def validate(model):
        seen.append((model.training, torch.is_grad_enabled()))
        return len(seen)

    history = private.fit(epochs=2, validate=validate, scheduler=scheduler, save=tmp_path / "run")
    assert [(each.epoch, each.steps, each.validation) for each in history] == [(0, 5, 1), (1, 10, 2)]
    assert history[0].epsilon < history[1].epsilon == private.guarantee.epsilon
    assert seen == [(False, False)] * 2
    assert private.model.training
    assert private.optimizer.param_groups[0]["lr"] == 0.125
    assert (tmp_path / "run").exists()
    assert [each.epoch for each in private.fit()] == [2]
    assert private.steps_done == 15
    by_hand = prepared()
    for number, batch in enumerate(by_hand.batches(), start=1):
        by_hand.step(*batch)
        if number in (5, 10):
            by_hand.optimizer.param_groups[0]["lr"] /= 2
    assert torch.equal(weights(private), weights(by_hand))


def test_what_fit_returns_says_nothing_about_training_examples():
    """The history of trainings on other data, with the same plan, is the same."""
    one = prepared(epochs=1, public_n=200).fit()
    X, y = dataset().tensors
    assert one == prepared(TensorDataset(100 * X, 1 - y), epochs=1, public_n=200).fit()


def test_the_average_is_that_of_the_weights_after_each_step():
    private, expected = prepared(average=0.8), None
    expected = weights(private).clone()
    for step, batch in enumerate(private.batches()):
        private.step(*batch)
        keep = min(0.8, step / (step + 9))
        expected = keep * expected + (1 - keep) * weights(private)
    averaged = private.averaged_model()
    torch.testing.assert_close(torch.cat([each.flatten() for each in averaged.parameters()]), expected)
    assert not averaged.training
    assert torch.equal(weights(private), weights(_without_average()))
    with pytest.raises(ValueError, match="no average of the weights"):
        prepared().averaged_model()
    with pytest.raises(ValueError, match="below 1"):
        prepared(average=1.0)


def _without_average():
    private = prepared()
    private.fit()
    return private


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (functional.cross_entropy, lambda out, y: functional.cross_entropy(out, y, reduction="none")),
        (nn.CrossEntropyLoss(reduction="sum"), lambda out, y: functional.cross_entropy(out, y, reduction="none")),
        (functional.multi_margin_loss, lambda out, y: functional.multi_margin_loss(out, y, reduction="none")),
    ],
)
def test_losses_with_a_reduction_give_one_value_per_example(loss, expected):
    private = prepared(loss=loss)
    X, y = next(private.batches())
    model = copy.deepcopy(private.model)
    torch.testing.assert_close(private.step(X, y), expected(model(X), y))


def test_a_batch_passed_whole_is_the_same_and_a_mixture_is_refused():
    one, other = prepared(), prepared()
    assert torch.equal(one.step(next(one.batches())), other.step(*next(other.batches())))
    private = prepared()
    X, y = next(private.batches())
    with pytest.raises(TypeError, match="both positional and named"):
        private.step(X, y=y)


def test_class_weights_multiply_losses_before_the_clip():
    weighted, plain = prepared(class_weight={1: 100.0}, clip_norm=0.1), prepared(clip_norm=0.1)
    batch = next(weighted.batches())
    plain._begin()
    first, second = weighted.step(*batch), plain.step(*next(plain._drawn_batches()))
    torch.testing.assert_close(first, torch.where(batch[1] == 1, 100 * second, second))
    assert "the weights of the classes are public" in weighted.guarantee.statement(verbose=True)
    assert "weights of the classes" not in plain.guarantee.statement(verbose=True)
    X, y = dataset().tensors
    whole, _ = _sum(weighted, (X[:20], y[:20]))
    without, _ = _sum(weighted, (X[1:20], y[1:20]))
    assert float((whole - without).norm()) <= 0.1


def _sum(private, rows):
    from privet.deep.objective import Task

    task = Task.of(private.model, private._loss, rows, len(rows[-1]))
    with private._sums.calling(task):
        return private._total(task.rows[:-1], task.rows[-1])


@pytest.mark.parametrize("weight", [{}, {0: -1.0}, {0: float("nan")}, "auto"])
def test_bad_class_weights_are_refused(weight):
    with pytest.raises(ValueError, match="class_weight"):
        prepared(class_weight=weight)


@pytest.mark.parametrize("weights", [[1.0, 5.0], torch.tensor([1.0, 5.0])])
def test_class_weights_without_classes_name_the_remedy(weights):
    with pytest.raises(TypeError, match=r"class_weight must be a dictionary .*dict\(enumerate\(weights\)\)"):
        prepared(class_weight=weights)
    prepared(class_weight=dict(enumerate(weights)))


def test_an_epoch_shows_its_number():
    assert repr(next(prepared().epochs())) == "Epoch(number=0)"


def test_a_loss_that_is_no_callable_is_refused():
    with pytest.raises(ValueError, match="'model'"):
        prepared(loss="cross_entropy")
    with pytest.raises(TypeError, match="callable"):
        prepared(loss=3)


def test_torch_is_named_with_its_extra_if_it_is_missing():
    import subprocess
    import sys

    code = (
        "import sys; sys.modules['torch'] = None\n"
        "try:\n    import privet.deep\nexcept ModuleNotFoundError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'privet[deep]'" in done.stdout


def test_the_documented_loop_gives_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prepared().fit(validate=lambda model: float(model(torch.zeros(1, 5)).sum()))


# -------------------------------------------------------------------------------------------------------- random masks


class Jittered(TensorDataset):
    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return x + torch.randn(5) + np.random.randn() + random.random(), y  # noqa: NPY002


def first_losses(data, seed, **options):
    """Return the first batch and its losses, if all examples take part and the seeds of the caller are known."""
    private = prepared(data, nn.Dropout(0.5), batch_size=20, public_n=20, **options)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch.manual_seed(seed)
    before = torch.get_rng_state()
    batch = next(private.batches())
    losses = private.step(batch)
    assert torch.equal(torch.get_rng_state(), before)
    return batch[0], losses


@pytest.mark.parametrize("kind", ["stored", "jittered", "worker"])
def test_random_masks_and_transforms_follow_from_the_secret_source_alone(kind):
    """With a known seed, one example more would change the masks of the others, and the sum by more than the clip."""
    data = TensorDataset(*(each[:20] for each in dataset().tensors))
    if kind != "stored":
        data = Jittered(*data.tensors)
    if kind == "worker":
        data = DataLoader(data, num_workers=1)
    (one, losses), (other, others) = (first_losses(data, 42, random_state=None) for _ in range(2))
    assert not torch.equal(losses, others)
    assert torch.equal(one, other) == (kind == "stored")
    (one, losses), (other, others) = (first_losses(data, seed, random_state=0) for seed in (1, 2))
    assert torch.equal(losses, others)
    assert torch.equal(one, other)
