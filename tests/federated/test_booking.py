"""Federated runs book themselves: all rounds, before the first one, and once however often they are resumed."""

import pytest
import torch
from torch import nn

import privet
from privet.federated import LocalTraining, simulate
from privet.privacy import BudgetExceededError, Ledger, Unit

CLIENTS = [(torch.randn(3, 2, generator=torch.Generator().manual_seed(i)), torch.tensor([0, 1, 0])) for i in range(12)]


def run(**options):
    settings = {"rounds": 3, "clients_per_round": 4, "clip_norm": 0.5, "budget": (2.0, 1e-3), "random_state": 0}
    settings |= {"engine": "sequential", "verbose": False, "local": LocalTraining(0.1, batch_size=3, epochs=1)}
    return simulate(nn.Linear(2, 2), CLIENTS, loss=nn.CrossEntropyLoss(), **settings | options)


def test_all_rounds_are_booked_for_each_client(tmp_path):
    result = run(ledger=tmp_path / "a.ledger")
    (entry,) = Ledger(tmp_path / "a.ledger").entries()
    assert entry.guarantee.event == result.guarantee.event
    assert entry.guarantee.unit is Unit.CLIENT


def test_rounds_beyond_the_limit_are_refused_before_a_client_is_asked(tmp_path):
    Ledger(tmp_path / "a.ledger", 1.0).begin()
    asked = []

    class Asked(list):
        def __getitem__(self, place):
            asked.append(place)
            return super().__getitem__(place)

    settings = {"rounds": 3, "clients_per_round": 4, "clip_norm": 0.5, "budget": (2.0, 1e-3), "verbose": False}
    local = LocalTraining(0.1, batch_size=3, epochs=1)
    with privet.spending(tmp_path / "a.ledger"), pytest.raises(BudgetExceededError):
        simulate(nn.Linear(2, 2), Asked(CLIENTS), loss=nn.CrossEntropyLoss(), local=local, **settings)
    assert not asked


def test_a_run_that_was_stopped_and_resumed_is_booked_once(tmp_path):
    options = {"ledger": tmp_path / "a.ledger", "save": tmp_path / "run"}

    def stop(done, planned):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(progress=stop, **options)
    run(resume=True, **options)
    with privet.spending(tmp_path / "a.ledger"):
        run()
    assert len(Ledger(tmp_path / "a.ledger").entries()) == 2
