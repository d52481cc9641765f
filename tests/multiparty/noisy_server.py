"""One of three servers with ``trust = "majority"`` that open long vectors, whose numbers are runs of one release."""

import asyncio
from dataclasses import replace
from unittest.mock import patch

import numpy as np

from privet.multiparty import Network
from privet.multiparty.protocol import server
from privet.multiparty.protocol.committee import sharing_of
from privet.multiparty.protocol.server import ServerAggregator
from privet.multiparty.protocol.server_state import ServerState
from privet.multiparty.transport.contribution import Contribution
from privet.multiparty.transport.hand_in import Reception
from privet.plans.aggregation import AggregationPlan
from privet.plans.committee import Committee
from privet.privacy import Budget, NoiseSource

HOST, ROWS = "127.0.0.1", 5
PLAN = AggregationPlan.for_budget(Budget(6.0, 1e-3), dimension=1, steps=1, sensitivity=1.0, largest=100.0)


def halved(runtime, secret, plan, draw=server.joint_noise):
    """Noise of half the size, still centred: fair bits with half of the weight."""
    law = replace(plan.law, bits=plan.law.bits - 1)
    return draw(runtime, secret, replace(plan, law=law)) + (plan.law.reach - law.reach)


async def opened(session, value, runs):
    """Return what the servers open if every number of the only owner is ``value``."""
    plan = replace(PLAN, dimension=runs)
    sharing, reception = sharing_of(plan, "majority", 3, 1), Reception(bytes(32), 1, None)
    aggregator = ServerAggregator(
        plan,
        Committee("majority", 3),
        sharing,
        session,
        reception,
        ServerState(None, "study"),
        NoiseSource(),
        rows_limit=ROWS,
    )
    share = sharing.split(np.full(runs, value), NoiseSource(7))[session.index]  # the same shares at all servers
    call = asyncio.create_task(reception.receive(0, Contribution(bytes(32), 0, ROWS, False, share)))
    total = await aggregator.noisy_sum(None)
    await call
    return np.rint(total * plan.scale).astype(np.int64)


def main(orders):
    """Open both worlds, without and with a bug, and keep what was opened."""

    async def work():
        addresses = [(HOST, port) for port in orders["ports"]]
        async with Network(addresses, orders["index"], None, 60.0, 240.0).connect() as session:
            for name, draw in (("right", server.joint_noise), ("halved", halved)):
                with patch.object(server, "joint_noise", draw):
                    for world in (0, 1):
                        value = int(PLAN.shift) * world
                        np.save(f"{name}_{world}.npy", await opened(session, value, orders["runs"]))

    asyncio.run(work())
