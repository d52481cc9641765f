"""Features of a frozen network are those of each example alone, and a head on them trains as behind the network."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="deep networks need torch: install the extra deep")
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, Dataset, TensorDataset  # noqa: E402

import privet  # noqa: E402
from privet.deep import frozen_features, make_private  # noqa: E402


def problem(n=30):
    X = torch.randn(n, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    return TensorDataset(X, (X.mean((1, 2, 3)) > 0).long())


def backbone():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Tanh(), nn.Dropout(0.5), nn.Flatten())


def test_features_are_those_of_each_example_alone_in_eval_mode():
    network, data = backbone(), problem()
    found = frozen_features(network, data, max_batch=7)
    expected = copy.deepcopy(network).eval()
    for place in (0, 6, 7, 29):
        torch.testing.assert_close(found[place][0], expected(data[place][0][None])[0].detach())
        assert found[place][1] == data[place][1]
    assert network.training
    assert not found.tensors[0].requires_grad
    assert torch.equal(network[1].running_mean, expected[1].running_mean)


def test_a_head_on_features_trains_as_behind_the_frozen_network():
    data, network = problem(), backbone()[0]
    whole = nn.Sequential(network.requires_grad_(False), nn.Flatten(), nn.Linear(64, 2))
    head = nn.Linear(64, 2)
    head.load_state_dict(whole[2].state_dict())
    trained = []
    for model, examples in ((whole, data), (head, frozen_features(whole[:2], data))):
        private = make_private(
            model,
            torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=0.1),
            examples,
            loss=nn.CrossEntropyLoss(),
            noise_multiplier=1.0,
            epochs=3,
            batch_size=10,
            clip_norm=1.0,
            random_state=0,
        )
        private.fit()
        trained.append([each.detach() for each in model.parameters() if each.requires_grad])
    for one, other in zip(*trained, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_features_train_a_linear_estimator():
    X, y = (np.asarray(each) for each in frozen_features(backbone(), problem()).tensors)
    model = privet.PrivateLogisticRegression(2.0, feature_norm=4.0, random_state=0, classes=(0, 1)).fit(X, y)
    assert model.coef_.shape == (1, 64)


class Named(Dataset):
    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        x, y = self.data[index]
        return {"x": x, "label": y}


class Outputs(nn.Module):
    def forward(self, x):
        return {"all": x.flatten(1)}


def test_dictionaries_loaders_and_outputs_of_several_parts():
    data = problem()
    found = frozen_features(
        Outputs(), DataLoader(Named(data), batch_size=4, shuffle=True), features=lambda outputs: outputs["all"]
    )
    assert torch.equal(found.tensors[0], data.tensors[0].flatten(1))
    assert torch.equal(found.tensors[1], data.tensors[1])
    with pytest.raises(ValueError, match="Pass features="):
        frozen_features(Outputs(), data)
