"""Frames and mailboxes: the size of what a peer sends is checked before it is accepted."""

import asyncio
import socket
import struct
import tracemalloc

import pytest

from privet.multiparty.transport import connection
from privet.multiparty.transport.connection import LARGEST, OVERHEAD, Channel, FrameError, Kind, Mailbox, Peer
from privet.multiparty.transport.errors import PartyLostError


async def pair():
    """Return a channel and the plain writer at its other end."""
    one, other = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=one)
    _, bare = await asyncio.open_connection(sock=other)
    return Channel(reader, writer), bare


async def read(data):
    channel, bare = await pair()
    bare.write(data)
    bare.write_eof()
    try:
        return await channel.read(), channel.bytes_received
    finally:
        bare.close()
        await channel.close()


def test_a_frame_arrives_as_it_was_sent():
    async def scene():
        one, other = socket.socketpair()
        left = Channel(*await asyncio.open_connection(sock=one))
        right = Channel(*await asyncio.open_connection(sock=other))
        for kind, payload, label in (
            (Kind.SHARE, b"abc", -(2**63)),
            (Kind.MESSAGE, b"", 2**63 - 1),
            (Kind.END, b"", 0),
        ):
            left.write(kind, payload, label)
            assert await right.read() == (kind, label, payload)
        assert left.bytes_sent == right.bytes_received == 3 * 13 + 3
        await asyncio.gather(left.close(), right.close())
        left.write(Kind.END)  # The connection is closed; only the reading end reports that.
        with pytest.raises((EOFError, OSError)):
            await right.read()

    asyncio.run(scene())


@pytest.mark.parametrize("kind", list(Kind))
def test_a_length_beyond_the_bound_is_refused_before_anything_is_read(kind):
    tracemalloc.start()
    with pytest.raises(FrameError, match="announced"):
        asyncio.run(read(struct.pack("<BqI", kind, 0, LARGEST[kind] + 1)))
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def test_a_length_within_the_bound_allocates_nothing_by_itself():
    tracemalloc.start()
    with pytest.raises(EOFError):
        asyncio.run(read(struct.pack("<BqI", Kind.SHARE, 0, LARGEST[Kind.SHARE]) + b"only these"))
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n", bytes(20), b"\xff" * 20])
def test_bytes_of_other_protocols_are_refused(data):
    with pytest.raises(FrameError, match="do not belong to this protocol"):
        asyncio.run(read(data))


def test_a_payload_that_the_peer_would_refuse_is_not_sent():
    async def scene():
        channel, bare = await pair()
        with pytest.raises(ValueError, match="at most 4096 bytes, got 4097"):
            channel.write(Kind.STOP, bytes(4097))
        bare.close()
        await channel.close()

    asyncio.run(scene())


def test_every_kind_has_a_largest_payload():
    assert set(LARGEST) == set(Kind)
    assert max(LARGEST.values()) <= 64 * connection.MEBIBYTE


def test_a_mailbox_delivers_messages_that_arrive_before_or_after_they_are_requested():
    async def scene():
        box = Mailbox()
        box.put(1, b"early")
        assert box.asked_since is None
        assert await box.get(1) == b"early"
        late = box.get(2)
        since = box.asked_since
        assert since is not None
        box.get(3)
        assert box.asked_since == since
        box.put(2, b"late")
        assert await late == b"late"
        assert box.asked_since == since  # The third is still missing.
        box.get(4).cancel()
        box.put(4, b"no longer requested")
        box.put(3, b"")
        assert box.asked_since is None

    asyncio.run(scene())


def test_messages_sent_before_the_end_are_still_delivered():
    async def scene():
        one, other = socket.socketpair()
        far = Channel(*await asyncio.open_connection(sock=other))
        failures = []
        near = Peer(1, "there", Channel(*await asyncio.open_connection(sock=one)), failures.append)
        far.write(Kind.SHARE, b"a share", -5)
        far.write(Kind.MESSAGE, b"a message", 1)
        far.write(Kind.END)
        await near.listen()
        assert await near.receive(-5) == b"a share"
        assert await near.message(1) == b"a message"
        assert not failures
        near.message(2)
        near.receive(6)
        assert [str(each).split(".")[0] for each in failures] == [
            "party 1 (there) has finished, but this party still waits for a message from it"
        ] * 2
        await asyncio.gather(far.close(), near.channel.close())

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("kind", "payload"),
    [(Kind.HELLO, b""), (Kind.STOP, b"\xff"), (Kind.STOP, b"[]"), (Kind.STOP, b'{"party": "1", "cause": 2}')],
)
def test_a_frame_that_is_not_allowed_ends_the_connection(kind, payload):
    async def scene():
        one, other = socket.socketpair()
        far = Channel(*await asyncio.open_connection(sock=other))
        failures = []
        near = Peer(1, "there", Channel(*await asyncio.open_connection(sock=one)), failures.append)
        far.write(kind, payload)
        await near.listen()
        await asyncio.gather(far.close(), near.channel.close())
        return failures

    (error,) = asyncio.run(scene())
    assert isinstance(error, PartyLostError) and "does not follow the protocol" in str(error)


def test_a_mailbox_refuses_repeated_and_too_many_messages(monkeypatch):
    monkeypatch.setattr(connection, "MOST_HELD", 100 + OVERHEAD)

    async def scene():
        box = Mailbox()
        box.put(1, bytes(60))
        await box.get(1)
        box.put(2, bytes(60))  # There is room again.
        with pytest.raises(FrameError, match="far more"):
            box.put(3, bytes(60))
        box = Mailbox()
        box.put(1, b"")
        with pytest.raises(FrameError, match="twice"):
            box.put(1, b"")

    asyncio.run(scene())


def test_the_memory_of_empty_messages_is_counted(monkeypatch):
    """Keeping two million empty messages took 163 MB, while their payloads amount to nothing."""
    monkeypatch.setattr(connection, "MOST_HELD", 2**20)
    box = Mailbox()
    tracemalloc.start()
    with pytest.raises(FrameError, match="far more"):
        for label in range(10**6, 10**6 + 10_000):
            box.put(label, bytes(0))
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def test_only_awaited_messages_extend_the_deadline_of_a_peer():
    async def later():
        await asyncio.sleep(0.01)
        now = asyncio.get_running_loop().time()
        await asyncio.sleep(0.01)
        return now

    async def scene():
        one, other = socket.socketpair()
        far = Channel(*await asyncio.open_connection(sock=other))
        near = Peer(1, "there", Channel(*await asyncio.open_connection(sock=one)), failures.append)
        listening = asyncio.create_task(near.listen())
        assert near.awaited_since is None
        times = [await later()]
        message = near.message(1)
        times.append(await later())
        share = near.receive(7)
        since = near.awaited_since
        assert times[0] < since < times[1]  # since the first of both requests
        times.append(await later())
        for kind, label in ((Kind.PING, 1), (Kind.PONG, 1), (Kind.READY, 0), (Kind.SHARE, 8), (Kind.MESSAGE, 7)):
            far.write(kind, label=label)
        assert await far.read() == (Kind.PONG, 1, b"")
        assert await near.receive(8) == b""  # All of them have arrived by now.
        assert near.awaited_since == since
        far.write(Kind.MESSAGE, b"awaited", 1)
        assert await message == b"awaited"
        assert near.awaited_since > times[2]  # The share is still missing.
        far.write(Kind.SHARE, b"", 7)
        await share
        assert near.awaited_since is None
        far.write(Kind.END)
        await listening
        await asyncio.gather(far.close(), near.channel.close())

    failures = []
    asyncio.run(scene())
    assert not failures


def test_a_peer_that_pings_without_reading_the_answers_cannot_fill_the_memory(monkeypatch):
    monkeypatch.setattr(connection, "_MOST_UNREAD", 1000)

    async def scene():
        channel, bare = await pair()
        bare.transport.pause_reading()
        channel._writer.write(bytes(2**22))  # more than the socket takes
        before = channel._writer.transport.get_write_buffer_size()
        assert before > 1000
        channel.write(Kind.PONG)
        assert channel._writer.transport.get_write_buffer_size() == before
        channel.write(Kind.MESSAGE)
        assert channel._writer.transport.get_write_buffer_size() > before
        bare.transport.abort()
        await channel.close()

    asyncio.run(scene())
