from torch import nn

from privet.federated import ClientTrainer
from privet.federated.engines.forked import can_fork
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
    convolution = nn.Sequential(nn.Conv1d(1, 2, 3), nn.Flatten(), nn.Linear(12, 3))
    assert chosen(convolution, workers=1) == "batched"
    assert chosen(convolution) == ("batched_processes" if can_fork() else "batched")
    unknown = nn.Sequential(nn.Conv1d(1, 2, 3), nn.Mish(), nn.Flatten(), nn.Linear(12, 3))
    assert chosen(unknown) == "batched"


def test_small_recurrent_models_are_batched_if_all_their_layers_are_known(local):
    class Recurrent(nn.Module):
        def __init__(self, batch_first):
            super().__init__()
            self.lstm, self.full = nn.LSTM(3, 4, batch_first=batch_first), nn.Linear(4, 2)

        def forward(self, inputs):
            states, _ = self.lstm(inputs)
            return self.full(states[:, -1])

    def chosen(model):
        return chosen_engine(ClientTrainer(model, nn.CrossEntropyLoss(), local, 1.0), workers=1)

    assert chosen(Recurrent(batch_first=True)) == "batched"
    assert chosen(Recurrent(batch_first=False)) == "sequential"  # vmap is slow for LSTMs
