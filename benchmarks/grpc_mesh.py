"""The candidate of benchmarks/transport.py: the same sessions between parties over gRPC with mutual TLS.

Only what carries the frames is replaced. A pair of parties has one bidirectional stream, which the party with the lower
index opens, as it makes the call today. All frames that are written in one iteration of the event loop travel in one
message of gRPC, because a message costs several changes of thread in Python's gRPC.
"""

import asyncio
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
from grpc import aio

from privet.multiparty.identity.certificates import host_name, key_files
from privet.multiparty.transport import connection, network
from privet.multiparty.transport.connection import LARGEST, Channel, Frame, FrameError, Kind, Peer
from privet.multiparty.transport.handshake import Handshake

SERVICE, METHOD = "privet.Mesh", "Join"
HEADER = connection._HEADER
_OPTIONS = [
    ("grpc.max_receive_message_length", 2 * LARGEST[Kind.SHARE]),
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.server_handshake_timeout_ms", 10_000),
]


class StreamChannel(Channel):
    """Frames over one bidirectional stream: a call at the party that opened it, a context at the other."""

    def __init__(self, stream: Any, certificate: bytes | None = None, owner: aio.Channel | None = None) -> None:
        self._stream, self._proved, self._owner = stream, certificate, owner
        self._buffer, self._place = b"", 0
        self._unsent: list[bytes] = []
        self._sender: asyncio.Task[None] | None = None
        self.closed = asyncio.Event()
        self.bytes_sent = self.bytes_received = 0

    @property
    def certificate(self) -> bytes | None:
        """The caller's certificate. Python's gRPC does not show a client the certificate of its server."""
        return self._proved

    async def read(self, expected: Collection[Kind] = frozenset(Kind)) -> Frame:
        """Return the next frame, which must be of an expected kind."""
        while self._place == len(self._buffer):
            try:
                message = await self._stream.read()
            except (aio.AioRpcError, aio.UsageError, asyncio.InvalidStateError) as error:
                why = error.details() if isinstance(error, aio.AioRpcError) else str(error)
                raise ConnectionResetError(0, why) from error
            if message is aio.EOF:
                raise EOFError
            self._buffer, self._place = message, 0
        try:
            number, label, length = HEADER.unpack_from(self._buffer, self._place)
        except Exception as error:
            raise FrameError("it sent bytes that do not belong to this protocol") from error
        start = self._place + HEADER.size
        self._place = start + length
        if number not in expected or length > LARGEST[Kind(number)] or self._place > len(self._buffer):
            raise FrameError("it sent bytes that do not belong here")
        self.bytes_received += HEADER.size + length
        return Frame(Kind(number), label, self._buffer[start : self._place])

    def write(self, kind: Kind, payload: bytes = b"", label: int = 0) -> None:
        """Send a frame together with all others of this iteration of the event loop."""
        if self.closed.is_set():
            return
        self._unsent += HEADER.pack(kind, label, len(payload)), payload
        self.bytes_sent += HEADER.size + len(payload)
        if self._sender is None:
            self._sender = asyncio.create_task(self._send())

    async def _send(self) -> None:
        with suppress(aio.AioRpcError, aio.UsageError, asyncio.InvalidStateError):
            while self._unsent:
                data, self._unsent = b"".join(self._unsent), []
                await self._stream.write(data)
        self._sender = None

    async def close(self, patience: float = 1.0) -> None:
        """Send what is left, and end the stream."""
        if self._sender is not None:
            await asyncio.wait({self._sender}, timeout=patience)
        self.closed.set()
        if self._owner is not None:
            with suppress(Exception):
                await self._stream.done_writing()
            await self._owner.close(grace=patience)


class Listening:
    """Stands for the listening socket of the present transport; a server of gRPC lives until the session ends."""

    def close(self) -> None:
        """Keep listening, because the streams would end with the server."""


class Mesh(Handshake):
    """Connects one party with all others over gRPC."""

    keys: Path | None = None
    servers: list[aio.Server] = []  # noqa: RUF012  of this process

    def _listener(self, host: str | None) -> Any:
        return Listening()

    async def _accept_calls(self, listener: Any) -> None:
        server = aio.server(options=_OPTIONS)
        handler = grpc.stream_stream_rpc_method_handler(self._join)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
        host, port = self._addresses[self._session.index]
        if self.keys is None:
            server.add_insecure_port(f"{host}:{port}")
        else:
            authority, certificate, key = (each.read_bytes() for each in key_files(self.keys, self._session.index))
            credentials = grpc.ssl_server_credentials([(key, certificate)], authority, require_client_auth=True)
            server.add_secure_port(f"{host}:{port}", credentials)
        await server.start()
        self.servers.append(server)
        await asyncio.Event().wait()

    async def _join(self, _requests: Any, context: Any) -> None:
        """Serve one stream until its end."""
        (certificate,) = context.auth_context().get("x509_pem_cert", [None])
        channel = StreamChannel(context, certificate)
        task = asyncio.current_task()
        assert task is not None
        try:
            self._add(await self._answer(channel))
        except (OSError, EOFError, FrameError):
            return
        finally:
            self._callers.pop(task, None)
        await channel.closed.wait()

    async def _call(self, index: int) -> Peer:
        host, port = self._addresses[index]
        if self.keys is None:
            owner = aio.insecure_channel(f"{host}:{port}", options=_OPTIONS)
        else:
            authority, certificate, key = (each.read_bytes() for each in key_files(self.keys, self._session.index))
            options = [*_OPTIONS, ("grpc.ssl_target_name_override", host_name(index))]
            credentials = grpc.ssl_channel_credentials(authority, key, certificate)
            owner = aio.secure_channel(f"{host}:{port}", credentials, options=options)
        channel = StreamChannel(owner.stream_stream(f"/{SERVICE}/{METHOD}")(), None, owner)
        try:
            return await self._greeted(channel, index)
        except BaseException:
            await channel.close(patience=0.1)
            raise


def use(keys: Path | None) -> None:
    """Let all networks of this process connect over gRPC from now on."""
    Mesh.keys = keys
    network.Handshake = Mesh  # type: ignore[misc]
