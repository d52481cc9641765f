from torch import nn

from privet.federated import ClientTrainer
from privet.federated.engines.registry import chosen_engine


def test_the_engine_is_chosen_by_the_model(local):
    def chosen(model, loss=None, workers=2):
        return chosen_engine(ClientTrainer(model, loss or nn.CrossEntropyLoss(), local, 1.0), workers)

    assert chosen(nn.Linear(784, 10)) == "batched"
    assert chosen(nn.Linear(30_000, 10)) == "batched"  # softmax regression, whatever its size
    assert chosen(nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))) == "batched"
    large = nn.Sequential(nn.Linear(300, 300), nn.Tanh(), nn.Linear(300, 3))
    assert chosen(large) == "processes"
    assert chosen(large, workers=1) == "sequential"
    assert chosen(large, lambda outputs, targets: outputs.sum(1)) == "sequential"  # a lambda cannot be sent to a worker
    assert chosen(nn.LSTM(3, 4)) == "processes"
