"""The base of all simulation engines, which itself trains the clients of a round one after another."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from privet.federated.clients import Data
from privet.federated.local_training import ClientTrainer, order_source
from privet.networks import Weights
from privet.privacy.noise.orders import OrderSource

Answer = tuple[int, Weights | Exception | None]
"""A client's number, and its update, None if it did not answer, or the error that it raised."""

Fetch = Callable[[int], Data | Exception | None]
"""Takes a client and returns its data, None if it has dropped out, or the error that it raised."""


class Engine:
    """Trains the clients of a round one after another, in this process."""

    name = "sequential"
    isolates_clients = True
    """Whether a client's update does not depend on other clients, not even through rounding."""

    def __init__(self, trainer: ClientTrainer, random_state: int | None) -> None:
        self.trainer, self.random_state = trainer, random_state
        self.sources: Mapping[int, OrderSource] = {}  # of clients' orders, if another process made them

    def source(self, rounds_done: int, client: int) -> OrderSource:
        """Return the source of the order of a client's examples in a round."""
        return self.sources.get(client) or order_source(self.random_state, rounds_done, client)

    def answers(self, weights: Weights, rounds_done: int, chosen: Sequence[int], fetch: Fetch) -> Iterator[Answer]:
        """Yield the answers of the chosen clients, in any order. The data of other clients is not accessed."""
        for client in chosen:
            data = fetch(client)
            if isinstance(data, tuple):
                yield from one_by_one(self, weights, rounds_done, {client: data})
            else:
                yield client, data

    def close(self) -> None:
        """Release the resources of the engine."""


def one_by_one(engine: Engine, weights: Weights, rounds_done: int, fetched: dict[int, Data]) -> list[Answer]:
    """Return the answers of clients, trained one after another. An error becomes the answer of its client."""
    found: list[Answer] = []
    for client, data in fetched.items():
        try:
            source = engine.source(rounds_done, client)
            found.append((client, engine.trainer.update(weights, data, rounds_done, source)))
        except Exception as error:
            found.append((client, error))
    return found
