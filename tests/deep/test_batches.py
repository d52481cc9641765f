"""Batches of every structure: dictionaries, nested tuples, padding, loaders with workers; and what is refused."""

from typing import NamedTuple

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="deep networks need torch: install the extra deep")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset  # noqa: E402

from privet import PrivetWarning  # noqa: E402
from privet.audit import replay  # noqa: E402
from privet.deep import make_private  # noqa: E402
from privet.deep.clipping import BatchGradients  # noqa: E402
from privet.deep.datasets import Examples  # noqa: E402
from privet.deep.rows import Parts, RowsError, given_batch, is_flat  # noqa: E402
from privet.plans import PlanError  # noqa: E402
from privet.replay import Units  # noqa: E402

N = 60


def numbers(n=N):
    X = torch.randn(n, 5, generator=torch.Generator().manual_seed(0))
    return X, (X[:, 0] > 0).long()


class Rows(Dataset):
    """Examples that a function makes from a row and its class."""

    def __init__(self, example=lambda x, y: (x, y), n=N):
        self.X, self.y = numbers(n)
        self.example = example

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        return self.example(self.X[index], self.y[index])


class Named(nn.Module):
    """Takes its input by keyword."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 2)

    def forward(self, x, scale=1.0):
        return scale * self.layer(x)


def prepared(data, model=None, **options):
    torch.manual_seed(0)
    model = (model or Named)()
    settings = {
        "loss": functional.cross_entropy,
        "noise_multiplier": 1.0,
        "epochs": 2,
        "batch_size": 10,
        "clip_norm": 1.0,
        "random_state": 0,
    } | options
    return make_private(model, torch.optim.SGD(model.parameters(), lr=0.5), data, **settings)


def trained(*args, **options):
    private = prepared(*args, **options)
    private.fit()
    return torch.cat([each.detach().flatten() for each in private.model.parameters()])


def named(x, y):
    return {"x": x, "label": y}


class Point(NamedTuple):
    x: torch.Tensor
    index: int


class OfPoints(Named):
    def forward(self, point, names):
        assert len(names) == len(point.x)
        return self.layer(point.x)


def by_label(outputs, batch):
    return functional.cross_entropy(outputs, batch["label"], reduction="none")


@pytest.mark.parametrize(
    ("example", "model", "options"),
    [
        (lambda x, y: (x, y), None, {}),
        (named, None, {}),
        (named, None, {"loss": by_label}),
        (named, None, {"max_batch": 3, "class_weight": {0: 1.0}}),
        (lambda x, y: {"x": x, "label": y, "name": "row"}, None, {"loss": by_label}),
        (lambda x, y: (Point(x, 3), "row", y), OfPoints, {}),
        (named, None, {"collate_fn": lambda rows: {**torch.utils.data.default_collate(rows), "scale": 1.0}}),
    ],
)
def test_every_structure_gives_the_training_of_the_same_tensors(example, model, options):
    expected = trained(TensorDataset(*numbers()))
    torch.testing.assert_close(trained(Rows(example), model, **options), expected)


def test_dictionaries_can_be_passed_whole_or_by_keyword_but_not_by_their_keys():
    whole, by_keyword, wrong = (prepared(Rows(named)) for _ in range(3))
    found = [whole.step(next(whole.batches())), by_keyword.step(**next(by_keyword.batches()))]
    assert torch.equal(*found)
    with pytest.raises(TypeError, match=r"step\(batch\) or step\(\*\*batch\)"):
        wrong.step(*next(wrong.batches()))


@pytest.mark.parametrize("example", [lambda x, y: (x, y), named])
def test_empty_batches_of_every_structure_are_steps(example):
    private = prepared(Rows(example), batch_size=1, epochs=1)
    sizes = [len(private.step(batch)) for batch in private.batches()]
    assert 0 in sizes
    assert private.steps_done == N


# ------------------------------------------------------------------------------------------------------------- padding


class Words(Dataset):
    """Rows of different lengths."""

    def __len__(self):
        return N

    def __getitem__(self, index):
        return {"words": torch.arange(1, 2 + index % 7), "label": index % 2}


def padded(rows):
    """Return rows of equal lengths, with 0 for padding."""
    words = nn.utils.rnn.pad_sequence([row["words"] for row in rows], batch_first=True)
    return {"words": words, "label": torch.tensor([row["label"] for row in rows])}


class Bag(nn.Module):
    """The mean of the vectors of words, with or without those of the padding."""

    def __init__(self, is_masked):
        super().__init__()
        self.table, self.last, self.is_masked = nn.Embedding(9, 4), nn.Linear(4, 2), is_masked

    def forward(self, words):
        mask = (words > 0)[:, :, None].float() if self.is_masked else torch.ones(*words.shape, 1)
        return self.last((mask * self.table(words)).sum(1) / mask.sum(1))


def test_ragged_rows_are_padded_by_a_collate_function_and_the_guarantee_says_what_is_assumed():
    private = prepared(Words(), lambda: Bag(True), collate_fn=padded, noise_multiplier=0.1, epochs=4)
    losses = [private.step(batch) for batch in private.batches()]
    assert all(torch.isfinite(each).all() for each in losses)
    assert "collate_fn makes each row of a batch from its example alone" in private.guarantee.statement(verbose=True)
    assert "collate_fn" not in prepared(Rows()).guarantee.statement(verbose=True)


def test_a_model_that_sees_the_padding_is_refused():
    private = prepared(Words(), lambda: Bag(False), collate_fn=padded)
    with pytest.raises(ValueError, match="Let the model ignore padding"):
        private.fit()


def test_a_collate_function_that_mixes_examples_is_refused():
    def mixed(rows):
        X, y = torch.utils.data.default_collate(rows)
        return 0.7 * X + 0.3 * X.flip(0), y

    private = prepared(Rows(), collate_fn=mixed)
    with pytest.raises(ValueError, match="do not mix examples"):
        private.fit()


def test_a_collate_function_that_is_random_by_itself_is_accepted():
    def noisy(rows):
        X, y = torch.utils.data.default_collate(rows)
        return X + 0.1 * torch.randn_like(X), y

    prepared(Rows(), collate_fn=noisy).fit()


def test_a_collate_function_that_drops_examples_is_refused_before_the_step():
    private = prepared(Rows(), collate_fn=lambda rows: torch.utils.data.default_collate(rows[1:]))
    with pytest.raises(RowsError, match=r"has \d+ rows, but \d+ examples were drawn"):
        private.fit()
    assert private.steps_spent == 0
    private = prepared(Rows(), collate_fn=lambda rows: 3)
    with pytest.raises(RowsError, match="it is a int"):
        private.fit()


def test_a_table_that_all_examples_share_is_named():
    private = prepared(
        Rows(named), collate_fn=lambda rows: {**torch.utils.data.default_collate(rows), "t": torch.ones(99)}
    )
    with pytest.raises(RowsError, match=r"batch\['t'\] has 99 rows"):
        private.fit()


def test_a_step_with_fewer_rows_is_refused_and_spent():
    private = prepared(Rows(named))
    batch = next(private.batches())
    with pytest.raises(PlanError, match=r"step\(\) received"):
        private.step({key: each[1:] for key, each in batch.items()})
    assert (private.steps_spent, private.steps_done) == (1, 0)


# ------------------------------------------------------------------------------------------------------------- loaders


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_gives_its_parts_and_the_plan_draws_the_batches(workers):
    """With one class after the other, the loader's own sampler would never mix them."""
    loader = DataLoader(Rows(named), batch_size=10, collate_fn=_collated, num_workers=workers)
    with pytest.warns(PrivetWarning, match="not by the sampler of the loader"):
        private = prepared(loader, batch_size=None)
    assert private.plan == prepared(Rows()).plan
    assert private.dataset is loader.dataset
    sizes = [len(private.step(batch)) for batch in private.batches()]
    assert private.steps_done == 12
    assert len(set(sizes)) > 3


def _collated(rows):
    return torch.utils.data.default_collate(rows)


def test_batches_that_workers_read_ahead_are_those_that_the_noise_accounts_for():
    """Each row names itself, so the batch must consist of the examples of its step."""
    data = TensorDataset(torch.arange(N).float()[:, None].expand(N, 5), torch.zeros(N, dtype=torch.long))
    private = prepared(DataLoader(Listed(data), batch_size=10, num_workers=2), epochs=4)
    drawn = []
    for X, y in private.batches():
        assert X[:, 0].tolist() == private._chosen.tolist()
        drawn += private._chosen.tolist()
        private.step(X, y)
    assert private.steps_done == 24
    assert len(set(drawn)) > N / 2
    assert max(map(drawn.count, drawn)) > 1


class Listed(Dataset):
    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return self.data[index]


def test_workers_read_empty_batches_and_a_loop_can_be_left_early():
    private = prepared(DataLoader(Rows(), num_workers=1), batch_size=1, epochs=0.5)
    sizes = [len(private.step(batch)) for batch in private.batches()]
    assert 0 in sizes
    private = prepared(DataLoader(Rows(), batch_size=10, num_workers=1))
    private.step(next(private.batches()))
    assert private.steps_spent == 1


def test_datasets_without_an_order_of_their_own_are_refused():
    class Stream(IterableDataset):
        def __iter__(self):
            yield from zip(*numbers(), strict=True)

    for data in (Stream(), DataLoader(Stream(), batch_size=10), iter([])):
        with pytest.raises(TypeError, match=r"list\(dataset\)"):
            prepared(data)
    with pytest.raises(ValueError, match="batch_size is missing"):
        prepared(Rows(), batch_size=None)


def test_arrays_instead_of_examples_are_refused():
    X, y = numbers()
    for data in ((X, y), [X.numpy(), y.numpy()]):
        with pytest.raises(TypeError, match=r"arrays, but each of its entries must be an example.*TensorDataset"):
            prepared(data)


# ---------------------------------------------------------------------------------------------------------- components


def test_batches_are_taken_apart_and_put_together():
    tensor = torch.zeros(2, 3)
    batch = {"a": [tensor, {"b": tensor + 1}], "c": ["x", "y"], "d": None, "e": torch.tensor(1.0)}
    parts = Parts.of(batch, 2)
    assert len(parts.rows) == 3
    again = parts.with_rows([each[:1] for each in parts.rows])
    assert again["c"] == ["x"]
    assert again["d"] is None
    assert torch.equal(again["a"][1]["b"], tensor[:1] + 1)
    assert is_flat((tensor, tensor))
    assert not is_flat(({"a": tensor}, tensor))
    with pytest.raises(RowsError, match="without any"):
        Parts.of({"a": 1}, 2)
    assert given_batch(((tensor, tensor),), {}) == (tensor, tensor)


def test_check_replays_dictionaries_and_padding():
    found = prepared(Words(), lambda: Bag(True), collate_fn=padded).check(steps=2, examples=6)
    assert len(found) > 2
    assert not any(each.is_violation for each in found)
    assert max(each.largest for each in found) > 0.5
    with pytest.raises(ValueError, match="does not keep its guarantee"):
        prepared(Rows(named)).check(steps=2, examples=6, prepare=lambda x, label: {"x": x - x.mean(0), "label": label})


# -------------------------------------------------------------------------------------------------------- planted bugs


def fitted(data, **options):
    private = prepared(data, batch_size=6, public_n=12, **options)
    private.fit()
    return private


def neighbours():
    """Return named examples with and without one, whose gradients are far longer than the clip."""
    whole, less = Rows(named, n=12), Rows(named, n=12)
    kept = torch.arange(12) != 5
    whole.X = whole.X * 50
    less.X, less.y = whole.X[kept], whole.y[kept]
    return whole, less


def replayed(train):
    places = np.array([0, 1, 2, 3, 4, -1, 5, 6, 7, 8, 9, 10])
    return replay(train, *neighbours(), units=Units(places, 11))


def test_replays_of_dictionaries_with_weights_and_of_loaders_are_consistent():
    for found in (
        replayed(lambda data: fitted(data, class_weight={0: 3.0})),
        replayed(lambda data: fitted(DataLoader(data, batch_size=3), augment=same, views=2)),
    ):
        assert not found.is_violation, found
        assert found.largest > 0.9


def same(x, label):
    return {"x": x, "label": label}


def test_the_order_of_a_loader_in_place_of_the_plan_is_refuted(monkeypatch):
    """A planted bug: batches have the size that was drawn, but consist of the next examples of the loader."""
    collated, place = Examples.collated, [0]

    def in_order(self, indices):
        place[0] += len(indices)
        return collated(self, (np.arange(len(indices)) + place[0]) % len(self))

    def train(data):
        place[0] = 0
        return fitted(DataLoader(data, batch_size=3))

    monkeypatch.setattr(Examples, "collated", in_order)
    assert any("times the bound" in problem for problem in replayed(train).problems)


def test_class_weights_after_the_clip_are_refuted(monkeypatch):
    add = BatchGradients.add_clipped_sum
    monkeypatch.setattr(BatchGradients, "add_clipped_sum", lambda self, clip, slots: add(self, 3 * clip, slots))
    found = replayed(lambda data: fitted(data, class_weight={0: 3.0}))
    assert any("times the bound" in problem for problem in found.problems)
