"""How parties come together: the one with the lower index dials, the other listens, and both say who they are.

Who listens believes nobody before TLS and the greeting are done, gives each caller a few seconds for both, and keeps at
most :data:`_MOST_CALLERS` of them in hand, of strangers the last that called: one who says nothing, or garbage, or
comes in numbers, keeps no party out, unless so many call while a party greets.
"""

import asyncio
import errno
import json
import socket
import ssl
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

from privet.multiparty import engine, tls
from privet.multiparty.certificates import CertificateError, check, host_name
from privet.multiparty.errors import PartyMissingError, PartyRefusedError, PortInUseError
from privet.multiparty.frames import Channel, FrameError, Kind
from privet.multiparty.peer import Peer, printable
from privet.multiparty.session import Failure, Session

_GREETING = 10.0  # seconds for TLS and a greeting
_MOST_CALLERS = 256
_PAUSE = 0.1  # seconds between two calls
_BUFFER = 2**20

Address = tuple[str, int]


class Joining:
    """One party's way into a session.

    Parameters
    ----------
    session : Session
        What connected parties are added to.
    failure : Failure
        That of the session.
    addresses : sequence of (host, port)
        Where everybody is.
    contexts : (SSLContext, SSLContext) or None
        For listening and for dialling; None without TLS.
    on_waiting : callable or None
        Called with the parties that are missing, at first and whenever that changes.
    """

    def __init__(
        self,
        session: Session,
        failure: Failure,
        addresses: tuple[Address, ...],
        contexts: tuple[ssl.SSLContext, ssl.SSLContext] | None,
        on_waiting: Callable[[list[int]], None] | None,
    ) -> None:
        self._session, self._failure, self._addresses = session, failure, addresses
        self._server_context = None if contexts is None else contexts[0]
        self._client_context = None if contexts is None else contexts[1]
        self._on_waiting = on_waiting or (lambda missing: None)
        self._complete = asyncio.Event()
        self._notes: dict[int, str] = {}  # why a party that this one dials is not here
        self._turned_away = ""
        self._callers: dict[asyncio.Task[None], int | None] = {}  # in the order of calls; which party, once welcome

    async def run(self, timeout: float, host: str | None) -> None:
        """Return when everybody is connected with everybody. ``host`` is what to listen on; None for all interfaces."""
        me = self._session.index
        tasks: list[asyncio.Task[None]] = []
        listener = self._listener(host) if me > 0 else None
        try:
            if listener is not None:
                tasks.append(self._started(self._answer(listener)))
            tasks += [self._started(self._dial(each)) for each in range(me + 1, self._session.parties)]
            self._on_waiting(self._session.missing())
            async with asyncio.timeout(timeout):
                await self._failure.during(self._complete.wait())
                await self._session.all_ready()
        except TimeoutError as error:
            raise self._missing(timeout) from error
        finally:
            for task in [*tasks, *self._callers]:
                task.cancel()
            await asyncio.gather(*tasks, *self._callers, return_exceptions=True)
            if listener is not None:
                listener.close()

    # ------------------------------------------------------------------------------------------------------- listening

    def _listener(self, host: str | None) -> socket.socket:
        _, port = self._addresses[self._session.index]
        try:
            if host is None and socket.has_dualstack_ipv6():
                made = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=128)
            else:
                family = socket.AF_INET6 if host and ":" in host else socket.AF_INET
                made = socket.create_server((host or "", port), family=family, backlog=128)
        except OSError as error:
            in_use = error.errno == errno.EADDRINUSE
            why = "it is in use: another process, or this party once more, listens there" if in_use else str(error)
            raise PortInUseError(
                f"party {self._session.index} cannot listen on port {port} ({why}); end that process, or agree on "
                "another port in the addresses of all parties"
            ) from error
        made.setblocking(False)
        return made

    async def _answer(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, where = await asyncio.get_running_loop().sock_accept(listener)
            except OSError:  # out of file handles, or the caller is gone already: neither is a reason to stop
                await asyncio.sleep(_PAUSE)
                continue
            if len(self._callers) >= _MOST_CALLERS:
                self._drop_the_oldest_stranger()
            caller = self._started(self._receive(connection, f"{where[0]}:{where[1]}"))
            self._callers[caller] = None
            caller.add_done_callback(partial(self._forget, connection))
            await asyncio.sleep(0)  # a full backlog must not keep those who have called from speaking

    def _drop_the_oldest_stranger(self) -> None:
        """Make room for a caller. One whose greeting was found good stays: it may believe itself connected already.

        There is always a stranger, since no more than one caller a party is welcome at a time.
        """
        oldest = next(caller for caller, party in self._callers.items() if party is None)
        del self._callers[oldest]
        oldest.cancel()

    def _forget(self, connection: socket.socket, caller: "asyncio.Task[None]") -> None:
        self._callers.pop(caller, None)
        if caller.cancelled():  # before it began, maybe
            connection.close()

    async def _receive(self, connection: socket.socket, where: str) -> None:
        """Hear a caller out; add it if it is a party, forget it otherwise."""
        channel, is_party = None, False
        try:
            async with asyncio.timeout(_GREETING):
                channel = await _accepted(connection, self._server_context)
                self._add(await self._greeted(channel))
                is_party = True
        except (OSError, EOFError, FrameError, TimeoutError) as error:
            self._turned_away = f"; a caller from {where} was turned away: {tls.explained(error)}"
        finally:
            if not is_party and channel is not None:
                await channel.close()
            if not is_party:
                connection.close()

    async def _greeted(self, channel: Channel) -> Peer:
        """Answer a greeting; return the party, or raise FrameError."""
        frame = await channel.read()
        if frame.kind is not Kind.HELLO:
            raise FrameError("it sent something else than a greeting")
        index, objection = self._judged(frame.payload, channel.certificate)
        if objection:
            channel.write(Kind.REFUSAL, objection.encode()[:1000])
            raise FrameError(objection)
        if index in self._callers.values():
            raise FrameError(f"another caller is being heard as party {index}")
        if (caller := asyncio.current_task()) is not None:
            self._callers[caller] = index
        channel.write(Kind.WELCOME)
        frame = await channel.read()
        runtime = self._session.runtime
        if frame.kind is not Kind.SEEDS or len(frame.payload) != runtime._prss_keys_from_peer(index):
            raise FrameError("it sent something else than its seeds")
        if index not in self._session.missing():  # another came first, while this one spoke
            raise FrameError(f"party {index} is connected already")
        runtime._prss_keys_from_peer(index, frame.payload)
        return self._peer(index, channel)

    def _judged(self, hello: bytes, certificate: bytes | None) -> tuple[int, str]:
        """Return who greets, and what speaks against it, if anything does."""
        me = self._session.index
        told = _parsed(hello)
        index: int = told["from"]
        if told["engine"] != engine.description():
            return index, f"party {me} runs {engine.description()}, the caller {printable(told['engine'][:80])}"
        if told["parties"] != self._session.parties:
            return index, f"party {me} counts {self._session.parties} parties, the caller {told['parties']}"
        if told["to"] != me:
            return index, f"this is party {me}, not party {told['to']}: compare the addresses and the indices of all"
        if not 0 <= index < me:
            return index, f"party {me} awaits calls from parties below it, not from {index}: compare the indices of all"
        return index, self._doubt(index, certificate)

    def _doubt(self, index: int, certificate: bytes | None) -> str:
        """Return why a caller is not the party that it says, if so."""
        if self._session.identity is not None:
            try:
                check(certificate or b"", self._session.identity.authority, party=index)
            except CertificateError as error:
                return str(error)
        if index not in self._session.missing():
            return f"party {index} is connected already: does another process have the same index?"
        return ""

    # --------------------------------------------------------------------------------------------------------- dialling

    async def _dial(self, index: int) -> None:
        """Call a party until it is there, or until it is clear that it never will be."""
        host, port = self._addresses[index]
        while True:
            try:
                async with asyncio.timeout(_GREETING):
                    self._add(await self._call(index))
                return
            except (ssl.SSLCertVerificationError, CertificateError) as error:
                why = tls.explained(error)
                self._failure.set(
                    PartyRefusedError(f"what answers at {host}:{port} is not party {index}: {why}", index)
                )
                return
            except PartyRefusedError as error:
                self._failure.set(error)
                return
            except (OSError, EOFError, FrameError, TimeoutError) as error:
                self._notes[index] = tls.explained(error)
                if isinstance(error, socket.gaierror) and error.errno == socket.EAI_NONAME:
                    self._failure.set(self._missing(0.0))
                    return
            await asyncio.sleep(_PAUSE)

    async def _call(self, index: int) -> Peer:
        """Connect with a party and greet it."""
        host, port = self._addresses[index]
        name = host_name(index) if self._client_context is not None else None
        reader, writer = await asyncio.open_connection(
            host, port, ssl=self._client_context, server_hostname=name, limit=_BUFFER
        )
        channel = Channel(reader, writer)
        try:
            if self._session.identity is not None:
                check(channel.certificate or b"", self._session.identity.authority, party=index)
            await self._greet(index, channel)
        except BaseException:
            await channel.close(patience=0.1)
            raise
        return self._peer(index, channel)

    async def _greet(self, index: int, channel: Channel) -> None:
        me, parties = self._session.index, self._session.parties
        hello = {"from": me, "to": index, "parties": parties, "engine": engine.description()}
        channel.write(Kind.HELLO, json.dumps(hello).encode())
        frame = await channel.read()
        if frame.kind is Kind.REFUSAL:
            why = printable(frame.payload.decode(errors="replace"))
            raise PartyRefusedError(f"party {index} ({self._shown(index)}) refuses this party {me}: {why}", index)
        if frame.kind is not Kind.WELCOME:
            raise FrameError("it answered a greeting with something else")
        seeds = self._session.runtime._prss_keys_to_peer(index)
        channel.write(Kind.SEEDS, b"".join(seeds))

    # ------------------------------------------------------------------------------------------------------------- both

    def _started(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Start a coroutine whose errors nobody else would see."""

        async def watched() -> None:
            try:
                await coroutine
            except Exception as error:
                self._failure.set(error)

        task = asyncio.create_task(watched())
        task.add_done_callback(lambda done: coroutine.close())  # one that is cancelled before it begins
        return task

    def _peer(self, index: int, channel: Channel) -> Peer:
        return Peer(index, self._shown(index), channel, self._failure.set)

    def _add(self, peer: Peer) -> None:
        self._session.add(peer)
        missing = self._session.missing()
        self._on_waiting(missing)
        if not missing:
            self._complete.set()

    def _shown(self, index: int) -> str:
        host, port = self._addresses[index]
        return f"{host}:{port}"

    def _missing(self, waited: float) -> PartyMissingError:
        me = self._session.index
        missing = self._session.missing()
        if not missing:
            unready = self._session.unready()
            return PartyMissingError(
                f"after {waited:g} s, {_listed(unready)} still had no connection with everybody: look at its messages",
                tuple(unready),
            )
        silent = f"it has not called party {me}{self._turned_away}"
        each = [f"party {one} ({self._shown(one)}): {self._notes.get(one, silent)}" for one in missing]
        return PartyMissingError(
            f"{_listed(missing)} did not arrive within {waited:g} s. {'. '.join(each)}. Start it, and compare the "
            "addresses of all parties and the firewalls between them",
            tuple(missing),
        )


def _parsed(hello: bytes) -> dict[str, Any]:
    with suppress(ValueError, TypeError, RecursionError):
        told = json.loads(hello)
        if isinstance(told, dict):
            kinds = {name: type(value) for name, value in told.items()}
            if kinds == {"from": int, "to": int, "parties": int, "engine": str}:
                return told
    raise FrameError("its greeting cannot be read")


def _listed(parties: list[int]) -> str:
    return " and ".join(f"party {each}" for each in parties)


async def _accepted(connection: socket.socket, context: ssl.SSLContext | None) -> Channel:
    """Return a channel over an accepted connection, TLS done if it is wanted."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_BUFFER, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await loop.connect_accepted_socket(lambda: protocol, connection, ssl=context)
    return Channel(reader, asyncio.StreamWriter(transport, protocol, reader, loop))
