import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from privet.federated import Partitioned
from privet.federated.clients import data_of

X, Y = np.arange(12.0).reshape(6, 2), np.arange(6)


def test_a_client_has_its_rows():
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
        assert clients[0][0][0, 0] == 77.0  # no copy was made when the clients were
    finally:
        X[0, 0] = 0.0


def test_a_transform_is_applied_when_a_client_is_sampled():
    bytes_ = torch.tensor([[0], [255]], dtype=torch.uint8)
    clients = Partitioned((bytes_, [0, 1]), [np.array([1])], lambda data: (data[0] / 255, data[1]))
    assert clients[0][0].tolist() == [[1.0]]


def test_floats_take_the_models_kind_and_whole_numbers_stay():
    inputs, targets = data_of([(X, Y)], 0, torch.float32)
    assert (inputs.dtype, targets.dtype) == (torch.float32, torch.int64)
    assert data_of([TensorDataset(torch.tensor(X), torch.tensor(Y))], 0, torch.float64)[0].dtype is torch.float64
    assert data_of([None], 0, torch.float32) is None


@pytest.mark.parametrize("bad", [(X,), (X, Y[:3])])
def test_inputs_and_targets_must_match(bad):
    with pytest.raises(ValueError, match="same number of rows"):
        data_of([bad], 0, torch.float32)
    with pytest.raises(ValueError, match="same number of rows"):
        Partitioned(bad, [np.array([0])])


@pytest.mark.parametrize("row", [-1, 6])
def test_rows_must_be_there(row):
    with pytest.raises(ValueError, match="client 1 has a row"):
        Partitioned((X, Y), [np.array([0]), np.array([row])])
