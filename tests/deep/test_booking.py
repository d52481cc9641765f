"""Trainings book themselves: the whole plan, before the first noise, and once however often they are resumed."""

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import privet
from privet.deep import make_private
from privet.privacy import BudgetExceededError, Ledger


def training(ledger=None, **options):
    generator = torch.Generator().manual_seed(0)
    data = TensorDataset(torch.randn(60, 4, generator=generator), torch.randint(0, 2, (60,), generator=generator))
    model = nn.Linear(4, 2)
    settings = {"epochs": 2, "batch_size": 20, "clip_norm": 1.0, "budget": (1.0, 1e-5), "random_state": 0}
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    return make_private(model, optimizer, data, loss=nn.CrossEntropyLoss(), ledger=ledger, **settings | options)


def steps(private, number):
    for batch in private.batches():
        private.step(*batch)
        number -= 1
        if not number:
            return


def test_a_training_is_booked_as_a_whole_before_its_first_step_and_stays_booked(tmp_path):
    private = training(tmp_path / "a.ledger")
    assert not (tmp_path / "a.ledger").exists()
    whole = private.guarantee
    next(private.batches())
    (entry,) = Ledger(tmp_path / "a.ledger").entries()
    assert entry.guarantee.event == whole.event
    assert entry.label == "training"


def test_a_training_beyond_the_limit_makes_no_step(tmp_path):
    Ledger(tmp_path / "a.ledger", 0.5).begin()
    private = training(tmp_path / "a.ledger")
    with pytest.raises(BudgetExceededError):
        next(private.batches())
    assert private.steps_spent == 0


def test_a_resumed_training_is_not_booked_again_even_if_the_limit_is_used_up(tmp_path):
    ledger = tmp_path / "a.ledger"
    Ledger(ledger, (1.001, 1e-5)).begin()
    private = training(ledger)
    private.save(tmp_path / "run")  # before it is booked, as a run that is killed early leaves it
    steps(private, 2)
    private._files.close()
    for _ in range(2):
        resumed = training(ledger)
        resumed.resume(tmp_path / "run")
        steps(resumed, 1)
        resumed.save(tmp_path / "run")
        resumed._files.close()
    assert len(Ledger(ledger).entries()) == 1
    with pytest.raises(BudgetExceededError):
        steps(training(ledger), 1)


def test_a_training_belongs_to_the_contexts_of_its_making_and_of_its_steps(tmp_path):
    with privet.spending(tmp_path / "made"):
        private = training()
    batches = private.batches()
    private.step(*next(batches))
    with privet.spending(tmp_path / "stepped"):
        private.step(*next(batches))
        private.step(*next(batches))
    assert [len(Ledger(tmp_path / name).entries()) for name in ("made", "stepped")] == [1, 1]


def test_a_check_is_not_booked(tmp_path):
    with privet.spending(tmp_path / "a.ledger"):
        training().check(steps=2, examples=4)
    assert Ledger(tmp_path / "a.ledger").entries() == []
