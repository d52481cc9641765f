"""Parties as real processes over real sockets: how they connect, authenticate, lose one another and stop together."""

import asyncio
import contextlib
import json
import logging
import pickle
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("mpyc", reason="several parties need MPyC: install the extra multiparty")
pytest.importorskip("cryptography", reason="several parties need cryptography: install the extra multiparty")
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from privet.multiparty import Network, make_keys
from privet.multiparty.identity import keys as key_making
from privet.multiparty.identity.certificates import ExpiredError, host_name
from privet.multiparty.protocol import mpyc_runtime
from privet.multiparty.transport.errors import PartyMissingError, PartyRefusedError, PortInUseError

sys.path.insert(0, str(Path(__file__).parents[1]))

import network_party
from parties import HOST, PATIENCE, Machine

# ------------------------------------------------------------------------------------------------------------ processes


class Study:
    """Three parties on this machine, each with a port that is reserved for it."""

    def __init__(self, folder, machine):
        self.folder, self._machine = folder, machine
        self.addresses = [(HOST, port) for port in machine.ports]
        self.processes = {}

    def start(self, *indices, do="exchange", addresses=None, name=None, **options):
        """Start parties. ``name`` distinguishes two parties with the same index."""
        for index in indices:
            key = index if name is None else name
            orders = {"addresses": addresses or self.addresses, "index": index, "do": do, **options}
            self.processes[key] = self._machine.start(self.folder / str(key), network_party.main, orders)

    def events(self, key):
        """Return the events that a party has printed."""
        lines = self.processes[key].out.splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]

    def until(self, key, what, **fields):
        """Return the event of a party with this name and these fields, as soon as it happens."""

        def happened():
            wanted = {"what": what, **fields}
            return [event for event in self.events(key) if wanted.items() <= event.items()]

        self.processes[key].until(happened)
        return happened()[0]

    def end(self, *keys):
        """Wait for parties to end, and return the last event of each."""
        for key in keys:
            party = self.processes[key]
            assert party.wait() == 0, party.out + party.err
            assert "Traceback" not in party.out + party.err, party.out + party.err
        return [self.events(key)[-1] for key in keys]


@pytest.fixture
def study(tmp_path):
    with Machine() as machine:
        yield Study(tmp_path, machine)


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return make_keys(tmp_path_factory.mktemp("study") / "keys", ["North", "South", "West"])


@pytest.fixture(scope="module")
def other_keys(tmp_path_factory):
    return make_keys(tmp_path_factory.mktemp("other") / "keys", ["North", "South", "West"])


def own_authority(folder, days=30):
    """Make keys with an authority whose key is known. Parties 0 and 2 are valid, party 1 expired yesterday."""
    folder.mkdir()
    now = datetime.now(UTC)
    begin, end = now - timedelta(days=9), now + timedelta(days=days)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = key_making.make_authority(authority_key, begin, end)
    (folder / "ca.crt").write_bytes(key_making.to_pem(authority))
    for index in range(3):
        key = ec.generate_private_key(ec.SECP256R1())
        until = now - timedelta(days=1) if index == 1 else end
        issued = key_making.issue(index, "somebody", key.public_key(), (authority, authority_key), begin, until)
        (folder / f"party_{index}.crt").write_bytes(key_making.to_pem(issued))
        (folder / f"party_{index}.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
    return folder


async def connected(network, **options):
    async with network.connect(**options) as session:
        return session.index


# --------------------------------------------------------------------------------------------------- when all goes well


def test_a_secure_computation_gives_the_right_results(study):
    study.start(0, 1, 2, do="compute")
    study.end(0, 1, 2)
    computed = [study.until(index, "computed") for index in range(3)]
    for index, each in enumerate(computed):
        assert each["total"] == [6 * i - 21 for i in range(5)]
        assert each["product"] == [(i - 7) * (2 * i - 7) for i in range(5)]
        assert each["single"] == 6
        assert each["shape"] == [index, 3, 1]
        assert each["bits"] == computed[0]["bits"]
        assert each["sent"] > 2000 and each["received"] > 2000
    bits = computed[0]["bits"]
    assert set(bits) == {0, 1}
    assert abs(sum(bits) - 1000) < 5 * 22.4  # five standard deviations


def test_a_process_can_run_several_sessions_in_sequence(study):
    study.start(0, 1, 2, sessions=3)
    study.end(0, 1, 2)
    for index in range(3):
        texts = [event for event in study.events(index) if event["what"] == "texts"]
        assert [each["texts"] for each in texts] == [["from 0", "from 1", "from 2"]] * 3
        assert [each["sent"] for each in texts] == [2 * (13 + 6)] * 3  # two peers, a header of 13, six letters
    ends = [[event["counted"] for event in study.events(index) if event["what"] == "ended"] for index in range(3)]
    for session in zip(*ends, strict=True):
        sent, received = (sum(counts) for counts in zip(*session, strict=True))
        assert sent == received > 0


def test_with_keys_all_parties_authenticate_and_sign(study, keys):
    study.start(0, 1, 2, do="signatures", keys=str(keys))
    assert [each["what"] for each in study.end(0, 1, 2)] == ["ended"] * 3
    assert [study.until(index, "signed")["name"] for index in range(3)] == ["North", "South", "West"]


def test_parties_wait_for_one_that_connects_late(study):
    study.start(0, 1)
    assert study.until(0, "waiting")["missing"] == [1, 2]
    study.until(0, "waiting", missing=[2])
    time.sleep(0.3)
    assert not any(event["what"] == "connected" for event in study.events(0))
    assert [event["missing"] for event in study.events(0) if event["what"] == "waiting"][-1] == [2]
    study.start(2)
    assert [each["what"] for each in study.end(0, 1, 2)] == ["ended"] * 3
    assert [event["missing"] for event in study.events(0) if event["what"] == "waiting"][-1] == []


def test_a_computation_longer_than_the_timeout_is_allowed(study):
    study.start(0, 1, 2, do="slow", pause=1.2, timeout=0.5)
    assert [each["what"] for each in study.end(0, 1, 2)] == ["ended"] * 3


# ----------------------------------------------------------------------------------------------------- when one is lost


def test_a_party_that_never_listens_is_named(study):
    study.start(0, 1, connect_timeout=1.5)
    zero, one = study.end(0, 1)
    for each in (zero, one):
        assert each["kind"] in (
            "PartyMissingError",
            "StoppedError",
        )  # If both give up, one may hear of it from the other first.
        assert f"party 2 ({HOST}:{study.addresses[2][1]}): no process listens there" in each["text"]
    assert "PartyMissingError" in (zero["kind"], one["kind"])


def test_a_party_that_never_calls_is_named(study):
    study.start(1, 2, connect_timeout=1.5)
    for each in study.end(1, 2):
        assert "party 0 did not connect within 1.5 s" in each["text"]
        assert "has not called" in each["text"]


def test_a_party_that_dies_during_the_handshake_is_noticed_at_once(study):
    study.start(0, 1)
    study.until(0, "waiting", missing=[2])
    study.processes[1].kill()
    now = time.monotonic()
    (error,) = study.end(0)
    assert error["kind"] == "PartyLostError" and "party 1 (" in error["text"]
    assert error["time"] - now < 3.0  # It would have waited 20 seconds.


@pytest.mark.parametrize("do", ["hold", "share"])
def test_a_killed_party_is_noticed_at_once_by_all_others(study, do):
    study.start(0, 1, 2, do=do, holder=2)
    for index in range(3):
        study.until(index, "connected")
    time.sleep(0.2)
    study.processes[2].kill()
    now = time.monotonic()
    for error in study.end(0, 1):
        assert error["kind"] in ("PartyLostError", "StoppedError")
        assert "party 2 (" in error["text"] and "closed the connection" in error["text"]
        assert error["time"] - now < 3.0


@pytest.mark.parametrize("do", ["hold", "share"])
def test_a_suspended_party_is_named_after_the_timeout(study, do):
    study.start(0, 1, 2, do=do, holder=2, timeout=1.0)
    for index in range(3):
        study.until(index, "connected")
    study.processes[2].suspend()
    for error in study.end(0, 1):
        assert error["kind"] in ("PartySilentError", "StoppedError")
        assert "party 2 (" in error["text"] and "did not answer" in error["text"]
        assert "party 1 (" not in error["text"]  # It waits as well and is not the cause.


def test_a_party_that_sends_but_not_what_is_awaited_is_given_up(study):
    study.start(0, 1, 2, do="chat", holder=2, timeout=0.5)
    errors = study.end(0, 1)
    assert "PartySilentError" in {error["kind"] for error in errors}
    assert all("party 2 (" in error["text"] for error in errors)


def test_the_cause_of_a_stop_reaches_all_parties_at_once(study):
    cause = "the columns differ \x1b[31m"
    study.start(0, 1, 2, do="stop", stopper=1, cause=cause)
    errors = study.end(0, 1, 2)
    for index in (0, 2):
        assert errors[index]["kind"] == "StoppedError"
        assert errors[index]["text"] == "party 1: the columns differ ?[31m"  # Control characters are removed.
        assert errors[index]["time"] - errors[1]["time"] < 3.0
    assert errors[1]["kind"] == "StoppedError"


def test_other_parties_do_not_learn_the_text_of_an_error(study):
    study.start(0, 1, 2, do="fail", stopper=1)
    errors = study.end(0, 1, 2)
    assert errors[1]["text"] == "record 17: age 203"
    for index in (0, 2):
        assert errors[index]["kind"] == "StoppedError"
        assert errors[index]["text"].startswith("party 1: ended with ValueError.")


class Evil:
    """An object that creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


@pytest.mark.parametrize("kind", ["pickle", "garbage", "too few"])
def test_malformed_shares_end_the_computation_and_execute_nothing(study, kind):
    mark = study.folder / "was here"
    evil = pickle.dumps(Evil(str(mark)))
    payload = {"pickle": evil, "garbage": b"\x05\x00abc", "too few": struct.pack("<H", 1) + b"\x01"}[kind]
    study.start(0, 1, 2, do="malformed", stopper=1, payload=payload.hex())
    errors = study.end(0, 1, 2)
    assert errors[0]["kind"] == "ValueError"
    for index in (1, 2):
        assert errors[index]["kind"] == "StoppedError" and "party 0" in errors[index]["text"]
    assert not mark.exists()
    pickle.loads(evil)
    assert mark.exists()  # Unpickling would have created it.


# ---------------------------------------------------------------------------------------------- strangers and impostors


def plain_strangers(address):
    """Yield connections that send nothing, garbage, a length beyond all bounds, and half a greeting."""
    for data in (b"", b"GET / HTTP/1.1\r\n\r\n", struct.pack("<BqI", 1, 0, 2**32 - 1), struct.pack("<BqI", 1, 0, 9)):
        stranger = socket.create_connection(address, timeout=5)
        stranger.sendall(data)
        yield stranger


def reach(address):
    for _ in range(int(PATIENCE / 0.02)):
        with contextlib.suppress(OSError):
            return socket.create_connection(address, timeout=5)
        time.sleep(0.02)
    return pytest.fail(f"Nobody listens at {address}.")


@pytest.mark.parametrize("has_keys", [False, True])
def test_unauthenticated_callers_cannot_keep_a_party_out(study, keys, has_keys):
    options = {"keys": str(keys)} if has_keys else {}
    study.start(1, 2, **options)
    with contextlib.ExitStack() as stack:
        for address in study.addresses[1:]:
            reach(address).close()
            for stranger in plain_strangers(address):
                stack.enter_context(stranger)
            for _ in range(300):  # more than are kept open
                stack.enter_context(socket.create_connection(address, timeout=5))
        study.start(0, **options)
        assert [each["what"] for each in study.end(0, 1, 2)] == ["ended"] * 3


def hello(from_party, to_party, parties=3, engine="MPyC 0.11, 64 bits"):
    text = json.dumps({"from": from_party, "to": to_party, "parties": parties, "engine": engine}).encode()
    return struct.pack("<BqI", 1, 0, len(text)) + text


def test_an_authenticated_caller_is_not_dropped_for_unauthenticated_ones(study):
    """It may already consider itself connected, and would take the other party for lost."""
    study.start(2)
    with contextlib.ExitStack() as stack:
        party = stack.enter_context(reach(study.addresses[2]))
        party.sendall(hello(0, 2, engine=mpyc_runtime.description()))
        assert party.recv(4096)[0] == 2  # welcome
        for _ in range(300):  # more than are kept open
            stack.enter_context(socket.create_connection(study.addresses[2], timeout=5))
        party.settimeout(1.0)
        with pytest.raises(TimeoutError):  # Nothing is sent, and the connection stays open.
            party.recv(4096)


def test_only_one_caller_at_a_time_can_authenticate_as_a_party(study):
    """A caller that repeats its greeting must not fill all the places for callers."""
    study.start(2)
    with reach(study.addresses[2]) as first, socket.create_connection(study.addresses[2], timeout=5) as second:
        first.sendall(hello(0, 2, engine=mpyc_runtime.description()))
        assert first.recv(4096)[0] == 2  # welcome
        second.sendall(hello(0, 2, engine=mpyc_runtime.description()))
        assert second.recv(4096) == b""


def greet_with(address, folder, certificate, *, as_party, to_party=1):
    """Greet a party over TLS with a certificate or without (None). Return the answer, empty if it disconnects."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # An impostor does not check whom it talks to.
    if certificate is not None:
        context.load_cert_chain(folder / f"party_{certificate}.crt", folder / f"party_{certificate}.key")
    try:
        with context.wrap_socket(reach(address)) as connection:
            connection.sendall(hello(as_party, to_party))
            return connection.recv(4096)
    except OSError:
        return b""


def test_impostors_are_refused_and_the_real_party_is_accepted(study, tmp_path, other_keys):
    """No certificate, another authority, an expired one, another party; the right certificate is the control."""
    ours = own_authority(tmp_path / "ours")
    study.start(2, keys=str(ours))
    address = study.addresses[2]
    assert greet_with(address, ours, None, as_party=0, to_party=2) == b""
    assert greet_with(address, other_keys, 0, as_party=0, to_party=2) == b""
    assert greet_with(address, ours, 1, as_party=1, to_party=2) == b""  # expired
    refusal = greet_with(address, ours, 2, as_party=0, to_party=2)
    assert refusal[0] == 3 and b"belongs to party 2 (somebody), not to party 0" in refusal
    refusal = greet_with(address, ours, 0, as_party=1, to_party=2)
    assert refusal[0] == 3 and b"belongs to party 0 (somebody), not to party 1" in refusal
    assert greet_with(address, ours, 0, as_party=0, to_party=2)[0] == 2  # welcome


def tls_server(stack, context):
    """Serve TLS on a new port until the end of the test, and return the address."""
    listener = stack.enter_context(socket.create_server((HOST, 0)))

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with contextlib.suppress(OSError), context.wrap_socket(connection, server_side=True) as tls:
                tls.recv(4096)

    threading.Thread(target=serve, daemon=True).start()
    return listener.getsockname()


@pytest.mark.parametrize(
    ("whose", "certificate", "words"),
    [("ours", 2, "another party"), ("ours", 1, "expired"), ("others", 1, "another authority")],
)
def test_a_server_that_poses_as_a_party_is_refused(tmp_path, other_keys, whose, certificate, words):
    ours = own_authority(tmp_path / "ours")
    folder = {"ours": ours, "others": other_keys}[whose]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / f"party_{certificate}.crt", folder / f"party_{certificate}.key")
    with contextlib.ExitStack() as stack:
        impostor = tls_server(stack, context)
        network = Network(((HOST, 1), impostor, (HOST, 2)), 0, ours, connect_timeout=10.0)
        with pytest.raises(PartyRefusedError, match=f"not party 1.*{words}") as caught:
            asyncio.run(connected(network))
    assert caught.value.party == 1


def tap(stack, target):
    """Forward the traffic between two parties. Return the address, and the bytes that were seen."""
    listener = stack.enter_context(socket.create_server((HOST, 0)))
    heard = bytearray()

    def pump(source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(4096):
                heard.extend(data)
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def serve():
        with contextlib.suppress(OSError):
            while True:
                caller, _ = listener.accept()
                try:
                    callee = socket.create_connection(target, timeout=PATIENCE)
                except OSError:
                    caller.close()
                    continue
                for pair in ((caller, callee), (callee, caller)):
                    threading.Thread(target=pump, args=pair, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    return listener.getsockname(), heard


@pytest.mark.parametrize("has_keys", [False, True])
def test_an_eavesdropper_can_read_messages_only_without_keys(study, keys, has_keys):
    options = {"keys": str(keys)} if has_keys else {}
    with contextlib.ExitStack() as stack:
        address, heard = tap(stack, study.addresses[1])
        study.start(0, addresses=[study.addresses[0], address, study.addresses[2]], **options)
        study.start(1, 2, **options)
        assert [each["what"] for each in study.end(0, 1, 2)] == ["ended"] * 3
        assert len(heard) > 100
        assert (b"from 0" in heard) is not has_keys
        assert (b"from 1" in heard) is not has_keys


# ------------------------------------------------------------------------------------------------ mistakes of the users


def test_a_second_party_with_the_same_index_is_refused(study):
    study.start(1)
    study.start(0, name="first")
    study.until("first", "waiting", missing=[2])
    study.start(0, name="second")
    (error,) = study.end("second")
    assert error["kind"] == "PartyRefusedError"
    assert "Party 0 is already connected. Check whether another process has the same index." in error["text"]
    study.start(2)  # The other parties are not disturbed.
    assert [each["what"] for each in study.end("first", 1, 2)] == ["ended"] * 3


def test_addresses_in_a_different_order_are_noticed(study):
    study.start(2)
    swapped = [study.addresses[0], study.addresses[2], study.addresses[1]]
    study.start(0, addresses=swapped)
    (error,) = study.end(0)
    assert error["kind"] == "PartyRefusedError"
    assert "This is party 2, not party 1. Compare the addresses" in error["text"]


@pytest.mark.parametrize(
    ("greeting", "words"),
    [
        (hello(0, 2, parties=4), b"Party 2 has a list of 3 parties, but the caller has a list of 4"),
        (hello(0, 2, engine="MPyC 0.10, 64 bits"), b"the caller runs MPyC 0.10"),
        (hello(2, 2), b"expects calls from lower indices, not from 2"),
        (hello(-1, 2), b"not from -1"),
        (struct.pack("<BqI", 1, 0, 2) + b"{}", b""),
        (struct.pack("<BqI", 6, 0, 0), b""),  # a share instead of a greeting
    ],
)
def test_a_wrong_greeting_is_refused_with_a_reason_or_disconnected(greeting, words):
    async def scene():
        with socket.create_server((HOST, 0)) as found:
            address = found.getsockname()
        network = Network(((HOST, 1), (HOST, 2), address), 2, connect_timeout=5.0)
        joining = asyncio.create_task(connected(network))
        await asyncio.sleep(0.1)
        reader, writer = await asyncio.open_connection(*address)
        writer.write(greeting)
        answer = await reader.read()
        writer.close()
        joining.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await joining
        return answer

    answer = asyncio.run(scene())
    assert words in answer if words else answer == b""


def test_a_port_in_use_is_reported():
    with socket.create_server((HOST, 0)) as taken:
        network = Network(((HOST, 1), (HOST, 2), taken.getsockname()), 2)
        with pytest.raises(PortInUseError, match=r"Party 2 cannot listen on port \d+\. It is in use"):
            asyncio.run(connected(network))


def test_a_host_name_that_cannot_be_resolved_is_named(keys):
    network = Network((("localhost", 1), ("nowhere.invalid", 2), (HOST, 3)), 0, keys, connect_timeout=1.0)
    with pytest.raises(PartyMissingError, match=r"party 1 \(nowhere\.invalid:2\): the host name cannot be resolved"):
        asyncio.run(connected(network))


def test_expired_keys_of_this_party_are_refused_before_connecting(tmp_path):
    ours = own_authority(tmp_path / "ours")
    with pytest.raises(ExpiredError, match="party 1"):
        asyncio.run(connected(Network(((HOST, 1), (HOST, 2), (HOST, 3)), 1, ours)))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"addresses": [(HOST, 1)]}, "2 to 20 parties"),
        ({"addresses": [(HOST, 1), (HOST, 1), (HOST, 2)]}, "same address"),
        ({"addresses": [(HOST, 0), (HOST, 1), (HOST, 2)]}, "is not an address"),
        ({"addresses": [("", 3), (HOST, 1), (HOST, 2)]}, "is not an address"),
        ({"index": 3}, "index must be one of 0 to 2, got 3"),
        ({"index": -1}, "index must be one of 0 to 2, got -1"),
        ({"timeout": 0.0}, "timeout"),
        ({"connect_timeout": float("inf")}, "connect_timeout"),
        ({"addresses": [("10.0.0.1", 1), (HOST, 1), (HOST, 2)]}, "10.0.0.1 is not this machine.*privet party keygen"),
        ({"addresses": [(HOST, 1), ("hospital.example", 1), (HOST, 2)]}, "hospital.example is not this machine"),
        ({"addresses": [(HOST, 1), ("127.0.0.1.example", 1), (HOST, 2)]}, "is not this machine"),
    ],
)
def test_invalid_networks_are_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        Network(**({"addresses": [(HOST, 1), (HOST, 2), (HOST, 3)], "index": 0} | changes))


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "::1"])
def test_loopback_addresses_need_no_keys(host):
    Network(((host, 1), (host, 2), (host, 3)), 0)


# ---------------------------------------------------------------------------------------------------------- the process


def test_a_process_runs_one_session_at_a_time_and_is_left_unchanged():
    arguments, handlers = sys.argv[:], logging.getLogger().handlers[:]
    nowhere = ((HOST, 1), (HOST, 2), (HOST, 3))

    async def scene():
        handler = asyncio.get_running_loop().get_exception_handler()
        first = asyncio.create_task(connected(Network(nowhere, 0, connect_timeout=0.5)))
        await asyncio.sleep(0.1)
        with pytest.raises(RuntimeError, match="one computation per process"):
            await connected(Network(nowhere, 0, connect_timeout=0.5))
        with pytest.raises(PartyMissingError):
            await first
        with pytest.raises(PartyMissingError):  # A third session starts afresh.
            await connected(Network(nowhere, 0, connect_timeout=0.1))
        assert asyncio.get_running_loop().get_exception_handler() is handler
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(scene())
    assert sys.argv == arguments
    assert logging.getLogger().handlers == handlers
    import mpyc.asyncoro
    import mpyc.runtime

    assert mpyc.runtime.pickle is pickle
    assert mpyc.asyncoro.runtime is None


def test_mpyc_is_imported_on_connecting_and_ignores_the_command_line():
    code = (
        "import sys, asyncio, privet.multiparty as p\n"
        "assert 'mpyc' not in sys.modules\n"
        "async def main():\n"
        "    addresses = [('127.0.0.1', port) for port in (1, 2, 3)]\n"
        "    async with p.Network(addresses, 0, connect_timeout=.1).connect():\n"
        "        pass\n"
        "try:\n"
        "    asyncio.run(main())\n"
        "except p.PartyMissingError:\n"
        "    print(*sys.argv[1:], 'mpyc' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "-M3", "-I", "x", "--help", "-V"], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("-M3 -I x --help -V True\n", "")


def test_the_host_name_in_a_certificate_depends_on_the_index_only():
    assert host_name(2) == "party-2.privet.invalid"
