"""One party in its own process. It follows the given orders and prints one JSON line per event."""

import asyncio
import json
import sys
import time

import numpy as np

from privet.multiparty import Network, NetworkError, verify
from privet.multiparty.transport.connection import Kind


def report(what, **more):
    print(json.dumps({"what": what, "time": time.monotonic(), **more}), flush=True)


async def exchange(session, orders):
    before = session.bytes_sent
    texts = await session.exchange(f"from {session.index}".encode())
    report("texts", texts=[text.decode() for text in texts], sent=session.bytes_sent - before)


async def compute(session, orders):
    """Sum the secret vectors of all parties, open joint random bits, and multiply arrays, which MPyC would pickle."""
    rt = session.runtime
    secint = rt.SecInt(32)
    mine = np.arange(5) * (session.index + 1) - 7
    shared = rt.input(secint.array(mine))
    total = await session.wait(rt.output(sum(shared[1:], shared[0])))
    product = await session.wait(rt.output(shared[0] * shared[1]))
    bits = await session.wait(rt.output(rt.np_random_bits(secint, 2000)))
    single = await session.wait(rt.output(sum(rt.input(secint(session.index + 1)))))
    report(
        "computed",
        total=[int(each) for each in total],
        product=[int(each) for each in product],
        bits=[int(each) for each in bits],
        single=int(single),
        sent=session.bytes_sent,
        received=session.bytes_received,
        shape=[session.index, session.parties, session.threshold],
    )


async def signatures(session, orders):
    signed = await session.exchange(session.identity.sign(b"the model"))
    for party, (certificate, signature) in enumerate(zip(session.certificates, signed, strict=True)):
        verify(certificate, b"the model", signature, authority=session.identity.authority, party=party)
    report("signed", name=session.identity.name)


async def hold(session, orders):
    """Wait for a message that arrives only if all parties take part in the exchange."""
    if session.index == orders.get("holder"):
        await asyncio.sleep(60)
    await session.exchange(b"")


async def chat(session, orders):
    """Wait for a message from a party that sends only pings and shares for which nobody asks."""
    while session.index == orders["holder"]:
        for peer in session._peers.values():
            peer.channel.write(Kind.PING, label=7)
            peer.channel.write(Kind.SHARE, b"a share", time.monotonic_ns())
        await session.wait(asyncio.sleep(0.1))
    await session.exchange(b"")


async def share(session, orders):
    """Wait for a share of MPyC from a party that never sends one."""
    rt = session.runtime
    if session.index == orders.get("holder"):
        await asyncio.sleep(60)
    await session.wait(rt.output(sum(rt.input(rt.SecInt(32)(1)))))


async def stop(session, orders):
    if session.index == orders["stopper"]:
        await session.stop(orders["cause"])
    await session.exchange(b"")


async def fail(session, orders):
    if session.index == orders["stopper"]:
        raise ValueError("record 17: age 203")
    await session.exchange(b"")


async def malformed(session, orders):
    """One party sends party 0 something other than shares."""
    rt = session.runtime
    if session.index == orders["stopper"]:
        peer = rt.parties[0].protocol
        peer.send = lambda counter, payload: type(peer).send(peer, counter, bytes.fromhex(orders["payload"]))
    shared = rt.input(rt.SecInt(32).array(np.arange(3)))
    await session.wait(rt.output(shared[0]))


async def slow(session, orders):
    """Compute alone for longer than the timeout while no party waits for this one, and then continue."""
    await session.wait(asyncio.sleep(orders["pause"]))
    await exchange(session, orders)


async def one_session(orders):
    network = Network(
        addresses=tuple((host, port) for host, port in orders["addresses"]),
        index=orders["index"],
        keys=orders.get("keys"),
        connect_timeout=orders.get("connect_timeout", 20.0),
        timeout=orders.get("timeout", 20.0),
    )
    async with network.connect(lambda missing: report("waiting", missing=missing)) as session:
        report("connected")
        await globals()[orders["do"]](session, orders)
    return [session.bytes_sent, session.bytes_received]


def main(orders):
    """Take part in the sessions that are asked for."""
    arguments = sys.argv[:]
    asyncio.run(_sessions(orders))
    assert sys.argv == arguments


async def _sessions(orders):
    for _ in range(orders.get("sessions", 1)):
        try:
            counted = await one_session(orders)
        except (NetworkError, ValueError) as error:
            report("error", kind=type(error).__name__, text=str(error))
        else:
            report("ended", counted=counted)
