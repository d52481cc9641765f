"""One other party, as this one sees it."""

import asyncio
import json
from collections.abc import Callable

from privet.multiparty.errors import PartyLostError, StoppedError
from privet.multiparty.frames import MEBIBYTE, Channel, Frame, FrameError, Kind

MOST_HELD = 256 * MEBIBYTE
"""The most bytes of messages that a peer may send before anybody asks for them: it may be ahead, but not so far."""

_LONGEST_CAUSE = 900  # characters, of at most 4 bytes each


class Mailbox:
    """Messages by their labels, whether they come before or after somebody asks for them."""

    def __init__(self) -> None:
        self._held: dict[int, bytes] = {}
        self._asked: dict[int, asyncio.Future[bytes]] = {}
        self._size = 0
        self._since = 0.0

    @property
    def asked_since(self) -> float | None:
        """Since when there has always been something that was asked for and had not come; None if there is nothing."""
        return self._since if self._asked else None

    def put(self, label: int, payload: bytes) -> None:
        """Keep a message, or give it to who asked for it."""
        asked = self._asked.pop(label, None)
        if asked is not None:
            if not asked.done():  # who asked may have been cancelled
                asked.set_result(payload)
            return
        self._size += len(payload)
        if label in self._held or self._size > MOST_HELD:
            raise FrameError("it sent a message twice, or far more than anybody asked for")
        self._held[label] = payload

    def get(self, label: int) -> "asyncio.Future[bytes]":
        """Return the message of a label, or a promise of it."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bytes] = loop.create_future()
        if label in self._held:
            payload = self._held.pop(label)
            self._size -= len(payload)
            future.set_result(payload)
        else:
            if not self._asked:
                self._since = loop.time()
            self._asked[label] = future
        return future


class Peer:
    """The connection with one other party, and what came over it.

    MPyC's runtime holds it in the place of its own protocol object, and knows :meth:`send` and :meth:`receive` of it.

    Parameters
    ----------
    index, address : int, str
        Which party it is, and where.
    channel : Channel
        The connection, on which both have greeted each other.
    failed : callable
        Called with the error when the connection is lost or the peer stops.
    """

    def __init__(self, index: int, address: str, channel: Channel, failed: Callable[[Exception], None]) -> None:
        self.index, self.address, self.channel = index, address, channel
        self.certificate = channel.certificate
        self._messages, self._shares = Mailbox(), Mailbox()
        self.ready, self.over = asyncio.Event(), asyncio.Event()
        self.answered = 0  # the number of the last ping that was answered
        self._heard = asyncio.get_running_loop().time()
        self._failed = failed

    def __str__(self) -> str:
        return f"party {self.index} ({self.address})"

    def send(self, program_counter: int, payload: bytes) -> None:
        """Send a share (for MPyC)."""
        self.channel.write(Kind.SHARE, payload, program_counter)

    def receive(self, program_counter: int) -> "asyncio.Future[bytes]":
        """Return a promise of a share (for MPyC)."""
        return self._got(self._shares, program_counter)

    def message(self, number: int) -> "asyncio.Future[bytes]":
        """Return a promise of a public message."""
        return self._got(self._messages, number)

    @property
    def awaited_since(self) -> float | None:
        """Since when this party waits for that one and has heard nothing from it; None if it does not wait."""
        asked = [box.asked_since for box in (self._shares, self._messages) if box.asked_since is not None]
        return max(self._heard, min(asked)) if asked else None

    def stop(self, party: int, cause: str) -> None:
        """Tell it that a party gave up, and why. It is the last that this party says."""
        told = {"party": party, "cause": printable(cause)[:_LONGEST_CAUSE]}
        self.channel.write(Kind.STOP, json.dumps(told, ensure_ascii=False).encode())

    async def listen(self) -> None:
        """Take what comes until nothing more can."""
        try:
            while not self.over.is_set():
                self._take(await self.channel.read())
        except EOFError:
            self._lose("closed the connection: its process ended, or the network broke; look at its own messages")
        except OSError as error:
            self._lose(f"is no longer connected ({error.strerror or error}): its process ended, or the network broke")
        except FrameError as error:
            self._lose(f"does not keep to the protocol ({error}): all parties need the same version of privet")
        finally:
            self.over.set()

    def _take(self, frame: Frame) -> None:
        if frame.kind is not Kind.PONG:
            self._heard = asyncio.get_running_loop().time()
        match frame.kind:
            case Kind.SHARE:
                self._shares.put(frame.label, frame.payload)
            case Kind.MESSAGE:
                self._messages.put(frame.label, frame.payload)
            case Kind.READY:
                self.ready.set()
            case Kind.PING:
                self.channel.write(Kind.PONG, label=frame.label)
            case Kind.PONG:
                self.answered = frame.label
            case Kind.STOP:
                self.over.set()
                self._failed(_stopped(frame.payload))
            case Kind.END:
                self.over.set()
                if self.awaited_since is not None:
                    self._left()
            case _:
                raise FrameError("it greets twice")

    def _got(self, box: Mailbox, label: int) -> "asyncio.Future[bytes]":
        promise = box.get(label)
        if self.over.is_set() and not promise.done():  # it may have sent it before it ended
            self._left()
        return promise

    def _left(self) -> None:
        self._lose("has ended its part, and something is still awaited from it: do all parties run the same study?")

    def _lose(self, what: str) -> None:
        self._failed(PartyLostError(f"{self} {what}", self.index))


def _stopped(payload: bytes) -> StoppedError:
    try:
        told = json.loads(payload)
        party, cause = told["party"], told["cause"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise FrameError("it stops without a cause that can be read") from error
    if not isinstance(party, int) or not isinstance(cause, str):
        raise FrameError("it stops without a cause that can be read")
    return StoppedError(party, printable(cause))


def printable(text: str) -> str:
    """Return a text from elsewhere without what could command a terminal."""
    return "".join(each if each.isprintable() else "?" for each in text)
