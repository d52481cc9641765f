"""Which Flower node runs which client. Nodes come and go with ids chosen by Flower; clients have fixed numbers."""

import warnings

from privet.federated.flower.encoding import number_of
from privet.federated.flower.flwr_imports import Grid, Message, MessageType, RecordDict
from privet.federated.flower.messaging import pull, push


class ClientNodes:
    """The connected nodes, by client number.

    Each new node is asked once for its number. The plan samples from all numbers, whether connected or not: a client
    without a node counts as a client that does not answer. While a node is connected, it keeps its number, even if
    another node claims the same one, so that no client is asked twice in a round. A client that reconnects under a new
    node id gets its number back as soon as Flower has noticed that the old node is gone.

    Parameters
    ----------
    n_clients : int
        Clients are numbered 0, ..., n_clients - 1.
    timeout : float
        Seconds that a node has for reporting its number.
    """

    def __init__(self, n_clients: int, timeout: float) -> None:
        self._n_clients, self._timeout = n_clients, timeout
        self._waiting: dict[str, int] = {}
        self._numbers: dict[int, int | None] = {}
        self._nodes: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def node(self, client: int) -> int | None:
        """Return the node of a client, or None if the client is not connected."""
        return self._nodes.get(client)

    def refresh(self, grid: Grid) -> None:
        """Ask new nodes for their numbers, and process the answers that have arrived, without waiting for the rest."""
        connected = set(grid.get_node_ids())
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
                f"A node is left out because it did not report a client number from 0 to {self._n_clients - 1}. {cause}"
            )
        elif number in self._numbers.values():
            _warn(f"Two nodes report that they are client {number}. Only the first takes part while it is connected.")
        self._numbers[node] = number

    def _assign(self, connected: set[int]) -> None:
        """Assign each number to one connected node: the one that has it already, or the first that reported it."""
        self._nodes = {client: node for client, node in self._nodes.items() if node in connected}
        for node, number in self._numbers.items():
            if node in connected and number is not None:
                self._nodes.setdefault(number, node)


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=5)


def _cause(reply: Message) -> str:
    """Return why a node reported no number. Its error text is safe to show, as no client data was loaded for it."""
    return str(reply.error.reason) if reply.has_error() else "Check its partition-id."
