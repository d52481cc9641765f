"""The client's side: an app that trains on the client's own data, and tells its number."""

from collections.abc import Callable
from typing import Any

from privet.federated.clients import tensors
from privet.federated.flower.encoding import ARRAYS, CLIENT, CONFIG, ROUNDS_DONE, array_record, weights_of
from privet.federated.flower.flwr_imports import ClientApp, ConfigRecord, Context, Message, RecordDict
from privet.federated.local_training import ClientTrainer, order_source
from privet.federated.parameters import Weights

PARTITION = "partition-id"
"""The key of a node's configuration that says which client it is, as everywhere in Flower."""


def client_app(
    trainer: Callable[[Context], ClientTrainer],
    data: Callable[[Context], Any],
    *,
    seed: int | None = None,
) -> ClientApp:
    """Return the app of a client, for a :class:`PrivateStrategy`.

    Parameters
    ----------
    trainer : callable
        Given Flower's context, returns the training: model, loss, local steps and clip. ``context.run_config`` holds
        the settings that the server sees too.
    data : callable
        Given Flower's context, returns the client's inputs and, last, targets. It is called only when the client was
        sampled.
    seed : int or None
        Of the local order of examples: the same order as in :func:`simulate` with this seed. No privacy rests on it.

    Returns
    -------
    ClientApp
        It answers to training with the update alone: metrics and the number of examples would leave the client
        without noise. So would the text of an error, which stays in the client's own log.
    """
    app = ClientApp()

    def update(message: Message, context: Context) -> Weights:
        client, training = client_number(context), trainer(context)
        rounds_done = int(message.content[CONFIG][ROUNDS_DONE])
        examples = tensors(data(context), training.kind)
        if examples is None:
            raise ValueError("the client has no data")
        source = order_source(seed, rounds_done, client)
        return training.update(weights_of(message.content[ARRAYS]), examples, rounds_done, source)

    def train(message: Message, context: Context) -> Message:
        try:
            found = update(message, context)
        except Exception as error:
            raise RuntimeError(f"the client's training failed ({type(error).__name__}): see its own log") from error
        return Message(RecordDict({ARRAYS: array_record(found)}), reply_to=message)

    def tell_number(message: Message, context: Context) -> Message:
        return Message(RecordDict({CONFIG: ConfigRecord({CLIENT: client_number(context)})}), reply_to=message)

    app.train()(train)
    app.query()(tell_number)
    return app


def client_number(context: Context) -> int:
    """Return which client a node is."""
    number = context.node_config.get(PARTITION)
    if type(number) is not int:
        raise ValueError(
            f"this node does not say which client it is: start it by flower-supernode --node-config '{PARTITION}=0', "
            "with a number of its own from 0 to the number of clients - 1"
        )
    return number
