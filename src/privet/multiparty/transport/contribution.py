"""What an owner hands in to a server, and how a long message travels in parts."""

import asyncio
import hashlib
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace

# digest of the study, number of the release, rows of the owner, whether it waits, number of the attempt
_HEADER = struct.Struct("<32sIQ?Q")
OVERHEAD = 1024  # bytes of a message beside the share
PART = 1 << 20  # bytes of a message that is a part of a share
_STALLED = 20.0  # seconds within which the next part must arrive


@dataclass(frozen=True)
class Contribution:
    """What an owner hands in to one server for one release.

    Attributes
    ----------
    digest : bytes
        SHA-256 of the study on which the owner agrees.
    number : int
        Number of the release, from 0 on.
    rows : int
        How many rows the owner has. This number is public.
    waits : bool
        Whether the owner waits for what is opened.
    share : bytes
        The share of this server.
    attempt : int
        A random number of 64 bits, the same for all servers. Shares of one vector from different attempts do not add
        up to it, so servers use them only if their attempts are the same.
    """

    digest: bytes
    number: int
    rows: int
    waits: bool
    share: bytes
    attempt: int = 0

    @property
    def length(self) -> int:
        """Bytes of the message."""
        return _HEADER.size + len(self.share)

    def to_bytes(self) -> bytes:
        """Return the message that is sent."""
        return _HEADER.pack(self.digest, self.number, self.rows, self.waits, self.attempt) + self.share

    @classmethod
    def from_bytes(cls, message: bytes) -> "Contribution":
        """Read a message. Raise ValueError if it is too short."""
        if len(message) < _HEADER.size:
            raise ValueError(f"the message has {len(message)} bytes, fewer than its header")
        digest, number, rows, waits, attempt = _HEADER.unpack_from(message)
        return cls(digest, number, rows, waits, message[_HEADER.size :], attempt)

    def settled(self) -> "Contribution":
        """Return what suffices to recognise the contribution when it arrives again: the share's SHA-256 replaces it."""
        return replace(self, share=hashlib.sha256(self.share).digest())


def parts_of(message: bytes) -> Iterator[bytes]:
    """Return a message in parts that a server accepts."""
    return (message[start : start + PART] for start in range(0, len(message), PART))


async def joined(parts: AsyncIterator[bytes], longest: int, turn: AbstractAsyncContextManager[object]) -> bytes:
    """Return the message of a call. Of several parts, all but the first are read during the caller's ``turn``.

    Only the last part may be short, and each must arrive soon: others wait for their turns. Raise TimeoutError if a
    part does not arrive, and ValueError if the message is too long.
    """
    arriving = aiter(parts)
    part = await anext(arriving, b"")
    if len(part) < PART:
        return part
    message = bytearray(part)
    async with turn:
        while len(part) == PART:
            async with asyncio.timeout(_STALLED):
                part = await anext(arriving, b"")
            message += part
            if len(message) > longest + OVERHEAD:
                raise ValueError(f"a message has at most {longest + OVERHEAD} bytes.")
        return bytes(message)
