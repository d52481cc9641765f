"""Sending messages to nodes and collecting their replies, such that one client's reply cannot disturb the others."""

import time
from collections.abc import Iterator, Mapping, Sequence

from privet.federated.flower.flwr_imports import Grid, Message

PAUSE = 0.3  # seconds between two polls for replies; Flower's own send_and_receive waits 3


def push(grid: Grid, messages: Sequence[Message]) -> dict[str, int]:
    """Send messages, and return a dictionary from message id to node, without the messages that could not be sent."""
    if not messages:
        return {}
    ids = list(grid.push_messages(messages))
    if len(ids) != len(messages):
        raise RuntimeError(f"The SuperLink took {len(ids)} of {len(messages)} messages. See its log for the reason.")
    nodes = [message.metadata.dst_node_id for message in messages]
    return {message_id: node for message_id, node in zip(ids, nodes, strict=True) if message_id}


def pull(grid: Grid, message_id: str) -> Message | Exception | None:
    """Return the reply to a message, None if there is none yet, or the error if the reply cannot be read.

    Replies are fetched one at a time. A reply that cannot be unpacked raises inside Flower, and all replies fetched in
    the same call are lost with it. One client could then decide whether others count, and change the sum by more than
    the clipping norm. Connection errors are handled in the same way: Flower has already retried, and if the connection
    is really lost, the next request for the list of nodes stops the run.
    """
    try:
        found = list(grid.pull_messages([message_id]))
    except Exception as error:
        return error
    return found[0] if found else None


def replies(grid: Grid, asked: Mapping[str, int], timeout: float) -> Iterator[tuple[int, Message | Exception]]:
    """Yield pairs of node and reply as they arrive, until all have arrived or ``timeout`` seconds have passed.

    Fetching one reply may take long. All outstanding replies are therefore polled once more after the timeout.
    """
    waiting = dict(asked)
    end = time.monotonic() + timeout
    while waiting:
        is_last = time.monotonic() >= end
        for message_id, node in list(waiting.items()):
            reply = pull(grid, message_id)
            if reply is not None:
                del waiting[message_id]
                yield node, reply
        if is_last:
            return
        if waiting:
            time.sleep(max(0.0, min(PAUSE, end - time.monotonic())))
