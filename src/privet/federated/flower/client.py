"""The Flower app of a client: it trains on the client's own data, and reports which client it is."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from privet.deprecation import renamed_argument
from privet.federated.flower.encoding import ARRAYS, CLIENT, CONFIG, ROUNDS_DONE, array_record, weights_of
from privet.federated.flower.flwr_imports import ClientApp, ConfigRecord, Context, Message, RecordDict

if TYPE_CHECKING:
    from privet.federated.committee import CommitteeClient
    from privet.federated.local_training import ClientTrainer
    from privet.networks import Weights

_LOG = logging.getLogger(__name__)

PARTITION = "partition-id"
"""Flower's usual key for the client's number in a node's configuration."""


def client_app(
    trainer: "Callable[[Context], ClientTrainer]",
    data: Callable[[Context], Any],
    *,
    committee: "Callable[[Context], CommitteeClient] | None" = None,
    random_state: int | None = None,
    seed: int | None = None,
) -> ClientApp:
    """Return the app of a client, for use with a :class:`PrivateStrategy`.

    Parameters
    ----------
    trainer : callable
        Takes Flower's context and returns the training: model, loss, local steps and clipping norm.
        ``context.run_config`` contains the settings that server and clients share.
    data : callable
        Takes Flower's context and returns the client's inputs followed by its targets. It is called only when the
        client has been sampled.
    committee : callable or None
        Takes Flower's context and returns the client of a committee. The update then goes to the committee's servers as
        shares, and the reply contains no array. None sends the update to the Flower server.
    random_state : int or None
        Seed of the local order of examples. An integer gives the same order as :func:`simulate` with this
        ``random_state``. Privacy does not depend on it.
    seed : int or None
        Deprecated name of ``random_state``.

    Returns
    -------
    ClientApp
        Without a committee, it replies to a training message with the update only. Metrics, the number of examples or
        the text of an error would leave the client without noise. Error messages are therefore written to the client's
        own log.
    """
    random_state = renamed_argument("client_app", "seed", seed, "random_state", random_state)
    app = ClientApp()

    def update(message: Message, context: Context) -> "Weights":
        # Flower starts a process per message. torch is imported here so that other messages are answered quickly.
        from privet.federated.clients import tensors
        from privet.federated.local_training import order_source

        client, training = client_number(context), trainer(context)
        rounds_done = int(message.content[CONFIG][ROUNDS_DONE])
        examples = tensors(data(context), training.kind)
        if examples is None:
            raise ValueError("This client has no data.")
        source = order_source(random_state, rounds_done, client)
        return training.update(weights_of(message.content[ARRAYS]), examples, rounds_done, source)

    def hand_in(message: Message, context: Context, member: "CommitteeClient") -> Message:
        try:
            found = update(message, context)
            member.check(found)  # The server can send another model, for which the training fails with some data only.
        except Exception:  # Whether a client takes part must not depend on its data, so it hands in zeros.
            _LOG.warning("The training failed. Zeros are handed in instead of an update.", exc_info=True)
            found = None
        member.hand_in(found, int(message.content[CONFIG][ROUNDS_DONE]))
        return Message(RecordDict(), reply_to=message)

    def train(message: Message, context: Context) -> Message:
        if committee is not None:
            return hand_in(message, context, committee(context))
        try:
            found = update(message, context)
        except Exception as error:
            raise RuntimeError(f"The client's training failed ({type(error).__name__}). See its own log.") from error
        return Message(RecordDict({ARRAYS: array_record(found)}), reply_to=message)

    def report_number(message: Message, context: Context) -> Message:
        return Message(RecordDict({CONFIG: ConfigRecord({CLIENT: client_number(context)})}), reply_to=message)

    app.train()(train)
    app.query()(report_number)
    return app


def client_number(context: Context) -> int:
    """Return the number of the client that this node runs."""
    number = context.node_config.get(PARTITION)
    if type(number) is not int:
        raise ValueError(
            f"The node's configuration has no whole number {PARTITION!r}, got {number!r}. Start each node with "
            f"flower-supernode --node-config '{PARTITION}=i', where i is the client's number, from 0 to the number "
            "of clients - 1."
        )
    return number
