"""A session: parties that are connected, wait for one another, and stop together."""

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, TypeVar

from privet.multiparty import engine
from privet.multiparty.errors import NetworkError, PartySilentError, StoppedError
from privet.multiparty.frames import LARGEST, Kind
from privet.multiparty.keys import Identity
from privet.multiparty.peer import Peer

T = TypeVar("T")

_FAREWELL = 1.0  # seconds for the last words of all to be read, when something went wrong


class Session:
    """What a party holds while it is connected with all others. Made by :meth:`privet.multiparty.Network.connect`.

    Whatever depends on another party must be awaited through :meth:`wait` (:meth:`exchange` does): MPyC's own futures
    never resolve once a party is gone.

    Attributes
    ----------
    runtime : mpyc.runtime.Runtime
        MPyC's runtime of this session.
    index, parties, threshold : int
        Which party this is, of how many; up to ``threshold`` of them learn nothing together.
    identity : Identity or None
        This party's key, the same that its connections use; None without keys.
    """

    def __init__(self, runtime: Any, timeout: float, identity: Identity | None, failure: "Failure") -> None:
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
        """Every party's certificate (PEM), in order, as proved when it connected; None without keys."""
        if self.identity is None:
            return None
        proved = {index: peer.certificate or b"" for index, peer in self._peers.items()}
        return [certificate for _, certificate in sorted({**proved, self.index: self.identity.certificate}.items())]

    @property
    def bytes_sent(self) -> int:
        """Bytes sent to all peers so far, without what TLS adds and without its handshakes."""
        return sum(peer.channel.bytes_sent for peer in self._peers.values())

    @property
    def bytes_received(self) -> int:
        """Bytes received from all peers so far, counted like those sent."""
        return sum(peer.channel.bytes_received for peer in self._peers.values())

    async def exchange(self, payload: bytes) -> list[bytes]:
        """Send one public message to everybody, and return everybody's, in the order of the parties.

        All parties call it equally often. A message has at most 16 MiB.
        """
        if len(payload) > LARGEST[Kind.MESSAGE]:
            raise ValueError(f"a message has at most {LARGEST[Kind.MESSAGE]} bytes, got {len(payload)}: split it")
        self._exchanges += 1
        for peer in self._peers.values():
            peer.channel.write(Kind.MESSAGE, payload, self._exchanges)
        expected = [
            payload if index == self.index else self._peers[index].message(self._exchanges)
            for index in range(self.parties)
        ]
        return [each if isinstance(each, bytes) else await self.wait(each) for each in expected]

    async def wait(self, awaitable: Awaitable[T]) -> T:
        """Return what is awaited, or raise as soon as it is known that it will not come.

        Time runs only while a party is awaited that has sent nothing: a long computation is no silence.

        Raises
        ------
        PartyLostError
            A party's connection is gone.
        StoppedError
            A party gave up; the message has its cause.
        PartySilentError
            Nothing came from an awaited party within the timeout.
        """
        task = asyncio.ensure_future(awaitable)
        try:
            while not await self._failure.before(task, self._patience()):
                await self._find_the_silent()
            return task.result()
        finally:
            if task is not awaitable:  # a coroutine, which nobody else will await
                task.cancel()

    async def stop(self, cause: str) -> None:
        """Tell all others that this party gives up, and why. Their waits raise the cause at once, and so do this one's.

        The cause travels to all parties as it is: it must say nothing of anybody's records.
        """
        self._failure.set(StoppedError(self.index, cause))
        await self._take_leave()

    def add(self, peer: Peer) -> None:
        """Take in a party that has just connected."""
        self._peers[peer.index] = peer
        self.runtime.parties[peer.index].protocol = peer
        self._listening.append(asyncio.create_task(peer.listen()))

    def missing(self) -> list[int]:
        """Return the parties that are not connected."""
        return [index for index in range(self.parties) if index != self.index and index not in self._peers]

    async def all_ready(self) -> None:
        """Tell all that this party is connected with everybody, and wait until they say the same."""
        for peer in self._peers.values():
            peer.channel.write(Kind.READY)
        for peer in self._peers.values():
            await self._failure.during(peer.ready.wait())

    def unready(self) -> list[int]:
        """Return the parties that have not said that they are connected with everybody."""
        return [index for index, peer in self._peers.items() if not peer.ready.is_set()]

    async def finish(self) -> None:
        """End in peace: do what others still wait for, and let them do so."""
        while tasks := engine.pending():
            await self.wait(asyncio.wait(tasks))
        for peer in self._peers.values():
            peer.channel.write(Kind.END)
        self._has_left = True
        # Who is slow to end has all that it needs: there is nothing to complain of.
        await self._failure.during(_all_over(self._peers.values()), self._timeout)

    async def abandon(self, error: BaseException) -> None:
        """Tell the others why this party ends early, unless :meth:`stop` did."""
        if not self._has_left:
            self._failure.set(error)
            await self._take_leave()

    async def close(self) -> None:
        """Close all connections, and end the coroutines of an unfinished computation."""
        await engine.abandon()
        for task in self._listening:
            task.cancel()
        closing = [peer.channel.close() for peer in self._peers.values()]
        await asyncio.gather(*self._listening, *closing, return_exceptions=True)

    async def _take_leave(self) -> None:
        """Tell the others why it is over, and read until they have said their last word.

        A connection that is closed with something unread on it is reset, and what was just sent may be lost with it.
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
        """Return for how long nobody can be overdue."""
        now = asyncio.get_running_loop().time()
        since = [peer.awaited_since for peer in self._peers.values()]
        return max(0.0, min((each for each in since if each is not None), default=now) + self._timeout - now)

    def _overdue(self) -> list[Peer]:
        limit = asyncio.get_running_loop().time() - self._timeout
        return [each for each in self._peers.values() if each.awaited_since is not None and each.awaited_since <= limit]

    async def _find_the_silent(self) -> None:
        """Raise if a party is overdue. Who does not even answer a ping is to blame before who waits for it as we do."""
        if not self._overdue():
            return
        self._pings += 1
        for peer in self._peers.values():
            peer.channel.write(Kind.PING, label=self._pings)
        await self._failure.during(asyncio.sleep(min(1.0, self._timeout / 4)))
        late = self._overdue()
        if not late:  # this process itself had been asleep: what was awaited is here
            return
        mute = [peer for peer in self._peers.values() if peer.answered != self._pings]
        blamed = mute or late
        what = "does not answer" if mute else "answers, and has not sent what is awaited"
        message = (
            f"{' and '.join(map(str, blamed))} {what} for {self._timeout:g} s: it hangs, is very slow, or its network "
            "broke; look there, or allow a longer timeout"
        )
        self._failure.set(PartySilentError(message, tuple(peer.index for peer in blamed)))
        self._failure.check()


class Failure:
    """The first thing that went wrong in a session, for whoever waits."""

    def __init__(self) -> None:
        self._future: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    @property
    def error(self) -> BaseException | None:
        """What went wrong, or None."""
        return self._future.result() if self._future.done() else None

    def set(self, error: BaseException) -> None:
        """Say what went wrong. Only the first counts: the rest follows from it."""
        if not self._future.done():
            self._future.set_result(error)

    def check(self) -> None:
        """Raise what went wrong, if anything did."""
        if self.error is not None:
            raise self.error

    async def before(self, task: "asyncio.Future[Any]", timeout: float | None = None) -> bool:
        """Return whether a task is done within the timeout, or raise if something goes wrong before."""
        await asyncio.wait({task, self._future}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        self.check()
        return task.done()

    async def during(self, coroutine: Coroutine[Any, Any, Any], timeout: float | None = None) -> None:
        """Run a coroutine to its end or to the timeout, or raise if something goes wrong before."""
        task = asyncio.create_task(coroutine)
        try:
            await self.before(task, timeout)
        finally:
            task.cancel()


async def _all_over(peers: Iterable[Peer]) -> None:
    for peer in list(peers):
        await peer.over.wait()


def _public(error: BaseException | None) -> str:
    """Return what others may know of an error: of any but a network's, the text may quote a record."""
    if isinstance(error, NetworkError):
        return str(error)
    if isinstance(error, asyncio.CancelledError | KeyboardInterrupt):
        return "was interrupted"
    return f"ended with {type(error).__name__}; its own messages say more"
