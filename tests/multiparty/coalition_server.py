"""One of three servers with ``trust = "majority"``, of which server 2 is the coalition, on two neighbouring tables.

As in replayed_party.py, random numbers that the coalition could know are the same in both worlds: MPyC's keys, and its
own share of every secret. Numbers that it cannot know absorb the difference of the honest owner's vectors: the
coefficient of the owner's polynomials, and the honest servers' shares of the noise and of the masks of the check.
All that the coalition receives must then be the same, bit by bit. The owners run beside server 0.
"""

import asyncio
import hashlib
import json
import os
import random
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
from coalition import HOST, OWNER, ROWS, OwnersSource, table
from replayed_party import COALITION, WITHOUT_CONTENT, split_around_coalition, unclipped

from privet.multiparty.protocol import collection, committee, gradient, roles, server
from privet.multiparty.protocol.sharing import CHECKS, Shamir
from privet.multiparty.study import Study
from privet.multiparty.transport.connection import Channel
from privet.multiparty.transport.hand_in import Reception
from privet.privacy import NoiseSource

IS_LONG = os.environ.get("PRIVET_AUDIT") == "long"
BUGS = ("noise", "mask", "degree", "clip", "share")[: None if IS_LONG else 2]
(SPY,) = COALITION


def study(ports):
    return Study.from_values(
        {
            "name": "coalition",
            "epsilon": 20.0,
            "delta": 1e-3,
            "alpha": 1.0,
            "trust": "majority",
            "steps": 2,
            "owners": 3,
            "rows_per_owner": ROWS,
            "server": [{"name": f"s{index}", "address": f"{HOST}:{port}"} for index, port in enumerate(ports)],
            "table": {"target": "y", "target_levels": ["no", "yes"], "numeric": {"u": [0, 1], "v": [0, 1]}},
        }
    )


def difference(aggregator, summand, world):
    """Return how the honest owner's vector moves, in lattice steps, and as a share of what the plan allows."""
    problem = study((9100, 9200, 9300)).committee_problem()
    first, second = (aggregator.plan.on_lattice(summand(problem.local(*table(OWNER, each)))) for each in (0, 1))
    return (second - first).astype(object) * world, float(np.linalg.norm(second - first)) / aggregator.plan.shift


class Source(OwnersSource):
    """The honest owner's coefficients: the share of the coalition stays the same."""

    moved, prime = None, None

    def uniform(self, shape, bound):
        drawn = super().uniform(shape, bound)
        if self.moved is None:
            return drawn
        moved = self.moved * pow(SPY + 1, -1, bound)
        return ((drawn.astype(object) - moved) % bound).astype(np.uint64)


class Owner(committee.OwnerAggregator):
    world = 0

    async def hand_in(self, summand, *, waits):
        if self._index == OWNER:
            self._source.moved, _ = difference(self, summand, self.world)
        return await super().hand_in(summand, waits=waits)


class Server(server.ServerAggregator):
    """A server whose shares of the noise and of the masks absorb how its share of the honest owner's vector moves."""

    world, found = 0, None

    async def _opened(self, summand):
        moved, distance = difference(self, summand, self.world)
        prime, index = self._sharing.prime, self._session.index
        Server.moved = moved * (1 - (index + 1) * pow(SPY + 1, -1, prime)) % prime
        self.found["distances"].append(distance)
        opened = await super()._opened(summand)
        self.found["opened"].append(opened.tolist())
        return opened


def joint_noise(runtime, secret, plan, draw=server.joint_noise):
    return draw(runtime, secret, plan) - secret.array(secret.field.array(Server.moved))


def combined(self, share, key, plain=Shamir.combined):
    Server.of_check = plain(self, Server.moved.astype(np.uint64), key), key
    return plain(self, share, key)


async def have_right_degree(self, sharing, sums, plain=collection.Collection._have_right_degree):
    assert len(sums) == 1  # all owners together
    moved, key = Server.of_check
    weights = NoiseSource.expanded(hashlib.sha256(key).digest(), CHECKS * 3).reshape(-1, CHECKS) % np.uint64(2048)
    adjusted = weights[OWNER].astype(object) * moved.astype(object) % sharing.prime
    runtime, draw = self._session.runtime, self._session.runtime._np_randoms

    def absorbing(secret, number):
        return draw(secret, number) - secret.array(secret.field.array(adjusted))

    with patch.object(runtime, "_np_randoms", absorbing):
        return await plain(self, sharing, sums)


# --------------------------------------------------------------------------------------------------------- planted bugs


def no_noise(runtime, secret, plan):
    return secret.array(np.full(plan.dimension, plan.law.reach, dtype=object))


async def without_masks(self, sharing, sums, plain=collection.Collection._have_right_degree):
    runtime = self._session.runtime

    def zeros(secret, number):
        return secret.array(np.zeros(number, dtype=object))

    with patch.object(runtime, "_np_randoms", zeros):
        return await plain(self, sharing, sums)


def low_degree(self, values, source, first=0):
    return [self.to_bytes(np.mod(values, self.prime).astype(np.uint64))] * self.servers


async def tells_its_sum(self, total, plain=server.ServerAggregator._noisy):
    await self._session.exchange(total.tobytes())
    return await plain(self, total)


PLANTED = {
    "noise": (server, "joint_noise", no_noise),
    "mask": (collection.Collection, "_have_right_degree", without_masks),
    "degree": (Shamir, "split", low_degree),
    "share": (server.ServerAggregator, "_noisy", tells_its_sum),
    "clip": (gradient, "_gradient_sum", unclipped),
}


# -------------------------------------------------------------------------------------------------------------- the run


async def run(index, ports, bug, world):
    """Serve a study, and return what this server received, the distances of the vectors, and the opened sums."""
    found = {"distances": [], "opened": []}
    generator = random.Random(f"{bug} {index}")
    seeded = SimpleNamespace(token_bytes=generator.randbytes, randbelow=generator.randrange)
    read, receive = Channel.read, Reception.receive
    frames, shares = [], []

    async def recorded(channel, *expected):
        frame = await read(channel, *expected)
        if frame.kind not in WITHOUT_CONTENT:
            frames.append((channel, frame))
        return frame

    async def received(reception, owner, contribution):
        shares.append((owner, contribution.to_bytes().hex()))
        return await receive(reception, owner, contribution)

    with ExitStack() as stack:
        for where, name, value in [
            ("mpyc.runtime", "secrets", seeded),
            ("mpyc.thresha", "np_random_split", split_around_coalition(generator)),
            (Channel, "read", recorded),
            (Reception, "receive", received),
            (roles, "ServerAggregator", type("", (Server,), {"world": world, "found": found})),
            (roles, "OwnerAggregator", type("", (Owner,), {"world": world})),
            (server, "joint_noise", joint_noise),
            (Shamir, "combined", combined),
            (collection.Collection, "_have_right_degree", have_right_degree),
            (collection, "_ROUND", 600.0),
            ("privet.multiparty.transport.handshake", "_PAUSE", 0.005),
            ("privet.multiparty.transport.hand_in", "_PAUSE", 0.02),
            *([PLANTED[bug]] if bug else []),
        ]:
            change = patch(f"{where}.{name}", value) if isinstance(where, str) else patch.object(where, name, value)
            stack.enter_context(change)
        agreed = study(ports)
        async with roles.network_of(agreed, index, None, connect_timeout=60, timeout=60).connect() as session:
            session.runtime.source = NoiseSource(index, "joint random bits")
            work = [roles.serve(session, agreed, keys=None, source=NoiseSource(10 + index), patience=60.0)]
            for owner in range(3) if index == 0 else ():
                source = (Source if owner == OWNER else NoiseSource)(20 + owner)
                work.append(roles.hand_in(agreed, owner, table(owner, world), keys=None, source=source))
            await asyncio.gather(*work)
    senders = {peer.channel: peer.index for peer in session._peers.values()}
    messages = [(senders[channel], frame.kind.name, frame.label, frame.payload.hex()) for channel, frame in frames]
    return found | {"received": [*sorted(messages), *sorted(shares)]}


def main(orders):
    """Run the study, and every bug, in both worlds."""
    index, ports = orders["index"], orders["ports"]
    found = {
        str(bug): [asyncio.run(run(index, ports, bug, world)) for world in (0, 1)] for bug in (None, *orders["bugs"])
    }
    Path("found.json").write_text(json.dumps(found))
