"""The strategy: it gives the model of the simulation, samples as the plan says, and tolerates clients that fail."""

import subprocess
import sys
import time
import tracemalloc
import warnings
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: install the extra federated")
import httpx
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg
from flwr.serverapp.strategy import Strategy as Flower
from loopback import Loopback
from torch import nn

from privet.audit import replay
from privet.denoise import LaplacianSmoothing
from privet.federated import Server, simulate
from privet.federated.flower import PrivateStrategy, client_app
from privet.federated.flower.encoding import UNREADABLE, update_of
from privet.networks import trained_weights
from privet.plans import FixedSize, FullBatch, GradientPlan, PlanError, Poisson
from privet.privacy import Unit
from privet.replay import Units

DELTA = 1e-3
CLIP = 0.5
POISSON = GradientPlan(Poisson(0.4), 4, CLIP, 1.0, public_n=20)
UNIFORM = GradientPlan(FixedSize(6, 20), 4, CLIP, 1.0)
EVERYBODY = GradientPlan(FullBatch(), 4, CLIP, 1.0)


def server(softmax, plan=EVERYBODY, **options):
    return Server(plan, trained_weights(softmax), 20, delta=DELTA, **{"random_state": 5, **options})


def vector(weights):
    return np.concatenate([np.ravel(layer) for layer in weights.values()])


@pytest.mark.parametrize("plan", [POISSON, UNIFORM, EVERYBODY])
def test_the_result_equals_that_of_the_simulation(plan, softmax, local, clients, grid):
    options = {"denoiser": LaplacianSmoothing(0.5), "average": float, "step_size": 0.8}
    found = PrivateStrategy(server(softmax, plan, **options), min_clients=20).start(grid)
    simulated = simulate(
        softmax,
        clients,
        loss=nn.CrossEntropyLoss(),
        local=local,
        plan=plan,
        delta=DELTA,
        random_state=5,
        verbose=False,
        engine="sequential",
        **options,
    )
    assert found.weights.keys() == simulated.weights.keys()
    assert all(
        np.allclose(found.weights[name], simulated.weights[name], rtol=0, atol=1e-12) for name in simulated.weights
    )
    assert found.guarantee.epsilon == simulated.guarantee.epsilon
    assert [report.number for report in found.history] == [1, 2, 3, 4]
    assert found.history[-1].epsilon == found.guarantee.epsilon


def test_clients_are_sampled_by_the_plan_and_not_by_flower(softmax, grid):
    """With half of the nodes gone, the other sampled clients are asked as before, and nobody replaces the missing."""
    twin, expected = server(softmax, UNIFORM), []
    while not twin.is_done:
        expected.append(sorted(int(client) for client in twin.sample()))
        with pytest.warns(UserWarning, match="no answer"):
            twin.aggregate({})
    grid.nodes = {node: client for node, client in grid.nodes.items() if client < 10}
    with pytest.warns(UserWarning, match="no answer"):
        PrivateStrategy(server(softmax, UNIFORM)).start(grid)
    asked = grid.trained()
    assert [sorted(asked.get(done, [])) for done in range(4)] == [
        [client for client in chosen if client < 10] for chosen in expected
    ]
    assert any(client >= 10 for chosen in expected for client in chosen)


def test_the_guarantee_is_that_of_the_plan_and_names_trusted_parties(softmax, grid):
    result = PrivateStrategy(server(softmax, POISSON, random_state=None)).start(grid)
    assert result.guarantee.epsilon == POISSON.guarantee(DELTA, unit=Unit.CLIENT).epsilon
    assert result.guarantee.unit is Unit.CLIENT
    assert result.plan is POISSON
    assert "who takes part, keep them confidential" in result.guarantee.statement(verbose=True)


def test_clients_have_equal_weight_whatever_number_of_examples_they_report(softmax, grid):
    expected = PrivateStrategy(server(softmax)).start(grid).weights
    honest = grid.reply

    def boasting(message):
        reply = honest(message)
        if message.metadata.message_type == "train":
            number = grid.nodes[message.metadata.dst_node_id]
            reply.content["metrics"] = MetricRecord({"num-examples": 10**number, "loss": 0.3})
        return reply

    grid.reply = boasting
    found = PrivateStrategy(server(softmax)).start(grid)
    assert np.allclose(vector(found.weights), vector(expected), rtol=0, atol=1e-12)
    assert not isinstance(PrivateStrategy(server(softmax)), FedAvg)  # FedAvg weighs clients by num-examples


def test_clients_are_not_evaluated(softmax, grid):
    strategy = PrivateStrategy(server(softmax))
    assert list(strategy.configure_evaluate(1, ArrayRecord(), ConfigRecord(), grid)) == []
    strategy.start(grid)
    assert {message.metadata.message_type for message in grid.sent} == {"query", "train"}


def test_only_sampled_clients_are_asked_for_data(softmax, trainer, clients, grid):
    touched = []
    grid.app = client_app(
        lambda context: trainer,
        lambda context: touched.append(context.node_config["partition-id"]) or clients[touched[-1]],
    )
    PrivateStrategy(server(softmax, UNIFORM)).start(grid)
    assert sorted(touched) == sorted(client for chosen in grid.trained().values() for client in chosen)
    assert len(touched) == 24


def test_the_strategy_works_in_the_loop_of_flower(softmax, grid):
    expected = PrivateStrategy(server(softmax, UNIFORM), min_clients=20).start(grid)
    strategy = PrivateStrategy(server(softmax, UNIFORM))
    first = ArrayRecord({name: Array(np.full_like(layer, 9.0)) for name, layer in trained_weights(softmax).items()})
    strategy._nodes.refresh(grid)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = Flower.start(strategy, grid, first, num_rounds=4)  # the given model is ignored
    assert np.allclose(vector(expected.weights), vector({k: a.numpy() for k, a in found.arrays.items()}), atol=1e-12)
    assert found.train_metrics_clientapp == {}
    with pytest.raises(PlanError, match="All 4 rounds of the plan are spent"):
        Flower.start(strategy, grid, first, num_rounds=1)


@pytest.mark.parametrize(
    ("plan", "changed"),
    [
        (GradientPlan(FixedSize(6, 20), 2, CLIP, 1.0, delta=DELTA), lambda data: (1e22 * data[0], data[1])),
        (GradientPlan(Poisson(0.9), 2, CLIP, 1.0, public_n=20, delta=DELTA), lambda data: None),
    ],
)
def test_a_replay_with_another_client_finds_nothing_but_the_noisy_sums(plan, changed, softmax, trainer, clients, grid):
    fleet = [clients[client] for client in range(20)]

    def train(fleet):
        app = client_app(lambda context: trainer, lambda context: fleet[context.node_config["partition-id"]])
        strategy = PrivateStrategy(server(softmax, plan, random_state=None), min_clients=20)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return strategy.start(Loopback(grid.nodes, app)), strategy

    neighbour = [*fleet[:3], changed(fleet[3]), *fleet[4:]]
    units = Units.unknown() if neighbour[3] is None else None  # a client that is gone leaves its number to no other
    found = replay(train, fleet, neighbour, units=units)
    assert not found.is_violation, found
    assert found.releases == 2
    assert found.moved


# ----------------------------------------------------------------------------------------------------------- faults


def layers(value, kind=np.float64):
    return {"weight": np.full((3, 6), value, kind), "bias": np.full(3, value, kind)}


def record(arrays):
    return ArrayRecord({name: Array(layer) for name, layer in arrays.items()})


def raw(data, stype="numpy.ndarray"):
    return ArrayRecord({name: Array("float64", (3,), stype, data) for name in ("weight", "bias")})


FAULTS = {
    "not a number": RecordDict({"arrays": record(layers(np.nan))}),
    "infinite": RecordDict({"arrays": record(layers(-np.inf))}),
    "other shapes": RecordDict({"arrays": record({"weight": np.ones((6, 3)), "bias": np.ones(3)})}),
    "other layers": RecordDict({"arrays": record({"weights": np.ones((3, 6)), "bias": np.ones(3)})}),
    "complex": RecordDict({"arrays": record(layers(1j, np.complex128))}),
    "text": RecordDict({"arrays": record(layers("x", "U1"))}),
    "nothing": RecordDict(),
    "another record": RecordDict({"arrays": ConfigRecord({"weight": 1.0})}),
    "no numpy file": RecordDict({"arrays": raw(b"hello")}),
    "a pickle": RecordDict({"arrays": raw(b"\x80\x04\x95\x00.")}),
    "another format": RecordDict({"arrays": raw(b"", "torch.Tensor")}),
    "cut": RecordDict({"arrays": raw(Array(np.ones((3, 6))).data[:-8])}),
}
HUGE = {
    "huge": RecordDict({"arrays": record(layers(1e300))}),
    "largest": RecordDict({"arrays": record(layers(-np.finfo(float).max))}),
    "single": RecordDict({"arrays": record(layers(3e38, np.float32))}),
}


def after_one_round(softmax, grid, answer, **options):
    """Return the model after one round in which the first client sends the given answer."""
    honest = grid.reply

    def answering(message):
        first = grid.nodes[message.metadata.dst_node_id] == 0 and message.metadata.message_type == "train"
        return answer(message) if first else honest(message)

    grid.reply = answering
    plan = GradientPlan(FullBatch(), 1, CLIP, 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = PrivateStrategy(server(softmax, plan), min_clients=20, **options).start(grid)
    grid.reply = honest
    return vector(found.weights)


def content(records):
    return lambda message: Message(records, reply_to=message)


@pytest.fixture
def without_the_first(softmax, grid):
    """Return the model after a round in which the first client is silent."""
    return after_one_round(softmax, grid, lambda message: None, timeout=0.05)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_answer_counts_as_no_answer(fault, softmax, grid, without_the_first):
    found = after_one_round(softmax, grid, content(FAULTS[fault]))
    assert (found == without_the_first).all()


@pytest.mark.parametrize("fault", HUGE)
def test_a_huge_answer_is_clipped_at_the_server(fault, softmax, grid, without_the_first):
    moved = 20 * (after_one_round(softmax, grid, content(HUGE[fault])) - without_the_first)  # 20 is the divisor
    assert np.isclose(np.linalg.norm(moved), CLIP, rtol=3e-5)  # Updates are clipped to 0.99999 CLIP, sums rounded.


def declaring(shape, kind="<f8"):
    """Return a reply of a few hundred bytes that declares arrays of the given shape."""
    file = BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": kind, "fortran_order": False, "shape": shape})
    return RecordDict({"arrays": raw(file.getvalue() + bytes(64))})


OVERSIZED = {
    "declared": declaring((1 << 24,)),
    "declared with fields": declaring((3,), [("\x1b[31mred", "<f8")]),
    "sent": RecordDict({"arrays": record({"weight": np.ones(1 << 18), "bias": np.ones(3)})}),
    "many layers": RecordDict({"arrays": record({str(number): np.ones(1) for number in range(1000)})}),
}


@pytest.mark.parametrize("fault", OVERSIZED)
def test_an_oversized_answer_is_not_decoded(fault, softmax, grid, without_the_first):
    """A few bytes can declare an array of any size, which numpy allocates before it notices that values are missing."""
    reply = Message(OVERSIZED[fault], dst_node_id=1, message_type="train")
    shapes = {name: layer.shape for name, layer in trained_weights(softmax).items()}
    tracemalloc.start()
    try:
        assert update_of(reply, shapes) is UNREADABLE
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert (after_one_round(softmax, grid, content(OVERSIZED[fault])) == without_the_first).all()


def test_an_answer_that_flower_cannot_unpack_does_not_affect_others(softmax, grid, without_the_first):
    def breaking(message):
        raise ValueError("Unexpected set of `children`")

    assert (after_one_round(softmax, grid, breaking) == without_the_first).all()


def test_an_app_that_fails_counts_as_no_answer(softmax, trainer, grid, without_the_first):
    failing = Loopback(grid.nodes, client_app(lambda context: trainer, lambda context: None))
    assert (after_one_round(softmax, grid, failing.reply) == without_the_first).all()


def test_a_late_answer_counts_as_no_answer(softmax, grid, without_the_first):
    began, honest = time.monotonic(), grid.reply

    def late(message):
        return honest(message) if time.monotonic() > began + 60 else None

    assert (after_one_round(softmax, grid, late, timeout=0.5) == without_the_first).all()
    assert time.monotonic() < began + 30


def test_a_slow_answer_does_not_exclude_others(softmax, grid):
    """Fetching the first answer takes longer than the timeout, and the others have not arrived at the first poll."""
    expected, honest, looked = after_one_round(softmax, grid, grid.reply), grid.reply, set()

    def slow(message):
        time.sleep(0.5)
        return honest(message)

    def at_the_second_look(message):
        if message.metadata.message_type == "train" and message.metadata.message_id not in looked:
            looked.add(message.metadata.message_id)
            return None
        return honest(message)

    grid.reply = at_the_second_look
    found = after_one_round(softmax, grid, slow, timeout=0.2)
    assert len(looked) == 19
    assert np.allclose(found, expected, rtol=0, atol=1e-12)


def test_a_connection_failure_within_a_round_spends_the_round(tmp_path, softmax, grid):
    """Another draw of clients because of the failure would not be the plan's sampling."""
    push = grid.push_messages

    def failing(messages):
        if messages[0].metadata.message_type == "train":
            raise httpx.ConnectError("refused")
        return push(messages)

    grid.push_messages = failing
    strategy = PrivateStrategy(server(softmax, UNIFORM), save=tmp_path / "run.npz")
    with pytest.raises(httpx.ConnectError), pytest.warns(UserWarning, match=r"no answer \(6\)"):
        strategy.start(grid)
    assert strategy.server.rounds_spent == 1
    grid.push_messages = push
    again = PrivateStrategy(server(softmax, UNIFORM), save=tmp_path / "run.npz", resume=True)
    assert len(again.start(grid).history) == 4
    assert sorted(grid.trained()) == [1, 2, 3]


def test_a_connection_failure_between_rounds_spends_nothing(softmax, grid):
    looks = []

    def failing():
        looks.append(1)
        if len(looks) == 4:  # before the first round, at each round
            raise httpx.ConnectError("refused")
        return list(grid.nodes)

    grid.get_node_ids = failing
    strategy = PrivateStrategy(server(softmax, UNIFORM))
    with pytest.raises(httpx.ConnectError):
        strategy.start(grid)
    assert strategy.server.rounds_spent == len(grid.trained()) == 2


def test_the_run_stops_if_the_superlink_rejects_messages(softmax, grid):
    push = grid.push_messages
    grid.push_messages = lambda messages: push(messages)[1:]
    with pytest.raises(RuntimeError, match="took 19 of 20 messages"):
        PrivateStrategy(server(softmax)).start(grid)


def test_answers_of_clients_that_were_not_asked_are_ignored(softmax, grid):
    """In Flower's own loop, each reply states which node sent it."""
    strategy = PrivateStrategy(server(softmax, UNIFORM))
    messages = list(strategy.configure_train(1, ArrayRecord(), ConfigRecord(), grid))
    stranger = Message(HUGE["huge"], reply_to=messages[0])
    stranger.metadata.__dict__["_src_node_id"] = 5
    before = vector(strategy.server.weights)
    with pytest.warns(UserWarning, match=r"sent twice or by a client that was not sampled \(1\); no answer \(6\)"):
        strategy.aggregate_train(1, [stranger])
    twin = server(softmax, UNIFORM)
    twin.sample()
    with pytest.warns(UserWarning, match=r"no answer \(6\)"):
        twin.aggregate({})
    assert (vector(strategy.server.weights) == vector(twin.weights)).all()
    assert (vector(strategy.server.weights) != before).any()


def test_the_first_round_waits_for_min_clients(softmax, grid):
    grid.nodes = dict(list(grid.nodes.items())[:3])
    strategy = PrivateStrategy(server(softmax), min_clients=4, timeout=0.5)
    with pytest.raises(RuntimeError, match=r"3 of min_clients=4 clients connected within 0\.5 s"):
        strategy.start(grid)
    assert strategy.server.rounds_spent == 0


def test_no_round_starts_while_two_nodes_report_the_same_number(softmax, grid):
    grid.nodes[5] = 7
    (other,) = (node for node, client in grid.nodes.items() if client == 7 and node != 5)
    strategy = PrivateStrategy(server(softmax), timeout=0.5)
    with (
        pytest.warns(UserWarning, match="both report"),
        pytest.raises(RuntimeError, match=f"nodes 5, {other} all report that they are client 7, so no round"),
    ):
        strategy.start(grid)
    assert strategy.server.rounds_spent == 0
    listed = {client: node for node, client in grid.nodes.items() if node != 5}
    PrivateStrategy(server(softmax), node_ids=listed, min_clients=20).start(grid)
    asked = [message.metadata.dst_node_id for message in grid.sent if message.metadata.message_type == "train"]
    assert len(asked) == 4 * 20
    assert 5 not in asked


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ({"timeout": 0.0}, "timeout must be positive"),
        ({"min_clients": 21}, "exceeds the server's number of clients, 20"),
        ({"resume": True}, "resume=True needs a file"),
    ],
)
def test_invalid_settings_are_refused(options, cause, softmax):
    with pytest.raises(ValueError, match=cause):
        PrivateStrategy(server(softmax), **options)


# -------------------------------------------------------------------------------------------------- save and resume


def test_an_interrupted_run_resumes_where_it_stopped(tmp_path, softmax, grid):
    path = tmp_path / "run.npz"
    first = PrivateStrategy(server(softmax, UNIFORM), save=path, evaluate=lambda weights: 0.25)
    strategy_round = first._end_round

    def stopping(updates):
        strategy_round(updates)
        if first.server.rounds_done == 2:
            raise KeyboardInterrupt

    first._end_round = stopping
    with pytest.raises(KeyboardInterrupt):
        first.start(grid)
    with pytest.raises(ValueError, match="already holds a run"):
        PrivateStrategy(server(softmax, UNIFORM), save=path)
    again = PrivateStrategy(server(softmax, UNIFORM), save=path, resume=True)
    assert (vector(again.server.weights) == vector(first.server.weights)).all()
    result = again.start(grid)
    assert [(report.number, report.score) for report in result.history] == [(1, 0.25), (2, 0.25), (3, None), (4, None)]
    assert result.guarantee.epsilon == UNIFORM.guarantee(DELTA, unit=Unit.CLIENT).epsilon
    ended = PrivateStrategy(server(softmax, UNIFORM), save=path, resume=True).start(grid)
    assert len(ended.history) == 4
    assert (vector(ended.weights) == vector(result.weights)).all()


PROGRAM = """
import sys, warnings
import numpy as np, torch
from torch import nn
sys.path.insert(0, sys.argv[1])
from loopback import Loopback
from privet.federated import ClientTrainer, LocalTraining, Server
from privet.federated.flower import PrivateStrategy, client_app
from privet.networks import trained_weights
from privet.plans import FixedSize, GradientPlan

data = torch.randn(8, 6, 3), torch.randint(2, (8, 6))
model = nn.Linear(3, 2)
trainer = ClientTrainer(model, nn.CrossEntropyLoss(), LocalTraining(0.1, 3, epochs=1), 1.0)
app = client_app(lambda c: trainer, lambda c: tuple(part[c.node_config["partition-id"]] for part in data))
server = Server(GradientPlan(FixedSize(4, 8), 7, 1.0, 2.0), trained_weights(model), 8, delta=1e-3)

def evaluate(weights):
    print("round", flush=True)
    if len(sys.argv) > 3 and server.rounds_done == int(sys.argv[3]):
        sys.stdin.read()  # wait here to be killed, when the round has been released but not saved
    return 0.5

strategy = PrivateStrategy(server, save=sys.argv[2], resume=True, evaluate=evaluate, min_clients=8)
result = strategy.start(Loopback({100 + client: client for client in range(8)}, app))
last = result.history[-1]
print("ended", len(result.history), last.number, last.spent, repr(result.guarantee.epsilon), flush=True)
"""


def start(path, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(Path(__file__).parent), str(path), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_server_that_is_killed_resumes_with_its_accounting(tmp_path):
    path = tmp_path / "run.npz"
    process = start(path, 3)
    for _ in range(3):
        assert process.stdout.readline() == "round\n"
    process.kill()  # two rounds are in the file, three in the journal
    process.communicate()
    process = start(path)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    # Of seven planned rounds one was lost. Six made the model, and the guarantee covers all seven.
    assert output.split()[:-5] == ["round"] * 4
    assert output.split()[-5:-1] == ["ended", "6", "6", "7"]
    planned = GradientPlan(FixedSize(4, 8), 7, 1.0, 2.0).guarantee(1e-3, unit=Unit.CLIENT).epsilon
    assert float(output.split()[-1]) == planned
