"""Frames: how bytes travel between two parties.

A frame is a kind, a label and a payload. Its length is read before its payload and checked against the most that its
kind may have: nobody can make a party allocate more than that by a number. Payloads are bytes; none is ever unpickled.
"""

import asyncio
import ssl
import struct
from contextlib import suppress
from enum import IntEnum
from typing import NamedTuple

MEBIBYTE = 2**20
_HEADER = struct.Struct("<BqI")  # kind, label, length of the payload


class Kind(IntEnum):
    """What a frame is for, in the order in which they may come."""

    HELLO = 1  # who dials, and whom it takes the other for
    WELCOME = 2
    REFUSAL = 3  # why not
    SEEDS = 4  # the keys of MPyC's pseudorandom secret sharing
    READY = 5  # connected with everybody
    SHARE = 6  # a message of MPyC, labelled by its program counter
    MESSAGE = 7  # a public message, labelled by its number
    PING = 8
    PONG = 9
    STOP = 10  # who gave up, and why; nothing follows
    END = 11  # all is done; nothing follows


LARGEST = {
    Kind.HELLO: 1024,
    Kind.WELCOME: 0,
    Kind.REFUSAL: 4096,
    Kind.SEEDS: MEBIBYTE,  # 16 bytes for each large enough set of parties with both in it: 20 parties need 0.8 MB
    Kind.READY: 0,
    Kind.SHARE: 64 * MEBIBYTE,
    Kind.MESSAGE: 16 * MEBIBYTE,
    Kind.PING: 0,
    Kind.PONG: 0,
    Kind.STOP: 4096,
    Kind.END: 0,
}


class FrameError(Exception):
    """Bytes that are no frame of this protocol, or a frame that has no place here."""


class Frame(NamedTuple):
    """One piece of a conversation."""

    kind: Kind
    label: int
    payload: bytes


class Channel:
    """Frames over one connection, and how many bytes they took.

    Counted are the bytes of whole frames as they are given to TCP or TLS: what TLS adds is not in it.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.bytes_sent = self.bytes_received = 0

    @property
    def certificate(self) -> bytes | None:
        """The certificate that the other end proved to own, as PEM; None without TLS."""
        tls = self._writer.get_extra_info("ssl_object")
        der = None if tls is None else tls.getpeercert(binary_form=True)
        return None if der is None else ssl.DER_cert_to_PEM_cert(der).encode()

    @property
    def address(self) -> str:
        """Where the other end says it is."""
        name = self._writer.get_extra_info("peername")
        return "an unknown address" if name is None else f"{name[0]}:{name[1]}"

    async def read(self) -> Frame:
        """Return the next frame. Raises EOFError at the end, OSError if the connection breaks, or FrameError."""
        number, label, length = _HEADER.unpack(await self._reader.readexactly(_HEADER.size))
        if number not in LARGEST:
            raise FrameError("it sent bytes that are none of this protocol")
        kind = Kind(number)
        if length > LARGEST[kind]:
            raise FrameError(f"it announced {length} bytes where {LARGEST[kind]} are the most")
        payload = await self._reader.readexactly(length)
        self.bytes_received += _HEADER.size + length
        return Frame(kind, label, payload)

    def write(self, kind: Kind, payload: bytes = b"", label: int = 0) -> None:
        """Send a frame. What a broken connection swallows, the reading end of this party notices."""
        if len(payload) > LARGEST[kind]:
            raise ValueError(f"a {kind.name.lower()} has at most {LARGEST[kind]} bytes, got {len(payload)}: split it")
        if not self._writer.is_closing():
            self._writer.write(_HEADER.pack(kind, label, len(payload)) + payload)
            self.bytes_sent += _HEADER.size + len(payload)

    async def close(self, patience: float = 1.0) -> None:
        """Close, with some patience for what is still to be sent."""
        self._writer.close()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(patience):
                await self._writer.wait_closed()
        self._writer.transport.abort()
