"""The network of a multi-party computation: where the parties are, and the session in which they are all connected."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, TypeVar

from privet.checks import positive
from privet.multiparty.identity.certificates import Identity, tls_context
from privet.multiparty.protocol import mpyc_runtime
from privet.multiparty.transport.connection import LARGEST, Failure, Kind, Peer
from privet.multiparty.transport.errors import NetworkError, PartySilentError, StoppedError
from privet.multiparty.transport.handshake import Address, Handshake

T = TypeVar("T")

# With fewer parties, one could open what the others hide. With more, there are too many sets of parties.
FEWEST, MOST = 2, 20
_FAREWELL = 1.0  # seconds in which the last messages of all parties may be read after an error


@dataclass(frozen=True)
class Network:
    """The addresses of the parties, and the index of this process among them.

    Parameters
    ----------
    addresses : sequence of (host, port)
        One per party, in the same order for all parties. A party's index is its position here. At least 3, at most 20.
    index : int
        Index of this process. It listens on its port for parties with a lower index, and calls those with a higher one.
    keys : path or None
        The folder with ``ca.crt``, ``party_<index>.crt`` and ``party_<index>.key``; see
        :func:`privet.multiparty.make_keys`. It may be None only if every address is a loopback address.
    connect_timeout : float
        Seconds within which all parties must connect.
    timeout : float
        Seconds within which an awaited answer must arrive.

    Notes
    -----
    With keys, connections use TLS 1.3 with certificates on both ends. Each end accepts only a certificate that the
    study's authority issued to the expected party and that is valid today. Neither an eavesdropper nor a man in the
    middle nor another party of the study can therefore take a party's place. Without keys, connections stay on this
    machine, and every process on it is trusted.

    The parties themselves are assumed to follow the protocol (they are semi-honest). Up to ``(parties - 1) // 2`` of
    them may combine everything they saw without learning more than the results. A party that deviates from the
    protocol is not detected.
    """

    addresses: tuple[Address, ...]
    index: int
    keys: str | os.PathLike[str] | None = None
    connect_timeout: float = 60.0
    timeout: float = 60.0

    def __post_init__(self) -> None:
        addresses = tuple((str(host), int(port)) for host, port in self.addresses)
        object.__setattr__(self, "addresses", addresses)
        if not FEWEST <= len(addresses) <= MOST:
            raise ValueError(
                f"A computation needs {FEWEST} to {MOST} parties, got {len(addresses)}. A party may bring no data."
            )
        if len(set(addresses)) < len(addresses):
            raise ValueError(f"Two parties have the same address in {addresses}. Give each party its own port.")
        for host, port in addresses:
            if not host or not 0 < port < 2**16:
                raise ValueError(f"{host!r}:{port} is not an address. Give a host and a port from 1 to 65535.")
        if not 0 <= self.index < len(addresses):
            raise ValueError(f"index must be one of 0 to {len(addresses) - 1}, got {self.index}")
        positive("connect_timeout", self.connect_timeout)
        positive("timeout", self.timeout)
        remote = [host for host, _ in addresses if not _is_loopback(host)]
        if self.keys is None and remote:
            raise ValueError(
                f"{remote[0]} is not this machine, and without keys others could read and change what the parties "
                "send. Make keys with `privet party keygen`, and give each party its files."
            )

    @asynccontextmanager
    async def connect(self, on_waiting: Callable[[list[int]], None] | None = None) -> AsyncIterator["Session"]:
        """Connect with all parties for the duration of an ``async with`` block.

        If the block ends normally, this waits until the other parties have received everything they need from this
        one. If it ends with an error, the other parties are told: the text of a network error or of
        :meth:`Session.stop`, and only the type of any other error.

        Parameters
        ----------
        on_waiting : callable or None
            Called with the list of missing parties, first at the start and then whenever the list changes. The last
            list is empty.

        Raises
        ------
        PartyMissingError, PartyRefusedError, PortInUseError, StoppedError, PartyLostError
            The message names the party, its address, the cause and the remedy.
        CertificateError
            This party's own keys are not acceptable.
        """
        identity = contexts = None
        if self.keys is not None:
            identity = Identity.load(self.keys, self.index)
            contexts = tls_context(self.keys, self.index, True), tls_context(self.keys, self.index, False)
        failure = Failure()
        with mpyc_runtime.running(self.index, len(self.addresses), failure.set) as runtime:
            session = Session(runtime, self.timeout, identity, failure)
            try:
                addresses = tuple((_numeric(host), port) for host, port in self.addresses)
                host = addresses[self.index][0]
                handshake = Handshake(session, failure, addresses, contexts, on_waiting)
                await handshake.run(self.connect_timeout, host if _is_loopback(host) else None)
                yield session
                await session.finish()
            except BaseException as error:
                await session.abandon(error)
                raise
            finally:
                await session.close()


class Session:
    """What a party holds while it is connected with all others. Created by :meth:`Network.connect`.

    Whatever depends on another party must be awaited through :meth:`wait` (:meth:`exchange` does this), because MPyC's
    own futures never resolve once a party is gone.

    Attributes
    ----------
    runtime : mpyc.runtime.Runtime
        MPyC's runtime of this session.
    index, parties, threshold : int
        This party's index, the number of parties, and how many of them may combine what they saw without learning more.
    identity : Identity or None
        This party's certificate and key, which also secure its connections. None without keys.
    """

    def __init__(self, runtime: Any, timeout: float, identity: Identity | None, failure: Failure) -> None:
        self.runtime, self.identity = runtime, identity
        self.index: int = runtime.pid
        self.parties: int = len(runtime.parties)
        self.threshold: int = runtime.threshold
        self._timeout, self._failure = timeout, failure
        self._peers: dict[int, Peer] = {}
        self._listening: list[asyncio.Task[None]] = []
        self._exchanges = self._pings = 0
        self._has_left = False

    @property
    def certificates(self) -> list[bytes] | None:
        """Every party's certificate (PEM), in order, as proved when it connected. None without keys."""
        if self.identity is None:
            return None
        proved = {index: peer.certificate or b"" for index, peer in self._peers.items()}
        return [certificate for _, certificate in sorted({**proved, self.index: self.identity.certificate}.items())]

    @property
    def bytes_sent(self) -> int:
        """Bytes sent to all peers so far, without TLS handshakes and what TLS adds to each message."""
        return sum(peer.channel.bytes_sent for peer in self._peers.values())

    @property
    def bytes_received(self) -> int:
        """Bytes received from all peers so far, counted like those sent."""
        return sum(peer.channel.bytes_received for peer in self._peers.values())

    async def exchange(self, payload: bytes) -> list[bytes]:
        """Send one public message to all parties, and return every party's message, in the order of the parties.

        All parties must call this equally often. A message has at most 16 MiB.
        """
        if len(payload) > LARGEST[Kind.MESSAGE]:
            raise ValueError(f"A message has at most {LARGEST[Kind.MESSAGE]} bytes, got {len(payload)}. Split it.")
        self._exchanges += 1
        for peer in self._peers.values():
            peer.channel.write(Kind.MESSAGE, payload, self._exchanges)
        expected = [
            payload if index == self.index else self._peers[index].message(self._exchanges)
            for index in range(self.parties)
        ]
        return [each if isinstance(each, bytes) else await self.wait(each) for each in expected]

    async def wait(self, awaitable: Awaitable[T]) -> T:
        """Return the result of an awaitable, or raise as soon as it is clear that no result will arrive.

        The timeout runs only while this party waits for another, and starts again with each awaited message, so long
        computations are allowed. Pings and messages that nobody awaits do not extend it.

        Raises
        ------
        PartyLostError
            The connection with a party was lost.
        StoppedError
            A party stopped. The message contains its reason.
        PartySilentError
            An awaited message did not arrive within the timeout.
        """
        task = asyncio.ensure_future(awaitable)
        try:
            while not await self._failure.before(task, self._patience()):
                await self._find_silent_party()
            return task.result()
        finally:
            if task is not awaitable:  # The awaitable is a coroutine that nobody else will await.
                task.cancel()

    async def stop(self, cause: str) -> None:
        """Tell all other parties that this one stops, and why. Waiting calls then raise the cause, here and there.

        All parties receive the cause unchanged, so it must not reveal anything about anybody's records.
        """
        self._failure.set(StoppedError(self.index, cause))
        await self._take_leave()

    def add(self, peer: Peer) -> None:
        """Add a party that has just connected."""
        self._peers[peer.index] = peer
        self.runtime.parties[peer.index].protocol = peer
        self._listening.append(asyncio.create_task(peer.listen()))

    def missing(self) -> list[int]:
        """Return the parties that are not connected."""
        return [index for index in range(self.parties) if index != self.index and index not in self._peers]

    async def all_ready(self) -> None:
        """Tell all parties that this one is connected with everybody, and wait until they say the same."""
        for peer in self._peers.values():
            peer.channel.write(Kind.READY)
        for peer in self._peers.values():
            await self._failure.during(peer.ready.wait())

    def unready(self) -> list[int]:
        """Return the parties that have not said that they are connected with everybody."""
        return [index for index, peer in self._peers.items() if not peer.ready.is_set()]

    async def finish(self) -> None:
        """End normally: complete what other parties still wait for, and wait until they have ended too."""
        while tasks := mpyc_runtime.pending():
            await self.wait(asyncio.wait(tasks))
        for peer in self._peers.values():
            peer.channel.write(Kind.END)
        self._has_left = True
        # A party that is slow to end has everything it needs, so exceeding the timeout here is not an error.
        await self._failure.during(_all_over(self._peers.values()), self._timeout)

    async def abandon(self, error: BaseException) -> None:
        """Tell the other parties why this one ends early, unless :meth:`stop` has done so."""
        if not self._has_left:
            self._failure.set(error)
            await self._take_leave()

    async def close(self) -> None:
        """Close all connections, and cancel the coroutines of an unfinished computation."""
        await mpyc_runtime.abandon()
        for task in self._listening:
            task.cancel()
        closing = [peer.channel.close() for peer in self._peers.values()]
        await asyncio.gather(*self._listening, *closing, return_exceptions=True)

    async def _take_leave(self) -> None:
        """Tell the other parties why the session is over, and read until they have sent their last message.

        A connection that is closed while it has unread data is reset, which can lose what was just sent over it.
        """
        self._has_left = True
        error = self._failure.error
        party, cause = (error.party, error.cause) if isinstance(error, StoppedError) else (self.index, _public(error))
        for peer in self._peers.values():
            peer.stop(party, cause)
        with suppress(TimeoutError):
            async with asyncio.timeout(_FAREWELL):
                await _all_over(self._peers.values())

    def _patience(self) -> float:
        """Return the number of seconds during which no party can become overdue."""
        now = asyncio.get_running_loop().time()
        since = [peer.awaited_since for peer in self._peers.values()]
        return max(0.0, min((each for each in since if each is not None), default=now) + self._timeout - now)

    def _overdue(self) -> list[Peer]:
        limit = asyncio.get_running_loop().time() - self._timeout
        return [each for each in self._peers.values() if each.awaited_since is not None and each.awaited_since <= limit]

    async def _find_silent_party(self) -> None:
        """Raise an error if a party is overdue.

        A party that does not even answer a ping is named first, because the others may be waiting for it as well.
        """
        if not self._overdue():
            return
        self._pings += 1
        for peer in self._peers.values():
            peer.channel.write(Kind.PING, label=self._pings)
        await self._failure.during(asyncio.sleep(min(1.0, self._timeout / 4)))
        late = self._overdue()
        if not late:  # This process itself was suspended, and the awaited messages have arrived.
            return
        mute = [peer for peer in self._peers.values() if peer.answered != self._pings]
        named = mute or late
        what = "did not answer" if mute else "answers, but did not send the awaited message"
        message = (
            f"{' and '.join(map(str, named))} {what} for {self._timeout:g} s. It hangs, is very slow, or its network "
            "failed. Check that machine, or allow a longer timeout."
        )
        self._failure.set(PartySilentError(message, tuple(peer.index for peer in named)))
        self._failure.check()


async def _all_over(peers: Iterable[Peer]) -> None:
    for peer in list(peers):
        await peer.over.wait()


def _public(error: BaseException | None) -> str:
    """Return what other parties may know about an error. Only the text of network errors cannot quote a record."""
    if isinstance(error, NetworkError):
        return str(error)
    if isinstance(error, asyncio.CancelledError | KeyboardInterrupt):
        return "was interrupted"
    return f"ended with {type(error).__name__}. See its own messages."


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(_numeric(host)).is_loopback
    except ValueError:
        return False  # A host name, whatever it currently resolves to.


def _numeric(host: str) -> str:
    return "127.0.0.1" if host == "localhost" else host  # The name may also mean ::1; all parties must use the same.
