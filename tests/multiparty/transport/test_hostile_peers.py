"""Callers and peers that are slow, silent, greedy, or send nonsense: they are dropped, and nobody else is disturbed."""

import asyncio
import contextlib
import json
import socket
import ssl
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("mpyc", reason="several parties need MPyC: install the extra multiparty")
pytest.importorskip("cryptography", reason="several parties need cryptography: install the extra multiparty")

from privet.multiparty import Network, make_keys
from privet.multiparty.protocol import mpyc_runtime
from privet.multiparty.transport import connection, hand_in, handshake
from privet.multiparty.transport.connection import LARGEST, MOST_HELD, Channel, FrameError, Kind, Peer
from privet.multiparty.transport.errors import NetworkError, PartyLostError, StoppedError

HOST = "127.0.0.1"
TIME = 60.0  # seconds within which everything must end, on a slow machine, too
HEADER = struct.Struct("<BqI")


def run(coroutine):
    """Run a coroutine as `privet party` does. Importing MPyC alone, as above, may have chosen another event loop."""
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        return runner.run(coroutine)


def frame(kind, payload=b"", length=None, label=0):
    return HEADER.pack(kind, label, len(payload) if length is None else length) + payload


def hello(**changes):
    greeting = {"from": 0, "to": 2, "parties": 3, "engine": mpyc_runtime.description()}
    return frame(Kind.HELLO, json.dumps(greeting | changes).encode())


def beside_a_listening_party(scene, keys=None):
    """Run ``scene(address)`` while party 2 waits for its first caller."""

    async def main():
        with socket.create_server((HOST, 0)) as found:
            address = found.getsockname()
        network = Network(((HOST, 1), (HOST, 2), address), 2, keys, connect_timeout=300.0)
        listening = asyncio.Event()
        waiting = asyncio.create_task(wait_in(network, listening))
        await listening.wait()
        try:
            async with asyncio.timeout(TIME):
                return await scene(address)
        finally:
            assert not waiting.done()
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await waiting

    return run(main())


async def wait_in(network, listening):
    async with network.connect(lambda missing: listening.set()):
        pytest.fail("Not all parties have called.")


async def answer(address, *data, context=None):
    """Send bytes one after the other, and return everything that is answered until the connection ends."""
    name = None if context is None else "party-2.privet.invalid"
    reader, writer = await asyncio.open_connection(*address, ssl=context, server_hostname=name)
    try:
        for each in data:
            writer.write(each)
            await asyncio.sleep(0.01)
        return await reader.read()
    except OSError:  # The connection was reset, because something was sent after it had ended.
        return b""
    finally:
        writer.close()


async def is_welcome(address):
    reader, writer = await asyncio.open_connection(*address)
    writer.write(hello())
    found = await reader.readexactly(HEADER.size)
    writer.close()
    return found[0] == Kind.WELCOME


# ----------------------------------------------------------------------------------------- before it is known who calls


@pytest.mark.parametrize("kind", [each for each in Kind if each is not Kind.HELLO])
def test_a_caller_that_announces_anything_but_a_greeting_is_dropped_before_it_sends_it(kind, monkeypatch):
    """Each of 128 callers could make a party keep 64 MiB, and the certificate of an owner was enough for it."""
    monkeypatch.setattr(handshake, "_GREETING", 300.0)
    assert beside_a_listening_party(lambda address: answer(address, frame(kind, length=LARGEST[kind]))) == b""


def test_a_caller_that_was_welcomed_can_send_only_its_seeds(monkeypatch):
    monkeypatch.setattr(handshake, "_GREETING", 300.0)
    announced = frame(Kind.SHARE, length=LARGEST[Kind.SHARE])
    assert beside_a_listening_party(lambda address: answer(address, hello(), announced)) == frame(Kind.WELCOME)


@pytest.mark.parametrize("has_keys", [False, True])
def test_callers_that_are_silent_or_send_one_byte_at_a_time_are_dropped(has_keys, monkeypatch, tmp_path):
    monkeypatch.setattr(handshake, "_GREETING", 0.3)
    folder = make_keys(tmp_path / "keys", ["a", "b", "c"]) if has_keys else None

    async def scene(address):
        slowly = [hello()[place : place + 1] for place in range(20)]
        return await asyncio.gather(answer(address), answer(address, b"\x16\x03"), answer(address, *slowly))

    assert not any(beside_a_listening_party(scene, folder))


def test_the_certificate_of_an_owner_does_not_make_its_caller_a_party(tmp_path):
    folder = make_keys(tmp_path / "keys", ["a", "b", "c"], owners=["north", "south"])
    context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    context.load_cert_chain(folder / "owner_0.crt", folder / "owner_0.key")
    said = beside_a_listening_party(lambda address: answer(address, hello(), context=context), folder)
    assert said[0] == Kind.REFUSAL
    assert b"issued to owner 0 (north), but one of a party is needed" in said


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=3)
)
GREETINGS = st.lists(
    st.binary(max_size=60)
    | st.binary(max_size=60).map(lambda payload: frame(Kind.HELLO, payload))
    | st.dictionaries(st.sampled_from(["from", "to", "parties", "engine", "x"]), JSON).map(
        lambda changes: frame(Kind.HELLO, json.dumps(changes).encode()[: LARGEST[Kind.HELLO]])
    )
    | st.fixed_dictionaries({"from": st.integers(), "to": st.integers()}).map(lambda changes: hello(**changes)),
    max_size=20,
)


@settings(max_examples=10, deadline=None, derandomize=True)
@given(GREETINGS)
def test_no_greeting_can_disturb_a_party_that_waits_for_others(greetings):
    async def scene(address):
        for greeting in greetings:
            reader, writer = await asyncio.open_connection(*address)
            writer.write(greeting)
            writer.write_eof()
            said = await reader.read()
            assert not said or said[0] in (Kind.REFUSAL, Kind.WELCOME)
            writer.close()
        return await is_welcome(address)

    assert beside_a_listening_party(scene)


def test_a_server_for_owners_disconnects_callers_that_say_nothing(monkeypatch, tmp_path):
    """600 of them kept all owners away from a server with 256 file handles, because gRPC waits two minutes."""
    pytest.importorskip("grpc", reason="owners hand in shares over gRPC: install the extra multiparty")
    monkeypatch.setattr(hand_in, "_GREETING", 0.5)
    folder = make_keys(tmp_path / "keys", ["a", "b"], owners=["north"])

    async def scene():
        with socket.create_server((HOST, 0)) as found:
            address = found.getsockname()
        reception = hand_in.Reception(bytes(32), 1, (folder / "ca.crt").read_bytes())
        async with reception.listening(*address, folder, 0, longest=64), asyncio.timeout(TIME):
            assert await answer(address) == b""
            assert await answer(address, b"\x16\x03") == b""

    run(scene())


# --------------------------------------------------------------------------------------------- peers that are connected


async def connected(failures):
    """Return a peer, and the plain reader and writer at its other end."""
    one, other = socket.socketpair()
    near = Peer(1, "there", Channel(*await asyncio.open_connection(sock=one)), failures.append)
    return near, *await asyncio.open_connection(sock=other)


FRAMES = st.lists(
    st.builds(
        frame,
        st.sampled_from([each.value for each in Kind]) | st.integers(0, 255),
        st.binary(max_size=40),
        st.none() | st.integers(0, 2**32 - 1) | st.integers(0, 60),
        st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1),
    )
    | st.builds(lambda value: frame(Kind.STOP, json.dumps(value).encode()), JSON)
    | st.builds(
        lambda party, cause: frame(Kind.STOP, json.dumps({"party": party, "cause": cause}).encode()), JSON, JSON
    ),
    max_size=12,
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(FRAMES, st.integers(0, 60))
def test_whatever_a_peer_sends_ends_in_a_named_error_or_in_an_orderly_end(frames, cut):
    async def scene():
        near, _, writer = await connected(failures)
        data = b"".join(frames)
        writer.write(data[: max(0, len(data) - cut)])
        writer.write_eof()
        async with asyncio.timeout(TIME):
            await near.listen()
        assert near.over.is_set()
        writer.close()
        await near.channel.close()

    failures = []
    run(scene())
    assert len(failures) <= 1  # None after an orderly end
    for error in failures:
        assert isinstance(error, NetworkError)
        assert isinstance(error, StoppedError) or str(error).startswith("party 1 (there) ")
        assert str(error).isprintable()


def test_a_connected_peer_cannot_repeat_the_handshake():
    async def scene():
        near, _, writer = await connected([])
        for kind in (Kind.HELLO, Kind.WELCOME, Kind.REFUSAL, Kind.SEEDS):
            writer.write(frame(kind))
            with pytest.raises(FrameError, match=f"kind {kind.name}, which does not belong here"):
                await near.channel.read(connection._AFTER_THE_HANDSHAKE)
        writer.close()
        await near.channel.close()

    run(scene())


def test_a_peer_that_does_not_read_is_lost_before_it_fills_the_memory(monkeypatch):
    """It can still send whatever this party waits for, and so would never be late."""
    assert MOST_HELD <= 2**28
    monkeypatch.setattr(connection, "MOST_HELD", 2**20)

    async def scene():
        near, _, writer = await connected(failures)
        writer.transport.pause_reading()
        listening = asyncio.create_task(near.listen())
        for number in range(64):
            near.channel.write(Kind.MESSAGE, bytes(2**18), number)
            await asyncio.sleep(0)
            assert near.channel._writer.transport.get_write_buffer_size() <= 2**20 + 2**19
        async with asyncio.timeout(TIME):
            await listening
        assert near.channel.bytes_sent < 2**23
        writer.transport.abort()
        await near.channel.close()

    failures = []
    run(scene())
    (error,) = failures
    assert isinstance(error, PartyLostError)
    assert "party 1 (there) is no longer connected (it does not read what it is sent)" in str(error)


def test_small_messages_are_sent_at_once_by_both_ends():
    """Nagle's algorithm would keep one back until the other end acknowledges the one before, up to 40 ms later."""

    async def scene():
        loop = asyncio.get_running_loop()
        with socket.create_server((HOST, 0)) as listener:
            listener.setblocking(False)
            calling = asyncio.create_task(asyncio.open_connection(*listener.getsockname()))
            accepted, _ = await loop.sock_accept(listener)
            answering = await handshake._accepted(accepted, None)
            _, caller = await calling
        sockets = [each.get_extra_info("socket") for each in (caller, answering._writer)]
        found = [each.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for each in sockets]
        caller.close()
        await answering.close()
        return found

    assert all(run(scene()))
