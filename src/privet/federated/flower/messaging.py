"""Messages to nodes and their replies: one client's reply cannot disturb those of the others."""

import time
from collections.abc import Iterator, Mapping, Sequence

from privet.federated.flower.flwr_imports import Grid, Message

PAUSE = 0.3  # seconds between two looks for replies; Flower's own send_and_receive waits 3


def push(grid: Grid, messages: Sequence[Message]) -> dict[str, int]:
    """Send messages; return the node of each by the message's name, without those that could not be sent."""
    if not messages:
        return {}
    names = list(grid.push_messages(messages))
    if len(names) != len(messages):
        raise RuntimeError(f"the SuperLink took {len(names)} of {len(messages)} messages: see its log for the reason")
    nodes = [message.metadata.dst_node_id for message in messages]
    return {name: node for name, node in zip(names, nodes, strict=True) if name}


def pull(grid: Grid, name: str) -> Message | Exception | None:
    """Return the reply to one message; None while there is none, or an error if what is there cannot be read.

    Replies are fetched one at a time. A reply that cannot be unpacked raises inside Flower, and would take with it all
    that are fetched in the same call: one client would decide whether others count, and move the sum by more than the
    clip. An error of the connection is taken the same way: whatever Flower could not mend by trying again stops the run
    when the next nodes are looked for.
    """
    try:
        found = list(grid.pull_messages([name]))
    except Exception as error:
        return error
    return found[0] if found else None


def replies(grid: Grid, asked: Mapping[str, int], timeout: float) -> Iterator[tuple[int, Message | Exception]]:
    """Yield nodes and their replies as they come, until all are there or time is up.

    However long one reply took to fetch, all the others are looked for once more after that.
    """
    waiting = dict(asked)
    end = time.monotonic() + timeout
    while waiting:
        is_last = time.monotonic() >= end
        for name, node in list(waiting.items()):
            reply = pull(grid, name)
            if reply is not None:
                del waiting[name]
                yield node, reply
        if is_last:
            return
        if waiting:
            time.sleep(max(0.0, min(PAUSE, end - time.monotonic())))
