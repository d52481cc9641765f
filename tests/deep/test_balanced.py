"""class_weight="balanced" of make_private: counts are noisy, paid for, released once, and never by a resume."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="deep networks need torch: install the extra deep")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.data import Dataset, TensorDataset  # noqa: E402

from privet.audit import replay  # noqa: E402
from privet.deep import RecursiveMomentum, make_private  # noqa: E402
from privet.deep.balanced import check_processes  # noqa: E402
from privet.deep.processes import Processes  # noqa: E402
from privet.plans import PlanError  # noqa: E402
from privet.plans.class_counts import ClassCounts  # noqa: E402
from privet.plans.stabilities import HistogramStability  # noqa: E402
from privet.privacy import Adjacency, Budget, Ledger  # noqa: E402
from privet.privacy.analyses.accounting import epsilon  # noqa: E402
from privet.privacy.events import Composition  # noqa: E402
from privet.replay import Units  # noqa: E402

BUDGET = Budget(3.0, 1e-5)


def tensors(n=400):
    X = torch.randn(n, 5, generator=torch.Generator().manual_seed(0))
    return X, (torch.arange(n) % 10 == 0).long()


def prepared(data=None, **options):
    torch.manual_seed(0)
    model = nn.Linear(5, 2)
    settings = {
        "loss": functional.cross_entropy,
        "budget": BUDGET,
        "epochs": 2,
        "batch_size": 40,
        "clip_norm": 1.0,
        "class_weight": "balanced",
        "n_classes": 2,
        "random_state": 0,
    } | options
    data = TensorDataset(*tensors()) if data is None else data
    return make_private(model, torch.optim.SGD(model.parameters(), lr=0.5), data, **settings)


def fitted(data, **options):
    settings = {"epochs": 1, "batch_size": 3, "public_n": 12, "random_state": None} | options
    private = prepared(data, **settings)
    for batch in private.batches():
        private.step(batch)
    return private


@pytest.mark.parametrize(("sampling", "adjacency"), [("poisson", "add-or-remove"), ("uniform", "replace-one")])
def test_counts_and_steps_together_use_the_budget_and_do_not_exceed_it(sampling, adjacency, tmp_path):
    private = prepared(sampling=sampling, ledger=tmp_path / "ledger")
    counts = ClassCounts.for_budget(BUDGET, 2, Adjacency(adjacency))
    assert counts.plan.stability.sensitivity == pytest.approx(1 if sampling == "poisson" else 2**0.5)
    whole = private.guarantee
    assert whole.adjacency == adjacency
    assert 0.98 * 3 < whole.epsilon <= 3
    plan = private.plan
    for spent, batch in enumerate(private.batches(), start=1):
        private.step(*batch)
        so_far = Composition((counts.event, plan.truncated(spent).event))
        assert private.guarantee.epsilon == pytest.approx(epsilon(so_far, whole.adjacency, 1e-5), rel=1e-9)
        if spent == 3:
            break
    assert "noisy numbers of records of 2 classes" in private.guarantee.statement(verbose=True)
    assert "weights of the classes are public" not in private.guarantee.statement(verbose=True)
    assert Ledger(tmp_path / "ledger").total(1e-5).epsilon == pytest.approx(whole.epsilon)


def test_weights_are_released_with_the_first_batch_and_multiply_the_losses():
    private, plain = prepared(), prepared(class_weight=None, n_classes=None)
    assert private.class_weight == {0: 1.0, 1: 1.0}
    batch = next(private.batches())
    weights = private.class_weight
    assert weights[1] == 1.0
    assert weights[0] == pytest.approx(1 / 9, rel=0.3)
    plain._begin()
    next(plain._drawn_batches())
    losses = functional.cross_entropy(plain.model(batch[0]), batch[1], reduction="none")
    expected = losses * torch.where(batch[1] == 1, weights[1], weights[0])
    torch.testing.assert_close(private.step(*batch), expected.detach())


def without_one():
    X, y = tensors(12)
    kept = torch.arange(12) != 5
    return TensorDataset(X, y), TensorDataset(X[kept], y[kept])


def replayed(train=fitted):
    return replay(train, *without_one(), units=Units(np.array([0, 1, 2, 3, 4, -1, 5, 6, 7, 8, 9, 10]), 11))


def replaced():
    X, y = tensors(12)
    other = y.clone()
    other[5] = 1 - y[5]
    return TensorDataset(X, y), TensorDataset(X, other)


SAME_PLACES = Units(np.where(np.arange(12) == 5, -1, np.arange(12)), 12)


def uniform(data):
    return fitted(data, sampling="uniform", public_n=None)


def test_replays_are_consistent_under_both_adjacencies():
    for found in (replayed(), replay(uniform, *replaced(), units=SAME_PLACES)):
        assert not found.is_violation, found
        assert found.moved > 0
    assert replay(uniform, *replaced(), units=SAME_PLACES).largest > 1 - 1e-9


def test_counts_without_noise_are_refuted(monkeypatch):
    def exact(self, codes, source):
        counts = np.bincount(codes, minlength=2)
        return counts.min() / counts

    monkeypatch.setattr(ClassCounts, "weights", exact)
    assert replayed().is_violation


def test_the_sensitivity_of_the_other_adjacency_is_refuted(monkeypatch):
    monkeypatch.setattr(HistogramStability, "sensitivity", 1.0)
    found = replay(uniform, *replaced(), units=SAME_PLACES)
    assert any("times the bound" in problem for problem in found.problems), found


def test_a_resumed_training_keeps_its_weights_and_releases_no_others(tmp_path, monkeypatch):
    private = prepared()
    with pytest.raises(PlanError, match="after its first batch"):
        private.save(tmp_path / "state")
    batches = private.batches()
    private.step(*next(batches))
    private.save(tmp_path / "state")
    private._files.close()
    released = private.class_weight
    monkeypatch.setattr(ClassCounts, "weights", lambda *_: pytest.fail("counts were drawn again"))
    again = prepared()
    again.resume(tmp_path / "state")
    assert again.class_weight == released
    again.step(*next(again.batches()))
    assert again.guarantee.epsilon > private.guarantee.epsilon
    for other in ({"n_classes": 3}, {"class_weight": None, "n_classes": None, "noise_multiplier": 1.0, "budget": None}):
        with pytest.raises(ValueError, match=r"other balanced class weights|different plan"):
            prepared(**other).resume(tmp_path / "state")


class Shaken(Dataset):
    """Examples with a random transform, as dictionaries."""

    def __len__(self):
        return 400

    def __getitem__(self, index):
        X, y = tensors()
        return {"input": X[index] + torch.rand(5), "labels": y[index]}


def test_counting_leaves_the_global_generators_as_they_are():
    """Otherwise, the random transforms of later batches would depend on the number of examples."""
    private = prepared(Shaken(), loss=lambda outputs, batch: functional.cross_entropy(outputs, batch["labels"]))
    before = torch.get_rng_state()
    private._begin()
    assert torch.equal(before, torch.get_rng_state())
    assert private.class_weight[0] < 0.2


@pytest.mark.parametrize(
    ("settings", "cause"),
    [
        ({"n_classes": None}, "needs n_classes"),
        ({"class_weight": None}, "only with class_weight='balanced'"),
        ({"class_weight": "auto", "n_classes": None}, "Give 'balanced'"),
        ({"budget": None, "noise_multiplier": 1.0}, "Give budget="),
        ({"recursion": RecursiveMomentum(0.5, 0.5)}, "not supported with recursion"),
    ],
)
def test_what_is_not_supported_is_refused(settings, cause):
    with pytest.raises(ValueError, match=cause):
        prepared(**settings)


def test_it_works_in_one_process_only():
    counts = ClassCounts.for_budget(BUDGET, 2, Adjacency.ADD_OR_REMOVE)
    check_processes(counts, Processes(0, 1))
    check_processes(None, Processes(1, 2))
    with pytest.raises(ValueError, match="one process only"):
        check_processes(counts, Processes(1, 2))


def test_the_check_before_a_training_releases_nothing():
    private = prepared()
    assert all(not found.is_violation for found in private.check(steps=2, examples=4))
    assert private.class_weight == {0: 1.0, 1: 1.0}


def test_targets_that_are_no_classes_are_refused_before_the_counts_are_drawn(monkeypatch):
    X, _ = tensors()
    monkeypatch.setattr(ClassCounts, "weights", lambda *_: pytest.fail("counts were drawn"))
    with pytest.raises(ValueError, match="one class number per example"):
        next(prepared(TensorDataset(X, X)).batches())
