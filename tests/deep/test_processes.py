"""Training in several real processes over gloo. They are started once, and report what all tests need."""

import json
import math
import os
import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="deep networks need torch: install the extra deep")
from torch import distributed, nn  # noqa: E402
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset, random_split  # noqa: E402

from privet.audit import replay  # noqa: E402
from privet.deep.dataset_digest import DatasetDigest, compared  # noqa: E402
from privet.deep.gradient_estimators import Recursive  # noqa: E402
from privet.deep.processes import Processes  # noqa: E402
from privet.deep.training import PrivateTraining  # noqa: E402
from privet.plans import FixedSize, GradientPlan, Poisson, RecursivePlan  # noqa: E402
from privet.replay.units import Units  # noqa: E402

DELTA = 1e-5
N, RATE, STEPS = 101, 0.2, 100

pytestmark = pytest.mark.skipif(
    not (distributed.is_available() and distributed.is_gloo_available()), reason="torch was built without gloo"
)


class Rows(Dataset):
    """Examples that are made when they are read, in a given order and with a random transform."""

    def __init__(self, order, transform):
        self.order, self.transform = order, transform

    def __len__(self):
        return N

    def __getitem__(self, index):
        X, y = data().tensors
        return self.transform(X[self.order[index]]), y[self.order[index]]


class Numbered(Dataset):
    """Examples that record which of them are read. Their inputs are zero, so that they have no gradients."""

    def __len__(self):
        return N

    def __getitem__(self, index):
        return torch.zeros(100), torch.tensor(index)


def data():
    X = torch.randn(N, 5, generator=torch.Generator().manual_seed(0))
    return TensorDataset(X, (X[:, 0] > 0).long())


def shuffled(seed):
    return torch.randperm(N, generator=torch.Generator().manual_seed(seed))


def with_global_generators(row):
    return row + random.random() + np.random.rand() + torch.rand(1)  # noqa: NPY002


def datasets(rank):
    """Return pairs of a dataset that differs between the processes, and the same kind of dataset that does not."""
    whole, rank_generator = data(), torch.Generator().manual_seed(rank)
    own = np.random.default_rng(rank)
    swapped = torch.arange(N)
    swapped[[7, 8]] = swapped[[7 + rank, 8 - rank]]

    def with_own_generator(row):
        return row + float(own.normal())

    def pair(make):
        return make(shuffled(rank)), make(torch.arange(N))

    return {
        "tensors": pair(lambda order: TensorDataset(*whole[order])),
        "two rows": (TensorDataset(*whole[swapped]), TensorDataset(*whole[:])),
        "subsets": pair(lambda order: Subset(whole, order.tolist()[: N // 2])),
        "split": (random_split(whole, [50, 51], rank_generator)[0], Subset(whole, range(50))),
        "joined": pair(lambda order: ConcatDataset([whole, TensorDataset(*whole[order])])),
        "lengths": (Subset(whole, range(N - rank)), whole),
        "made": pair(lambda order: Rows(order, lambda row: row)),
        "random transforms": pair(lambda order: Rows(order, with_global_generators)),
        "own generators": pair(lambda order: Rows(order, with_own_generator)),
    }


def gradient_plan(noise=1.0, steps=STEPS, rate=RATE):
    return GradientPlan(Poisson(rate), steps, 1.0, noise, public_n=N)


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 2))


def prepared(plan, model=None, dataset=None, *, wrapped=None, loss=None, lr=0.5, **options):
    model = network() if model is None else model
    plan = replace(plan, delta=DELTA)
    if isinstance(plan, RecursivePlan):
        plan = Recursive(plan, list(model.parameters()))
    return PrivateTraining(
        wrapped or model,
        torch.optim.SGD(model.parameters(), lr=lr, momentum=options.pop("momentum", 0.0)),
        data() if dataset is None else dataset,
        plan=plan,
        loss=loss or nn.CrossEntropyLoss(),
        **options,
    )


def weights(private):
    return torch.cat([each.detach().flatten() for each in private.model.parameters()]).tolist()


def finish(private):
    for batch in private.batches():
        private.step(*batch)
    return weights(private)


def recursive_plan(noise, rate=1.0):
    return RecursivePlan(Poisson(rate), 5, 1.0, 0.1, 0.3, noise, public_n=N)


# ------------------------------------------------------------------------------------------ the program of each process


def silent(seed):
    """Train a model without gradients, and return which examples were drawn and the noise."""
    model = nn.Linear(100, 40, bias=False)
    with torch.no_grad():
        model.weight.zero_()
    zero = lambda outputs, numbers: 0 * outputs.sum(1)  # noqa: E731
    private = prepared(gradient_plan(), model, Numbered(), loss=zero, lr=1.0, random_state=seed)
    batches, updates = [], []
    for X, numbers in private.batches():
        before = model.weight.detach().clone()
        private.step(X, numbers)
        batches.append(numbers.tolist())
        updates.append(float((model.weight.detach() - before).std()))
    return {"batches": batches, "updates": updates, "weights": weights(private)}


def everything(rank, folder):
    """Return a report of everything that the tests check, from one of two processes."""
    told = {"seeded": silent(1), "unseeded": silent(None)}
    private = prepared(gradient_plan(steps=20), network(seed=rank))  # The processes begin with different weights.
    told["alike"] = finish(private)
    told["guarantee"] = [private.guarantee.epsilon, private.guarantee.statement(verbose=True)]
    told["exact"] = finish(prepared(gradient_plan(1e-6, steps=5, rate=1.0)))
    told["recursive"] = finish(prepared(recursive_plan(1e-6)))
    told["parts"] = finish(prepared(gradient_plan(1e-6, steps=5, rate=1.0), max_batch=7))
    wrapped = network()
    private = prepared(
        gradient_plan(1e-6, steps=5, rate=1.0), wrapped, wrapped=nn.parallel.DistributedDataParallel(wrapped)
    )
    told["wrapped"] = finish(private)
    told["is_wrapped"] = isinstance(private.model, nn.parallel.DistributedDataParallel)
    turned = nn.Sequential(nn.Conv2d(1, 3, 2), nn.Flatten(), nn.Linear(12, 2)).to(memory_format=torch.channels_last)
    turned.register_buffer("place", torch.full((2,), float(rank)))
    prepared(gradient_plan(), turned)
    told["turned"] = [
        *torch.cat([each.detach().flatten() for each in turned.parameters()]).tolist(),
        *turned.place.tolist(),
    ]
    few = TensorDataset(*(each[:1] for each in data().tensors))  # The second process has no examples.
    told["few"] = finish(prepared(gradient_plan(steps=5), dataset=few))
    try:
        prepared(GradientPlan(FixedSize(10, N), 5, 1.0, 1.0))
    except ValueError as error:
        told["refused"] = str(error)
    for name, model, noise in (("plans", network(), 1.0 + rank), ("models", nn.Linear(5, 2 + rank), 1.0)):
        try:
            prepared(gradient_plan(noise), model)
        except ValueError as error:
            told[f"different {name}"] = str(error)
    for name, (different, same) in datasets(rank).items():
        try:
            prepared(gradient_plan(), dataset=different)
        except ValueError as error:
            told[f"different {name}"] = str(error)
        state = torch.get_rng_state()
        private = prepared(gradient_plan(rate=1.0), network(), same)
        told[f"same {name}"] = [each.text for each in private.guarantee.assumptions if not each.is_enforced]
        assert torch.equal(state, torch.get_rng_state()), name
    unreadable = Rows([N + rank * N] * N, lambda row: row) if rank else data()
    try:
        prepared(gradient_plan(), dataset=unreadable)
    except (ValueError, IndexError) as error:
        told["unreadable"] = str(error)
    told["replayed"] = replayed(rank)
    private = prepared(recursive_plan(1.0, rate=0.2), momentum=0.9)
    batches = private.batches()
    for _ in range(2):
        private.step(*next(batches))
    private.save(folder / "run", {"written by": rank})
    told["saved"] = weights(private)
    private.step(*next(batches))  # This step is lost but spent.
    return told


def replayed(rank):
    """Replay a training in both processes, with and without the first example.

    In the latter case its place is taken by one whose gradient is zero, so the units are not compared.
    In the second training, the processes hold the examples in different orders, and the check for that is left out.
    """
    X, y = (each[:8] for each in data().tensors)
    with_it, without_it = (torch.cat([size * X[:1], X[1:]]) for size in (100.0, 0.0))
    told = {}
    for name, offset in (("alike", 0), ("shared", rank)):
        order = (torch.arange(8) + offset) % 8  # With an offset, the second process has the share of the first one.

        def train(given, order=order):
            dataset = TensorDataset(*(each[order] for each in given))
            private = prepared(gradient_plan(steps=3, rate=1.0), nn.Linear(5, 2, bias=False), dataset)
            return finish(private)  # Without its guarantee, under which a replaced example is no neighbour.

        with mock.patch.object(Processes, "check_datasets", lambda self, dataset: []):
            told[name] = replay(train, (with_it, y), (without_it, y), units=Units.unknown()).problems
    return told


def resumed(folder):
    """Resume what was saved, in both processes."""
    private = prepared(recursive_plan(1.0, rate=0.2), network(seed=7), momentum=0.9)
    told = {"extra": private.resume(folder / "run"), "saved": weights(private)}
    told |= {"done": private.steps_done, "spent": private.steps_spent}
    told["end"] = finish(private)
    told |= {"done at the end": private.steps_done, "spent at the end": private.steps_spent}
    told["epsilon"] = private.guarantee.epsilon
    return told


def run(rank, folder):
    """Join the other process, and write the report of this one to a file."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder / 'meeting'}", rank=rank, world_size=2)
    told = everything(rank, folder)
    distributed.barrier()  # Wait until the first process has written and closed its file.
    told["resumed"] = resumed(folder)
    (folder / f"{rank}.json").write_text(json.dumps(told))
    distributed.barrier()
    distributed.destroy_process_group()


# --------------------------------------------------------------------------------------------------------------- tests


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Start two processes, and return their reports."""
    folder = tmp_path_factory.mktemp("processes")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    started = [subprocess.Popen([sys.executable, __file__, str(rank), str(folder)], env=environment) for rank in (0, 1)]
    try:
        assert [each.wait(timeout=300) for each in started] == [0, 0]
    finally:
        for each in started:
            each.kill()
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)]


def test_both_processes_end_with_the_same_weights(told):
    one, other = told
    for name in ("alike", "exact", "recursive", "parts", "wrapped", "turned", "few", "saved"):
        assert one[name] == other[name], name
    for name in ("seeded", "unseeded"):
        assert one[name]["weights"] == other[name]["weights"]


def test_both_processes_begin_with_the_buffers_of_the_first(told):
    assert [each["turned"][-2:] for each in told] == [[0.0, 0.0]] * 2


@pytest.mark.parametrize("name", ["seeded", "unseeded"])
def test_noise_is_added_once(told, name):
    divisor = RATE * N
    assert np.mean(told[0][name]["updates"]) == pytest.approx(1.0 / divisor, rel=0.01)
    spread = np.std(told[0][name]["weights"])
    assert spread == pytest.approx(math.sqrt(STEPS) / divisor, rel=0.05)


@pytest.mark.parametrize("name", ["seeded", "unseeded"])
def test_the_shares_together_are_one_poisson_batch(told, name):
    drawn = [one + other for one, other in zip(*(each[name]["batches"] for each in told), strict=True)]
    assert len(drawn) == STEPS
    assert all(len(set(batch)) == len(batch) for batch in drawn)
    sizes = [len(batch) for batch in drawn]
    variance = N * RATE * (1 - RATE)
    assert np.mean(sizes) == pytest.approx(N * RATE, abs=4 * math.sqrt(variance / STEPS))
    assert np.var(sizes) == pytest.approx(variance, rel=4 * math.sqrt(2 / STEPS))
    often = Counter(number for batch in drawn for number in batch)
    assert set(often) == set(range(N))
    spread = math.sqrt(STEPS * RATE * (1 - RATE))
    assert all(abs(often[number] - STEPS * RATE) < 4.5 * spread for number in range(N))
    one, other = ([len(batch) for batch in each[name]["batches"]] for each in told)
    assert abs(np.corrcoef(one, other)[0, 1]) < 4 / math.sqrt(STEPS)  # The two streams are independent.


@pytest.mark.parametrize(
    ("name", "plan"), [("exact", gradient_plan(1e-6, 5, 1.0)), ("recursive", recursive_plan(1e-6))]
)
def test_sums_equal_those_of_one_process(told, name, plan):
    """With all examples in every batch and negligible noise, the result is not random."""
    alone = finish(prepared(plan))
    np.testing.assert_allclose(told[0][name], alone, rtol=1e-3, atol=1e-4)


def test_max_batch_and_the_distributed_wrapper_change_nothing(told):
    assert not told[0]["is_wrapped"]
    np.testing.assert_allclose(told[0]["wrapped"], told[0]["exact"], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(told[0]["parts"], told[0]["exact"], rtol=1e-3, atol=1e-4)


def test_the_guarantee_equals_that_of_one_process(told):
    alone = prepared(gradient_plan(steps=20)).guarantee
    for each in told:
        assert each["guarantee"] == [alone.epsilon, alone.statement(verbose=True)]


def test_other_samplers_than_poisson_are_rejected(told):
    for each in told:
        assert "cannot be split among processes" in each["refused"]
    prepared(GradientPlan(FixedSize(10, N), 5, 1.0, 1.0))  # A single process may use this plan.


@pytest.mark.parametrize("name", ["plans", "models"])
def test_different_settings_are_rejected_in_both_processes(told, name):
    for each in told:
        assert "with the same arguments" in each[f"different {name}"]


DATASETS = list(datasets(0))


@pytest.mark.parametrize("name", DATASETS)
def test_different_datasets_are_rejected_in_both_processes(told, name):
    """An example that is in the shares of two processes would be in a batch twice."""
    for each in told:
        assert "hold different datasets" in each[f"different {name}"]


@pytest.mark.parametrize("name", DATASETS)
def test_equal_datasets_are_accepted_and_the_guarantee_names_what_was_only_sampled(told, name):
    is_sampled = name in ("made", "random transforms", "own generators")
    for each in told:
        assert any("the same examples in the same order" in text for text in each[f"same {name}"]) == is_sampled


def test_a_replay_in_all_processes_finds_examples_that_two_of_them_share(told):
    """The process that adds the noise sees the sum of all, in which such an example counts twice."""
    assert told[0]["replayed"]["alike"] == told[1]["replayed"]["alike"] == []
    assert len(told[0]["replayed"]["shared"]) == 3
    assert all("moved by 1.9" in problem for problem in told[0]["replayed"]["shared"])


def test_a_dataset_that_one_process_cannot_read_stops_all(told):
    assert "Process 1 cannot read its dataset" in told[0]["unreadable"]
    assert "out of bounds" in told[1]["unreadable"]


def test_both_processes_resume_what_the_first_saved(told):
    both = [each["resumed"] for each in told]
    for each in both:
        assert each["extra"] == {"written by": 0}
        assert each["saved"] == told[0]["saved"]
        assert (each["done"], each["spent"]) == (2, 3)
        assert (each["done at the end"], each["spent at the end"]) == (4, 5)
        assert each["epsilon"] == recursive_plan(1.0, rate=0.2).guarantee(DELTA).epsilon
    assert both[0]["end"] == both[1]["end"]


def test_examples_of_an_unknown_type_count_as_not_compared():
    plain, sparse = [(torch.eye(2), 0), (torch.ones(2, 2), 1)], [(torch.eye(2).to_sparse(), 0)] * 2
    assert compared([DatasetDigest.of(plain)] * 2)
    assert not compared([DatasetDigest.of(sparse)] * 2)


def test_shares_partition_the_examples():
    for size in (1, 2, 3, 7):
        shares = np.concatenate([Processes(rank, size).share(N) for rank in range(size)])
        assert sorted(shares) == list(range(N))
    assert len(Processes(2, 3).share(2)) == 0


if __name__ == "__main__":
    run(int(sys.argv[1]), Path(sys.argv[2]))
