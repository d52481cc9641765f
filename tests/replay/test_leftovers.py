"""What a run leaves behind is compared wherever a result can hold it, and nothing else is."""

import array
import datetime
import decimal
import functools
import io
import types
from collections import Counter

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.tree import DecisionTreeRegressor

from privet.replay.leftovers import Leftovers, differences, files_in


class Generator(torch.nn.Module):
    """A network that has the name of a source of random numbers."""

    def __init__(self, value):
        super().__init__()
        self.register_buffer("mean", torch.tensor(value))


class Slots:
    __slots__ = ("__hidden",)

    def __init__(self, value):
        self.__hidden = value


class Named(str):
    """A text with attributes."""


class Rows(np.ndarray):
    """An array with attributes."""


class Bare:
    """An object whose ``repr`` is its address."""


def with_attribute(thing, value):
    thing.mean = value
    return thing


def of_local_class(value):
    class Model:
        mean = value

    return Model()


def table(value, **kwargs):
    return pd.DataFrame({"a": [1, 2]}, **kwargs).assign(**{f"b{value}": 3})


def with_gradient(value):
    tensor = torch.ones(1, requires_grad=True)
    (value * tensor).sum().backward()
    return tensor


HOLDERS = {
    "default": lambda v: lambda x=v: x,
    "keyword default": lambda v: lambda *, x=v: x,
    "closure": lambda v: lambda: v,
    "attribute of a function": lambda v: with_attribute(lambda: 0, v),
    "constant of a function": lambda v: eval(f"lambda x: x > {v}"),
    "partial": lambda v: functools.partial(max, v),
    "bound method of a list": lambda v: [v].append,
    "private slot": Slots,
    "a network named Generator": Generator,
    "attribute of a class": of_local_class,
    "a class": lambda v: float if v > 0 else int,
    "attribute of an array": lambda v: with_attribute(np.zeros(2).view(Rows), v),
    "attribute of a text": lambda v: with_attribute(Named("x"), v),
    "mask": lambda v: np.ma.array([1.0, 2.0], mask=[v > 0, False]),
    "iterator": lambda v: iter([v]),
    "file in memory": lambda v: io.BytesIO(str(v).encode()),
    "date": lambda v: datetime.datetime(2020, 1, 1) + datetime.timedelta(v),
    "times": lambda v: np.array(["2020-01-01"], "M8[D]") + int(v),
    "decimal": decimal.Decimal,
    "range": lambda v: range(5 + int(v)),
    "bytes": lambda v: bytearray(str(v).encode()),
    "array of Python": lambda v: array.array("d", [v]),
    "view": lambda v: {"a": v}.values(),
    "exception": ValueError,
    "namespace": lambda v: types.SimpleNamespace(v=v),
    "key": lambda v: {v: 1},
    "key of numpy": lambda v: {np.int64(v): 1},
    "key with parts": lambda v: {frozenset([v]): 1},
    "key with a value": lambda v: {torch.nn.Parameter(torch.tensor(v)): 1},
    "order of keys": lambda v: {"a": 1, "b": 2} if v > 0 else {"b": 2, "a": 1},
    "counts": lambda v: Counter([v]),
    "set of tensors": lambda v: {torch.tensor(1 + v * 1e-9, dtype=torch.float64)},
    "column names": table,
    "name of an index": lambda v: pd.DataFrame([1], index=pd.Index([1], name=v)),
    "categories": lambda v: pd.Series(pd.Categorical(["a"], categories=["a", str(v)])),
    "sparse matrix": lambda v: sparse.csr_matrix([[v]]),
    "sparse rows of torch": lambda v: torch.tensor([[v]]).to_sparse_csr(),
    "conjugate": lambda v: torch.tensor([1j * v]).conj(),
    "gradient": with_gradient,
    "tree": lambda v: DecisionTreeRegressor(random_state=0).fit([[0.0], [1.0]], [0.0, v]),
    "negative zero": lambda v: np.array(0.0 * v),
}


def found(make, *values):
    first, second = (Leftovers(make(value)) for value in values)
    return differences(first.digests, second.digests)


@pytest.mark.parametrize("name", HOLDERS)
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
def test_a_value_is_found_wherever_it_is_held(name):
    assert found(HOLDERS[name], 1.0, -1.0)
    assert not found(HOLDERS[name], 1.0, 1.0)


def hooked(_):
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    model.handle = model.register_forward_hook(print)
    return model


def named_by_address(_):
    thing = Bare()
    return [thing, {id(thing): 1}, {(thing,): 1}, {thing, Bare()}]


@pytest.mark.parametrize(
    "make",
    [
        hooked,
        named_by_address,
        lambda _: np.array([1, 2, 3], np.longdouble) * 1,
        lambda _: [np.random.default_rng(), torch.Generator(), lambda: 0, print, np],
    ],
    ids=["hooks of torch", "addresses", "bytes between numbers", "generators and modules"],
)
def test_what_differs_between_runs_of_the_same_code_is_not_found(make):
    assert not found(make, 1.0, -1.0)


def test_a_generator_that_is_returned_is_refused():
    with pytest.raises(ValueError, match="Return a list of them"):
        Leftovers([(each for each in [1])])


def test_empty_folders_count_as_files(tmp_path):
    (tmp_path / "mean 3").mkdir()
    assert list(files_in(tmp_path)) == ["mean 3"]
