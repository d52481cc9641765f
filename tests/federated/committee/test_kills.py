"""Federated rounds of which a server is killed between any two steps: what is released, booked and opened afterwards.

Two servers with their gRPC listeners, all clients and the coordinator run in this process. Only the connection between
the servers is replaced: it ends when one of them is killed. All servers are then started again with their folders.
"""

import asyncio
import os
import socket
import sys
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mpyc", reason="servers need MPyC: install the extra multiparty")
pytest.importorskip("grpc", reason="clients hand in shares over gRPC: install the extra multiparty")

sys.path.insert(0, str(Path(__file__).parent))

from rounds_process import LAW, SCALE, study

from privet.federated.committee import CommitteeClient, Coordinator, roles
from privet.multiparty.protocol.server_state import ServerState
from privet.multiparty.transport.errors import PartyLostError
from privet.multiparty.transport.hand_in import HandInError

DIMENSION, CLIENTS, ROUNDS, SERVERS = 7, 2, 2, 2
IS_LONG = os.environ.get("PRIVET_AUDIT") == "long"
STRIDE = 1 if IS_LONG else 5
NOISE = SERVERS * LAW.reach / SCALE
UPDATES = [{"a": np.full(DIMENSION, 0.1)}, {"a": np.linspace(-0.2, 0.2, DIMENSION)}]


class KilledError(Exception):
    """The process of a server was killed."""


class Killer:
    """Kills one server at one of its steps, which are counted from 0 on, before or after what the step does."""

    def __init__(self, server, step):
        self._server, self._left = server, step
        self.at = ""  # what the killed server was about to do, or had done

    def pass_by(self, server, what):
        if server == self._server:
            self._left -= 1
            if self._left == -1:
                self.at = what
            if self.at:
                raise KilledError(what)


class Link:
    """The connections between all servers, and the shares of noisy sums that passed over them."""

    def __init__(self, killer, sent):
        self.killer, self.sent, self._rounds, self._lost = killer, sent, {}, set()

    def futures(self, number):
        if number not in self._rounds:
            self._rounds[number] = [asyncio.get_running_loop().create_future() for _ in range(SERVERS)]
            self._end()
        return self._rounds[number]

    def lose(self, server):
        self._lost.add(server)
        self._end()

    def _end(self):
        for futures in self._rounds.values():
            for server in self._lost:
                if not futures[server].done():
                    futures[server].set_exception(PartyLostError(f"server {server} is lost", server))
                    futures[server].exception()


class LinkedSession:
    """What a server needs of its session."""

    identity = None

    def __init__(self, link, index):
        self.index, self._link, self._next = index, link, 0

    async def exchange(self, payload):
        self._link.killer.pass_by(self.index, "before a message")
        futures = self._link.futures(self._next)
        self._next += 1
        futures[self.index].set_result(payload)
        if len(payload) == 1 + 8 * DIMENSION:  # no other message has this length
            self._link.sent.add((self.index, payload))
        self._link.killer.pass_by(self.index, "after a message")
        return list(await asyncio.gather(*futures))

    async def wait(self, awaitable):
        return await awaitable

    async def stop(self, cause):
        pass


def watched_state(killer, folder, digest):
    """Return the state of a server that may be killed before and after each of its writes."""
    state, server = ServerState(folder, digest), int(digest[-1])

    def write(name, done, *given):
        killer.pass_by(server, f"before {name}")
        done(*given)
        killer.pass_by(server, f"after {name}")

    for name in ("store", "mark_sent", "mark_booked"):
        setattr(state, name, partial(write, name, getattr(state, name)))
    return state


class Trial:
    """A study, and what its servers said, booked and opened over all their starts."""

    def __init__(self, here, folder):
        self.here, self._folder = here, folder
        self.sent, self.booked, self.sums = set(), [0] * SERVERS, {}

    async def start(self, killer):
        """Start all servers and callers, and return the numbers of clients per round, or the servers' errors."""
        link = Link(killer, self.sent)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(roles, "ServerState", partial(watched_state, killer))
            servers = [asyncio.create_task(self._serve(link, index)) for index in range(SERVERS)]
            calling = asyncio.create_task(self._call())
            found = await asyncio.gather(*servers, return_exceptions=True)
            if any(isinstance(each, Exception) for each in found):
                calling.cancel()
            with suppress(asyncio.CancelledError):
                await calling
        return found

    async def _serve(self, link, index):
        def book(guarantee):
            self.booked[index] += 1

        try:
            session = LinkedSession(link, index)
            return await roles._rounds(session, self.here, None, self._folder / f"state{index}", 30.0, book, None)
        finally:
            link.lose(index)

    async def _call(self):
        clients = [CommitteeClient(self.here, client, keys=None) for client in range(CLIENTS)]
        coordinator = Coordinator(self.here, keys=None)
        for number in range(ROUNDS):
            with suppress(HandInError):  # The round may have been opened before the servers were started again.
                await asyncio.gather(*(each.handing_in(UPDATES[i], number) for i, each in enumerate(clients)))
            opened = await coordinator.opening(number)
            self.sums.setdefault(number, []).append(self.here.plan.sums.off_lattice(opened))


def ports():
    """Return ports that are free."""
    with ExitStack() as stack:
        kept = [stack.enter_context(socket.socket()) for _ in range(SERVERS)]
        for each in kept:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in kept]


@pytest.mark.parametrize("server", range(SERVERS if IS_LONG else 1))
def test_servers_killed_at_any_step_release_each_sum_once(tmp_path, server):
    async def killed_at(step):
        here = study(ports(), dimension=DIMENSION, clients=CLIENTS, rounds=ROUNDS)
        trial, killer = Trial(here, tmp_path / str(step)), Killer(server, step)
        first = await trial.start(killer)
        again = await trial.start(Killer(server, -2)) if killer.at else first
        assert again == [[CLIENTS] * ROUNDS] * SERVERS, (step, killer.at, first, again)
        assert len(trial.sent) == SERVERS * ROUNDS, (step, killer.at)
        twice = killer.at == "before mark_booked"  # The ledger has it, and the folder does not say so.
        assert trial.booked == [1 + (twice and index == server) for index in range(SERVERS)], (step, killer.at)
        for sums in trial.sums.values():
            assert all(np.array_equal(each, sums[0]) for each in sums), (step, killer.at)
            assert np.abs(sums[0] - UPDATES[0]["a"] - UPDATES[1]["a"]).max() < NOISE + 1e-5
        return killer.at

    async def all_steps():
        async with asyncio.timeout(240):
            for step in range(server, 1000, STRIDE):
                if not await killed_at(step):
                    return step

    assert asyncio.run(all_steps()) >= 20  # otherwise steps are missing
