"""Save and resume of federated runs: what is restored, and what a killed server has spent.

The tests kill real processes. Their program is at the end of this file.
"""

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

from privet.federated import Server, saving
from privet.plans import FixedSize, FullBatch, GradientPlan, PlanError, Poisson
from privet.privacy import assumed

DELTA = 1e-5


def server(rounds=6, seed=None, average=None, **options):
    weights = {"w": np.zeros((2, 3)), "b": np.zeros(2)}
    plan = options.pop("plan", GradientPlan(FullBatch(), rounds, 1.0, 3.0))
    return Server(plan, weights, 5, delta=DELTA, random_state=seed, average=average, **options)


def make(one, rounds):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(rounds):
            one.sample()
            one.aggregate({})


def saved(path, rounds=2, rounds_planned=6, **options):
    one = server(rounds_planned, **options)
    one.save(path)
    make(one, rounds)
    one.save(path, {"note": rounds})
    one.close()
    return one


def journal_of(path):
    (found,) = Path(path).parent.glob("privet-*.journal")
    return found


@pytest.mark.parametrize("average", [None, lambda t: t + 1.0])
def test_a_resumed_server_has_the_saved_state(tmp_path, average):
    one = saved(tmp_path / "run", average=average)
    other = server(average=average)
    assert other.resume(tmp_path / "run") == {"note": 2}
    assert (other.rounds_done, other.rounds_spent) == (2, 2)
    for name, value in one.weights.items():
        assert np.array_equal(other.weights[name], value)
        assert np.array_equal(other.output[name], one.output[name])
    assert other.guarantee == one.guarantee
    make(other, 4)
    assert other.is_done
    assert other.guarantee.epsilon == server().guarantee.epsilon
    with pytest.raises(PlanError, match="spent"):
        other.sample()


def test_an_average_continues_after_resuming(tmp_path):
    places = []
    one = server(average=lambda t: 1.0)
    places.append(one.weights["b"])
    for _ in range(2):
        make(one, 1)
        places.append(one.weights["b"])
    one.save(tmp_path / "run")
    one.close()
    other = server(average=lambda t: 1.0)
    other.resume(tmp_path / "run")
    make(other, 1)
    places.append(other.weights["b"])
    assert np.allclose(other.output["b"], np.mean(places, axis=0))


def test_rounds_after_the_file_was_written_are_spent(tmp_path):
    one = saved(tmp_path / "run", rounds=1)
    kept = (tmp_path / "run").read_bytes()
    again = server()
    again.resume(tmp_path / "run")
    make(again, 3)
    again.close()
    assert (tmp_path / "run").read_bytes() == kept
    late = server()
    late.resume(tmp_path / "run")
    assert (late.rounds_done, late.rounds_spent) == (1, 4)
    assert np.array_equal(late.weights["w"], one.weights["w"])
    assert late.guarantee.epsilon == again.guarantee.epsilon > one.guarantee.epsilon
    make(late, 2)
    assert late.is_done


def test_a_resumed_server_does_not_repeat_its_noise(tmp_path):
    """If a seeded run is resumed twice from one file, the second continuation has different noise than the first."""
    saved(tmp_path / "run", rounds=1, seed=3)
    moves = []
    for _ in range(2):
        one = server(seed=3)
        one.resume(tmp_path / "run")
        before = one.weights["w"]
        make(one, 1)
        moves.append(one.weights["w"] - before)
        one.close()
    assert not np.allclose(*moves)


def test_assumptions_are_kept_when_a_run_is_resumed(tmp_path):
    saved(tmp_path / "run", seed=3, assumptions=[assumed("the server is trusted")])
    other = server()
    other.resume(tmp_path / "run")
    assert "Assumed:  the server is trusted" in other.guarantee.statement(verbose=True)
    assert "seed stays secret" in other.guarantee.statement(verbose=True)


@pytest.mark.parametrize(
    ("other", "cause"),
    [
        (lambda: server(rounds=7), "a different plan"),
        (lambda: server(average=lambda t: 1.0), "a different output rule"),
        (lambda: Server(server().plan, {"w": np.zeros(8)}, 5, delta=DELTA), "a different model"),
        (lambda: Server(server().plan, server().weights, 6, delta=DELTA), "a different number of clients"),
    ],
)
def test_the_file_of_another_run_is_refused(tmp_path, other, cause):
    saved(tmp_path / "run")
    with pytest.raises(ValueError, match=cause):
        other().resume(tmp_path / "run")


def test_a_server_that_has_started_cannot_resume(tmp_path):
    saved(tmp_path / "run")
    one = server()
    make(one, 1)
    with pytest.raises(PlanError, match="before the first round"):
        one.resume(tmp_path / "run")


def test_a_server_with_an_open_round_cannot_resume(tmp_path):
    saved(tmp_path / "run")
    one = server()
    one.sample()
    with pytest.raises(PlanError, match="before the first round"):
        one.resume(tmp_path / "run")


def test_the_file_states_what_was_spent_and_promised(tmp_path):
    one = saved(tmp_path / "run", seed=3, average=lambda t: 2.0)
    state = saving.read(tmp_path / "run").state
    assert (state["rounds_done"], state["rounds_spent"], state["average"]) == (2, 2, 6.0)
    assert state["guarantee"] == one.guarantee.to_dict()
    assert state["plan"] == repr(one.plan)
    assert state["shapes"] == {"w": [2, 3], "b": [2]}
    assert [text for text in state["assumed"] if "seed stays secret" in text] == state["assumed"]
    one = server()
    one.save(tmp_path / "plain")
    assert saving.read(tmp_path / "plain").state["average"] is None
    assert saving.read(tmp_path / "plain").state["extra"] is None


def test_rounds_before_the_first_save_are_in_the_journal(tmp_path):
    one = server()
    make(one, 2)
    one.save(tmp_path / "run")
    assert journal_of(tmp_path / "run").read_bytes().count(b".") == 2
    make(one, 1)
    assert journal_of(tmp_path / "run").read_bytes().count(b".") == 3


def test_assumptions_are_stated_once_after_resuming(tmp_path):
    trusted = assumed("the server is trusted")
    saved(tmp_path / "run", seed=3, assumptions=[trusted])
    other = server(seed=3, assumptions=[trusted])
    other.resume(tmp_path / "run")
    texts = [each.text for each in other.guarantee.assumptions]
    assert len(texts) == len(set(texts))
    assert texts.count("the server is trusted") == 1


@pytest.mark.parametrize("damaged", ["model", "average"])
def test_a_file_with_a_vector_of_another_size_is_refused(tmp_path, damaged):
    saved(tmp_path / "run", average=lambda t: 1.0)
    found = saving.read(tmp_path / "run")
    arrays = dict(found.arrays) | {damaged: np.zeros(7)}
    saving.write(tmp_path / "run", found.references, found.state, arrays)
    with pytest.raises(ValueError, match="number of its parameters does not match"):
        server(average=lambda t: 1.0).resume(tmp_path / "run")


def test_two_servers_cannot_continue_the_same_run(tmp_path):
    saved(tmp_path / "run")
    one = server()
    one.resume(tmp_path / "run")
    with pytest.raises(RuntimeError, match="in use"):
        server().resume(tmp_path / "run")


def test_a_missing_or_incomplete_journal_is_refused(tmp_path):
    saved(tmp_path / "run")
    journal = journal_of(tmp_path / "run")
    os.truncate(journal, journal.stat().st_size - 1)
    with pytest.raises(ValueError, match="The journal is incomplete"):
        server().resume(tmp_path / "run")
    journal.unlink()
    with pytest.raises(ValueError, match="journal of this run"):
        server().resume(tmp_path / "run")


def test_the_file_does_not_reveal_the_number_of_clients_if_it_is_private(tmp_path):
    """Under add-or-remove adjacency, two files that differ in it would tell neighbouring fleets apart."""
    plan = GradientPlan(Poisson(0.5), 6, 1.0, 3.0, public_n=5)
    one = saved(tmp_path / "run", plan=plan)
    assert one.n_clients == 5
    assert saving.read(tmp_path / "run").state["n_clients"] is None
    Server(plan, one.weights, 6, delta=DELTA).resume(tmp_path / "run")
    saved(tmp_path / "exchanged")
    assert saving.read(tmp_path / "exchanged").state["n_clients"] == 5


@pytest.mark.parametrize("is_code_copied", [False, True])
def test_a_foreign_file_cannot_continue_the_journal_of_another_run(tmp_path, is_code_copied):
    """It would add rounds that this run never made, and keep its server from continuing."""
    (tmp_path / "foreign").mkdir()
    saved(tmp_path / "run", rounds=5)
    saved(tmp_path / "foreign" / "run", rounds=1, rounds_planned=2)
    foreign, genuine = saving.read(tmp_path / "foreign" / "run"), saving.read(tmp_path / "run")
    references = genuine.references | {"journal": ".."}
    if not is_code_copied:
        references["code"] = foreign.references["code"]
    saving.write(tmp_path / "foreign" / "run", references, foreign.state, foreign.arrays)
    before = journal_of(tmp_path / "run").read_bytes()
    with pytest.raises(ValueError, match="does not belong to privet-"):
        server(rounds=2).resume(tmp_path / "foreign" / "run")
    assert journal_of(tmp_path / "run").read_bytes() == before
    again = server()
    again.resume(tmp_path / "run")
    assert again.rounds_spent == 5


def test_foreign_files_are_refused_and_execute_nothing(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "executed"),))

    bomb, text, array = tmp_path / "bomb", tmp_path / "text", tmp_path / "array.npz"
    bomb.write_bytes(pickle.dumps(Bomb()))
    text.write_text("hello")
    np.savez(array, header=np.array(json.dumps({"format": "privet training 1", "state": {}})))
    for path, cause in (
        (bomb, "not written by Server.save"),
        (text, "not written by Server.save"),
        (array, "has the format"),
    ):
        with pytest.raises(ValueError, match=cause):
            server().resume(path)
    assert not (tmp_path / "executed").exists()


def test_a_truncated_file_is_refused(tmp_path):
    saved(tmp_path / "run")
    whole = (tmp_path / "run").read_bytes()
    for size in (0, 1, len(whole) // 2, len(whole) - 1):
        (tmp_path / "run").write_bytes(whole[:size])
        with pytest.raises(ValueError, match="damaged"):
            server().resume(tmp_path / "run")


def test_a_run_can_be_moved_with_its_folder(tmp_path):
    (tmp_path / "one").mkdir()
    saved(tmp_path / "one" / "run")
    shutil.move(tmp_path / "one", tmp_path / "two")
    other = server()
    other.resume(tmp_path / "two" / "run")
    assert other.rounds_done == 2


# ------------------------------------------------------------------------------------------------------ real kills

PROGRAM = """
import sys, warnings
import numpy as np, torch
from torch import nn
from privet.federated import LocalTraining, simulate
from privet.plans import FixedSize, GradientPlan

generator = torch.Generator().manual_seed(0)
clients = [(torch.randn(6, 3, generator=generator), torch.randint(2, (6,), generator=generator)) for _ in range(8)]
torch.manual_seed(0)
done = 0

def evaluate(model):
    global done
    done += 1
    print("round", flush=True)
    if len(sys.argv) > 2 and done == int(sys.argv[2]):
        sys.stdin.read()  # wait here to be killed, when the round has been released but not saved
    return 0.5

result = simulate(
    nn.Linear(3, 2), clients, loss=nn.CrossEntropyLoss(), local=LocalTraining(0.1, 3, epochs=1),
    plan=GradientPlan(FixedSize(4, 8), 7, 1.0, 2.0), delta=1e-3, evaluate=evaluate, verbose=False,
    save=sys.argv[1], resume=True,
)
last = result.history[-1]
print("ended", len(result.history), last.number, last.spent, repr(result.guarantee.epsilon), flush=True)
"""


def start(path, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(path), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def killed_in_round(path, number):
    """Run the program until a round has been released but not saved, and kill it there."""
    process = start(path, number)
    for _ in range(number):
        assert process.stdout.readline() == "round\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    assert process.wait(timeout=60) == -signal.SIGKILL
    process.stdout.close()
    process.stdin.close()


def test_a_server_that_is_killed_resumes_with_its_accounting(tmp_path):
    path = tmp_path / "run"
    killed_in_round(path, 3)  # two rounds in the file, three in the journal
    assert journal_of(path).read_bytes().count(b".") == 3
    process = start(path)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    # Of seven planned rounds one was lost. Six made the model, and the guarantee covers all seven.
    assert output.split()[:-5] == ["round"] * 4
    assert output.split()[-5:-1] == ["ended", "6", "6", "7"]
    planned = GradientPlan(FixedSize(4, 8), 7, 1.0, 2.0).guarantee(1e-3).epsilon
    assert float(output.split()[-1]) == planned
