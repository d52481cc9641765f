"""The three roles of federated rounds with a committee: servers, clients, and the coordinator.

In a round, each sampled client hands in shares of its update to all servers. Then the coordinator ends the round. The
servers agree on the clients whose shares all of them received, open the noisy sum, and give it to the coordinator, who
updates the model and sends it to the clients of the next round. The coordinator sees no update, and need not be trusted
with any.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.federated.committee.study import FederatedStudy
from privet.multiparty.protocol.committee import read_answer, sharing_of
from privet.multiparty.protocol.server import ServerAggregator
from privet.multiparty.protocol.server_state import ServerState
from privet.multiparty.protocol.sharing import Sharing
from privet.multiparty.study import StudyError
from privet.multiparty.transport.contribution import Contribution
from privet.multiparty.transport.hand_in import HandInError, Reception, Servers
from privet.multiparty.transport.network import Network, Session
from privet.networks import ParameterShapes, UpdateError
from privet.privacy import Guarantee, NoiseSource

Keys = str | os.PathLike[str] | None
_FAREWELL = 60.0  # seconds that servers wait for the coordinator after the last round
_CLIENT = 1  # the "rows" of a client in messages that are shared with studies of tables


async def serve(
    study: FederatedStudy,
    index: int,
    *,
    keys: Keys,
    state: str | os.PathLike[str] | None,
    patience: float = 3600.0,
    connect_timeout: float = 60.0,
    timeout: float = 60.0,
    book: Callable[[Guarantee], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[int]:
    """Run all rounds of a study as one of its servers, and return the number of clients in each round.

    Parameters
    ----------
    study : FederatedStudy
        The study as this server has it.
    index : int
        Index of this server.
    keys : path or None
        The folder with this server's key and certificate. None without TLS, on one machine.
    state : path or None
        Folder in which the server keeps what it needs to continue after a restart. Without it, a server that is started
        again draws new noise for the same sums, which is a second release.
    patience : float
        Seconds that the coordinator has for ending a round.
    connect_timeout, timeout : float
        Seconds within which all servers must connect, and within which an awaited answer of another server must arrive.
    book : callable or None
        Called once with the guarantee of all rounds, before the first sum is opened. If it raises at any server,
        nothing is opened.
    progress : callable or None
        Called with the number of rounds done and planned.
    """
    addresses = tuple((host, port + 1) for host, port in study.addresses)
    folder = None if keys is None else Path(keys)
    network = Network(addresses, index, folder, connect_timeout=connect_timeout, timeout=timeout)
    async with network.connect() as session:
        await _agree(session, study)
        return await _rounds(session, study, folder, state, patience, book, progress)


async def _agree(session: Session, study: FederatedStudy) -> None:
    """Stop all servers unless they hold the same study."""
    digests = await session.exchange(study.digest.encode())
    others = [f"server {index}" for index, theirs in enumerate(digests) if theirs != study.digest.encode()]
    if others:
        cause = (
            f"{' and '.join(others)} and server {session.index} hold different studies. Nothing was opened. Compare "
            "their settings, and the versions of privet, numpy and scipy."
        )
        await session.stop(cause)
        raise StudyError(cause)


async def _rounds(
    session: Session,
    study: FederatedStudy,
    keys: Path | None,
    state: str | os.PathLike[str] | None,
    patience: float,
    book: Callable[[Guarantee], None] | None,
    progress: Callable[[int, int], None] | None,
) -> list[int]:
    plan, sharing = study.plan, _sharing(study)
    authority = None if session.identity is None else session.identity.authority
    members = plan.n_clients + 1
    reception = _RoundsReception(bytes.fromhex(study.digest), members, authority, closed_by=study.coordinator)
    aggregator = ServerAggregator(
        plan.sums,
        plan.committee,
        sharing,
        session,
        reception,
        ServerState(None if state is None else Path(state), f"{study.digest}, server {session.index}"),
        NoiseSource(),
        fewest=study.fewest,
        rows_limit=_CLIENT,
        patience=patience,
        before_release=None if book is None else lambda: book(plan.guarantee()),
    )
    host, port = study.addresses[session.index]
    clients = []
    async with reception.listening(host, port, keys, session.index, sharing.longest):
        for done in range(1, plan.steps + 1):
            await aggregator.noisy_sum(_nothing)
            clients.append(len(aggregator.counts))
            if progress is not None:
                progress(done, plan.steps)
        with suppress(TimeoutError):
            await asyncio.wait_for(reception.told(plan.steps - 1), min(patience, _FAREWELL))
    return clients


class _RoundsReception(Reception):
    """Also refuses updates of the coordinator, and knows the newest round of which it was told the sum.

    Servers that are started again after the last round repeat all rounds at once, and would be gone before the
    coordinator calls them.
    """

    _newest_told = -1

    async def receive(self, owner: int, contribution: Contribution) -> bytes:
        if owner == self._closed_by and contribution.rows:
            raise ValueError("the coordinator is not a client, and hands in nothing.")
        opened = await super().receive(owner, contribution)
        if owner == self._closed_by and contribution.waits:
            async with self._changed:
                self._newest_told = max(self._newest_told, contribution.number)
                self._changed.notify_all()
        return opened

    async def told(self, number: int) -> None:
        """Wait until the coordinator was told the sum of a round."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._newest_told >= number)


def _nothing(_: object) -> NDArray[Any]:
    raise AssertionError("A server has no vector of its own.")


def _sharing(study: FederatedStudy) -> Sharing:
    plan = study.plan
    return sharing_of(plan.sums, plan.committee.trust, plan.committee.servers, plan.n_clients)


class _Caller:
    """What clients and the coordinator have in common: they call all servers."""

    def __init__(self, study: FederatedStudy, index: int, keys: Keys, timeout: float) -> None:
        self.study, self._index = study, index
        self._keys, self._timeout, self._sharing = None if keys is None else Path(keys), timeout, _sharing(study)

    async def _called(self, number: int, shares: list[bytes], clients: int, attempt: int, waits: bool) -> list[bytes]:
        digest, study = bytes.fromhex(self.study.digest), self.study
        sent = [Contribution(digest, number, clients, waits, share, attempt) for share in shares]
        async with Servers(study.addresses, self._index, self._keys, self._timeout, self._sharing.longest) as servers:
            return await servers.hand_in(sent)


class CommitteeClient(_Caller):
    """A client that hands in shares of its updates.

    Parameters
    ----------
    study : FederatedStudy
        The study as this client has it. It decides to whom the client sends shares, and how its update is clipped.
    client : int
        The number of the client.
    keys : path or None
        The folder with the client's key and certificate. None without TLS, on one machine.
    timeout : float
        Seconds within which all servers must accept a share.
    """

    def __init__(self, study: FederatedStudy, client: int, *, keys: Keys, timeout: float = 60.0) -> None:
        super().__init__(study, client, keys, timeout)
        self._source = NoiseSource()

    def hand_in(self, update: Mapping[str, NDArray[Any]] | None, number: int) -> None:
        """Hand in the update of round ``number``, counted from 0.

        The update is clipped to the norm of the plan here, whatever the training did. None, and an update that is not
        finite, count as zeros: whether a client hands in must not depend on its data. Raise ValueError if the update is
        that of another model, and :class:`~privet.multiparty.transport.hand_in.HandInError` unless all servers accept
        their shares.
        """
        asyncio.run(self.handing_in(update, number))

    async def handing_in(self, update: Mapping[str, NDArray[Any]] | None, number: int) -> None:
        """Do what :meth:`hand_in` does, in a running event loop."""
        shares = self._sharing.split(self._contribution(update), self._source, first=self._index)
        attempt = int.from_bytes(self._source.key()[:8], "little")
        await self._called(number, shares, _CLIENT, attempt, waits=False)

    def check(self, update: Mapping[str, NDArray[Any]]) -> ParameterShapes:
        """Return the shapes of an update. Raise ValueError if it is that of another model than the study's."""
        shapes, dimension = ParameterShapes({name: np.shape(each) for name, each in update.items()}), self._dimension
        if shapes.size != dimension:
            raise ValueError(f"The study is about {dimension} weights, but the update has {shapes.size}.")
        return shapes

    @property
    def _dimension(self) -> int:
        return self.study.plan.sums.dimension

    def _contribution(self, update: Mapping[str, NDArray[Any]] | None) -> NDArray[np.int64]:
        nothing = np.zeros(self._dimension, dtype=np.int64)
        if update is None:
            return nothing
        shapes = self.check(update)
        try:
            return self.study.plan.contribution(shapes.vector(update))
        except UpdateError:
            return nothing


class Coordinator(_Caller):
    """Ends rounds, and receives the noisy sums that the servers open.

    Parameters
    ----------
    study : FederatedStudy
        The study as the coordinator has it.
    keys : path or None
        The folder with the coordinator's key and certificate. None without TLS, on one machine.
    timeout : float
        Seconds within which the servers must open a sum.
    """

    def __init__(self, study: FederatedStudy, *, keys: Keys, timeout: float = 60.0) -> None:
        super().__init__(study, study.coordinator, keys, timeout)
        self.clients: list[int] = []  # how many took part in each round

    def opened(self, number: int) -> NDArray[np.int64]:
        """End round ``number``, counted from 0, and return its noisy sum on the lattice.

        A round that has ended before returns the same sum again. Raise
        :class:`~privet.multiparty.transport.hand_in.HandInError` if the servers do not all say the same.
        """
        return asyncio.run(self.opening(number))

    async def opening(self, number: int) -> NDArray[np.int64]:
        """Do what :meth:`opened` does, in a running event loop."""
        plan = self.study.plan
        nothing = [b""] * plan.committee.servers  # an empty share, which no server counts
        first, *others = await self._called(number, nothing, 0, 0, waits=True)
        if any(other != first for other in others):
            raise HandInError("The servers say that they opened different sums. At least one of them is wrong.")
        clients, total = read_answer(first, plan.sums.dimension, self.study.fewest)
        self.clients.append(clients)
        return total
