"""The check of the first batch, parameters that are changed between steps, and values that are not finite."""

import math
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="deep networks need torch: install the extra deep")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

from privet.deep.clipping.summing import room  # noqa: E402
from privet.deep.datasets import Examples  # noqa: E402
from privet.deep.training import PrivateTraining  # noqa: E402
from privet.plans import GradientPlan, Poisson  # noqa: E402

MIXES = "mixes examples"


class Model(nn.Module):
    """A model made of layers and a function that applies them."""

    def __init__(self, forward, *layers):
        super().__init__()
        torch.manual_seed(0)
        self.layers, self.how = nn.ModuleList(layers), forward

    def forward(self, x):
        return self.how(self.layers, x)


def examples(*shape, n=40):
    X = torch.randn(n, *shape, generator=torch.Generator().manual_seed(0))
    return TensorDataset(X, torch.arange(n) % 2)


def linear(inputs=5, outputs=2):
    torch.manual_seed(0)
    return nn.Linear(inputs, outputs)


def prepared(model=None, dataset=None, *, loss=None, rate=0.3, steps=6, **options):
    model = linear() if model is None else model
    dataset = examples(5) if dataset is None else dataset
    return PrivateTraining(
        model,
        options.pop("optimizer", None) or torch.optim.SGD(model.parameters(), lr=0.1),
        dataset,
        plan=GradientPlan(Poisson(rate), steps, 1.0, 1.0, public_n=len(dataset), delta=1e-5),
        loss=loss or nn.CrossEntropyLoss(),
        random_state=options.pop("seed", 0),
        **options,
    )


def train(private, **options):
    return [private.step(*batch) for batch in private.batches(**options)]


def assert_rejected(match, model=None, dataset=None, **options):
    """Check that training raises the error before any parameter changes."""
    private = prepared(model, dataset, **options)
    before = [each.detach().clone() for each in private.model.parameters()]
    with pytest.raises(ValueError, match=match):
        train(private)
    assert private.steps_done == 0
    assert all(torch.equal(one, other) for one, other in zip(before, private.model.parameters(), strict=True))


# ------------------------------------------------------------------------------------------------------- mixed examples


def centred(outputs, targets):
    losses = functional.cross_entropy(outputs, targets, reduction="none")
    return losses - losses.mean()


def scaled(outputs, targets):
    losses = functional.cross_entropy(outputs, targets, reduction="none")
    return losses / losses.detach().mean()


@pytest.mark.parametrize("loss", [centred, scaled])
def test_a_loss_that_mixes_examples_is_rejected(loss):
    assert_rejected(MIXES, loss=loss)


@pytest.mark.parametrize(
    "forward",
    [
        lambda layers, x: layers[0](x - x.mean(0)),
        lambda layers, x: layers[0](x - 1e-2 * x.mean(0)),
        lambda layers, x: layers[0](x - layers[0](x).detach().mean()),
        lambda layers, x: layers[0](x).softmax(0),
        lambda layers, x: layers[0](x.softmax(0)),
        lambda layers, x: layers[0](x.sort(0).values),
        lambda layers, x: layers[0](x.roll(1, 0)),
        lambda layers, x: layers[0](x) / len(x),
        lambda layers, x: layers[0](x) * (1 + x[:1].detach()[:, :1]),
    ],
)
def test_a_model_that_mixes_examples_is_rejected(forward):
    assert_rejected(MIXES, Model(forward, nn.Linear(5, 2)))


def test_mixing_between_two_layers_is_rejected():
    def forward(layers, x):
        hidden = torch.tanh(layers[0](x))
        return layers[1](hidden - hidden.mean(0))

    assert_rejected(MIXES, Model(forward, nn.Linear(5, 4), nn.Linear(4, 2)))


def test_mixing_is_found_in_a_first_batch_of_one_example():
    """A single example cannot be mixed with others, so the check adds examples of the dataset."""
    for seed in range(20):
        private = prepared(
            Model(lambda layers, x: layers[0](x - x.mean(0)), nn.Linear(5, 2)), rate=0.02, steps=50, seed=seed
        )
        sizes = []
        with pytest.raises(ValueError, match=MIXES):
            for batch in private.batches():
                sizes.append(len(batch[1]))
                private.step(*batch)
        if sizes[-1] == 1 and sizes[0] == 0:
            break
    assert sizes[-1] == 1
    assert set(sizes[:-1]) <= {0}  # Empty batches cannot be checked.
    assert private.steps_done == len(sizes) - 1


@pytest.mark.filterwarnings("ignore:The batch was changed")
@pytest.mark.parametrize("forward", [lambda layers, x: layers[0](x), lambda layers, x: layers[0](x - x.mean(0))])
def test_a_first_batch_of_one_transformed_example_is_checked_too(forward):
    """Examples of the dataset have another shape here, so the check makes up a mate."""
    for seed in range(20):
        private = prepared(Model(forward, nn.Linear(3, 2)), rate=0.02, steps=30, seed=seed)
        X, y = next(batches := private.batches())
        while not len(y):
            private.step(X[:, :3], y)
            X, y = next(batches)
        if len(y) == 1:
            break
    assert len(y) == 1
    if forward.__code__.co_names:
        with pytest.raises(ValueError, match=MIXES):
            private.step(X[:, :3], y)
    else:
        private.step(X[:, :3], y)
        assert private._sums.checked.is_complete


def test_a_dataset_of_one_example_can_be_trained_on():
    train(prepared(dataset=examples(5, n=1), rate=0.5))


def test_inputs_whose_first_dimension_is_not_the_examples_are_rejected():
    turned = Model(lambda layers, x: layers[0](x).t(), nn.Linear(5, 2))
    assert_rejected("batch_size", turned)  # This is torch's message.
    by_time = Model(
        lambda layers, x: layers[1](layers[0](x[:, :, None].transpose(0, 1)).transpose(0, 1).flatten(1)),
        nn.Linear(1, 3),
        nn.Linear(15, 2),
    )
    assert_rejected("must be that of the examples alone", by_time)
    merged = Model(
        lambda layers, x: layers[1](layers[0](x.reshape(-1, 1)).reshape(len(x), -1)), nn.Linear(1, 3), nn.Linear(15, 2)
    )
    assert_rejected("must be that of the examples alone", merged)


@pytest.mark.parametrize("tracked", ["instance norm", "in place", "assigned"])
def test_buffers_that_depend_on_the_data_are_rejected(tracked):
    """Buffers are released with the weights, and without noise."""

    class Collecting(nn.Linear):
        def __init__(self):
            super().__init__(5, 2)
            self.register_buffer("seen", torch.zeros(5))

        def forward(self, x):
            mean = 0.9 * self.seen + 0.1 * x.detach().mean(0)
            if tracked == "in place":
                self.seen.copy_(mean)
            else:
                self.seen = mean
            return super().forward(x)

    if tracked == "instance norm":
        norm = nn.InstanceNorm2d(4, track_running_stats=True)
        model, dataset = nn.Sequential(nn.Conv2d(3, 4, 3), norm, nn.Flatten(), nn.Linear(64, 2)), examples(3, 6, 6)
    else:
        model, dataset = Collecting(), examples(5)
    before = {name: each.clone() for name, each in model.named_buffers()}
    assert_rejected("depends on the examples", model, dataset)
    for name, each in model.named_buffers():
        assert torch.equal(before[name], each), name


def test_buffers_that_count_calls_are_accepted():
    class Counting(nn.Tanh):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros((), dtype=torch.long))

        def forward(self, x):
            self.calls += 1
            return super().forward(x)

    model = nn.Sequential(nn.Linear(5, 4), Counting(), nn.Linear(4, 2))
    train(prepared(model, rate=0.9))
    assert int(model[1].calls) == 6  # The check leaves no trace.


# ------------------------------------------------------------------------------------ weights used outside their layers


def test_a_weight_that_is_used_outside_its_layer_is_rejected():
    assert_rejected(
        "outside the forward of the layer",
        Model(lambda layers, x: functional.linear(x, layers[0].weight, layers[0].bias), nn.Linear(5, 2)),
    )
    assert_rejected(
        "outside the forward of the layer",
        Model(lambda layers, x: layers[0](x) + functional.linear(x, layers[0].weight), nn.Linear(5, 2)),
    )


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:There is a performance drop:UserWarning")
def test_weight_norm_is_rejected_or_correct():
    """The general rule handles a parametrization, or the model is rejected."""

    def network(normed):
        torch.manual_seed(0)
        return nn.Sequential(normed, nn.Tanh(), nn.Linear(4, 2))

    assert_rejected("outside the forward of the layer", network(nn.utils.weight_norm(nn.Linear(5, 4))))
    weight_norm = nn.utils.parametrizations.weight_norm
    for bias in (True, False):
        check_total(network(weight_norm(nn.Linear(5, 4, bias=bias))))


def check_total(model):
    """Compare the sum over all examples with clipped gradients of single examples."""
    private = prepared(model)
    X, y = private.dataset.tensors
    total, _ = private._total((X,), y)
    expected, bound = 0, room(private.plan.divisor(len(y)), torch.float32)
    for one, target in zip(X, y, strict=True):
        loss = functional.cross_entropy(model(one[None]), target[None])
        gradient = torch.cat([each.flatten() for each in torch.autograd.grad(loss, list(model.parameters()))])
        expected = expected + gradient / max(1.0, float(gradient.norm()) / bound)
    torch.testing.assert_close(total, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("place", ["inside", "input"])
def test_functional_dropout_works_like_the_layer(place):
    def forward(layers, x):
        if place == "input":
            return layers[1](layers[0](functional.dropout(x, 0.5)))
        return layers[1](functional.dropout(layers[0](x), 0.5))

    train(prepared(Model(forward, nn.Linear(5, 4), nn.Linear(4, 2))))


@pytest.mark.parametrize("kind", [nn.Dropout, nn.AlphaDropout, nn.FeatureAlphaDropout])
def test_dropout_layers_work_and_stay_on(kind):
    model = nn.Sequential(nn.Linear(5, 100), kind(0.5), nn.Linear(100, 2))
    train(prepared(model))
    assert model[1].training
    assert not torch.equal(model(torch.ones(1, 5)), model(torch.ones(1, 5)))


def test_dropout_inside_layers_works():
    def last(layers, x):
        return layers[1](layers[0](x[:, :, None])[0][:, -1])

    train(prepared(Model(last, nn.LSTM(1, 4, 2, batch_first=True, dropout=0.5), nn.Linear(4, 2))))

    def attended(layers, x):
        return layers[1](layers[0](*(x[:, :, None].expand(-1, -1, 4),) * 3)[0].mean(1))

    train(prepared(Model(attended, nn.MultiheadAttention(4, 2, dropout=0.5, batch_first=True), nn.Linear(4, 2))))


def test_eval_mode_is_kept():
    model = nn.Sequential(nn.Linear(5, 4), nn.Dropout(0.5), nn.Linear(4, 2)).eval()
    train(prepared(model))
    assert not model[1].training


# ------------------------------------------------------------------------------------------------------------- images


@pytest.mark.parametrize("channels", [1, 3])
def test_a_model_that_views_images_works_and_gives_the_same_sums(channels):
    """The faster format with channels last does not allow a view of images."""

    def network(flatten):
        return Model(
            lambda layers, x: layers[2](flatten(functional.relu(layers[1](functional.relu(layers[0](x)))))),
            nn.Conv2d(channels, 4, 3),
            nn.Conv2d(4, 6, 2),
            nn.Linear(54, 2),
        )

    viewing, flattening = (
        prepared(network(how), examples(channels, 6, 6))
        for how in (lambda x: x.view(len(x), -1), lambda x: x.flatten(1))
    )
    viewing.model.load_state_dict(flattening.model.state_dict())
    found = []
    for private in (viewing, flattening):
        X, y = private.dataset.tensors
        assert private._sums.check((X, y), tuple)
        found.append(private._total((X,), y)[0])
    assert viewing._sums.checked.layout is not flattening._sums.checked.layout
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-5)
    train(prepared(network(lambda x: x.view(len(x), -1)), examples(channels, 6, 6)))


def test_mixed_images_are_rejected_in_both_memory_formats():
    convolutions = nn.Conv2d(3, 4, 3), nn.Linear(64, 2)
    for flatten in (lambda x: x.view(len(x), -1), lambda x: x.flatten(1)):
        model = Model(lambda layers, x, by=flatten: layers[1](by(layers[0](x - x.mean(0)))), *convolutions)
        assert_rejected(MIXES, model, examples(3, 6, 6))


# --------------------------------------------------------------------------------------------------------- not finite


def spoilt(value=math.nan):
    dataset = examples(5)
    dataset.tensors[0][::4] = value
    return dataset


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_examples_with_losses_that_are_not_finite_contribute_zero_with_a_warning(value):
    dataset = spoilt(value)
    private = prepared(dataset=dataset, rate=0.8)
    with pytest.warns(UserWarning, match=r"\d+ of \d+ examples in a batch have a gradient that is not finite"):
        train(private)
    assert all(torch.isfinite(each).all() for each in private.model.parameters())
    X, y = dataset.tensors
    good = torch.isfinite(X).all(1)
    torch.testing.assert_close(private._total((X,), y)[0], private._total((X[good],), y[good])[0])


def test_the_warning_counts_what_the_clip_sets_to_zero():
    """Losses are not gradients: a loss may be infinite with a finite gradient, and the other way round."""

    def loss(outputs, targets):
        values = outputs.sum(1)
        infinite = torch.where(targets == 1, math.inf, 0.0)  # The loss alone.
        steep = torch.where(targets == 2, values - values.detach(), 1.0).sqrt()  # The gradient alone.
        return values + infinite + steep

    X, targets = examples(5, n=10).tensors[0], torch.tensor([0, 1, 1, 1, 2, 2, 0, 0, 0, 0])
    private = prepared(dataset=TensorDataset(X, targets), loss=loss, rate=1.0)
    batch = next(private.batches())
    with pytest.warns(
        UserWarning, match=r"2 of 10 examples in a batch have a gradient .*for the holder of the data only"
    ):
        losses = private.step(*batch)
    assert int(torch.isfinite(losses).sum()) == 7
    finite = targets != 2
    torch.testing.assert_close(private._total((X,), targets)[0], private._total((X[finite],), targets[finite])[0])
    large = prepared(dataset=TensorDataset(X, targets), loss=lambda o, t: o.sum(1) * (1.0 + 1e38 * (t == 2)), rate=1.0)
    with pytest.warns(UserWarning, match="2 of 10 examples"):
        large.step(*next(large.batches()))


@pytest.mark.parametrize("rate", [1e-9, 0.3])
@pytest.mark.filterwarnings("ignore:The model's parameters or buffers were changed")
def test_parameters_that_are_not_finite_raise(rate):
    """Parameters are public, and the error must not depend on the batch. So an empty batch raises it, too."""
    private = prepared(rate=rate)
    batches = private.batches()
    private.step(*next(batches))
    with torch.no_grad():
        private.model.weight[0, 0] = math.nan
    batch = next(batches)
    assert len(batch[1]) or rate < 0.1
    with pytest.raises(FloatingPointError, match="not finite after 1 steps"):
        private.step(*batch)
    assert private.steps_done == 1
    assert private.steps_spent == 2


# -------------------------------------------------------------------------------- parameters that others change


def in_place(private):
    with torch.no_grad():
        private.model[0].weight.mul_(1.01)


def through_data(private):
    private.model[0].weight.data.add_(0.01)


def one_number_through_data(private):
    private.model[0].weight.data.view(-1)[1] += 0.5


def turned_around_through_data(private):
    weight = private.model[0].weight.data
    weight.copy_(weight.flip(0))


def new_data(private):
    private.model[0].weight.data = private.model[0].weight.data * 1.01


def loaded(private):
    state = {name: value + 0.01 for name, value in private.model.state_dict().items()}
    private.model.load_state_dict(state)


def by_another_optimizer(private):
    """Take a step of another optimizer, without privacy."""
    X, y = private.dataset.tensors
    functional.cross_entropy(private.model(X), y).backward()
    torch.optim.SGD(private.model.parameters(), lr=0.1).step()


def not_a_number(private):
    private.model[0].bias.data[0] = math.nan
    private.model[0].bias.data[0] = 0.123


CHANGES = [in_place, through_data, one_number_through_data, turned_around_through_data, new_data, loaded]


@pytest.mark.parametrize("change", [*CHANGES, by_another_optimizer, not_a_number])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_change_between_steps_warns_and_becomes_an_assumption(change, dtype):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 301), nn.Tanh(), nn.Linear(301, 2)).to(dtype)
    X, y = examples(5).tensors
    private = prepared(model, TensorDataset(X.to(dtype), y))
    batches = private.batches()
    private.step(*next(batches))
    private.step(*next(batches))
    assert "changed" not in private.guarantee.statement(verbose=True)
    change(private)
    with pytest.warns(UserWarning, match="were changed between two private steps"):
        private.step(*next(batches))
    assert "changes that the caller made to the parameters between steps do not depend" in private.guarantee.statement(
        verbose=True
    )
    change(private)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # The warning is given once.
        private.step(*next(batches))


def test_actions_that_change_no_parameter_do_not_warn():
    """Averages of weights, evaluations and other modes, also with weights that are swapped and restored."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.1), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50)
    private = prepared(model, optimizer=optimizer, steps=50)
    averages = torch.optim.swa_utils.AveragedModel(model)
    X, y = private.dataset.tensors
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for batch in private.batches():
            private.step(*batch)
            schedule.step()
            averages.update_parameters(model)
            model.eval()
            with torch.no_grad():
                model(X)
            functional.cross_entropy(model(X), y).backward()
            model.zero_grad()
            model.train()
            optimizer.zero_grad(set_to_none=False)
            kept = {name: value.clone() for name, value in model.state_dict().items()}
            model.load_state_dict(averages.module.state_dict())
            model(X)
            model.load_state_dict(kept)
            model.to(torch.float32)
    assert private.steps_done == 50
    assert "changed" not in private.guarantee.statement(verbose=True)


# ------------------------------------------------------------------------------------------------------------ datasets


class Doubled(TensorDataset):
    """A TensorDataset that creates its own examples."""

    def __getitem__(self, index):
        X, y = super().__getitem__(index)
        return 2 * X, y


def test_a_subclass_of_tensor_dataset_creates_its_own_examples():
    private = prepared(dataset=Doubled(*examples(5).tensors), rate=1.0)
    X, y = next(private.batches())
    torch.testing.assert_close(X, 2 * examples(5).tensors[0])
    assert len(y) == 40


def test_empty_batches_have_the_usual_shapes_and_types():
    for dataset in (examples(5), Doubled(*examples(5).tensors), torch.utils.data.Subset(examples(5), range(30))):
        full, empty = (Examples.of(dataset).collated(np.arange(size)) for size in (3, 0))
        assert [(each.shape[1:], each.dtype) for each in full] == [(each.shape[1:], each.dtype) for each in empty]
        assert [len(each) for each in empty] == [0, 0]


# ------------------------------------------------------------------------------------------------------------ progress


def test_a_progress_bar_changes_nothing(capsys):
    silent, shown = prepared(), prepared()
    train(silent)
    assert capsys.readouterr().out == ""
    train(shown, verbose=True)
    printed = capsys.readouterr().out
    assert "training" in printed
    assert "6/6" in printed
    assert f"epsilon {shown.guarantee.epsilon:.3g}" in printed
    for one, other in zip(silent.model.parameters(), shown.model.parameters(), strict=True):
        assert torch.equal(one, other)
