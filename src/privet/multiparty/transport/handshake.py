"""How parties connect: for each pair, the party with the lower index calls the other, and both prove who they are.

A listening party trusts nobody before TLS and the greeting are complete, and gives each caller a few seconds for both.
It keeps at most :data:`_MOST_CALLERS` open calls. Unauthenticated callers are dropped oldest first, so a flood of them
cannot displace a party that has authenticated.
"""

import asyncio
import errno
import json
import socket
import ssl
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from privet.multiparty.identity.certificates import CertificateError, check, host_name
from privet.multiparty.protocol import mpyc_runtime
from privet.multiparty.transport.connection import Channel, Failure, FrameError, Kind, Peer, printable
from privet.multiparty.transport.errors import PartyMissingError, PartyRefusedError, PortInUseError, explained

if TYPE_CHECKING:
    from privet.multiparty.transport.session import Session

_GREETING = 10.0  # seconds for TLS and the greeting
_MOST_CALLERS = 128  # The usual limits on open files are 1024, and 256 on macOS.
_PAUSE = 0.1  # seconds between two calls
_BUFFER = 2**20

Address = tuple[str, int]


class Handshake:
    """Connects one party with all others.

    Parameters
    ----------
    session : Session
        Connected parties are added to it.
    failure : Failure
        The first error of the session.
    addresses : sequence of (host, port)
        The addresses of all parties.
    contexts : (SSLContext, SSLContext) or None
        TLS settings for accepting calls and for making calls. None without TLS.
    on_waiting : callable or None
        Called with the missing parties, first at the start and then whenever the list changes.
    """

    def __init__(
        self,
        session: "Session",
        failure: Failure,
        addresses: tuple[Address, ...],
        contexts: tuple[ssl.SSLContext, ssl.SSLContext] | None,
        on_waiting: Callable[[list[int]], None] | None,
    ) -> None:
        self._session, self._failure, self._addresses = session, failure, addresses
        self._server_context: ssl.SSLContext | None = contexts[0] if contexts else None
        self._client_context: ssl.SSLContext | None = contexts[1] if contexts else None
        self._on_waiting = on_waiting or (lambda missing: None)
        self._complete = asyncio.Event()
        self._failed_calls: dict[int, BaseException] = {}  # the error of the last call to a party
        self._turned_away = ""
        self._callers: dict[asyncio.Task[None], int | None] = {}  # oldest first; the party, once it is authenticated

    async def run(self, timeout: float, host: str | None) -> None:
        """Return when every party is connected with every other.

        ``host`` is the interface to listen on. None listens on all interfaces.
        """
        me = self._session.index
        tasks: list[asyncio.Task[None]] = []
        listener = self._listener(host) if me > 0 else None
        try:
            if listener is not None:
                tasks.append(self._started(self._accept_calls(listener)))
            tasks += [self._started(self._call_until_connected(each)) for each in range(me + 1, self._session.parties)]
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

    # ------------------------------------------------------------------------------------------------- accepting calls

    def _listener(self, host: str | None) -> socket.socket:
        """Return a socket that listens on this party's port."""
        _, port = self._addresses[self._session.index]
        try:
            if host is None and socket.has_dualstack_ipv6():
                made = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=128)
            else:
                family = socket.AF_INET6 if host and ":" in host else socket.AF_INET
                made = socket.create_server((host or "", port), family=family, backlog=128)
        except OSError as error:
            in_use = error.errno == errno.EADDRINUSE
            why = "It is in use by another process, perhaps by this party itself" if in_use else str(error)
            raise PortInUseError(
                f"Party {self._session.index} cannot listen on port {port}. {why}. End that process, or agree on "
                "another port in the addresses of all parties."
            ) from error
        made.setblocking(False)
        return made

    async def _accept_calls(self, listener: socket.socket) -> None:
        """Accept calls until cancelled, and answer each of them in the background."""
        while True:
            try:
                connection, where = await asyncio.get_running_loop().sock_accept(listener)
            except OSError:  # Out of file handles, or the caller has left already. Neither is a reason to stop.
                await asyncio.sleep(_PAUSE)
                continue
            if len(self._callers) >= _MOST_CALLERS:
                self._drop_oldest_unauthenticated_caller()
            caller = self._started(self._receive(connection, f"{where[0]}:{where[1]}"))
            self._callers[caller] = None
            caller.add_done_callback(partial(self._forget, connection))
            await asyncio.sleep(0)  # Callers that were accepted must get their turn even if the backlog is full.

    def _drop_oldest_unauthenticated_caller(self) -> None:
        """Make room for a new caller.

        An authenticated caller is kept, because it may already consider itself connected. There is
        always an unauthenticated caller, because at most one caller per party is authenticated at a time.
        """
        oldest = next(caller for caller, party in self._callers.items() if party is None)
        del self._callers[oldest]
        oldest.cancel()

    def _forget(self, connection: socket.socket, caller: "asyncio.Task[None]") -> None:
        self._callers.pop(caller, None)
        if caller.cancelled():  # possibly before it started
            connection.close()

    async def _receive(self, connection: socket.socket, where: str) -> None:
        """Add the caller to the session if it is a party, and close the connection otherwise."""
        channel, is_party = None, False
        try:
            async with asyncio.timeout(_GREETING):
                channel = await _accepted(connection, self._server_context)
                self._add(await self._answer(channel))
                is_party = True
        except (OSError, EOFError, FrameError, TimeoutError) as error:
            self._turned_away = f". A caller from {where} was turned away: {explained(error)}"
        finally:
            if not is_party and channel is not None:
                await channel.close()
            if not is_party:
                connection.close()

    async def _answer(self, channel: Channel) -> Peer:
        """Answer a greeting and return the party, or raise FrameError."""
        greeting = await channel.read([Kind.HELLO])
        index, objection = self._examined(greeting.payload, channel.certificate)
        if objection:
            channel.write(Kind.REFUSAL, objection.encode()[:1000])
            raise FrameError(objection)
        if index in self._callers.values():
            raise FrameError(f"another caller is just being connected as party {index}")
        if (caller := asyncio.current_task()) is not None:
            self._callers[caller] = index
        channel.write(Kind.WELCOME)
        seeds = await channel.read([Kind.SEEDS])
        runtime = self._session.runtime
        if len(seeds.payload) != runtime._prss_keys_from_peer(index):
            raise FrameError("it sent seeds of another length")
        if index not in self._session.missing():  # Another caller was faster.
            raise FrameError(f"party {index} is already connected")
        runtime._prss_keys_from_peer(index, seeds.payload)
        return Peer(index, self._shown(index), channel, self._failure.set)

    def _examined(self, hello: bytes, certificate: bytes | None) -> tuple[int, str]:
        """Return the index of a caller, and why it is refused. The reason is empty if it is accepted."""
        me, parties, own = self._session.index, self._session.parties, mpyc_runtime.description()
        greeting = _parse_hello(hello)
        index: int = greeting["from"]
        to, count, engine = greeting["to"], greeting["parties"], printable(greeting["engine"][:80])
        objections = {
            f"Party {me} runs {own}, but the caller runs {engine}.": greeting["engine"] != own,
            f"Party {me} has a list of {parties} parties, but the caller has a list of {count}.": count != parties,
            f"This is party {me}, not party {to}. Compare the addresses and indices of all parties.": to != me,
            f"Party {me} expects calls from lower indices, not from {index}. Compare all indices.": not 0 <= index < me,
        }
        for objection, applies in objections.items():
            if applies:
                return index, objection
        if self._session.identity is not None:
            try:
                check(certificate or b"", self._session.identity.authority, party=index)
            except CertificateError as error:
                return index, str(error)
        if index not in self._session.missing():
            return index, f"Party {index} is already connected. Check whether another process has the same index."
        return index, ""

    # ---------------------------------------------------------------------------------------------------- making calls

    async def _call_until_connected(self, index: int) -> None:
        """Call a party until it is connected, or until it is clear that it never will be."""
        while True:
            try:
                async with asyncio.timeout(_GREETING):
                    self._add(await self._call(index))
                return
            except (ssl.SSLCertVerificationError, CertificateError) as error:
                where, why = self._shown(index), explained(error)
                self._failure.set(PartyRefusedError(f"What answers at {where} is not party {index}: {why}", index))
                return
            except PartyRefusedError as error:
                self._failure.set(error)
                return
            except (OSError, EOFError, FrameError, TimeoutError) as error:
                self._failed_calls[index] = error
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
            return await self._greeted(channel, index)
        except BaseException:
            await channel.close(patience=0.1)
            raise

    async def _greeted(self, channel: Channel, index: int) -> Peer:
        """Greet a party over a new connection, and return it if it accepts this one."""
        me, parties = self._session.index, self._session.parties
        hello = {"from": me, "to": index, "parties": parties, "engine": mpyc_runtime.description()}
        channel.write(Kind.HELLO, json.dumps(hello).encode())
        answer = await channel.read([Kind.WELCOME, Kind.REFUSAL])
        if answer.kind is Kind.REFUSAL:
            why = printable(answer.payload.decode(errors="replace"))
            raise PartyRefusedError(f"party {index} ({self._shown(index)}) refuses this party {me}: {why}", index)
        channel.write(Kind.SEEDS, b"".join(self._session.runtime._prss_keys_to_peer(index)))
        return Peer(index, self._shown(index), channel, self._failure.set)

    # ------------------------------------------------------------------------------------------------------------- both

    def _started(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Start a coroutine in the background, and make its errors those of the session."""

        async def watched() -> None:
            try:
                await coroutine
            except Exception as error:
                self._failure.set(error)

        task = asyncio.create_task(watched())
        task.add_done_callback(lambda done: coroutine.close())  # needed if the task is cancelled before it starts
        return task

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
        """Return the error that names the parties that did not connect in time."""
        missing = self._session.missing()
        if not missing:
            unready = self._session.unready()
            return PartyMissingError(
                f"After {waited:g} s, {_listed(unready)} was not connected with all other parties. Check its messages.",
                tuple(unready),
            )
        silent = f"it has not called party {self._session.index}{self._turned_away}"
        causes = {one: explained(error) for one, error in self._failed_calls.items()}
        each = [f"party {one} ({self._shown(one)}): {causes.get(one, silent)}" for one in missing]
        return PartyMissingError(
            f"{_listed(missing)} did not connect within {waited:g} s. {'. '.join(each)}. Start it, and compare the "
            "addresses of all parties and the firewalls between them.",
            tuple(missing),
        )


def _parse_hello(hello: bytes) -> dict[str, Any]:
    with suppress(ValueError, TypeError, RecursionError):
        greeting = json.loads(hello)
        if isinstance(greeting, dict):
            kinds = {name: type(value) for name, value in greeting.items()}
            if kinds == {"from": int, "to": int, "parties": int, "engine": str}:
                return greeting
    raise FrameError("its greeting cannot be read")


def _listed(parties: list[int]) -> str:
    return " and ".join(f"party {each}" for each in parties)


async def _accepted(connection: socket.socket, context: ssl.SSLContext | None) -> Channel:
    """Return a channel over an accepted connection, after the TLS handshake if there is a context."""
    # asyncio does this itself only for sockets that state their protocol number, which accepted ones do not. Without
    # it, a small message may wait until the other end has acknowledged the one before, which takes up to 40 ms.
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_BUFFER, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await loop.connect_accepted_socket(lambda: protocol, connection, ssl=context)
    return Channel(reader, asyncio.StreamWriter(transport, protocol, reader, loop))
