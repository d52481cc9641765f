"""How the clients of a round are trained in a simulation: one after the other, or by an engine built on this."""

from collections.abc import Callable, Iterator, Sequence

from privet.federated.clients import Data
from privet.federated.local_training import ClientTrainer, order_source
from privet.networks import Weights

Answer = tuple[int, Weights | Exception | None]
"""A client, and its update; None where it gave no answer, or what went wrong."""

Fetch = Callable[[int], Data | Exception | None]
"""Returns the data of a client; None if it is gone, or what went wrong."""


class Engine:
    """Trains the clients of a round one after the other, in this process."""

    name = "sequential"
    keeps_apart = True
    """Whether a client's update owes nothing to the other clients, not even its rounding."""

    def __init__(self, trainer: ClientTrainer, random_state: int | None) -> None:
        self.trainer, self.random_state = trainer, random_state

    def answers(self, weights: Weights, rounds_done: int, chosen: Sequence[int], fetch: Fetch) -> Iterator[Answer]:
        """Yield the answers of the chosen clients, in any order. No other client's data is fetched."""
        for client in chosen:
            data = fetch(client)
            if isinstance(data, tuple):
                yield from one_by_one(self, weights, rounds_done, {client: data})
            else:
                yield client, data

    def close(self) -> None:
        """Let go of what the engine holds."""


def one_by_one(engine: Engine, weights: Weights, rounds_done: int, fetched: dict[int, Data]) -> list[Answer]:
    """Return the answers of clients whose data is at hand; an error is the answer of its client only."""
    found: list[Answer] = []
    for client, data in fetched.items():
        try:
            source = order_source(engine.random_state, rounds_done, client)
            found.append((client, engine.trainer.update(weights, data, rounds_done, source)))
        except Exception as error:
            found.append((client, error))
    return found
