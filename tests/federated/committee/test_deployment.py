"""Real rounds with a committee: two servers and three clients as processes, with TLS, and a Flower strategy."""

import asyncio
import json
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mpyc", reason="servers need MPyC: install the extra multiparty")
pytest.importorskip("grpc", reason="clients hand in shares over gRPC: install the extra multiparty")

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "multiparty"))

from parties import Machine
from rounds_process import CLIP, LAW, SCALE, client, hand_in_to_one, server, study, update_of

from privet.federated import Server
from privet.federated.committee import CommitteeClient, Coordinator
from privet.federated.committee.roles import _RoundsReception
from privet.federated.updates import clipped
from privet.multiparty.transport.contribution import Contribution
from privet.multiparty.transport.hand_in import HandInError
from privet.privacy import Guarantee

NOISE = 2 * LAW.reach / SCALE  # the most that two servers can add to a coordinate
ROUNDING = 1e-5


@pytest.fixture
def machine():
    with Machine() as machine:
        yield machine


def started(machine, folder, **options):
    """Start the servers of a study, and return the study, its settings, its keys and the processes."""
    settings = {"ports": machine.ports_of_servers(2), **options}
    here = study(**settings)
    keys = str(here.make_keys(folder / "keys"))
    servers = [
        machine.start(folder / f"server{each}", server, settings, each, keys, str(folder / f"state{each}"))
        for each in range(2)
    ]
    return here, settings, keys, servers


def exact(clients, number):
    """Return the sum of the clipped updates of a round."""
    vectors = [np.concatenate(list(update_of(each, number).values())) for each in clients]
    return sum(clipped(vector, CLIP) for vector in vectors if np.isfinite(vector).all())


def test_clients_hand_in_shares_and_only_the_noisy_sum_of_clipped_updates_is_opened(machine, tmp_path):
    here, settings, keys, servers = started(machine, tmp_path)
    rounds = {0: [0, 1], 1: [0, 1], 2: [0]}  # the last client takes part in the first round only
    clients = [machine.start(tmp_path / f"client{each}", client, settings, each, keys, rounds[each]) for each in rounds]
    coordinator = Coordinator(here, keys=keys)
    model = Server(here.plan, {"a": np.zeros(2), "b": np.zeros(4)}, 4, random_state=0)

    model.sample()
    asyncio.run(hand_in_to_one(here, 3, keys, 0, 0))  # It drops out after reaching one of the servers.
    for each in clients[:2]:
        each.until(lambda each=each: "handed in 0" in each.out)
    assert clients[2].wait() == 0, clients[2].err
    first = coordinator.opened(0)
    model.aggregate_opened(coordinator.opened)  # the same sum, not another release
    assert np.abs(here.plan.sums.off_lattice(first) - exact([0, 1, 2], 0)).max() < NOISE + ROUNDING
    moved = np.concatenate(list(model.weights.values()))
    assert np.array_equal(moved, here.plan.sums.off_lattice(first) / 4)

    again = CommitteeClient(here, 0, keys=keys, timeout=20.0)
    again.hand_in(update_of(1, 0), 0)  # A round that is over takes no further update.
    assert np.array_equal(coordinator.opened(0), first)
    assert [each.wait() for each in clients] == [0, 0, 0], [each.err for each in clients]
    with pytest.raises(HandInError, match="owner 0 has already handed in another share"):
        again.hand_in(update_of(1, 1), 1)
    model.sample()
    model.aggregate_opened(coordinator.opened)
    second = np.concatenate(list(model.weights.values())) - moved
    assert np.abs(4 * second - exact([0, 1], 1)).max() < NOISE + ROUNDING
    assert coordinator.clients == [3, 3, 3, 2]
    assert [each.wait() for each in servers] == [0, 0], [each.err for each in servers]
    assert [json.loads(each.out) for each in servers] == [[3, 2], [3, 2]]
    promised = [Guarantee.from_json((tmp_path / f"server{each}" / "booked").read_text()) for each in range(2)]
    assert all(each.epsilon == here.plan.guarantee().epsilon for each in promised)


def test_servers_of_different_studies_open_nothing(machine, tmp_path):
    settings = {"ports": machine.ports_of_servers(2)}
    keys = str(study(**settings).make_keys(tmp_path / "keys"))
    servers = [
        machine.start(tmp_path / f"server{each}", server, {**settings, "rounds": 1 + each}, each, keys, None)
        for each in range(2)
    ]
    assert all(each.wait() != 0 for each in servers)
    assert all("hold different studies. Nothing was opened" in each.err for each in servers)


def test_a_flower_server_receives_no_update(machine, tmp_path, softmax, local, clients):
    pytest.importorskip("flwr", reason="Flower is not installed: install the extra federated")
    sys.path.insert(0, str(Path(__file__).parents[1] / "flower"))
    from loopback import Loopback
    from torch import nn

    from privet.denoise import LaplacianSmoothing
    from privet.federated import ClientTrainer, order_source, trained_weights
    from privet.federated.flower import PrivateStrategy, client_app
    from privet.networks import layer_denoiser

    here, _, keys, servers = started(machine, tmp_path, dimension=21, clients=3, rounds=1)
    trainer = ClientTrainer(softmax, nn.CrossEntropyLoss(), local, CLIP)
    app = client_app(
        lambda context: trainer,
        lambda context: clients[context.node_config["partition-id"]] if context.node_id < 12 else 1 / 0,
        committee=lambda context: CommitteeClient(here, context.node_config["partition-id"], keys=keys),
        random_state=5,
    )
    grid = recording(Loopback)({10: 0, 11: 1, 12: 2}, app)
    smoothing = LaplacianSmoothing(1.0)
    model = Server(here.plan, trained_weights(softmax), 3, denoiser=smoothing, random_state=5)
    with pytest.raises(ValueError, match="do not belong together"):
        PrivateStrategy(model)  # The server would be sent the updates.
    result = PrivateStrategy(model, min_clients=3, committee=Coordinator(here, keys=keys)).start(grid)

    trained = [reply for reply in grid.replies if reply.metadata.message_type == "train"]
    assert len(trained) == 3 and all(reply.has_content() and not dict(reply.content) for reply in trained)
    updates = [
        trainer.update(trained_weights(softmax), clients[each], 0, order_source(5, 0, each)) for each in (0, 1)
    ]  # The third client's data cannot be read, so it hands in zeros.
    denoise = layer_denoiser(smoothing, "OIHW")
    for name, layer in trained_weights(softmax).items():
        mean = denoise(sum(update[name] for update in updates) / 3, 0.0)
        assert np.abs(result.weights[name] - layer - mean).max() < NOISE / 3 + ROUNDING
        assert np.abs(mean).max() > 3 * NOISE / 3
    assert "at least one of the 2 servers" in result.guarantee.statement()
    assert "see individual updates" not in result.guarantee.statement(verbose=True)
    assert [each.wait() for each in servers] == [0, 0], [each.err for each in servers]


def recording(kind):
    """Return a kind of grid that keeps all replies."""

    class Recording(kind):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.replies = []

        def reply(self, message):
            self.replies.append(super().reply(message))
            return self.replies[-1]

    return Recording


def test_whether_a_client_answers_does_not_tell_a_dishonest_coordinator_about_its_data(softmax, local, clients):
    """It sends a model with two of the three classes, whose training fails only if a client has the third.

    No server listens, so all clients fail to hand in. What they say must be the same.
    """
    pytest.importorskip("flwr", reason="Flower is not installed: install the extra federated")
    sys.path.insert(0, str(Path(__file__).parents[1] / "flower"))
    from loopback import Loopback
    from torch import nn

    from privet.federated import ClientTrainer
    from privet.federated.flower import client_app
    from privet.federated.flower.encoding import instruction
    from privet.federated.flower.flwr_imports import Message

    with Machine(2) as machine:
        here = study(machine.ports_of_servers(2), dimension=21)
        X, y = clients[0]
        data = [(X, y), (X[y < 2], y[y < 2])]
        assert y.max() == 2
        app = client_app(
            lambda context: ClientTrainer(softmax, nn.CrossEntropyLoss(), local, CLIP),
            lambda context: data[context.node_config["partition-id"]],
            committee=lambda context: CommitteeClient(
                here, context.node_config["partition-id"], keys=None, timeout=0.1
            ),
            random_state=5,
        )
        model = {"weight": np.zeros((2, 6), np.float32), "bias": np.zeros(2, np.float32)}
        replies = [Loopback({10: each}, app).reply(Message(instruction(model, 0), 10, "train")) for each in (0, 1)]
    assert ["did not accept a share" in reply.error.reason for reply in replies] == [True, True]


def test_the_coordinator_cannot_hand_in_an_update_or_keep_a_round_open_with_one():
    """It would count as one of the ``fewest`` clients, and servers that have added it would forget that it ended."""

    async def main():
        reception = _RoundsReception(bytes(32), 3, None, closed_by=2)
        await reception.open(0)
        with pytest.raises(ValueError, match="the coordinator is not a client"):
            await reception.receive(2, Contribution(bytes(32), 0, 1, True, b"share"))
        assert await reception.collected(0.0) == {}
        await reception.receive(2, Contribution(bytes(32), 0, 0, False, b""))
        assert reception.has_ended

    asyncio.run(main())
