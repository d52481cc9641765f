"""Clients keep their numbers while nodes come, go, come back under new ids, and report wrong numbers."""

import warnings

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: install the extra federated")
from flwr.app import ConfigRecord, Error, Message, RecordDict

from privet.federated.flower.client_nodes import ClientNodes


def refreshed(grid, n_clients=20):
    nodes = ClientNodes(n_clients, 60.0)
    nodes.refresh(grid)
    return nodes


def test_every_node_is_asked_once_and_keeps_its_number(grid):
    nodes = refreshed(grid)
    for _ in range(3):
        nodes.refresh(grid)
    assert len(grid.sent) == len(nodes) == 20
    assert {nodes.node(client): client for client in range(20)} == grid.nodes


def test_a_node_that_connects_later_is_asked_then(grid):
    everybody = grid.nodes
    grid.nodes = {node: client for node, client in everybody.items() if client != 4}
    nodes = refreshed(grid)
    assert nodes.node(4) is None
    grid.nodes = everybody
    nodes.refresh(grid)
    assert grid.nodes[nodes.node(4)] == 4


def test_refresh_does_not_wait_for_a_node_that_does_not_answer(grid):
    honest = grid.reply
    grid.reply = lambda message: None
    nodes = refreshed(grid)
    assert len(nodes) == 0
    grid.reply = honest
    nodes.refresh(grid)
    assert len(nodes) == len(grid.sent) == 20


def test_a_reconnected_client_gets_its_number_once_the_old_node_is_gone(grid):
    nodes = refreshed(grid)
    old = nodes.node(7)
    grid.nodes[5] = 7  # restarted before Flower has noticed that the old node is gone
    with pytest.warns(UserWarning, match=f"The nodes {old} and 5 both report that they are client 7"):
        nodes.refresh(grid)
    assert nodes.node(7) == old
    assert nodes.rivals() == (7, [5, old])
    del grid.nodes[old]
    nodes.refresh(grid)
    assert nodes.rivals() is None
    assert nodes.node(7) == 5
    assert len(nodes) == 20


def test_a_connected_client_cannot_be_displaced(grid):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nodes = refreshed(grid)
        before = {client: nodes.node(client) for client in range(20)}
        grid.nodes |= {client: client for client in range(20)}  # node ids that sort before all others
        nodes.refresh(grid)
    assert {client: nodes.node(client) for client in range(20)} == before


@pytest.mark.parametrize("number", [20, -1, 0.0, True, "3", [3], 2**62])
def test_a_node_that_reports_an_invalid_number_is_left_out(grid, number):
    honest, liar = grid.reply, next(iter(grid.nodes))

    def reply(message):
        if message.metadata.dst_node_id != liar:
            return honest(message)
        return Message(RecordDict({"config": ConfigRecord({"client": number})}), reply_to=message)

    grid.reply = reply
    with pytest.warns(UserWarning, match="did not report a client number from 0 to 19"):
        nodes = refreshed(grid)
    assert len(nodes) == 19


def test_the_warning_contains_the_reason_that_a_node_gives(grid):
    grid.nodes = {3: "north"}
    with pytest.warns(UserWarning, match="flower-supernode --node-config 'partition-id=i'"):
        assert len(refreshed(grid)) == 0


def test_the_text_of_a_node_is_made_harmless_and_cut(grid):
    """It could otherwise forge lines of the log, or control the terminal of the operator."""

    def reply(message):
        text = "\x1b[2J\x9b31m[red]bad[/red]\r\nWARNING: all is well\u202e" + "x" * 100_000
        return Message(Error(code=2, reason=text), reply_to=message)

    grid.nodes, grid.reply = {3: 0}, reply
    with pytest.warns(UserWarning, match="did not report") as caught:
        refreshed(grid)
    (shown,) = (str(each.message) for each in caught)
    assert "?red?bad?/red???WARNING: all is well?x" in shown
    assert shown.isascii()
    assert shown.isprintable()
    assert "[" not in shown
    assert len(shown) < 500


def test_listed_nodes_are_not_asked_and_no_other_node_can_take_their_number(grid):
    listed = {client: node for node, client in grid.nodes.items()}
    del listed[11]
    grid.nodes |= dict.fromkeys(range(20), 7)  # They would report that they are client 7.
    nodes = ClientNodes(20, 60.0, listed)
    nodes.refresh(grid)
    assert not grid.sent
    assert {client: nodes.node(client) for client in range(20)} == listed | {11: None}
    assert nodes.rivals() is None
    del grid.nodes[listed[7]]
    nodes.refresh(grid)
    assert nodes.node(7) is None


@pytest.mark.parametrize(
    ("node_ids", "cause"),
    [
        ({20: 1}, "client number 20"),
        ({True: 1}, "client number True"),
        ({0: 5, 3: 5}, "node 5 for the clients 0 and 3"),
    ],
)
def test_invalid_node_ids_are_refused(node_ids, cause):
    with pytest.raises(ValueError, match=cause):
        ClientNodes(20, 60.0, node_ids)


def test_a_node_whose_reply_cannot_be_read_is_left_out(grid):
    honest, broken = grid.reply, next(iter(grid.nodes))

    def reply(message):
        if message.metadata.dst_node_id == broken:
            raise KeyError("children")
        return honest(message)

    grid.reply = reply
    with pytest.warns(UserWarning, match="cannot be read"):
        assert len(refreshed(grid)) == 19
