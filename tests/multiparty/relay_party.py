"""One party of the relays in test_relay.py, in its own process. It takes part in studies, and may fail in some."""

import asyncio
import json
import os
import signal
import time
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import numpy as np

from privet.multiparty import Network, NetworkError
from privet.multiparty.protocol import relay
from privet.multiparty.protocol.participation import take_part
from privet.multiparty.protocol.results import sign, to_result, with_signatures
from privet.multiparty.study import Study
from privet.multiparty.transport.connection import Channel, Kind
from privet.multiparty.transport.session import Session

HOST = "127.0.0.1"
ROWS = 40
WEIGHTS = np.array([2.0, -2.0])


def study(ports, **changed):
    values = {
        "name": "relay",
        "epsilon": 8.0,
        "delta": 1e-3,
        "method": "relay",
        "alpha": 0.01,
        "batch": 4,
        "party": [{"name": name, "address": f"{HOST}:{port}"} for name, port in zip("abcdefgh", ports, strict=False)],
        "table": {"target": "y", "target_levels": ["no", "yes"], "numeric": {"u": [0, 1], "v": [0, 1]}},
    }
    return Study.from_values(values | changed)


def table(index):
    """Return a party's encoded rows and targets."""
    rng = np.random.default_rng(index)
    rows = rng.uniform(-0.7, 0.7, (ROWS, 2))
    return rows, (rows @ WEIGHTS > 0).astype(float)


# --------------------------------------------------------------------------------------------------------------- faults


def replaced(owner, name, make):
    """Return a patch of a method. ``make`` returns the new method, given the old one."""
    return patch.object(owner, name, make(getattr(owner, name)))


def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def dies_in_its_turn(turn):
    """Make the process end in the turn whose number is ``Owner.fatal``."""

    def turned(owner, state):
        owner.turns = getattr(owner, "turns", 0) + 1
        return kill() if owner.turns == owner.fatal else turn(owner, state)

    return turned


def fatal_turn(number):
    return lambda: [
        replaced(relay.Owner, "turn", dies_in_its_turn),
        patch.object(relay.Owner, "fatal", number, create=True),
    ]


def stuck_in_the_loop(received):
    """Make the process stop answering when its turn comes."""

    async def waited(course, holder):
        time.sleep(60)

    return waited


def packed_as(change):
    return lambda: [replaced(relay._Course, "_packed", lambda packed: lambda course: change(packed(course), course))]


def stale(message, course):
    return relay._STAMP.pack(course._agreed, course._round - 1) + message[relay._STAMP.size :]


def of_another_study(message, course):
    return relay._STAMP.pack(bytes(32), course._round) + message[relay._STAMP.size :]


def not_a_number(message, course):
    return message[:-8] + np.array([np.nan]).tobytes()


def far_away(message, course):
    return message[:-8] + np.array([1e300]).tobytes()


def shows_another_lot(exchange):
    """Make a party reveal a number to which it did not commit."""

    async def exchanged(session, payload):
        session.lots = getattr(session, "lots", 0) + 1
        # The third message is the commitment, after the study and the number of rows, and the fourth reveals the lot.
        return await exchange(session, bytes(32) if session.lots == 4 else payload)

    return exchanged


FAULTS = {
    "dies in its first turn": fatal_turn(1),
    "dies in its second turn": fatal_turn(2),
    "dies when it hands over": lambda: [patch.object(Session, "send", kill)],
    "dies when it publishes": lambda: [patch.object(relay._Course, "publish", kill)],
    "hangs": lambda: [replaced(relay._Course, "_received", stuck_in_the_loop)],
    "raises": lambda: [patch.object(relay.Owner, "turn", lambda owner, state: 1 / 0)],
    "truncated": packed_as(lambda message, course: message[:-1]),
    "oversized": packed_as(lambda message, course: message + bytes(8)),
    "stale": packed_as(stale),
    "of another study": packed_as(of_another_study),
    "not a number": packed_as(not_a_number),
    "far away": packed_as(far_away),
    "another lot": lambda: [replaced(Session, "exchange", shows_another_lot)],
}


# -------------------------------------------------------------------------------------------------------------- one run


class Frames:
    """Records the messages to one party only: who received one from whom, and its size."""

    def __init__(self):
        self.sent = []

    def make(self, write):
        def written(channel, kind, payload=b"", label=0):
            if kind is Kind.MESSAGE and label < 0:
                self.sent.append((channel, len(payload)))
            return write(channel, kind, payload, label)

        return written


async def run(orders, case):
    """Take part in one study, and return what happened."""
    index, ports = orders["index"], orders["ports"][: case.get("parties", len(orders["ports"]))]
    mine = case.get("of", {}).get(str(index), {})
    made = study(ports, **case["study"] | mine.get("study", {}))
    booked, frames = [], Frames()
    network = Network([(HOST, port) for port in ports], index, orders.get("keys"), 60.0, case.get("timeout", 60.0))
    begun = time.monotonic()
    try:
        with ExitStack() as stack:
            for fault in FAULTS[mine["fault"]]() if "fault" in mine else []:
                stack.enter_context(fault)
            stack.enter_context(replaced(Channel, "write", frames.make))
            stack.enter_context(patch("privet.multiparty.transport.handshake._PAUSE", 0.01))
            async with network.connect() as session:

                def book(guarantee):
                    if mine.get("refuses"):
                        raise ValueError("the ledger is full")
                    booked.append([guarantee.epsilon, len(frames.sent)])

                release = await take_part(session, made, table(index), book=book)
                result = to_result(made, release)
                signatures = await sign(session, made, result)
                senders = {peer.channel: peer.index for peer in session._peers.values()}
    except (NetworkError, ValueError, ZeroDivisionError) as error:
        return {
            "error": str(error),
            "kind": type(error).__name__,
            "booked": booked,
            "seconds": time.monotonic() - begun,
        }
    return {
        "result": with_signatures(result, signatures),
        "trace": release.trace,
        "weights": release.weights.tolist(),
        "statement": release.guarantee.statement(verbose=True),
        "epsilon": release.guarantee.epsilon,
        "booked": booked,
        "sent": [[senders[channel], size] for channel, size in frames.sent],
    }


def main(orders):
    """Take part in all cases, and write down what happened after each."""
    for name, case in orders["cases"].items():
        if orders["index"] < case.get("parties", len(orders["ports"])):
            found = asyncio.run(run(orders, case))
            Path(f"{name}.json").write_text(json.dumps(found))
