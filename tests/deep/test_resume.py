"""Save and resume: what is restored, what a killed process has spent, and files that must not be trusted.

The tests kill real processes. Their program is at the end of this file.
"""

import copy
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="deep networks need torch: install the extra deep")
from torch import nn  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

from privet.deep import checkpoint  # noqa: E402
from privet.deep.gradient_estimators import Recursive  # noqa: E402
from privet.deep.training import PrivateTraining  # noqa: E402
from privet.plans import GradientPlan, PlanError, Poisson, RecursivePlan  # noqa: E402

DELTA = 1e-5


def plan_of(kind, steps):
    if kind == "recursive":
        return RecursivePlan(Poisson(0.1), steps, 1.0, 0.2, 0.1, 3.0, 3.0, Poisson(0.2), public_n=100)
    return GradientPlan(Poisson(0.1), steps, 1.0, 3.0, public_n=100)


def network():
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2))


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.5, momentum=0.9)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.05)


def prepared(*, kind="fresh", steps=12, model=None, optimizer=sgd, dtype=torch.float32, seed=None):
    """Return a training with a given noise multiplier, which needs no calibration."""
    X = torch.randn(100, 5, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)  # of the weights
    model = (network() if model is None else model).to(dtype)
    plan = replace(plan_of(kind, steps), delta=DELTA)
    if kind == "recursive":
        plan = Recursive(plan, [each for each in model.parameters() if each.requires_grad])
    trained = (each for each in model.parameters() if each.requires_grad)
    return PrivateTraining(
        model,
        optimizer(trained),
        TensorDataset(X.to(dtype), (X[:, 0] > 0).long()),
        plan=plan,
        loss=nn.CrossEntropyLoss(),
        random_state=seed,
    )


def make(private, steps):
    """Take some steps, and do not take the remaining ones."""
    for _, batch in zip(range(steps), private.batches(), strict=False):
        private.step(*batch)


def finish(private):
    return sum(1 for batch in private.batches() if private.step(*batch) is not None)


def saved(path, steps=3, planned=12, extra=None, **options):
    """Return a training that was saved after some steps, and has released its journal."""
    private = prepared(steps=planned, **options)
    make(private, steps)
    private.save(path, extra)
    private._files.close()
    return private


HEADER = 49  # bytes of a journal before its steps


def journal_of(path):
    (found,) = Path(path).parent.glob("privet-*.journal")
    return found


def state_of(private):
    return {
        "model": dict(private.model.state_dict()),
        "optimizer": private.optimizer.state_dict(),
        "estimate": private._estimator.state(),
    }


def assert_same(one, other):
    if isinstance(one, torch.Tensor):
        assert one.dtype is other.dtype
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert type(one) is type(other)
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            assert_same(left, right)
    else:
        assert one == other or (one is None and other is None)


# ----------------------------------------------------------------------------------------------------- what is restored


@pytest.mark.parametrize("kind", ["fresh", "recursive"])
@pytest.mark.parametrize("optimizer", [sgd, adam])
def test_weights_optimizer_estimate_and_steps_are_restored(tmp_path, kind, optimizer):
    before = saved(tmp_path / "run", steps=5, kind=kind, optimizer=optimizer)
    after = prepared(kind=kind, optimizer=optimizer)
    with torch.no_grad():
        after.model[0].weight.zero_()
    after.resume(tmp_path / "run")
    assert_same(state_of(before), state_of(after))
    assert (after.steps_done, after.steps_spent) == (5, 5)
    assert after.guarantee.epsilon == before.guarantee.epsilon
    assert finish(after) == 7
    assert (after.steps_done, after.steps_spent) == (12, 12)
    assert after.guarantee.epsilon == plan_of(kind, 12).guarantee(DELTA).epsilon


def test_the_step_after_a_resume_equals_the_step_without_it(tmp_path):
    """Noise and batch differ, so both trainings are given the same sum and must compute the same weights from it."""
    before = prepared(kind="recursive", optimizer=adam)
    make(before, 4)
    before.save(tmp_path / "run")
    before._files.close()
    after = prepared(kind="recursive", optimizer=adam)
    after.resume(tmp_path / "run")
    mean = torch.randn(sum(each.numel() for each in after._parameters))
    for private in (before, after):
        X, y = private.dataset.tensors
        total, _ = private._total((X[:10],), y[:10])
        private._apply(private._estimator.gradient(mean + total), 0.0)
    assert_same(state_of(before), state_of(after))


@pytest.mark.parametrize(
    "schedule",
    [
        lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 2),
        lambda optimizer: torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4, 6]),
        lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=12),
        torch.optim.lr_scheduler.ReduceLROnPlateau,
        lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step),
    ],
)
def test_a_schedule_continues_where_it_stopped(tmp_path, schedule):
    def advance(scheduler):
        scheduler.step(*((1.0,) if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau) else ()))

    before = prepared()
    scheduler = schedule(before.optimizer)
    for _, batch in zip(range(3), before.batches(), strict=False):
        before.step(*batch)
        advance(scheduler)
    before.save(tmp_path / "run", {"schedule": scheduler.state_dict()})
    before._files.close()
    after = prepared()
    again = schedule(after.optimizer)
    again.load_state_dict(after.resume(tmp_path / "run")["schedule"])
    for _ in range(4):
        for private, each in ((before, scheduler), (after, again)):
            private.optimizer.step()  # torch expects this before a step of the schedule.
            advance(each)
        assert after.optimizer.param_groups[0]["lr"] == before.optimizer.param_groups[0]["lr"]


def test_any_nesting_of_plain_values_is_restored(tmp_path):
    state = {
        "text": "é\x00\ud800 {'tensor': 't0'}",
        "numbers": [0, -1, 1 << 80, 0.1, -0.0, float("inf"), True, None],
        "pairs": ((1, 2), [], {}, ()),
        7: {"tensor": "t0", "dict": [1]},
        (1, "a"): torch.tensor(3),
        "types": [torch.ones(3).to(each) for each in (torch.float16, torch.bfloat16, torch.float64, torch.bool)],
        "empty": torch.zeros(0, 3),
        "turned": torch.arange(6.0).reshape(2, 3).t(),
    }
    checkpoint.write(tmp_path / "state", state)
    assert_same(checkpoint.read(tmp_path / "state"), state)
    checkpoint.write(tmp_path / "state", {"not a number": float("nan"), "size": torch.Size([2, 3])})
    found = checkpoint.read(tmp_path / "state")
    assert np.isnan(found["not a number"])
    assert found["size"] == (2, 3)  # What can be written can be read.


def test_saving_an_unsupported_value_raises_and_keeps_the_old_file(tmp_path):
    private = prepared()
    private.save(tmp_path / "run", "first")
    with pytest.raises(TypeError, match="A function cannot be saved"):
        private.save(tmp_path / "run", {"schedule": lambda step: step})
    assert checkpoint.read(tmp_path / "run")["extra"] == "first"
    assert not list(tmp_path.glob(".run*"))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 2)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.last(torch.tanh(self.second(torch.tanh(self.first(x)))))


def frozen():
    model = network()
    model[0].requires_grad_(False)
    return model


@pytest.mark.parametrize(("model", "dtype"), [(network, torch.bfloat16), (network, torch.float64), (Tied, None)])
@pytest.mark.parametrize("kind", ["fresh", "recursive"])
def test_other_precisions_and_tied_weights_are_restored(tmp_path, model, dtype, kind):
    options = {"kind": kind, "dtype": dtype or torch.float32, "optimizer": adam}
    before = saved(tmp_path / "run", model=model(), **options)
    after = prepared(model=model(), **options)
    after.resume(tmp_path / "run")
    assert_same(state_of(before), state_of(after))
    finish(after)
    if model is Tied:
        assert after.model.first.weight is after.model.second.weight


def test_frozen_layers_are_restored(tmp_path):
    model = frozen()
    with torch.no_grad():
        model[0].weight.fill_(7.0)
    saved(tmp_path / "run", model=model)
    after = prepared(model=frozen())
    after.resume(tmp_path / "run")
    finish(after)
    assert bool((after.model[0].weight == 7).all())


def test_saving_through_a_link_writes_beside_the_journal(tmp_path):
    (tmp_path / "runs").mkdir()
    first = saved(tmp_path / "runs" / "run")
    (tmp_path / "latest").symlink_to(tmp_path / "runs" / "run")
    private = prepared()
    private.resume(tmp_path / "latest")
    make(private, 2)
    private.save(tmp_path / "latest")
    private._files.close()
    again = prepared()
    again.resume(tmp_path / "latest")
    assert again.steps_done == first.steps_done + 2
    assert (tmp_path / "latest").is_symlink()


def test_the_assumption_about_changed_parameters_is_restored(tmp_path):
    private = prepared()
    with torch.no_grad():
        private.model[0].weight.add_(1)
    with pytest.warns(UserWarning, match="changed between"):
        make(private, 1)
    private.save(tmp_path / "run")
    private._files.close()
    again = prepared()
    again.resume(tmp_path / "run")
    assert "changes that the caller made" in again.guarantee.statement(verbose=True)


# ----------------------------------------------------------------------------------------------------------- noise


def noises(private, steps):
    """Return what each step adds to the weights of a model without gradients, which is noise alone."""
    found, weight = [], private.model.weight
    for _, batch in zip(range(steps), private.batches(), strict=False):
        before = weight.detach().clone()
        private.step(*batch)
        found.append((weight.detach() - before).flatten())
    return found


def silent(seed):
    """Return a seeded training without gradients: its inputs are zero, and it has no bias."""
    model = nn.Linear(5, 2, bias=False)
    private = prepared(model=model, optimizer=lambda given: torch.optim.SGD(given, lr=1.0), seed=seed)
    private.dataset = TensorDataset(torch.zeros(100, 5), torch.zeros(100).long())
    with torch.no_grad():
        model.weight.zero_()
    private._changes.accept()
    return private


def test_the_saved_generator_does_not_show_how_many_masks_were_drawn(tmp_path):
    """Dropout draws one mask per example, so the number of draws would show the sizes of batches."""
    states = []
    for number, drawn in enumerate((0, 5)):
        private = prepared(seed=3)
        make(private, 2)
        torch.rand(drawn)
        private.save(tmp_path / str(number))
        private._files.close()
        states.append(checkpoint.read(tmp_path / str(number))["torch_generator"])
        assert torch.equal(states[-1], torch.get_rng_state())
    assert torch.equal(*states)


def test_a_seeded_run_that_is_resumed_does_not_repeat_noise(tmp_path):
    """Noise that is used twice can be subtracted: the difference of two releases would have no noise."""
    everything = noises(silent(seed=3), 12)
    before = silent(seed=3)
    batches = before.batches()
    for _ in range(5):
        before.step(*next(batches))
    before.save(tmp_path / "run")
    for _ in range(2):  # These steps are lost but spent.
        before.step(*next(batches))
    before._files.close()
    lives = [everything]
    for _ in range(2):  # Resume twice from the same file.
        private = silent(seed=3)
        private.resume(tmp_path / "run")
        lives.append(noises(private, 2))
        private._files.close()
    drawn = [noise for life in lives for noise in life]
    for i, one in enumerate(drawn):
        for other in drawn[:i]:
            assert torch.isclose(one, other, rtol=1e-3, atol=1e-6).sum() <= 2  # A few may agree by chance.


def test_the_generator_is_not_in_the_file(tmp_path):
    private = saved(tmp_path / "run", seed=3)
    written = (tmp_path / "run").read_bytes() + journal_of(tmp_path / "run").read_bytes()

    def parts(value):
        if isinstance(value, dict):
            return [part for each in value.values() for part in parts(each)]
        return [value] if isinstance(value, np.ndarray) else []

    secrets = parts(private._source._generator.bit_generator.state)
    assert secrets
    for secret in secrets:
        assert secret.size < 4 or secret.tobytes() not in written
    names = {
        "run",
        "journal",
        "code",
        "plan",
        "steps_done",
        "steps_spent",
        "assumptions",
        "guarantee",
        "model",
        "optimizer",
        "estimate",
    }
    assert set(checkpoint.read(tmp_path / "run")) == names | {"torch_generator", "extra"}


# ---------------------------------------------------------------------------------------------------------- journal


def assert_rejected_untouched(path, error, match, **options):
    """A rejected resume must restore nothing, because weights without their spent steps would be free."""
    private = prepared(**options)
    before = copy.deepcopy(state_of(private))
    with pytest.raises(error, match=match):
        private.resume(path)
    assert_same(state_of(private), before)
    assert (private.steps_done, private.steps_spent) == (0, 0)
    assert not private._files.has_journal


def test_a_missing_journal_is_rejected(tmp_path):
    """The error is not a FileNotFoundError: a caller who then starts again would spend the budget twice."""
    saved(tmp_path / "run")
    journal_of(tmp_path / "run").unlink()
    assert_rejected_untouched(tmp_path / "run", ValueError, "the journal of this run, is missing")
    assert not list(tmp_path.glob("*.journal"))


def test_a_file_that_was_moved_without_its_journal_is_rejected(tmp_path):
    saved(tmp_path / "run")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").rename(tmp_path / "elsewhere" / "run")
    assert_rejected_untouched(tmp_path / "elsewhere" / "run", ValueError, "the journal of this run, is missing")


def test_a_journal_that_is_too_short_is_rejected(tmp_path):
    saved(tmp_path / "run", steps=4)
    os.truncate(journal_of(tmp_path / "run"), HEADER + 3)
    assert_rejected_untouched(tmp_path / "run", ValueError, "counts 3 steps, but the saved file has spent 4")


def test_all_files_of_a_run_share_its_journal(tmp_path):
    """Resuming from an old file of a longer run restores its weights, but does not give back spent steps."""
    private = prepared()
    batches = private.batches()
    private.save(tmp_path / "old")
    for _ in range(6):
        private.step(*next(batches))
    private.save(tmp_path / "new")
    private._files.close()
    again = prepared()
    again.resume(tmp_path / "old")
    assert (again.steps_done, again.steps_spent) == (0, 6)
    assert finish(again) == 6
    assert again.guarantee.epsilon == plan_of("fresh", 12).guarantee(DELTA).epsilon


def test_files_in_several_folders_share_the_journal(tmp_path):
    """With one journal per folder, steps after a resume in one folder would be unknown in the other."""
    one, other = tmp_path / "one" / "run", tmp_path / "other" / "run"
    for path in (one, other):
        path.parent.mkdir()
    private = prepared()
    batches = private.batches()
    private.step(*next(batches))
    private.save(one)
    private.save(other)
    private.step(*next(batches))
    private._files.close()
    for path, spent in ((other, 2), (one, 5), (other, 8)):
        private = prepared()
        private.resume(path)
        assert (private.steps_done, private.steps_spent) == (1, spent)
        make(private, 3)
        private._files.close()
    tmp_path.joinpath("one").rename(tmp_path / "moved")
    assert_rejected_untouched(other, ValueError, "the journal of this run, is missing")
    tmp_path.joinpath("moved").rename(tmp_path / "one")
    prepared().resume(other)


def test_a_file_cannot_name_an_arbitrary_file_as_its_journal(tmp_path):
    """The journal is written to, so an untrusted file must not choose which file that is."""
    path, victim = tmp_path / "run", tmp_path / "victim.journal"
    saved(path)
    victim.write_bytes(b"x" * 100)
    state = checkpoint.read(path)
    (tmp_path / "privet-").mkdir()
    checkpoint.write(path, state | {"run": "/../victim"})
    assert_rejected_untouched(path, ValueError, "does not name its run")
    assert victim.read_bytes() == b"x" * 100


@pytest.mark.parametrize("is_code_copied", [False, True])
def test_a_foreign_file_cannot_shorten_the_journal_of_another_run(tmp_path, is_code_copied):
    """Otherwise the other run could make steps again that it has already paid for and released."""
    (tmp_path / "foreign").mkdir()
    path, foreign = tmp_path / "run", tmp_path / "foreign" / "run"
    saved(path, steps=9)
    saved(foreign, steps=1, planned=2)
    copied = {"run", "journal", "code"} if is_code_copied else {"run", "journal"}
    genuine = checkpoint.read(path) | {"journal": ".."}
    checkpoint.write(foreign, checkpoint.read(foreign) | {name: genuine[name] for name in copied})
    before = journal_of(path).read_bytes()
    assert_rejected_untouched(foreign, ValueError, "does not belong to privet-", steps=2)
    assert journal_of(path).read_bytes() == before
    again = prepared()
    again.resume(path)
    assert again.steps_spent == 9


def test_a_run_is_resumed_only_after_its_previous_object_is_gone(tmp_path):
    """In a notebook, a saved training cannot be resumed while its object exists, and can be once it is deleted."""
    private = prepared()
    make(private, 2)
    private.save(tmp_path / "run")
    assert_rejected_untouched(tmp_path / "run", RuntimeError, "in use")
    del private
    again = prepared()
    again.resume(tmp_path / "run")
    assert again.steps_spent == 2


def test_resume_after_the_first_batch_is_rejected(tmp_path):
    saved(tmp_path / "run")
    private = prepared()
    make(private, 1)
    with pytest.raises(PlanError, match="already drawn batches"):
        private.resume(tmp_path / "run")


def test_a_finished_training_has_no_batches_left(tmp_path):
    saved(tmp_path / "run", steps=12)
    private = prepared()
    private.resume(tmp_path / "run")
    assert list(private.batches()) == []
    assert private.guarantee.epsilon == plan_of("fresh", 12).guarantee(DELTA).epsilon


@pytest.mark.parametrize("lost", [1, 3])
def test_recursive_momentum_without_its_first_step_has_the_bound_of_later_steps(tmp_path, lost):
    """The noise of a later step covers less than C1, so C1 is too large a bound even without a previous estimate."""
    before = prepared(kind="recursive")
    before.save(tmp_path / "run")
    make(before, lost)
    before._files.close()
    private = prepared(kind="recursive")
    private.resume(tmp_path / "run")
    assert (private.steps_done, private.steps_spent) == (0, lost)
    X, y = private.dataset.tensors
    alone, _ = private._total((X[:1] * 100,), y[:1])
    assert float(alone.norm()) <= private.plan.contribution_norm * (1 + 1e-5)
    assert finish(private) == 12 - lost


@pytest.mark.parametrize("kind", ["fresh", "recursive"])
def test_a_failed_step_is_spent_and_the_next_step_has_its_own_bound(kind):
    """Otherwise, the bound and the noise of recursive momentum would belong to different steps from then on."""
    private = prepared(kind=kind)
    batches = private.batches()
    X, y = next(batches)
    with pytest.raises(RuntimeError):
        private.step(X[:, :3], y)
    assert private.steps_spent == 1
    next(batches)
    X, y = private.dataset.tensors
    alone, _ = private._total((X[:1] * 100,), y[:1])
    bound = private._step._noise_std / 3.0
    assert float(alone.norm()) <= bound * (1 + 1e-5)


# ------------------------------------------------------------------------------------------------------ untrusted files


class Trap:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("place", ["header", "t0", "pickle", "torch"])
def test_a_file_that_contains_a_pickle_executes_nothing(tmp_path, place):
    path, sprung = tmp_path / "run", tmp_path / "sprung"
    saved(path)
    trap = np.empty((), dtype=object)
    trap[()] = Trap(sprung)
    if place == "pickle":
        path.write_bytes(pickle.dumps(Trap(sprung)))
    elif place == "torch":
        torch.save(Trap(sprung), path)
    else:
        with np.load(path) as arrays:
            kept = dict(arrays)
        with path.open("wb") as file:
            np.savez(file, **(kept | {place: trap}))
    assert_rejected_untouched(path, ValueError, "was not written by PrivateTraining.save")
    assert not sprung.exists()
    pickle.loads(pickle.dumps(Trap(sprung)))  # Unpickling would have created the file.
    assert sprung.exists()


def test_damaged_and_foreign_files_are_rejected(tmp_path):
    path = tmp_path / "run"
    saved(path)
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0xFF
    foreign = [b"", b"x", b"PK\x03\x04", b"\x93NUMPY", os.urandom(1000), bytes(flipped), b"{}"]
    for content in [*foreign, *(whole[: len(whole) * part // 10] for part in range(1, 10)), whole[:-1]]:
        path.write_bytes(content)
        assert_rejected_untouched(path, ValueError, "was not written by PrivateTraining.save")
    np.save(tmp_path / "array.npy", np.zeros(3))
    assert_rejected_untouched(tmp_path / "array.npy", ValueError, "was not written by PrivateTraining.save")
    np.savez(tmp_path / "other.npz", header=np.array("[1]"))
    assert_rejected_untouched(tmp_path / "other.npz", ValueError, "was not written by PrivateTraining.save")
    with pytest.raises(FileNotFoundError):
        prepared().resume(tmp_path / "nothing")


def test_another_version_of_the_format_is_rejected_by_name(tmp_path):
    path = tmp_path / "run"
    saved(path)
    with np.load(path) as arrays:
        kept = dict(arrays)
    header = json.loads(str(kept["header"])) | {"format": "privet training 2"}
    with path.open("wb") as file:
        np.savez(file, **(kept | {"header": np.array(json.dumps(header))}))
    assert_rejected_untouched(path, ValueError, "has the format 'privet training 2', but this version reads")


def test_another_plan_is_rejected(tmp_path):
    saved(tmp_path / "run")
    assert_rejected_untouched(tmp_path / "run", ValueError, "a different plan", steps=13)
    assert_rejected_untouched(tmp_path / "run", ValueError, "a different plan", kind="recursive")


def test_weights_of_another_model_are_rejected_and_their_steps_stay_spent(tmp_path):
    """Some weights may have been copied before the error, so their steps stay spent."""
    saved(tmp_path / "run")
    other = prepared(model=nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)))
    with pytest.raises(RuntimeError, match="size mismatch"):
        other.resume(tmp_path / "run")
    assert other.steps_spent == 3


# -------------------------------------------------------------------------------------------------- killed processes


class Lives:
    """Starts processes that train, by forking one that has already imported everything."""

    def __init__(self):
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__]
        self._server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def start(self, work, **settings):
        """Start a process, and return its process id."""
        self._server.stdin.write(json.dumps({"work": work} | settings) + "\n")
        self._server.stdin.flush()
        return int(self._server.stdout.readline())

    def ended(self):
        """Wait for the end of the process, and return the signal that ended it, or 0."""
        return int(self._server.stdout.readline())

    def close(self):
        """End the server."""
        self._server.stdin.close()
        self._server.wait()


@pytest.fixture(scope="module")
def lives():
    found = Lives()
    yield found
    found.close()


def wait_for(side, size, seconds=60):
    """Wait until a file has at least the given size."""
    end = time.monotonic() + seconds
    while not side.exists() or side.stat().st_size < size:
        assert time.monotonic() < end, "the process makes no steps"
        time.sleep(0.001)


@pytest.mark.parametrize("kind", ["fresh", "recursive"])
def test_killed_processes_never_make_more_steps_than_planned(tmp_path, lives, kind):
    """Each process records on disk what it actually released. The guarantee must cover at least that."""
    chance, planned = random.Random(kind), 400
    path, side = tmp_path / "run", tmp_path / "released"
    for life in range(5):
        made = side.stat().st_size if side.exists() else 0
        child = lives.start("train", path=str(path), side=str(side), kind=kind, steps=planned, save_every=7)
        wait_for(side, made + chance.randrange(1, 20))
        time.sleep(chance.random() * 0.01)
        os.kill(child, signal.SIGKILL)
        assert lives.ended() == signal.SIGKILL
        made = side.stat().st_size
        private = prepared(kind=kind, steps=planned)
        private.resume(path)
        assert made <= private.steps_spent <= made + life + 1  # At most one step per process was counted and not made.
        spent = private.guarantee.epsilon
        assert spent >= private._estimator.so_far(made).guarantee(DELTA).epsilon
        private._files.close()
    private = prepared(kind=kind, steps=planned)
    private.resume(path)
    assert private.steps_done < private.steps_spent  # Some steps were lost.
    assert made + finish(private) <= planned
    assert private.guarantee.epsilon <= private.plan.guarantee(DELTA).epsilon


def test_steps_counted_ahead_never_exceed_the_plan(tmp_path, lives):
    """1001 steps are counted in pairs, so the last pair is one too long, and the process may be killed just then."""
    saved(tmp_path / "run", steps=0, planned=1001)
    os.truncate(journal_of(tmp_path / "run"), HEADER + 1000)  # As killed processes left it.
    lives.start("last step", path=str(tmp_path / "run"), steps=1001)
    assert lives.ended() == signal.SIGKILL
    assert journal_of(tmp_path / "run").stat().st_size == HEADER + 1002
    private = prepared(steps=1001)
    private.resume(tmp_path / "run")
    assert private.steps_spent == 1001
    assert list(private.batches()) == []
    assert private.guarantee.epsilon <= private.plan.guarantee(DELTA).epsilon


def test_a_process_that_is_killed_while_saving_leaves_a_whole_file(tmp_path, lives):
    chance = random.Random(0)
    path, side = tmp_path / "run", tmp_path / "side"
    for _ in range(6):
        side.unlink(missing_ok=True)
        child = lives.start("save", path=str(path), side=str(side))
        wait_for(side, 2)
        time.sleep(chance.random() * 0.05)
        os.kill(child, signal.SIGKILL)
        assert lives.ended() == signal.SIGKILL
        state = checkpoint.read(path)
        assert bool((state["extra"]["much"] == state["extra"]["number"]).all())
        assert Path(tmp_path / f"privet-{state['run']}.journal").exists()


def test_a_training_that_another_process_continues_is_rejected(tmp_path, lives):
    path, side = tmp_path / "run", tmp_path / "side"
    child = lives.start("save", path=str(path), side=str(side))
    wait_for(side, 1)
    with pytest.raises(RuntimeError, match="in use: another process"):
        prepared().resume(path)
    os.kill(child, signal.SIGKILL)
    lives.ended()
    prepared().resume(path)


# ------------------------------------------------------------------------------- the processes that are to be killed


def train(path, side, kind, steps, save_every):
    """Train, and record on disk what was released."""
    private = prepared(kind=kind, steps=steps)
    if Path(path).exists():
        private.resume(path)
    else:
        private.save(path)
    released = os.open(side, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for batch in private.batches():
        private.step(*batch)
        os.write(released, b".")
        os.fsync(released)
        time.sleep(0.003)  # The killing process may have to wait for its turn.
        if private.steps_done % save_every == 0:
            private.save(path)


def last_step(path, steps):
    """Train to the last step, and no further."""
    private = prepared(steps=steps)
    private.resume(path)
    for batch in private.batches():
        private.step(*batch)
        if private.steps_spent == steps:
            os.kill(os.getpid(), signal.SIGKILL)


def save(path, side):
    """Save again and again."""
    private = prepared()
    written = os.open(side, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for number in range(1_000_000):
        private.save(path, {"number": number, "much": torch.full((300_000,), number)})
        os.write(written, b".")


def serve():
    """Fork a process for each line of input, and print its process id and how it ended."""
    torch.set_num_threads(1)
    _ = prepared().guarantee  # Import everything that is needed.
    works = {"train": train, "last step": last_step, "save": save}
    for line in sys.stdin:
        settings = json.loads(line)
        child = os.fork()
        if child == 0:
            works[settings.pop("work")](**settings)
            os._exit(0)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, flush=True)


if __name__ == "__main__":
    serve()
