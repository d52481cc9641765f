import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from privet.federated import Partitioned
from privet.federated.clients import Fetching, tensors

X, Y = np.arange(12.0).reshape(6, 2), np.arange(6)


def test_a_client_consists_of_its_rows():
    clients = Partitioned((X, Y), [np.array([4, 0]), np.array([], dtype=np.int64)])
    inputs, targets = clients[0]
    assert len(clients) == 2
    assert inputs.tolist() == [[8, 9], [0, 1]]
    assert targets.tolist() == [4, 0]
    assert len(clients[1][0]) == 0


def test_clients_are_views_of_common_arrays():
    clients = Partitioned((X, Y), [np.array([0])])
    X[0, 0] = 77.0
    try:
        assert clients[0][0][0, 0] == 77.0  # the arrays were not copied
    finally:
        X[0, 0] = 0.0


def test_a_transform_is_applied_when_a_client_is_sampled():
    bytes_ = torch.tensor([[0], [255]], dtype=torch.uint8)
    clients = Partitioned((bytes_, [0, 1]), [np.array([1])], lambda data: (data[0] / 255, data[1]))
    assert clients[0][0].tolist() == [[1.0]]


def test_floats_are_converted_to_the_dtype_of_the_model_and_integers_are_not():
    inputs, targets = tensors((X, Y), torch.float32)
    assert (inputs.dtype, targets.dtype) == (torch.float32, torch.int64)
    assert tensors(TensorDataset(torch.tensor(X), torch.tensor(Y)), torch.float64)[0].dtype is torch.float64
    assert tensors(None, torch.float32) is None


@pytest.mark.parametrize("bad", [(X,), (X, Y[:3])])
def test_inputs_and_targets_must_match(bad):
    with pytest.raises(ValueError, match="same number of rows"):
        tensors(bad, torch.float32)
    with pytest.raises(ValueError, match="same number of rows"):
        Partitioned(bad, [np.array([0])])


@pytest.mark.parametrize("row", [-1, 6])
def test_rows_outside_the_arrays_are_refused(row):
    with pytest.raises(ValueError, match="Client 1 has a row number"):
        Partitioned((X, Y), [np.array([0]), np.array([row])])


PARTS = [np.array([4, 0]), np.array([], dtype=np.int64), np.array([1, 5]), np.array([2])]


def alike(one, other):
    return type(one) is type(other) and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


class Backwards(Partitioned):
    def __getitem__(self, client):
        return super().__getitem__(len(self) - 1 - client)


@pytest.mark.parametrize(
    "clients",
    [
        Partitioned((X, Y), PARTS),
        Partitioned((X, Y), PARTS, lambda data: (2 * data[0], data[1])),
        Backwards((X, Y), PARTS),
        [(X[part], Y[part]) for part in PARTS],
    ],
)
def test_fetching_many_clients_equals_fetching_each(clients):
    fetch = Fetching(clients, torch.float32)
    found = fetch.many([2, 0, 1, 3])
    assert [len(inputs) for inputs, _ in found] == [len(clients[client][0]) for client in (2, 0, 1, 3)]
    for client, data in zip([2, 0, 1, 3], found, strict=True):
        assert alike(data, fetch(client))
        assert alike(data, tensors(clients[client], torch.float32))


def test_an_error_is_the_answer_of_its_client():
    def transform(data):
        if len(data[0]) == 1:
            raise OSError("unreadable")
        return data if len(data[0]) else None

    found = Fetching(Partitioned((X, Y), PARTS, transform), torch.float32).many([0, 1, 2, 3])
    assert isinstance(found[3], OSError)
    assert found[1] is None
    assert [found[client][1].tolist() for client in (0, 2)] == [[4, 0], [1, 5]]
    single = Fetching([(X, Y), (X,), None], torch.float32)
    assert isinstance(single(1), ValueError)
    assert single(2) is None


def test_rows_that_disappear_later_affect_only_their_client():
    parts = [*PARTS]
    clients = Partitioned((X, Y), parts)
    parts[2] = np.array([77])
    found = Fetching(clients, torch.float32).many([0, 2, 3])
    assert isinstance(found[1], Exception)
    assert found[0][1].tolist() == [4, 0]
    assert found[2][1].tolist() == [2]


@pytest.mark.parametrize("rows", [np.array([True, False]), np.array([0.0, 1.0]), np.array([[0, 1]])])
def test_rows_that_are_not_integers_are_refused(rows):
    with pytest.raises(ValueError, match="list of integers"):
        Partitioned((torch.zeros(4, 2), torch.zeros(4)), [np.array([2, 3]), rows])


def test_rows_may_have_any_integer_type():
    arrays = torch.arange(8.0).view(4, 2), torch.arange(4)
    for kind in (np.int16, np.uint8, np.int64):
        X, y = Partitioned(arrays, [np.array([3, 1], dtype=kind)])[0]
        assert y.tolist() == [3, 1]
        assert torch.equal(X, arrays[0][[3, 1]])
