"""A committee with ``trust = "one"`` in this process, and everything that all but one server and one owner see of it.

Servers and owners run their real roles, and owners call the servers over gRPC. Only the messages between the servers
are passed on in this process. The honest server and the honest owner are the same in two worlds, in which one record of
that owner differs. Random numbers that the coalition could know are the same in both worlds. Two kinds of numbers that
it cannot know absorb the difference of the vectors: the numbers that the honest server expands from its key, and the
noise of the honest server. Each of these changes is one to one, so the second run is as likely as the first one, up to
the probability of the noise. All that the coalition sees must therefore be the same, bit by bit.
"""

import asyncio
import contextlib
import socket
from dataclasses import dataclass, field
from unittest.mock import patch

import numpy as np

from privet.multiparty.protocol import collection, committee, roles
from privet.multiparty.study import Study
from privet.multiparty.transport.hand_in import Reception
from privet.privacy import NoiseSource

HOST = "127.0.0.1"
HONEST = 0  # the server outside the coalition
OWNER = 1  # the owner with the differing record. The coalition receives its share that is not a key.
ROWS = 4


class Linked:
    """The session of one server with others in this process: public messages only."""

    identity = None

    def __init__(self, index, parties, rounds):
        self.index, self.parties, self._rounds, self._next = index, parties, rounds, 0

    async def exchange(self, payload):
        loop = asyncio.get_running_loop()
        futures = self._rounds.setdefault(self._next, [loop.create_future() for _ in range(self.parties)])
        self._next += 1
        futures[self.index].set_result(bytes(payload))
        return list(await asyncio.gather(*futures))

    async def wait(self, awaitable):
        return await awaitable

    async def stop(self, cause):
        pass


@dataclass
class View:
    """What the coalition sees in one world, and what the honest ones did."""

    received: list = field(default_factory=list)  # (server, owner, message)
    messages: list = field(default_factory=list)  # of all servers in each round
    distances: list = field(default_factory=list)  # of the honest owner's vectors, relative to the bound of the plan
    noises: int = 0  # how often the honest server drew noise
    steps: int = 0
    weights: list = field(default_factory=list)

    @property
    def seen(self):
        """Everything that reaches a server of the coalition, in an order that does not depend on the network."""
        return [*sorted(self.received), *self.messages, *self.weights]


def study_of(method, servers=3):
    """Return a study whose servers have free ports on this machine."""
    with contextlib.ExitStack() as stack:
        ports: list[int] = []
        while len(ports) < servers:
            free = stack.enter_context(socket.socket())
            free.bind((HOST, 0))
            port = free.getsockname()[1]
            if all(abs(port - other) > 1 for other in ports):
                ports.append(port)
    values = {
        "name": "coalition",
        "epsilon": 20.0,
        "delta": 1e-3,
        "alpha": 1.0,
        "trust": "one",
        "method": method,
        "steps": 2 if method == "gradient" else 100,
        "owners": 3,
        "rows_per_owner": ROWS,
        "server": [{"name": f"s{index}", "address": f"{HOST}:{port}"} for index, port in enumerate(ports)],
        "table": {"target": "y", "target_levels": ["no", "yes"], "numeric": {"u": [0, 1], "v": [0, 1]}},
    }
    return Study.from_values(values)


def table(owner, world):
    """Return an owner's rows. The last record of the honest owner is replaced by its opposite in the second world."""
    rng = np.random.default_rng(owner)
    rows, targets = rng.uniform(-0.7, 0.7, (ROWS, 2)), rng.integers(0, 2, ROWS).astype(float)
    if owner == OWNER:
        rows[-1], targets[-1] = (-0.7, -0.7) if world else (0.7, 0.7), 1.0
    return rows, targets


class Difference:
    """The difference of the honest owner's vectors, and who absorbs it."""

    def __init__(self, world, view):
        self.world, self.view = world, view
        self.by_key, self.of_release, self.is_next = {}, [], False

    def expanded(self, key, size):
        return original_expanded(key, size) + self.by_key.get(key, np.uint64(0))


class OwnersSource(NoiseSource):
    """The honest owner's random numbers. The first key of each release is that of the honest server."""

    difference = None

    def key(self):
        key = super().key()
        if self.difference is not None and self.difference.is_next:
            self.difference.is_next = False
            # The same key expands to the same numbers: they absorb only what they absorbed first.
            self.difference.by_key.setdefault(key, self.difference.of_release[-1].astype(np.uint64))
        return key


class ServersSource(NoiseSource):
    """The honest server's noise, which absorbs the difference of a release."""

    difference = None

    def add_lattice(self, values, law, claim):
        number, view = self.difference.view.noises, self.difference.view
        view.noises += 1
        return super().add_lattice(values, law, claim) - self.difference.of_release[number]


original_expanded = NoiseSource.expanded


def _recording(view, keep=Reception.receive):
    class Recorded(Reception):
        @contextlib.asynccontextmanager
        async def listening(self, host, port, keys, server, longest):
            self.server = server
            async with super().listening(host, port, keys, server, longest):
                yield

        async def receive(self, owner, contribution):
            if self.server != HONEST:
                view.received.append((self.server, owner, contribution.to_bytes()))
            return await super().receive(owner, contribution)

    return Recorded


def _watched(difference):
    class Watched(committee.OwnerAggregator):
        async def hand_in(self, summand, *, waits):
            if self._index == OWNER:
                problem = roles.hand_in.study.committee_problem()
                first, second = (self.plan.on_lattice(summand(problem.local(*table(OWNER, world)))) for world in (0, 1))
                difference.of_release.append((second - first) * difference.world)
                difference.view.distances.append(float(np.linalg.norm(second - first)) / self.plan.shift)
                difference.is_next = True
            return await super().hand_in(summand, waits=waits)

    return Watched


def run(method, world, *, owners_source=OwnersSource, servers_source=ServersSource, study=None):
    """Run a study in one world, and return the coalition's view."""
    study = study or study_of(method)
    view = View()
    difference = Difference(world, view)
    honest_owner, honest_server = owners_source(1, purpose="honest owner"), servers_source(2, purpose="honest server")
    honest_owner.difference = honest_server.difference = difference
    rounds = {}

    async def main():
        n = len(study.servers)
        sources = [honest_server if index == HONEST else NoiseSource(10 + index) for index in range(n)]
        servers = [
            roles.serve(Linked(index, n, rounds), study, keys=None, source=source, patience=60.0)
            for index, source in enumerate(sources)
        ]
        owners = [
            roles.hand_in(
                study,
                owner,
                table(owner, world),
                keys=None,
                source=honest_owner if owner == OWNER else NoiseSource(20 + owner),
            )
            for owner in range(study.n_owners)
        ]
        async with asyncio.timeout(120):
            releases, _ = await asyncio.gather(asyncio.gather(*servers), asyncio.gather(*owners))
        return releases

    with contextlib.ExitStack() as stack:
        stack.enter_context(patch.object(roles.hand_in, "study", study, create=True))
        stack.enter_context(patch.object(roles, "Reception", _recording(view)))
        stack.enter_context(patch.object(roles, "OwnerAggregator", _watched(difference)))
        stack.enter_context(patch.object(NoiseSource, "expanded", staticmethod(difference.expanded)))
        stack.enter_context(patch("privet.multiparty.transport.hand_in._PAUSE", 0.01))
        stack.enter_context(patch.object(collection, "_ROUND", 600.0))  # One round, however slow the machine is.
        releases = asyncio.run(main())
    view.messages = [[each.result() for each in rounds[number]] for number in sorted(rounds)]
    view.weights = [release.weights.tolist() for release in releases]
    view.steps = study.steps if method == "gradient" else 1
    return view


def problems(first, second):
    """Return what refutes the guarantee: a vector that moved too far, too many releases, or a message that differs."""
    found = [f"a vector moved by {each:.3g} times the bound" for each in first.distances if each > 1]
    if len(first.seen) != len(second.seen):
        found.append("the number of messages differs")
    differing = [place for place, pair in enumerate(zip(first.seen, second.seen, strict=False)) if pair[0] != pair[1]]
    if differing:
        found.append(f"{len(differing)} messages differ")
    if second.noises > second.steps:
        found.append(f"{second.noises} releases instead of {second.steps}")
    return found
