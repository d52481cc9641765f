"""Several views per example: the average of their gradients is clipped, so one example moves a sum by the clip."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="deep networks need torch: install the extra deep")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

from privet.audit import replay  # noqa: E402
from privet.deep import make_private  # noqa: E402
from privet.deep.clipping import BatchGradients, batch_gradients  # noqa: E402
from privet.deep.views import Views, averaged  # noqa: E402

CLIP = 0.7


def jittered(x):
    return x + 0.5 * torch.randn_like(x) if x.is_floating_point() else torch.randint(0, 9, x.shape)


def images(n=12):
    return TensorDataset(torch.randn(n, 2, 6, 6, generator=torch.Generator().manual_seed(0)), torch.arange(n) % 3)


def words(n=12):
    return TensorDataset(torch.arange(n * 4).view(n, 4) % 9, torch.arange(n) % 3)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.layer, self.last = nn.Embedding(9, 4), nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x):
        return self.last(self.layer(self.table(x))[0][:, -1])


NETWORKS = {
    "image": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3),
            nn.GroupNorm(2, 4),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(64, 8),
            nn.Tanh(),
            nn.Linear(8, 3),
        ),
        images(),
    ),
    "words": (Recurrent, words()),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("number", [1, 3])
def test_the_gradient_of_an_example_is_the_mean_over_its_views(name, number):
    torch.manual_seed(0)
    make, data = NETWORKS[name]
    model, (X, y) = make(), data.tensors
    views = Views(jittered, number)
    inputs, targets = views.of((X, y), None, seed=5)
    loss = nn.CrossEntropyLoss(reduction="none")
    found = batch_gradients(model, averaged(loss, number), (inputs,), targets).merged(number)
    assert found.losses.shape == (12,)
    squares = torch.zeros(12, dtype=torch.float64)
    for place in range(12):
        chosen = slice(place * number, (place + 1) * number)
        value = loss(model(inputs[chosen]), targets[chosen]).mean()
        torch.testing.assert_close(found.losses[place], value.detach())
        for parameter, grad in zip(model.parameters(), torch.autograd.grad(value, [*model.parameters()]), strict=True):
            alone = found.parts[parameter].written_out()[place]
            torch.testing.assert_close(alone.reshape(grad.shape), grad, rtol=1e-4, atol=1e-6)
            squares[place] += grad.double().square().sum()
    torch.testing.assert_close(found.norms(), squares.sqrt(), rtol=1e-4, atol=1e-6)


def prepared(data, model=None, **options):
    torch.manual_seed(0)
    model = model or NETWORKS["image"][0]()
    settings = {
        "loss": functional.cross_entropy,
        "noise_multiplier": 1.0,
        "epochs": 4,
        "batch_size": 6,
        "clip_norm": CLIP,
        "public_n": 12,
        "augment": jittered,
        "views": 3,
    } | options
    return make_private(model, torch.optim.SGD(model.parameters(), lr=0.1), data, **settings)


def train(data):
    private = prepared(data)
    private.fit()
    return private


def replayed(place=5, scale=1.0):
    data = images()
    data.tensors[0].mul_(scale)
    kept = torch.arange(12) != place
    return replay(train, data, TensorDataset(*(each[kept] for each in data.tensors)))


def test_replays_with_views_are_consistent_and_reach_the_clip():
    found = replayed()
    assert not found.is_violation, found
    assert found.largest > 0.9


def test_views_that_are_clipped_one_by_one_and_then_added_are_refuted(monkeypatch):
    """Each view is clipped alone and contributes the whole clipping norm."""

    class OneByOne:
        def __init__(self, found, views):
            self.found, self.views, self.losses = found, views, found.losses.view(-1, views).sum(1)

        def add_clipped_sum(self, clip_norm, slots):
            return self.found.add_clipped_sum(clip_norm, slots).view(-1, self.views).any(1)

    def one_by_one(found, views):
        return OneByOne(found, views)

    monkeypatch.setattr(BatchGradients, "merged", one_by_one)
    found = replayed(scale=100.0)
    assert any("times the bound" in problem for problem in found.problems), found


def test_views_that_depend_on_other_examples_are_refuted(monkeypatch):
    """Without a seed per example, the masks of later examples change with the number of those before."""

    def of(self, rows, build, seed):
        X = rows[0].repeat_interleave(self.number, 0)
        return X * (1 + X.mean()), rows[1].repeat_interleave(self.number, 0)

    monkeypatch.setattr(Views, "of", of)
    found = replayed()
    assert found.is_violation


def test_views_cost_no_privacy_and_max_batch_counts_examples():
    data = images()
    plain, viewed = prepared(data, augment=None, views=1), prepared(data)
    assert plain.plan == viewed.plan
    sums = []
    for max_batch in (None, 2):
        private = prepared(data, max_batch=max_batch, random_state=0)
        torch.manual_seed(3)
        sums.append(private._total((data.tensors[0],), data.tensors[1])[0])
    torch.testing.assert_close(*sums, rtol=1e-4, atol=1e-5)


def test_a_view_depends_on_its_example_alone_and_leaves_the_generators_as_they_were():
    X, y = images().tensors
    before, views = torch.get_rng_state(), Views(jittered, 2)
    whole, part = views.of((X, y), None, 7)[0], views.of((X[4:5], y[4:5]), None, 7)[0]
    assert torch.equal(whole[8:10], part)
    assert not torch.equal(part[0], part[1])
    assert torch.equal(before, torch.get_rng_state())


def test_check_covers_views_and_dictionaries():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(5, 3)

        def forward(self, x):
            return self.layer(x)

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 12

        def __getitem__(self, index):
            return {"x": torch.full((5,), float(index)) / 12, "label": index % 3}

    def changed(x, label):
        return {"label": label, "x": jittered(x)}

    private = prepared(Data(), Named(), augment=changed)
    before = copy.deepcopy(private.model.state_dict())
    assert not any(each.is_violation for each in private.check(steps=2, examples=5))
    assert repr(before) == repr(private.model.state_dict())
    private.fit()
    with pytest.raises(ValueError, match="entries of the example"):
        prepared(Data(), Named(), augment=lambda x, label: {"x": x}).fit()


def test_views_without_an_augmentation_are_refused():
    with pytest.raises(ValueError, match="augment="):
        prepared(images(), augment=None)
    with pytest.raises(ValueError, match="views"):
        prepared(images(), views=0)
