"""One party of the runs in test_replay.py: the real protocol on each of two neighbouring tables.

Up to ``threshold`` parties, the coalition, combine what they receive. In both runs, the random numbers that they could
know are the same: what every party draws for the joint random bits, and the coalition's shares of every input. These
shares are drawn first, and the polynomial is the one that also has the right secret, so that the shares of honest
parties absorb the difference. In the second run, honest parties add a sharing of the difference of the sums to their
shares of the noise. The shares of the coalition in this sharing are zero, and the opened values are those of the first
run. Each of these changes is one to one, so the second run is as likely as the first one, up to the probability of the
noise. All that the coalition receives must therefore be the same.
"""

import asyncio
import json
import random
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np

from privet.multiparty import JointAggregator, Network
from privet.multiparty.protocol import gradient, participation, results
from privet.multiparty.study import Study
from privet.multiparty.transport.connection import Channel, Kind
from privet.privacy.noise.source import NoiseSource

HOST = "127.0.0.1"
COALITION = (2,)
CHANGED = 0  # the party with the differing record
WITHOUT_CONTENT = {Kind.HELLO, Kind.WELCOME, Kind.READY, Kind.PING, Kind.PONG, Kind.END}
ROWS = (3, 2, 2)
SHARING = ("gradient", "output")  # methods that share secrets; the relay has its own audit


def study(method, ports):
    return Study.from_values(
        {
            "name": "replay",
            "epsilon": 20.0,
            "delta": 1e-3,
            "method": method,
            "steps": 2,
            "alpha": 1.0,
            "party": [{"name": name, "address": f"{HOST}:{port}"} for name, port in zip("abc", ports, strict=True)],
            "table": {"target": "y", "target_levels": ["no", "yes"], "numeric": {"u": [0, 1], "v": [0, 1]}},
        }
    )


def table(party, world):
    """Return a party's encoded rows. The last record of one party is replaced by its opposite in the second world."""
    rng = np.random.default_rng(party)
    rows, targets = rng.uniform(-0.7, 0.7, (ROWS[party], 2)), rng.integers(0, 2, ROWS[party]).astype(float)
    if party == CHANGED:
        rows[-1], targets[-1] = (-0.7, -0.7) if world else (0.7, 0.7), 1.0
    return rows, targets


def values_at(field, xs, values, at):
    """Return the values at ``at`` of the polynomials of least degree that have the given values at ``xs``."""
    p = int(field.modulus)
    total = 0
    for place, x in enumerate(xs):
        weight = 1
        for other in xs[:place] + xs[place + 1 :]:
            weight = weight * (at - other) * pow(x - other, -1, p) % p
        total = (total + weight * values[place]) % p
    return total


def split_around_coalition(generator):
    """Return MPyC's function for sharing secrets, except that the shares of the coalition are drawn first."""

    def split(field, secrets, threshold, parties):
        assert threshold == len(COALITION)
        values = np.array([int(each) for each in getattr(secrets, "value", secrets)], dtype=object)
        drawn = [
            np.array([generator.randrange(int(field.modulus)) for _ in values], dtype=object) for _ in range(threshold)
        ]
        xs = [0, *(each + 1 for each in COALITION)]
        return np.array([values_at(field, xs, [values, *drawn], party + 1) for party in range(parties)], dtype=object)

    return split


class Replayed(JointAggregator):
    """A party whose noise absorbs the difference of the sums in the second world."""

    world, found = 0, None

    async def _opened(self, summand):
        plan = self.plan
        tables = [study("gradient", (1, 2, 3)).problem(ROWS).local(*table(CHANGED, world)) for world in (0, 1)]
        first, second = (plan.on_lattice(summand(each)) for each in tables)
        self._difference = (second - first).astype(object) * self.world
        self.found["distances"].append(float(np.linalg.norm(second - first)) / plan.shift)
        opened = await super()._opened(summand)
        self.found["opened"].append(opened.tolist())
        return opened

    def _joint_noise(self):
        field, index = self._secret.field, self._session.index
        xs = [0, *(each + 1 for each in COALITION)]
        share = values_at(field, xs, [-self._difference, *[0 * self._difference] * len(COALITION)], index + 1)
        return super()._joint_noise() + self._secret.array(field.array(share))


# --------------------------------------------------------------------------------------------------------- planted bugs


class SendsItsSum(Replayed):
    """A party that sends its sum to all others."""

    async def _opened(self, summand):
        await self._session.exchange(self.plan.on_lattice(summand(self._problem)).tobytes())
        return await super()._opened(summand)


class SendsANumberOfRows(Replayed):
    """A party that announces how many of its rows have a positive first column."""

    async def _opened(self, summand):
        positive = int((self._problem.rows._X[:, 0] > 0).sum())
        await self._session.exchange(positive.to_bytes(8, "big"))
        return await super()._opened(summand)


class WithoutNoise(Replayed):
    """Parties that leave out the noise."""

    def _joint_noise(self):
        return self._secret.array(np.full(self.plan.dimension, self.plan.law.reach, dtype=object))


def low_degree(field, secrets, threshold, parties):
    """Give every party the secret itself as its share."""
    values = np.array([int(each) for each in getattr(secrets, "value", secrets)], dtype=object)
    return np.array([values % int(field.modulus)] * parties, dtype=object)


def unclipped(weights, clip):
    """Return the gradients of a party, of which one record's is not clipped."""
    summand = original(weights, clip)
    return lambda party: summand(party) + 3 * clip * np.eye(weights.size)[0] * (party.rows._X[-1, 0] > 0)


original = gradient._gradient_sum
AGGREGATORS = {"sum": SendsItsSum, "rows": SendsANumberOfRows, "noise": WithoutNoise}
BUGS = ("sum", "rows", "noise", "degree", "clip")


# -------------------------------------------------------------------------------------------------------------- the run


async def run(orders, method, bug, world):
    """Take part in a study, and return what this party received, the distances of the sums, and the opened values."""
    index, ports = orders["index"], orders["ports"]
    found = {"distances": [], "opened": []}
    generator = random.Random(f"{method} {bug} {index}")
    seeded = SimpleNamespace(token_bytes=generator.randbytes, randbelow=generator.randrange)
    kind = AGGREGATORS.get(bug, Replayed)
    read = Channel.read

    async def recorded(channel, *expected):
        frame = await read(channel, *expected)
        if frame.kind not in WITHOUT_CONTENT:
            frames.append((channel, frame))
        return frame

    frames = []
    with ExitStack() as stack:
        stack.enter_context(patch("mpyc.runtime.secrets", seeded))
        stack.enter_context(patch("privet.multiparty.transport.handshake._PAUSE", 0.005))
        split = low_degree if bug == "degree" else split_around_coalition(generator)
        stack.enter_context(patch("mpyc.thresha.np_random_split", split))
        stack.enter_context(patch.object(Channel, "read", recorded))
        stack.enter_context(
            patch.object(participation, "JointAggregator", type("", (kind,), {"world": world, "found": found}))
        )
        if bug == "clip":
            stack.enter_context(patch.object(gradient, "_gradient_sum", unclipped))
        agreed = study(method, ports)
        async with Network([(HOST, port) for port in ports], index).connect() as session:
            session.runtime.source = NoiseSource(index, "joint random bits")
            release = await participation.take_part(session, agreed, table(index, world))
            await results.sign(session, agreed, results.to_result(agreed, release))
    senders = {peer.channel: peer.index for peer in session._peers.values()}
    received = [(senders[channel], frame.kind.name, frame.label, frame.payload.hex()) for channel, frame in frames]
    return found | {"received": sorted(received)}


def main(orders):
    """Run every method, and every bug, in both worlds."""
    cases = [(method, None) for method in SHARING] + [("gradient", bug) for bug in BUGS]
    found = {
        f"{method} {bug}": [asyncio.run(run(orders, method, bug, world)) for world in (0, 1)] for method, bug in cases
    }
    Path("found.json").write_text(json.dumps(found))
