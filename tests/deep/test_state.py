"""Nothing but the optimizer writes into a model: parameters, buffers and attributes, in checks and in steps."""

import collections
import math
import warnings
from functools import partial

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="deep networks need torch: install the extra deep")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

from privet.deep.state import SavedState, digests  # noqa: E402
from privet.deep.training import PrivateTraining  # noqa: E402
from privet.plans import GradientPlan, Poisson  # noqa: E402

DEPENDS = "depends on the examples"


def examples(n=24, d=5):
    X = torch.randn(n, d, generator=torch.Generator().manual_seed(0))
    return TensorDataset(X, torch.arange(n) % 2)


def prepared(model, dataset=None, rate=1.0, **options):
    dataset = examples() if dataset is None else dataset
    return PrivateTraining(
        model,
        torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=0.1),
        dataset,
        plan=GradientPlan(Poisson(rate), 4, 1.0, 1.0, public_n=len(dataset), delta=1e-5),
        loss=options.pop("loss", nn.CrossEntropyLoss()),
        random_state=0,
        **options,
    )


def train(private):
    return [private.step(*batch) for batch in private.batches()]


class Stateful(nn.Module):
    """A linear model whose forward also does something else."""

    def __init__(self, also, **attributes):
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.also = nn.Linear(5, 2), also
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x):
        self.also(self, x)
        return self.linear(x)


# ------------------------------------------------------------------------------------------- parameters and buffers


def words(n=24):
    tokens = torch.zeros(n, 3, dtype=torch.long)
    tokens[0] = 7  # A rare word.
    return TensorDataset(tokens, torch.arange(n) % 2)


@pytest.mark.parametrize("is_frozen", [True, False])
@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
def test_an_embedding_with_max_norm_is_refused_at_once(kind, is_frozen):
    model = nn.Sequential(kind(9, 4, max_norm=1.0), nn.Flatten(), nn.Linear(12, 2))
    model[0].requires_grad_(not is_frozen)
    with pytest.raises(ValueError, match="with max_norm=1 rescales the rows"):
        prepared(model, words())


class Table(nn.Module):
    """A frozen table whose rows are rescaled when they are used."""

    def __init__(self):
        super().__init__()
        self.rows = nn.Parameter(torch.full((9, 4), 5.0), requires_grad=False)
        self.max_norm = 1.0

    def forward(self, tokens):
        return functional.embedding(tokens, self.rows, max_norm=self.max_norm).flatten(1)


def test_a_forward_that_writes_into_a_frozen_parameter_is_refused_and_leaves_no_trace():
    model = nn.Sequential(Table(), nn.Linear(12, 2))
    private = prepared(model, words())
    with pytest.raises(ValueError, match=r"forward pass of the model changed 0\.rows of Table"):
        train(private)
    assert bool((model[0].rows == 5).all())
    assert (private.steps_spent, private.steps_done) == (1, 0)


@pytest.mark.parametrize("name", ["0.rows", "1.weight", "1.seen"])
def test_a_forward_that_begins_to_write_later_is_noticed_before_noise_is_added(name):
    """The check of the first batch cannot see this. The guarantee says from then on what it assumes."""
    model = nn.Sequential(Table(), nn.Linear(12, 2))
    model[0].max_norm = None
    model[1].register_buffer("seen", torch.zeros(3))
    private = prepared(model, words())
    batches = private.batches()
    private.step(*next(batches))
    before, written = model[1].bias.detach().clone(), model.state_dict(keep_vars=True)[name]

    def write(layer, inputs):
        written.data.view(-1)[1] += 1e-3

    handle = model.register_forward_pre_hook(write)
    with pytest.raises(ValueError, match=f"forward pass of the model changed {name} of"):
        private.step(*next(batches))
    assert (private.steps_spent, private.steps_done) == (2, 1)
    assert torch.equal(before, model[1].bias)
    assert "values that the model wrote" in private.guarantee.statement(verbose=True)
    handle.remove()
    private.step(*next(batches))


class ActNorm(nn.Module):
    """Initialised from the first batch, as in Glow: by a flag in Python, and through ``.data``."""

    def __init__(self, size):
        super().__init__()
        self.shift, self.is_ready = nn.Parameter(torch.zeros(size)), False

    def forward(self, x):
        if not self.is_ready:
            self.shift.data.copy_(-x.detach().mean(0))
            self.is_ready = True
        return x + self.shift


@pytest.mark.filterwarnings("ignore:There is no gradient rule")
def test_an_initialisation_from_the_first_batch_is_refused_and_leaves_no_trace():
    model = nn.Sequential(ActNorm(5), nn.Linear(5, 2))
    with pytest.raises(ValueError, match=r"forward pass of the model changed 0\.shift of ActNorm"):
        train(prepared(model))
    assert bool((model[0].shift == 0).all())
    assert model[0].is_ready is False


@pytest.mark.parametrize("name", ["frozen", "buffer"])
def test_changes_of_frozen_parameters_and_buffers_between_steps_become_an_assumption(name):
    model = nn.Linear(5, 2)
    model.frozen = nn.Parameter(torch.zeros(3), requires_grad=False)
    model.register_buffer("buffer", torch.zeros(3))
    private = prepared(model)
    batches = private.batches()
    private.step(*next(batches))
    getattr(model, name).data[1] = 1.0
    with pytest.warns(UserWarning, match="were changed between two private steps"):
        private.step(*next(batches))
    assert "changes that the caller made" in private.guarantee.statement(verbose=True)


# ---------------------------------------------------------------------------------------------------- plain attributes


def running_mean(model, x):
    model.mean = (1 - 1e-4) * model.mean + 1e-4 * x.detach().mean(0)


def running_mean_in_place(model, x):
    model.mean.lerp_(x.detach().mean(0), 1e-4)


def number(model, x):
    model.mean = 0.5 * model.mean + 1e-9 * float(x.mean())


def array(model, x):
    model.mean += x.detach().mean(0).numpy()


def in_a_list(model, x):
    model.mean.append(float(x.sum()))


def in_a_dict(model, x):
    model.mean["last"] = x.detach()


def in_an_object(model, x):
    model.mean.value = float(x.sum())


def in_a_set(model, x):
    model.mean.add(float(x.sum()))


def in_a_hidden_module(model, x):
    model.mean[0].bias.data += x.detach().mean(0)


def the_number_of_examples(model, x):
    model.mean = model.mean + len(x)


def in_the_graph(model, x):
    model.mean = model.linear(x)


STATES = {
    running_mean: lambda: torch.zeros(5),
    running_mean_in_place: lambda: torch.zeros(5),
    number: lambda: 0.0,
    array: lambda: np.zeros(5),
    in_a_list: list,
    in_a_dict: collections.OrderedDict,
    in_an_object: type("Meter", (), {}),
    in_a_set: set,
    the_number_of_examples: lambda: 0,
    in_the_graph: lambda: None,
}


@pytest.mark.parametrize("also", STATES)
def test_attributes_that_depend_on_the_examples_are_refused_and_restored(also):
    model = Stateful(also, mean=STATES[also]())
    before, held = digests(model=model), model.mean
    with pytest.raises(ValueError, match=rf"attribute mean\S* {DEPENDS}"):
        train(prepared(model))
    assert digests(model=model) == before
    assert model.mean is held


def test_a_module_in_a_plain_attribute_is_watched_too():
    model = Stateful(in_a_hidden_module, mean=[nn.Linear(5, 5)])
    before = digests(model=model)
    with pytest.raises(ValueError, match=r"changed mean\[0\]\.bias"):
        train(prepared(model))
    assert digests(model=model) == before


def test_the_state_of_a_loss_is_watched_too():
    class Loss(nn.Module):
        def forward(self, outputs, targets):
            self.last = float(outputs.sum())
            return functional.cross_entropy(outputs, targets, reduction="none")

    with pytest.raises(ValueError, match=rf"attribute loss\.last {DEPENDS}"):
        train(prepared(nn.Linear(5, 2), loss=Loss()))


class _Bound:
    total = 0.0

    def loss(self, outputs, targets):
        self.total += float(outputs.sum())
        return functional.cross_entropy(outputs, targets, reduction="none")


def _with_state(held, outputs, targets):
    return held.loss(outputs, targets)


@pytest.mark.parametrize("loss", [_Bound().loss, partial(_with_state, _Bound())], ids=["method", "partial"])
def test_the_state_that_a_loss_is_bound_to_is_watched_too(loss):
    with pytest.raises(ValueError, match=rf"attribute loss\..*\.total {DEPENDS}"):
        train(prepared(nn.Linear(5, 2), loss=loss))


def late(action):
    """Return what a forward does if an example is unusual, which happens only in later batches."""

    def also(model, x):
        if x.abs().max() > 50:
            action(model, x)

    return also


def train_with_a_late_outlier(model):
    dataset = examples()
    private = prepared(model, dataset)
    for number, batch in enumerate(private.batches()):
        private.step(*batch)
        if number == 1:
            dataset.tensors[0][3] *= 1e3
    return private


def test_writing_later_into_a_hidden_module_is_noticed():
    model = Stateful(late(lambda model, x: model.hidden[0].weight.data.add_(1)), hidden=[nn.Linear(5, 5)])
    with pytest.raises(ValueError, match=r"changed hidden\[0\]\.weight"):
        train_with_a_late_outlier(model)


@pytest.mark.parametrize("rows", [9, 2000])
def test_another_order_of_the_same_values_is_noticed(rows):
    def roll(model, x):
        model.table.weight.data[1:] = model.table.weight.data[1:].roll(1, 0)

    model = Stateful(late(roll), table=nn.Embedding(rows, 2).requires_grad_(False))
    with pytest.raises(ValueError, match=r"changed table\.weight"):
        train_with_a_late_outlier(model)


def test_gradients_that_a_forward_sets_do_not_reach_the_optimizer():
    def set_gradient(model, x):
        model.table.weight.grad = x.detach()[:1]

    model = Stateful(set_gradient, table=nn.Embedding(1, 5).requires_grad_(False))
    before = model.table.weight.clone()
    private = prepared(model)
    private.optimizer.add_param_group({"params": [model.table.weight]})
    train(private)
    assert torch.equal(model.table.weight, before)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc])
@pytest.mark.filterwarnings("ignore:Sparse CS")
def test_sparse_buffers_are_watched_too(layout):
    def rescale(model, x):
        model.graph = model.graph * 2

    model = Stateful(late(rescale))
    model.register_buffer("graph", torch.eye(3).to_sparse(layout=layout))
    with pytest.raises(ValueError, match="changed graph of Stateful"):
        train_with_a_late_outlier(model)


def test_counters_and_random_values_are_accepted_and_the_check_leaves_no_trace():
    def count(model, x):
        model.calls += 1
        model.history.append(model.calls)
        model.noise = torch.rand(3)

    model = Stateful(count, calls=0, history=[], noise=None)
    private = prepared(model)
    generator = torch.get_rng_state()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(private)
    assert (model.calls, model.history) == (4, [1, 2, 3, 4])
    assert "what the model counts in its forward pass" in private.guarantee.statement(verbose=True)
    assert torch.equal(torch.get_rng_state(), generator)
    again = Stateful(count, calls=0, history=[], noise=None)
    train(prepared(again))
    assert torch.equal(model.noise, again.noise)  # It follows from random_state alone.


def test_a_saved_state_restores_everything_in_place():
    model = nn.Sequential(nn.Linear(2, 2), nn.LSTM(2, 2), nn.BatchNorm1d(2))
    model.tensor, model.array, model.table = torch.ones(3), np.ones(3), {"a": [1, {2}], "b": collections.deque([1])}
    model.wide = torch.ones(1).expand(3)
    saved, before = SavedState(model), digests(model=model)
    kept = [model.tensor, model.array, model.table, model[0].weight, *model.buffers()]
    with torch.no_grad():
        model[0].weight.data = torch.full((5,), math.nan)
        model[2].running_mean.add_(1.0)
        model[2].running_var = torch.zeros(7)
        model.tensor.fill_(math.nan)
    model.array[:] = 2
    model.table["a"][1].add(3)
    model.table["b"].append(2)
    model.table["c"] = model.table.pop("a")
    model.wide = model.new = None
    model[1].train(False)
    assert digests(model=model) != before
    saved.restore()
    assert digests(model=model) == before
    now = [model.tensor, model.array, model.table, model[0].weight, *model.buffers()]
    assert all(one is other for one, other in zip(kept, now, strict=True))
    assert not hasattr(model, "new")
    model[1](torch.zeros(1, 1, 2))


# ----------------------------------------------------------------------------------------- examples that are not finite


class Centred(nn.Module):
    """A model that subtracts the mean of its batch."""

    def __init__(self, size=5):
        super().__init__()
        self.linear = nn.Linear(size, 2)

    def forward(self, x):
        return self.linear(x - x.mean(0))


def with_missing(bad, n=24, label=math.nan):
    X, _ = examples(n).tensors
    y = torch.zeros(n)
    y[bad] = label
    return TensorDataset(X, y)


def squares(outputs, targets):
    return (outputs.sum(1) - targets).square()


MIXES = "mixes examples|changes with the other examples"


@pytest.mark.parametrize("label", [math.nan, math.inf])
@pytest.mark.parametrize("bad", [slice(0, 1), slice(0, 6), slice(0, 23), slice(1, 24)])
def test_missing_labels_do_not_switch_the_check_off(bad, label):
    with pytest.raises(ValueError, match=MIXES):
        train(prepared(Centred(), with_missing(bad, label=label), loss=squares))


@pytest.mark.parametrize("x", [torch.tensor([1.0, 2, 3, 4, 5]), torch.full((5,), 3.0), torch.zeros(5)])
def test_mixing_is_found_with_a_single_finite_example(x):
    """All other examples are missing, and a mate has to be made up."""
    dataset = TensorDataset(x.expand(3, 5).clone(), torch.tensor([math.nan, 1.0, math.nan]))
    with pytest.raises(ValueError, match=MIXES):
        train(prepared(Centred(), dataset, loss=squares))


def test_mixing_is_found_if_the_first_examples_are_equal():
    dataset = TensorDataset(torch.ones(24, 5), torch.zeros(24))
    with pytest.raises(ValueError, match=MIXES):
        train(prepared(Centred(), dataset, loss=squares))


@pytest.mark.filterwarnings("ignore:There is no gradient rule", r"ignore:std\(\)")
@pytest.mark.parametrize("kind", [nn.Sequential, nn.Linear])
def test_a_deviation_over_the_batch_is_found_although_it_is_undefined_for_one_example(kind):
    class Standardised(kind):
        def forward(self, x):
            return super().forward((x - x.mean(0)) / x.std(0))

    with pytest.raises(ValueError, match="changes with the other examples"):
        train(prepared(Standardised(5, 2) if kind is nn.Linear else Standardised(nn.Linear(5, 2))))


def test_mixing_in_place_is_found():
    def centre(model, x):
        x.sub_(x.mean(0))

    with pytest.raises(ValueError, match="changes with the other examples"):
        train(prepared(Stateful(centre)))


def test_a_model_that_scales_its_inputs_in_place_is_accepted_and_the_check_does_not_scale_them():
    dataset = examples()
    losses = [train(prepared(Stateful(also), dataset))[0] for also in (lambda model, x: x.mul_(2), lambda model, x: x)]
    assert torch.allclose(losses[0], train(prepared(Stateful(lambda model, x: x), doubled(dataset)))[0])
    assert not torch.allclose(*losses)


def doubled(dataset):
    return TensorDataset(2 * dataset.tensors[0], dataset.tensors[1])


@pytest.mark.filterwarnings("ignore:.*in a batch have a gradient that is not finite")
def test_a_batch_without_a_finite_example_postpones_the_check_and_contributes_zero():
    dataset = with_missing(slice(None))
    private = prepared(Centred(), dataset, loss=squares)
    batches, sums = private.batches(), []
    added = private._noisy
    private._noisy = lambda step, total: sums.append(total.clone()) or added(step, total)
    losses = private.step(*next(batches))
    assert losses.isnan().all() and len(losses) == 24
    assert bool((sums[0] == 0).all())
    assert private.steps_done == 1
    dataset.tensors[1][3] = 1.0
    with pytest.raises(ValueError, match=MIXES):
        private.step(*next(batches))


@pytest.mark.filterwarnings("ignore:.*in a batch have a gradient that is not finite")
@pytest.mark.parametrize("place", [0, 11, 23])
def test_one_finite_example_more_moves_no_sum_by_more_than_the_clip(place):
    """Whether the model is checked on the first batch depends on this example, and nothing else may."""
    found = []
    for label in (math.nan, 50.0):
        dataset = with_missing(slice(None))
        dataset.tensors[1][place] = label
        torch.manual_seed(0)
        private = prepared(nn.Linear(5, 2), dataset, loss=squares)
        sums, added = [], private._noisy
        private._noisy = lambda step, total, into=sums, added=added: into.append(total.clone()) or added(step, total)
        private.step(*next(private.batches()))
        found.append(sums[0])
    assert 0.9 < float((found[0] - found[1]).norm()) <= 1.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e3, 1e15])
def test_a_good_model_passes_the_check_whatever_the_size_of_its_gradients(dtype, scale):
    """A refusal would depend on the data. In half precision, torch's own gradients overflow at 65504."""
    X, y = examples().tensors
    model = nn.Linear(5, 2).to(dtype)
    train(
        prepared(model, TensorDataset(X.to(dtype), y), loss=lambda o, t: o.float().gather(1, t[:, None])[:, 0] * scale)
    )


def test_an_infinite_loss_with_a_finite_gradient_is_checked_and_counts():
    """The clip looks at gradients only."""
    dataset = with_missing(slice(None), label=1.0)
    train(prepared(nn.Linear(5, 2), dataset, loss=lambda o, t: squares(o, t) + t / 0))
    with pytest.raises(ValueError, match=MIXES):
        train(prepared(Centred(), dataset, loss=lambda o, t: squares(o, t) + t / 0))
