"""The client app sends its update and nothing else."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: install the extra federated")
from flwr.app import Message
from torch import nn

from privet.denoise import LaplacianSmoothing
from privet.federated import ClientTrainer
from privet.federated.flower import client_app
from privet.federated.flower.encoding import instruction, weights_of
from privet.federated.local_training import order_source
from privet.networks import trained_weights


def trained(grid, weights, rounds_done=2):
    (name,) = grid.push_messages([Message(instruction(weights, rounds_done), next(iter(grid.nodes)), "train")])
    (reply,) = grid.pull_messages([name])
    return reply


def test_a_reply_contains_only_the_update_of_the_trainer(grid, trainer, clients, softmax):
    weights = {name: layer + 0.1 for name, layer in trained_weights(softmax).items()}
    client = next(iter(grid.nodes.values()))
    reply = trained(grid, weights)
    assert list(reply.content.keys()) == ["arrays"]
    expected = trainer.update(weights, clients[client], 2, order_source(5, 2, client))
    found = weights_of(reply.content["arrays"])
    assert found.keys() == expected.keys()
    assert all((found[name] == expected[name]).all() for name in expected)
    assert np.linalg.norm(np.concatenate([np.ravel(layer) for layer in found.values()])) <= 0.5 * (1 + 1e-6)


def test_local_steps_may_have_a_denoiser(grid, trainer, clients, softmax):
    local = replace(trainer.local, denoiser=LaplacianSmoothing(2.0))
    smoothed = ClientTrainer(softmax, nn.CrossEntropyLoss(), local, trainer.clip_norm)
    client, weights = next(iter(grid.nodes.values())), trained_weights(softmax)
    grid.app = client_app(lambda context: smoothed, lambda context: clients[client], random_state=5)
    found = weights_of(trained(grid, weights).content["arrays"])["weight"]
    source = order_source(5, 2, client)
    assert (found == smoothed.update(weights, clients[client], 2, source)["weight"]).all()
    assert not np.allclose(found, trainer.update(weights, clients[client], 2, order_source(5, 2, client))["weight"])


def test_without_random_state_the_order_is_different_each_time(grid, trainer, clients, softmax):
    grid.app = client_app(lambda context: trainer, lambda context: clients[0])
    weights = trained_weights(softmax)
    one, other = (weights_of(trained(grid, weights).content["arrays"])["weight"] for _ in range(2))
    assert (one != other).any()


def test_the_text_of_an_error_does_not_leave_the_client(grid, trainer, softmax):
    def data(context):
        raise ValueError("patient 4711 has no blood pressure")

    grid.app = client_app(lambda context: trainer, data)
    reply = trained(grid, trained_weights(softmax))
    assert reply.has_error()
    assert "4711" not in reply.error.reason
    assert "training failed (ValueError)" in reply.error.reason


def test_a_client_without_data_reports_a_failure(grid, trainer, softmax):
    grid.app = client_app(lambda context: trainer, lambda context: None)
    assert "training failed" in trained(grid, trained_weights(softmax)).error.reason
