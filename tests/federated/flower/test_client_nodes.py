"""Who is who: nodes come, go and come back under other names, and some lie."""

import warnings

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'privet[federated]'")
from flwr.app import ConfigRecord, Message, RecordDict

from privet.federated.flower.client_nodes import Members


def looked(grid, n_clients=20):
    members = Members(n_clients, 60.0)
    members.look(grid)
    return members


def test_every_node_is_asked_once_and_has_its_own_number(grid):
    members = looked(grid)
    for _ in range(3):
        members.look(grid)
    assert len(grid.sent) == len(members) == 20
    assert {members.node(client): client for client in range(20)} == grid.nodes


def test_a_node_that_comes_later_is_asked_then(grid):
    everybody = grid.nodes
    grid.nodes = {node: client for node, client in everybody.items() if client != 4}
    members = looked(grid)
    assert members.node(4) is None
    grid.nodes = everybody
    members.look(grid)
    assert grid.nodes[members.node(4)] == 4


def test_nobody_waits_for_a_node_that_does_not_answer(grid):
    honest = grid.reply
    grid.reply = lambda message: None
    members = looked(grid)
    assert len(members) == 0
    grid.reply = honest
    members.look(grid)
    assert len(members) == len(grid.sent) == 20


def test_a_node_that_is_gone_leaves_its_number_to_the_one_that_comes_back(grid):
    members = looked(grid)
    old = members.node(7)
    grid.nodes[5] = 7  # started again before Flower has noticed
    with pytest.warns(UserWarning, match="two nodes say that they are client 7"):
        members.look(grid)
    assert members.node(7) == old
    del grid.nodes[old]
    members.look(grid)
    assert members.node(7) == 5
    assert len(members) == 20


def test_a_number_goes_with_the_first_that_told_it_while_that_is_there(grid):
    """Nobody can take the place of a client that is connected."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        members = looked(grid)
        before = {client: members.node(client) for client in range(20)}
        grid.nodes |= {client: client for client in range(20)}  # names that sort before all others
        members.look(grid)
    assert {client: members.node(client) for client in range(20)} == before


@pytest.mark.parametrize("told", [20, -1, 0.0, True, "3", [3], 2**62])
def test_a_node_without_a_number_of_its_own_takes_no_part(grid, told):
    honest, liar = grid.reply, next(iter(grid.nodes))

    def reply(message):
        if message.metadata.dst_node_id != liar:
            return honest(message)
        return Message(RecordDict({"config": ConfigRecord({"client": told})}), reply_to=message)

    grid.reply = reply
    with pytest.warns(UserWarning, match="it told no number from 0 to 19"):
        members = looked(grid)
    assert len(members) == 19


def test_what_a_node_says_about_its_failure_is_passed_on(grid):
    grid.nodes = {3: "north"}
    with pytest.warns(UserWarning, match="start it by flower-supernode --node-config 'partition-id=0'"):
        assert len(looked(grid)) == 0


def test_an_answer_that_cannot_be_read_is_nobodys(grid):
    honest, broken = grid.reply, next(iter(grid.nodes))

    def reply(message):
        if message.metadata.dst_node_id == broken:
            raise KeyError("children")
        return honest(message)

    grid.reply = reply
    with pytest.warns(UserWarning, match="cannot be read"):
        assert len(looked(grid)) == 19
