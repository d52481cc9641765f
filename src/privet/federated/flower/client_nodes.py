"""Which Flower node runs which client. Nodes come and go with ids chosen by Flower; clients have fixed numbers."""

import string
import warnings
from collections.abc import Mapping

from privet.federated.flower.encoding import number_of
from privet.federated.flower.flwr_imports import Grid, Message, MessageType, RecordDict
from privet.federated.flower.messaging import pull, push

_HARMLESS = frozenset(string.ascii_letters + string.digits + " .,:;'()<>=_/-")
_LONGEST = 300


class ClientNodes:
    """The connected nodes, by client number.

    With ``node_ids``, a client is the node that is listed for it, whatever the node says. Otherwise each new node is
    asked once for its number. The plan samples from all numbers, whether connected or not: a client without a node
    counts as a client that does not answer. While a node is connected, it keeps its number, even if another node claims
    the same one, so that no client is asked twice in a round. A client that reconnects under a new node id gets its
    number back as soon as Flower has noticed that the old node is gone.

    Parameters
    ----------
    n_clients : int
        Clients are numbered 0, ..., n_clients - 1.
    timeout : float
        Seconds that a node has for reporting its number.
    node_ids : mapping or None
        The node id of each client, by client number.
    """

    def __init__(self, n_clients: int, timeout: float, node_ids: Mapping[int, int] | None = None) -> None:
        self._n_clients, self._timeout = n_clients, timeout
        self._listed = None if node_ids is None else _checked_ids(node_ids, n_clients)
        self._waiting: dict[str, int] = {}
        self._numbers: dict[int, int | None] = {}
        self._nodes: dict[int, int] = {}
        self._connected: set[int] = set()

    def __len__(self) -> int:
        return len(self._nodes)

    def node(self, client: int) -> int | None:
        """Return the node of a client, or None if the client is not connected."""
        return self._nodes.get(client)

    def rivals(self) -> tuple[int, list[int]] | None:
        """Return a client number that several connected nodes report, and their ids. Return None if there is none."""
        for client in sorted(self._nodes):
            nodes = sorted(node for node in self._connected if self._numbers.get(node) == client)
            if len(nodes) > 1:
                return client, nodes
        return None

    def refresh(self, grid: Grid) -> None:
        """Ask new nodes for their numbers, and process the answers that have arrived, without waiting for the rest."""
        self._connected = connected = set(grid.get_node_ids())
        if self._listed is not None:
            self._nodes = {client: node for client, node in self._listed.items() if node in connected}
            return
        known = self._numbers.keys() | set(self._waiting.values())
        new = sorted(connected - known)
        questions = [Message(RecordDict(), node, MessageType.QUERY, ttl=self._timeout) for node in new]
        self._waiting |= push(grid, questions)
        for message_id, node in list(self._waiting.items()):
            reply = pull(grid, message_id)
            if reply is not None:
                del self._waiting[message_id]
                self._record(node, reply)
            elif node not in connected:
                del self._waiting[message_id]
        self._assign(connected)

    def _record(self, node: int, reply: Message | Exception) -> None:
        number = None if isinstance(reply, Exception) else number_of(reply, self._n_clients)
        if number is None:
            cause = "Its reply cannot be read." if isinstance(reply, Exception) else _cause(reply)
            _warn(
                f"Node {node} is left out because it did not report a client number from 0 to {self._n_clients - 1}. "
                f"{cause}"
            )
        else:
            others = [other for other, its in self._numbers.items() if its == number and other in self._connected]
            if others:
                _warn(
                    f"The nodes {others[0]} and {node} both report that they are client {number}. Only the first takes "
                    "part while it is connected. If nodes cannot be trusted to report their own numbers, list the node "
                    "of each client with node_ids=."
                )
        self._numbers[node] = number

    def _assign(self, connected: set[int]) -> None:
        """Assign each number to one connected node: the one that has it already, or the first that reported it."""
        self._nodes = {client: node for client, node in self._nodes.items() if node in connected}
        for node, number in self._numbers.items():
            if node in connected and number is not None:
                self._nodes.setdefault(number, node)


def _checked_ids(node_ids: Mapping[int, int], n_clients: int) -> dict[int, int]:
    """Return the node ids by client number. Raise if a number is invalid, or if two clients have the same node."""
    clients: dict[int, int] = {}
    for client, node in node_ids.items():
        if type(client) is not int or not 0 <= client < n_clients:
            raise ValueError(f"node_ids has the client number {client!r}. Numbers go from 0 to {n_clients - 1}.")
        if node in clients:
            raise ValueError(
                f"node_ids has the node {node} for the clients {clients[node]} and {client}. Each client needs a node "
                "of its own."
            )
        clients[node] = client
    return {client: node for node, client in clients.items()}


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=5)


def _cause(reply: Message) -> str:
    """Return why a node reported no number. Its error text is safe to show, as no client data was loaded for it."""
    return printable(str(reply.error.reason)) if reply.has_error() else "Check its partition-id."


def printable(text: str) -> str:
    """Return a text from a node for display in a terminal or a log.

    A node may send anything. Characters that could change the colour of the terminal, move its cursor, forge a line of
    a log or be read as markup are replaced by question marks, and a long text is cut.
    """
    cut = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    return "".join(each if each in _HARMLESS else "?" for each in cut)
