"""Which node is which client: nodes come and go under names of Flower's making, clients have fixed numbers."""

import warnings

from privet.federated.flower.encoding import number_of
from privet.federated.flower.flwr_imports import Grid, Message, MessageType, RecordDict
from privet.federated.flower.messaging import pull, push


class Members:
    """The nodes of a federation by the numbers of their clients.

    Every new node is asked for its number, once. A plan samples numbers, whoever is there: a number without a node is
    a client that does not answer. A number belongs to the node that told it first, for as long as this is connected,
    so that no client is asked twice in a round; a node that comes back under another name has its number again as
    soon as Flower has noticed that the old one is gone.
    """

    def __init__(self, n_clients: int, patience: float) -> None:
        self._n_clients, self._patience = n_clients, patience
        self._waiting: dict[str, int] = {}
        self._numbers: dict[int, int | None] = {}
        self._nodes: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def node(self, client: int) -> int | None:
        """Return the node of a client, if it is there."""
        return self._nodes.get(client)

    def look(self, grid: Grid) -> None:
        """Ask new nodes for their numbers, and take in the answers that have come; it does not wait for any."""
        connected = set(grid.get_node_ids())
        known = self._numbers.keys() | set(self._waiting.values())
        new = sorted(connected - known)
        questions = [Message(RecordDict(), node, MessageType.QUERY, ttl=self._patience) for node in new]
        self._waiting |= push(grid, questions)
        for name, node in list(self._waiting.items()):
            reply = pull(grid, name)
            if reply is not None:
                del self._waiting[name]
                self._take(node, reply)
            elif node not in connected:
                del self._waiting[name]
        self._settle(connected)

    def _take(self, node: int, reply: Message | Exception) -> None:
        number = None if isinstance(reply, Exception) else number_of(reply, self._n_clients)
        if number is None:
            cause = "it sent what cannot be read" if isinstance(reply, Exception) else _cause(reply)
            _warn(f"a node does not take part: it told no number from 0 to {self._n_clients - 1} ({cause})")
        elif number in self._numbers.values():
            _warn(f"two nodes say that they are client {number}: one of them takes part, as long as it is connected")
        self._numbers[node] = number

    def _settle(self, connected: set[int]) -> None:
        """Give each number to one connected node: to the one that has it, or else to the first that told it."""
        self._nodes = {client: node for client, node in self._nodes.items() if node in connected}
        for node, number in self._numbers.items():
            if node in connected and number is not None:
                self._nodes.setdefault(number, node)


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=5)


def _cause(reply: Message) -> str:
    """Return what a node says about its failure. It was asked for its number only, and had no data at hand."""
    return str(reply.error.reason) if reply.has_error() else "is its partition-id right?"
