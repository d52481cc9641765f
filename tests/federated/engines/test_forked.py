"""Stacks of clients in forked worker processes."""

import os
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from privet.federated import ClientTrainer, LocalTraining, Partitioned
from privet.federated.clients import Fetching
from privet.federated.engines.base import Engine
from privet.federated.engines.batched import MAX_CLIENTS, Batched, shares
from privet.federated.engines.forked import Forked, can_fork
from privet.networks import trained_weights

pytestmark = pytest.mark.skipif(not can_fork(), reason="worker processes can be forked on Linux only")

LOCAL = LocalTraining(0.3, batch_size=4, epochs=2, momentum=0.5)
SIZES = [12, 1, 7, 0, 5, 9, 3, 11, 4, 6, 8]


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.lstm = nn.Embedding(6, 4), nn.LSTM(4, 5, batch_first=True)
        self.scores = nn.Linear(5, 3)

    def forward(self, characters):
        states, _ = self.lstm(self.embedding(characters))
        return self.scores(states[:, -1])


def cnn():
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3))


MODELS = {
    "cnn": cnn,
    "lstm": Recurrent,
    "perceptron": lambda: nn.Sequential(nn.Flatten(), nn.Linear(128, 5), nn.Tanh(), nn.Linear(5, 3)),
}


def trainer(name="cnn"):
    torch.manual_seed(2)
    return ClientTrainer(MODELS[name]().double(), nn.CrossEntropyLoss(), LOCAL, 0.4)


def data_of(name="cnn", sizes=SIZES):
    generator = torch.Generator().manual_seed(0)
    n = sum(sizes)
    X = torch.randn(n, 2, 8, 8, generator=generator, dtype=torch.float64)
    if name == "lstm":
        X = torch.randint(6, (n, 7), generator=generator)
    return X, torch.randint(3, (n,), generator=generator)


def rows_of(data, sizes=SIZES, transform=None):
    ends = np.cumsum(sizes)
    parts = [np.arange(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    return Fetching(Partitioned(data, parts, transform), torch.float64)


def answers(engine, fetch, chosen=None):
    chosen = range(len(SIZES)) if chosen is None else chosen
    return dict(engine.answers(trained_weights(engine.trainer.model), 1, chosen, fetch))


def assert_alike(found, expected, atol=1e-12):
    assert found.keys() == expected.keys()
    for client, update in expected.items():
        assert all(np.allclose(found[client][name], value, rtol=0, atol=atol) for name, value in update.items())


@pytest.fixture
def engine(request):
    made = Forked(trainer(getattr(request, "param", "cnn")), random_state=3, workers=2)
    yield made
    made.close()


@pytest.mark.parametrize("name", MODELS)
def test_updates_from_forked_workers_equal_those_from_one_process(name):
    made, fetch = trainer(name), rows_of(data_of(name))
    expected = answers(Engine(made, 3), fetch)
    for workers in (1, 3):
        engine = Forked(made, 3, workers)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert_alike(answers(engine, fetch), expected)
            assert_alike(answers(engine, rows_of(data_of(name), transform=lambda data: data)), expected)
            assert_alike(answers(engine, [fetch(client) for client in range(len(SIZES))].__getitem__), expected)
        engine.close()
    assert max(np.abs(value).max() for value in expected[0].values()) > 1e-3


def test_half_precision_is_trained_alike():
    made = ClientTrainer(cnn().bfloat16(), nn.CrossEntropyLoss(), LOCAL, 0.4)
    X, y = data_of()
    partitioned = rows_of((X, y), transform=lambda data: data).clients
    fetch = Fetching(partitioned, torch.bfloat16)
    engine = Forked(made, 3, 1)
    assert_alike(answers(engine, fetch), answers(Batched(made, 3, 1), fetch), atol=0)
    engine.close()


def test_the_same_updates_come_in_every_round_and_workers_stay(engine):
    fetch = rows_of(data_of())
    first = answers(engine, fetch)
    pids = [worker._process.pid for worker in engine._workers]
    again = answers(engine, Fetching(fetch.clients, torch.float64))
    assert [worker._process.pid for worker in engine._workers] == pids
    for client, update in first.items():
        assert all(np.array_equal(again[client][name], value) for name, value in update.items())


def test_workers_start_anew_for_other_data(engine):
    X, y = data_of()
    answers(engine, rows_of((X, y)))
    assert_alike(answers(engine, rows_of((X + 1, y))), answers(Engine(engine.trainer, 3), rows_of((X + 1, y))))


def test_more_clients_than_fit_into_shared_memory_are_trained(engine):
    sizes = [2] * (2 * MAX_CLIENTS + 7)
    fetch = rows_of(data_of(sizes=sizes), sizes)
    found = answers(engine, fetch, range(len(sizes)))
    assert_alike(found, answers(Engine(engine.trainer, 3), fetch, range(len(sizes))))


def test_clients_that_fail_or_are_not_finite_do_not_change_the_others(engine):
    datas = [rows_of(data_of())(client) for client in range(len(SIZES))]
    spoiled = list(datas)
    spoiled[2], spoiled[4], spoiled[5] = None, KeyError("lost"), (datas[5][0][:, :, :3], datas[5][1])
    spoiled[7] = (torch.full_like(datas[7][0], float("nan")), datas[7][1])
    spoiled[8] = (datas[8][0], torch.full_like(datas[8][1], 9))  # no class
    found, expected = answers(engine, spoiled.__getitem__), answers(Engine(engine.trainer, 3), datas.__getitem__)
    assert found[2] is None
    assert isinstance(found[4], KeyError)
    assert isinstance(found[5], RuntimeError)
    assert all(np.isnan(value).all() for value in found[7].values())
    assert isinstance(found[8], IndexError)
    assert_alike(
        {client: found[client] for client in (0, 1, 3, 6, 9, 10)}, {c: expected[c] for c in (0, 1, 3, 6, 9, 10)}
    )


def test_an_error_that_cannot_be_sent_keeps_its_text():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.full = nn.Linear(2, 2)

        def forward(self, rows):
            class LocalError(Exception):
                pass

            raise LocalError("no forward pass today")

    engine = Forked(ClientTrainer(Odd(), nn.CrossEntropyLoss(), LOCAL, 1.0), 3, 1)
    found = answers(engine, [(torch.ones(2, 2), torch.zeros(2, dtype=torch.int64))].__getitem__, [0])
    engine.close()
    assert isinstance(found[0], RuntimeError)
    assert "LocalError: no forward pass today" in str(found[0])


def test_the_error_of_a_killed_worker_names_the_remedies_and_the_next_round_works(engine):
    fetch = rows_of(data_of())
    expected = answers(engine, fetch)
    pids = [worker._process.pid for worker in engine._workers]
    os.kill(pids[1], signal.SIGKILL)
    with pytest.raises(RuntimeError, match=r"died \(exit code -9\).*fewer workers"):
        answers(engine, fetch)
    assert engine._workers == []
    assert not any(map(is_alive, pids))
    assert_alike(answers(engine, fetch), expected)


def test_an_abandoned_round_leaves_no_replies_for_the_next_one(engine):
    fetch = rows_of(data_of())
    expected = answers(engine, fetch)
    begun = engine.answers(
        {name: value + 1 for name, value in trained_weights(engine.trainer.model).items()}, 1, [0, 5], fetch
    )
    next(begun)
    begun.close()
    assert_alike(answers(engine, fetch), expected)


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


PROGRAM = """
import os, time, torch
from torch import nn
from privet.federated import LocalTraining, Partitioned, simulate
from privet.plans import FullBatch, GradientPlan

def after(*_):
    import multiprocessing
    print(*(child.pid for child in multiprocessing.active_children()), flush=True)
    {ending}

model = nn.Sequential(nn.Conv1d(1, 2, 3), nn.Flatten(), nn.Linear(12, 2))
clients = Partitioned((torch.randn(8, 1, 8), torch.zeros(8, dtype=torch.long)), [[0, 1, 2, 3], [4, 5, 6, 7]])
simulate(model, clients, loss=nn.CrossEntropyLoss(), local=LocalTraining(0.1, 2, epochs=1), progress=after, workers=2,
         plan=GradientPlan(FullBatch(), 3, 1.0, 1.0), delta=1e-5, verbose=False)
"""


@pytest.mark.parametrize("ending", ["raise OSError('gone')", "os.kill(os.getpid(), 9)"])
def test_no_worker_outlives_the_simulation(ending):
    """A program without a main guard, which needs none, because workers are forks."""
    command = [sys.executable, "-c", PROGRAM.format(ending=ending)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (1, -9), done.stderr
    pids = [int(pid) for pid in done.stdout.splitlines()[0].split()]
    assert len(pids) == 2
    until = time.monotonic() + 30
    while any(map(is_alive, pids)) and time.monotonic() < until:
        time.sleep(0.02)
    assert not any(map(is_alive, pids))


def test_workers_cannot_be_forked_by_a_daemon(monkeypatch):
    monkeypatch.setitem(__import__("multiprocessing").current_process()._config, "daemon", True)
    with pytest.raises(RuntimeError, match='Use engine="batched"'):
        Forked(trainer(), 3)


@pytest.mark.parametrize("clients", [1, 7, 8, 9, 15, 16, 30, 64])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_shares_are_small_and_nearly_equal(clients, workers):
    found = shares(list(range(clients)), workers)
    assert [client for share in found for client in share] == list(range(clients))
    sizes = [len(share) for share in found]
    assert max(sizes) <= 8
    assert max(sizes) - min(sizes) <= 1
    assert len(found) % workers == 0 or len(found) == clients
