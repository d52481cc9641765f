"""The connection with one other party: frames of bytes, the messages that arrived, and how it ends.

A frame consists of a kind, a label and a payload. Kind and length are read before the payload. A kind that is not
expected at this point ends the connection, as does a length beyond what the kind allows, so before a caller has proved
who it is, it can make a party keep one short greeting and nothing else. Payloads are bytes and are never unpickled.
"""

import asyncio
import json
import ssl
import struct
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from enum import IntEnum
from errno import ECONNABORTED
from typing import Any, NamedTuple

from privet.multiparty.transport.errors import PartyLostError, StoppedError

MEBIBYTE = 2**20
MOST_HELD = 256 * MEBIBYTE
"""Largest total size, in bytes, of the messages that a peer may send before this party asks for them.

It is also the most that this party keeps for a peer that does not read.
"""
OVERHEAD = 256
"""Bytes that a held message counts in addition to its payload, because keeping an empty one takes memory, too."""
_MOST_UNREAD = MEBIBYTE  # Pings are not answered while this many bytes wait for a peer that does not read.

_HEADER = struct.Struct("<BqI")  # kind, label, length of the payload
_LONGEST_CAUSE = 900  # characters, of at most 4 bytes each


class Kind(IntEnum):
    """What a frame is for, in the order in which the kinds may occur."""

    HELLO = 1  # who calls, and which party it believes it is calling
    WELCOME = 2
    REFUSAL = 3  # why the caller is not accepted
    SEEDS = 4  # the keys of MPyC's pseudorandom secret sharing
    READY = 5  # connected with all parties
    SHARE = 6  # a message of MPyC, labelled with its program counter
    MESSAGE = 7  # a public message, labelled with its number
    PING = 8
    PONG = 9
    STOP = 10  # who stopped, and why; nothing follows
    END = 11  # everything is done; nothing follows


LARGEST = {
    Kind.HELLO: 1024,
    Kind.WELCOME: 0,
    Kind.REFUSAL: 4096,
    Kind.SEEDS: MEBIBYTE,  # 16 bytes per sufficiently large set of parties that contains both; 0.8 MB for 20 parties
    Kind.READY: 0,
    Kind.SHARE: 64 * MEBIBYTE,
    Kind.MESSAGE: 16 * MEBIBYTE,
    Kind.PING: 0,
    Kind.PONG: 0,
    Kind.STOP: 4096,
    Kind.END: 0,
}
"""Largest payload of each kind, in bytes."""
_ALL = frozenset(Kind)
_AFTER_THE_HANDSHAKE = _ALL - {Kind.HELLO, Kind.WELCOME, Kind.REFUSAL, Kind.SEEDS}


class FrameError(Exception):
    """The bytes are not a frame of this protocol, or the frame is not allowed here."""


class Frame(NamedTuple):
    """One message of the protocol."""

    kind: Kind
    label: int
    payload: bytes


class Channel:
    """Frames over one connection, and the number of bytes sent and received.

    The numbers count whole frames as they are passed to TCP or TLS, without what TLS adds.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.bytes_sent = self.bytes_received = 0

    @property
    def certificate(self) -> bytes | None:
        """The certificate whose private key the other end has proved to own, as PEM, or None without TLS."""
        tls = self._writer.get_extra_info("ssl_object")
        der = None if tls is None else tls.getpeercert(binary_form=True)
        return None if der is None else ssl.DER_cert_to_PEM_cert(der).encode()

    async def read(self, expected: Collection[Kind] = _ALL) -> Frame:
        """Return the next frame, which must be of an expected kind.

        Raises EOFError at the end, OSError if the connection breaks, or FrameError.
        """
        number, label, length = _HEADER.unpack(await self._reader.readexactly(_HEADER.size))
        if number not in LARGEST:
            raise FrameError("it sent bytes that do not belong to this protocol")
        kind = Kind(number)
        if kind not in expected:
            raise FrameError(f"it sent a frame of kind {kind.name}, which does not belong here")
        if length > LARGEST[kind]:
            raise FrameError(f"it announced {length} bytes where at most {LARGEST[kind]} are allowed")
        payload = await self._reader.readexactly(length)
        self.bytes_received += _HEADER.size + length
        return Frame(kind, label, payload)

    def write(self, kind: Kind, payload: bytes = b"", label: int = 0) -> None:
        """Send a frame. A broken connection is not reported here but by :meth:`read`."""
        if len(payload) > LARGEST[kind]:
            raise ValueError(
                f"A frame of kind {kind.name} holds at most {LARGEST[kind]} bytes, got {len(payload)}. Split it."
            )
        if kind is Kind.PONG and self._writer.transport.get_write_buffer_size() > _MOST_UNREAD:
            return  # Otherwise a peer could fill the memory by sending pings without reading the answers.
        if self._writer.is_closing():
            return
        self._writer.write(_HEADER.pack(kind, label, len(payload)) + payload)
        self.bytes_sent += _HEADER.size + len(payload)
        if self._writer.transport.get_write_buffer_size() > MOST_HELD:
            self._reader.set_exception(ConnectionAbortedError(ECONNABORTED, "it does not read what it is sent"))
            self._writer.transport.abort()

    async def close(self, patience: float = 1.0) -> None:
        """Close the connection, after waiting up to ``patience`` seconds for what is still to be sent."""
        self._writer.close()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(patience):
                await self._writer.wait_closed()
        self._writer.transport.abort()


class Mailbox:
    """Messages by label, whether they arrive before or after somebody asks for them."""

    def __init__(self) -> None:
        self._held: dict[int, bytes] = {}
        self._asked: dict[int, asyncio.Future[bytes]] = {}
        self._size = 0
        self._since = 0.0

    @property
    def asked_since(self) -> float | None:
        """Time since which at least one requested message has always been missing, or None if none is missing."""
        return self._since if self._asked else None

    def put(self, label: int, payload: bytes) -> bool:
        """Keep a message, or hand it to whoever asked for it. Return whether somebody had asked."""
        asked = self._asked.pop(label, None)
        if asked is not None:
            if not asked.done():  # The request may have been cancelled.
                asked.set_result(payload)
            return True
        self._size += len(payload) + OVERHEAD
        if label in self._held or self._size > MOST_HELD:
            raise FrameError("it sent a message twice, or far more than anybody asked for")
        self._held[label] = payload
        return False

    def get(self, label: int) -> "asyncio.Future[bytes]":
        """Return a future of the message with this label."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bytes] = loop.create_future()
        if label in self._held:
            payload = self._held.pop(label)
            self._size -= len(payload) + OVERHEAD
            future.set_result(payload)
        else:
            if not self._asked:
                self._since = loop.time()
            self._asked[label] = future
        return future


class Peer:
    """One other party: its connection, and what arrived over it.

    MPyC's runtime uses this object in place of its own protocol object and calls :meth:`send` and :meth:`receive`.

    Parameters
    ----------
    index, address : int, str
        Index and address of the other party.
    channel : Channel
        The connection, after the handshake.
    failed : callable
        Called with the error when the connection is lost or the peer stops. A session replaces it by its own.
    """

    def __init__(self, index: int, address: str, channel: Channel, failed: Callable[[Exception], None]) -> None:
        self.index, self.address, self.channel = index, address, channel
        self.certificate = channel.certificate
        self._messages, self._shares = Mailbox(), Mailbox()
        self.ready, self.over = asyncio.Event(), asyncio.Event()
        self.answered = 0  # number of the last ping that was answered
        self._advanced = asyncio.get_running_loop().time()  # when the last awaited message arrived
        self.failed = failed

    def __str__(self) -> str:
        return f"party {self.index} ({self.address})"

    def send(self, program_counter: int, payload: bytes) -> None:
        """Send a share (called by MPyC)."""
        self.channel.write(Kind.SHARE, payload, program_counter)

    def receive(self, program_counter: int) -> "asyncio.Future[bytes]":
        """Return a future of a share (called by MPyC)."""
        return self._requested(self._shares, program_counter)

    def message(self, number: int) -> "asyncio.Future[bytes]":
        """Return a future of a public message."""
        return self._requested(self._messages, number)

    @property
    def awaited_since(self) -> float | None:
        """Time since which this party has waited for the peer in vain, or None if it is not waiting.

        Only an awaited message ends the wait. A peer that keeps sending something else would otherwise never be late.
        """
        asked = [box.asked_since for box in (self._shares, self._messages) if box.asked_since is not None]
        return max(self._advanced, min(asked)) if asked else None

    def restart_wait(self) -> None:
        """Count the time that this party has waited for the peer from now on."""
        self._advanced = asyncio.get_running_loop().time()

    def stop(self, party: int, cause: str) -> None:
        """Tell the peer that a party stopped, and why. Nothing else is sent afterwards."""
        stopped = {"party": party, "cause": printable(cause)[:_LONGEST_CAUSE]}
        self.channel.write(Kind.STOP, json.dumps(stopped, ensure_ascii=False).encode())

    async def listen(self) -> None:
        """Process incoming frames until the connection ends."""
        try:
            while not self.over.is_set():
                self._take(await self.channel.read(_AFTER_THE_HANDSHAKE))
        except EOFError:
            self._lose("closed the connection. Its process ended, or the network failed. Check its own messages.")
        except OSError as error:
            self._lose(f"is no longer connected ({error.strerror or error}). Its process ended, or the network failed.")
        except FrameError as error:
            self._lose(f"does not follow the protocol ({error}). All parties need the same version of privet.")
        finally:
            self.over.set()

    def _take(self, frame: Frame) -> None:
        """Process one incoming frame."""
        match frame.kind:
            case Kind.SHARE | Kind.MESSAGE:
                box = self._shares if frame.kind is Kind.SHARE else self._messages
                if box.put(frame.label, frame.payload):
                    self.restart_wait()
            case Kind.READY:
                self.ready.set()
            case Kind.PING:
                self.channel.write(Kind.PONG, label=frame.label)
            case Kind.PONG:
                self.answered = frame.label
            case Kind.STOP:
                self.over.set()
                self.failed(_stopped(frame.payload))
            case Kind.END:
                self.over.set()
                if self.awaited_since is not None:
                    self._lose_unfinished()

    def _requested(self, box: Mailbox, label: int) -> "asyncio.Future[bytes]":
        promise = box.get(label)
        if self.over.is_set() and not promise.done():  # The peer may have sent it before it ended.
            self._lose_unfinished()
        return promise

    def _lose_unfinished(self) -> None:
        self._lose("has finished, but this party still waits for a message from it. Do all parties run the same study?")

    def _lose(self, what: str) -> None:
        self.failed(PartyLostError(f"{self} {what}", self.index))


class Failure:
    """The first error of a session. Everything that waits in the session raises it."""

    def __init__(self) -> None:
        self._future: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    @property
    def error(self) -> BaseException | None:
        """The first error, or None."""
        return self._future.result() if self._future.done() else None

    def set(self, error: BaseException) -> None:
        """Record an error. Only the first is kept, because later ones follow from it."""
        if not self._future.done():
            self._future.set_result(error)

    def check(self) -> None:
        """Raise the first error, if there is one."""
        if self.error is not None:
            raise self.error

    async def before(self, task: "asyncio.Future[Any]", timeout: float | None = None) -> bool:
        """Return whether a task is done within the timeout, or raise the error that occurs first."""
        await asyncio.wait({task, self._future}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        self.check()
        return task.done()

    async def during(self, coroutine: Coroutine[Any, Any, Any], timeout: float | None = None) -> None:
        """Run a coroutine to its end or until the timeout, or raise the error that occurs first."""
        task = asyncio.create_task(coroutine)
        try:
            await self.before(task, timeout)
        finally:
            task.cancel()


def printable(text: str) -> str:
    """Return a text from another party without control characters, which could send commands to a terminal."""
    return "".join(each if each.isprintable() else "?" for each in text)


def _stopped(payload: bytes) -> StoppedError:
    try:
        stopped = json.loads(payload)
        party, cause = stopped["party"], stopped["cause"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise FrameError("it stopped with a message that cannot be read") from error
    if not isinstance(party, int) or not isinstance(cause, str):
        raise FrameError("it stopped with a message that cannot be read")
    return StoppedError(party, printable(cause))
