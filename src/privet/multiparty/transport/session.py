"""The session of a multi-party computation, in which all parties are connected: what they say, and how it ends."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from privet.multiparty.identity.certificates import Identity
from privet.multiparty.protocol import mpyc_runtime
from privet.multiparty.transport.connection import LARGEST, Failure, Kind, Peer
from privet.multiparty.transport.errors import NetworkError, PartySilentError, StoppedError

T = TypeVar("T")

_FAREWELL = 1.0  # seconds in which the last messages of all parties may be read after an error


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
        self._sent: Counter[int] = Counter()
        self._received: Counter[int] = Counter()
        self._losses: dict[int, asyncio.Future[Exception]] = {}
        self._tolerates_losses = False
        self._has_left = False

    @property
    def left(self) -> list[int]:
        """The parties that take part, including this one: all of them, except those that :meth:`leave_out` names."""
        return [index for index in range(self.parties) if not self._is_lost(index)]

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

        All parties must call this equally often. A message has at most 16 MiB. If losses are tolerated, the message of
        a party that was lost before it sent one is empty.
        """
        _check_size(payload)
        self._exchanges += 1
        for peer in self._living():
            peer.channel.write(Kind.MESSAGE, payload, self._exchanges)
        messages = [b""] * self.parties
        messages[self.index] = payload
        asked = {peer.index: peer.message(self._exchanges) for peer in self._living()}
        for index, message in asked.items():
            messages[index] = await self._arrived(index, message) or b""
        return messages

    def send(self, index: int, payload: bytes) -> None:
        """Send a message of at most 16 MiB to one other party, and to nobody else. Nothing is sent to a lost party."""
        _check_size(payload)
        self._sent[index] += 1
        if not self._is_lost(index):
            # Exchanges have the labels 1, 2, ..., and messages to one party -1, -2, ...
            self._peers[index].channel.write(Kind.MESSAGE, payload, -self._sent[index])

    async def receive(self, index: int) -> bytes | None:
        """Return the next message that one other party sent with :meth:`send`.

        Messages are returned in the order in which they were sent. If losses are tolerated, the result is None if the
        party was lost before it sent one.
        """
        self._received[index] += 1
        return await self._arrived(index, self._peers[index].message(-self._received[index]))

    def tolerate_losses(self) -> None:
        """From now on, go on without a party that is lost or silent or has stopped, instead of ending the session."""
        self._tolerates_losses = True

    def leave_out(self, index: int, cause: str) -> None:
        """Go on without a party, and tell it why. :meth:`tolerate_losses` must have been called."""
        if not self._is_lost(index):
            self._peers[index].stop(index, cause)
            self._lose(self._peers[index], StoppedError(index, cause))

    def loss(self, index: int) -> str:
        """Return why the session went on without a party."""
        return str(self._losses[index].result())

    async def _arrived(self, index: int, message: "asyncio.Future[bytes]") -> bytes | None:
        """Return a message of a party, or None if the session goes on without this party before the message arrives."""
        ends: list[asyncio.Future[Any]] = [message, self._losses[index]]
        await self.wait(asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED))
        return message.result() if message.done() else None

    def _lose(self, peer: Peer, error: Exception) -> None:
        """Go on without a party if that is allowed, and end the session otherwise."""
        is_about_this_party = isinstance(error, StoppedError) and error.party == self.index
        if not self._tolerates_losses or is_about_this_party:
            self._failure.set(error)
        elif not self._is_lost(peer.index):
            self._losses[peer.index].set_result(error)
            self._listening.append(asyncio.create_task(peer.channel.close(patience=_FAREWELL)))
            for other in self._living():  # They may have waited for the lost party, too.
                other.restart_wait()

    def _is_lost(self, index: int) -> bool:
        return index in self._losses and self._losses[index].done()

    def _living(self) -> list[Peer]:
        return [peer for index, peer in self._peers.items() if not self._is_lost(index)]

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
        self._losses[peer.index] = asyncio.get_running_loop().create_future()
        peer.failed = partial(self._lose, peer)
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
        for peer in self._living():
            peer.channel.write(Kind.END)
        self._has_left = True
        # A party that is slow to end has everything it needs, so exceeding the timeout here is not an error.
        await self._failure.during(_all_over(self._living()), self._timeout)

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
        for peer in self._living():
            peer.stop(party, cause)
        with suppress(TimeoutError):
            async with asyncio.timeout(_FAREWELL):
                await _all_over(self._living())

    def _patience(self) -> float:
        """Return the number of seconds during which no party can become overdue."""
        now = asyncio.get_running_loop().time()
        since = [peer.awaited_since for peer in self._living()]
        return max(0.0, min((each for each in since if each is not None), default=now) + self._timeout - now)

    def _overdue(self) -> list[Peer]:
        limit = asyncio.get_running_loop().time() - self._timeout
        return [each for each in self._living() if each.awaited_since is not None and each.awaited_since <= limit]

    async def _find_silent_party(self) -> None:
        """Raise an error if a party is overdue.

        A party that does not even answer a ping is named first, because the others may be waiting for it as well.
        """
        if not self._overdue():
            return
        self._pings += 1
        for peer in self._living():
            peer.channel.write(Kind.PING, label=self._pings)
        await self._failure.during(asyncio.sleep(min(1.0, self._timeout / 4)))
        late = self._overdue()
        if not late:  # This process itself was suspended, and the awaited messages have arrived.
            return
        mute = [peer for peer in self._living() if peer.answered != self._pings]
        named = mute or late
        what = "did not answer" if mute else "answers, but did not send the awaited message"
        message = (
            f"{' and '.join(map(str, named))} {what} for {self._timeout:g} s. It hangs, is very slow, or its network "
            "failed. Check that machine, or allow a longer timeout."
        )
        error = PartySilentError(message, tuple(peer.index for peer in named))
        for peer in named:
            if self._tolerates_losses:
                peer.stop(peer.index, message)
            self._lose(peer, error)
        self._failure.check()


def _check_size(payload: bytes) -> None:
    if len(payload) > LARGEST[Kind.MESSAGE]:
        raise ValueError(f"A message has at most {LARGEST[Kind.MESSAGE]} bytes, got {len(payload)}. Split it.")


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
