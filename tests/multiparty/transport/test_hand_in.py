"""Handing in shares over real TLS connections: what a server accepts, what it refuses, and what an owner is told."""

import asyncio
import socket
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

pytest.importorskip("grpc", reason="owners hand in shares over gRPC: install the extra multiparty")

from privet.multiparty import make_keys
from privet.multiparty.identity.certificates import CertificateError, key_files
from privet.multiparty.transport import contribution as contribution_module
from privet.multiparty.transport import hand_in
from privet.multiparty.transport.contribution import PART, Contribution
from privet.multiparty.transport.hand_in import HandInError, Reception, Servers

HOST = "127.0.0.1"
DIGEST, LONGEST = bytes(range(32)), 64


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return make_keys(tmp_path_factory.mktemp("keys") / "keys", ["s0", "s1"], owners=["a", "b", "c", "d"])


@pytest.fixture(scope="module")
def other_keys(tmp_path_factory):
    return make_keys(tmp_path_factory.mktemp("other") / "keys", ["s0", "s1"], owners=["a", "b", "c", "d"])


def free_port():
    with socket.socket() as free:
        free.bind((HOST, 0))
        return free.getsockname()[1]


def contribution(share=b"share", number=0, rows=5, waits=False, digest=DIGEST):
    return Contribution(digest, number, rows, waits, share)


def run(work, keys, owners=3):
    """Run ``work(reception, connect)`` beside one server; connect(owner, keys) returns an owner's connections."""

    async def main():
        authority = (keys / "ca.crt").read_bytes()
        reception, port = Reception(DIGEST, owners, authority), free_port()

        def connect(owner, folder=keys, timeout=20.0):
            return Servers([(HOST, port)], owner, folder, timeout, LONGEST)

        async with asyncio.timeout(60), reception.listening(HOST, port, keys, 0, LONGEST):
            await reception.open(0)
            return await work(reception, connect)

    return asyncio.run(main())


async def handed_in(connect, owner, *contributions, **named):
    async with connect(owner, **named) as servers:
        return [await servers.hand_in([each]) for each in contributions]


def refusal(keys, owner, *contributions, **named):
    """Return the message with which the last contribution is refused."""

    async def work(reception, connect):
        with pytest.raises(HandInError) as refused:
            await handed_in(connect, owner, *contributions, **named)
        return str(refused.value)

    return run(work, keys)


def test_contributions_are_collected_as_soon_as_all_owners_have_handed_in(keys):
    async def work(reception, connect):
        for owner in range(3):
            await handed_in(connect, owner, contribution(b"share of %d" % owner, rows=owner + 1))
        return await reception.collected(60.0)

    found = run(work, keys)
    assert {owner: (each.share, each.rows) for owner, each in found.items()} == {
        owner: (b"share of %d" % owner, owner + 1) for owner in range(3)
    }


def test_those_who_wait_are_told_what_was_opened(keys):
    async def work(reception, connect):
        waiting = asyncio.create_task(handed_in(connect, 1, contribution(waits=True)))
        received = {}
        while not received:
            received = await reception.collected(0.1)
            await reception.open(0) if not received else None
        reception.answer(0, b"opened")
        late = await handed_in(connect, 1, contribution(waits=True))
        return await waiting, late

    waited, late = run(work, keys)
    assert waited == [[b"opened"]]
    assert late == [[b"opened"]]  # An owner whose connection broke asks again.


def test_the_same_share_may_arrive_twice_but_counts_once(keys):
    async def work(reception, connect):
        await handed_in(connect, 0, contribution(), contribution())
        return await reception.collected(0.2)

    assert len(run(work, keys)) == 1


def test_another_share_for_the_same_release_is_refused(keys):
    assert "owner 0 has already handed in another share" in refusal(keys, 0, contribution(), contribution(b"other"))


def test_another_study_is_refused(keys):
    assert "another study" in refusal(keys, 0, contribution(digest=bytes(32)))


def test_an_owner_beyond_the_number_of_owners_is_refused(keys):
    assert "owner 3 is not one of the 3 owners" in refusal(keys, 3, contribution())


def test_an_oversized_message_is_refused_before_it_is_read(keys):
    assert "larger than max" in refusal(keys, 0, contribution(bytes(4096)))


def test_a_late_contribution_is_refused(keys):
    async def work(reception, connect):
        reception.close()
        with pytest.raises(HandInError, match="release 0 is over"):
            await handed_in(connect, 0, contribution())

    run(work, keys)


def test_a_contribution_to_a_later_release_waits_until_it_is_opened(keys):
    async def work(reception, connect):
        early = asyncio.create_task(handed_in(connect, 2, contribution(number=1)))
        await asyncio.sleep(0.3)
        assert not early.done()
        await reception.open(1)
        await early
        return await reception.collected(0.2)

    assert list(run(work, keys)) == [2]


def test_a_stranger_is_refused(keys, other_keys):
    assert "did not accept a share" in refusal(keys, 0, contribution(), folder=other_keys, timeout=1.5)


def test_missing_keys_and_servers_that_do_not_run_are_reported_with_a_remedy(keys, tmp_path):
    async def call(folder):
        async with Servers([("127.0.0.1", 1)], 0, folder, 0.3, 1000) as servers:
            await servers.hand_in([contribution()])

    with pytest.raises(CertificateError, match="make keys with `privet party keygen`"):
        asyncio.run(call(tmp_path))
    with pytest.raises(HandInError, match="compare the address"):
        asyncio.run(call(keys))


def test_a_server_of_another_authority_is_not_told_anything(keys, other_keys):
    """The owner checks the server's certificate before it sends its share."""

    async def work(reception, connect):
        with pytest.raises(HandInError, match="did not accept a share"):
            await handed_in(connect, 0, contribution(), folder=other_keys, timeout=1.5)
        return await reception.collected(0.1)

    assert run(work, keys) == {}


def test_a_server_cannot_pretend_to_be_an_owner(keys, tmp_path):
    """Its certificate names another role, although the same authority signed it."""
    authority, certificate, key = key_files(keys, 1)
    for name, path in (("ca.crt", authority), ("owner_1.crt", certificate), ("owner_1.key", key)):
        (tmp_path / name).write_bytes(path.read_bytes())
    assert "was issued to party 1" in refusal(keys, 1, contribution(), folder=tmp_path)


@pytest.mark.parametrize("length", [0, 1, 44, 52])
def test_a_truncated_message_is_refused(length):
    with pytest.raises(ValueError, match="fewer than its header"):
        Contribution.from_bytes(contribution().to_bytes()[:length])


def test_a_message_is_read_as_it_was_written():
    sent = replace(contribution(b"\x00\xff" * 20, number=7, rows=2**40, waits=True), attempt=2**64 - 1)
    assert Contribution.from_bytes(sent.to_bytes()) == sent


@pytest.mark.parametrize("host", ["192.0.2.7", "north.example", "0.0.0.0", "::"])
def test_without_keys_no_share_leaves_this_machine_or_is_accepted_from_another(host):
    async def listen():
        async with Reception(DIGEST, 3, None).listening(host, free_port(), None, 0, LONGEST):
            pass

    with pytest.raises(ValueError, match="is not this machine"):
        asyncio.run(listen())
    with pytest.raises(ValueError, match="is not this machine"):
        Servers([(HOST, 9100), (host, 9100)], 0, None, 1.0, LONGEST)


def test_without_keys_shares_do_not_pass_through_a_proxy(monkeypatch):
    """A proxy would receive all shares in clear text."""

    async def main():
        with socket.socket() as proxy:
            proxy.bind((HOST, 0))
            proxy.listen()
            proxy.setblocking(False)
            monkeypatch.setenv("http_proxy", f"http://{HOST}:{proxy.getsockname()[1]}")
            monkeypatch.delenv("no_proxy", raising=False)
            monkeypatch.delenv("no_grpc_proxy", raising=False)
            reception, port = Reception(DIGEST, 1, None), free_port()
            async with reception.listening(HOST, port, None, 0, LONGEST):
                await reception.open(0)
                async with Servers([(HOST, port)], 0, None, 3.0, LONGEST) as servers:
                    await servers.hand_in([contribution()])
            with pytest.raises(BlockingIOError):
                proxy.accept()
            return await reception.collected(0.1)

    assert list(asyncio.run(main())) == [0]


def test_servers_may_have_addresses_of_ipv6():
    async def main():
        with socket.socket(socket.AF_INET6) as free:
            try:
                free.bind(("::1", 0))
            except OSError:
                pytest.skip("this machine has no IPv6")
            port = free.getsockname()[1]
        reception = Reception(DIGEST, 1, None)
        async with reception.listening("::1", port, None, 0, LONGEST):
            await reception.open(0)
            async with Servers([("::1", port)], 0, None, 20.0, LONGEST) as servers:
                await servers.hand_in([contribution()])
        return await reception.collected(0.1)

    assert list(asyncio.run(main())) == [0]


def test_keys_without_an_authority_are_refused(keys):
    """Otherwise callers would state their own index, although they have certificates."""

    async def listen():
        async with Reception(DIGEST, 3, None).listening(HOST, free_port(), keys, 0, LONGEST):
            pass

    with pytest.raises(ValueError, match="both keys and the certificate of the authority"):
        asyncio.run(listen())


def test_an_owner_cannot_make_any_number_of_calls_over_several_connections(keys):
    async def work(reception, connect):
        early = [asyncio.create_task(handed_in(connect, 0, contribution(number=1))) for _ in range(5)]
        done, waiting = await asyncio.wait(early, return_when=asyncio.FIRST_COMPLETED)
        assert [str(each.exception()).endswith("owner 0 is already making 4 calls.") for each in done] == [True]
        await handed_in(connect, 1, contribution())  # Other owners are not affected.
        await reception.open(1)
        await asyncio.gather(*waiting)
        return await reception.collected(0.1)

    assert list(run(work, keys)) == [0]


def test_a_certificate_with_another_name_than_the_study_lists_is_refused(keys):
    async def main():
        reception, port = Reception(DIGEST, 2, (keys / "ca.crt").read_bytes(), ["a", "z"]), free_port()
        async with reception.listening(HOST, port, keys, 0, LONGEST):
            await reception.open(0)
            async with Servers([(HOST, port)], 0, keys, 20.0, LONGEST) as servers:
                await servers.hand_in([contribution()])
            async with Servers([(HOST, port)], 1, keys, 20.0, LONGEST) as servers:
                with pytest.raises(HandInError, match="issued to b, but owner 1 of the study is z"):
                    await servers.hand_in([contribution()])
        return await reception.collected(0.0)

    assert list(asyncio.run(main())) == [0]


def test_a_long_share_arrives_in_parts_and_a_longer_one_is_refused(keys):
    share = bytes(range(256)) * (5 << 12)  # 5 MiB

    async def main():
        reception, port = Reception(DIGEST, 3, (keys / "ca.crt").read_bytes()), free_port()
        async with reception.listening(HOST, port, keys, 0, len(share)):
            await reception.open(0)
            async with Servers([(HOST, port)], 0, keys, 20.0, LONGEST) as servers:
                await servers.hand_in([contribution(share)])
                assert servers.bytes_sent == contribution(share).length
            async with Servers([(HOST, port)], 1, keys, 20.0, LONGEST) as servers:
                with pytest.raises(HandInError, match="a message has at most"):
                    await servers.hand_in([contribution(share + bytes(2000))])
        return await reception.collected(0.0)

    assert {owner: each.share == share for owner, each in asyncio.run(main()).items()} == {0: True}


def test_a_share_that_was_added_and_forgotten_may_arrive_again_but_not_another_one():
    async def main():
        reception = Reception(DIGEST, 2, None)
        await reception.open(0)
        await reception.receive(0, contribution())
        reception.settle([0])
        assert await reception.collected(0.0) == {}
        await reception.receive(0, contribution())
        with pytest.raises(ValueError, match="already handed in another share"):
            await reception.receive(0, contribution(b"other"))
        assert (await reception.collected(0.0), reception.outstanding) == ({}, 1)

    asyncio.run(main())


def test_a_port_in_use_is_named(keys):
    async def main():
        with socket.socket() as used:
            used.bind((HOST, 0))
            used.listen()
            port = used.getsockname()[1]
            with pytest.raises(HandInError, match=f"cannot listen on {HOST}:{port}"):
                async with Reception(DIGEST, 1, (keys / "ca.crt").read_bytes()).listening(HOST, port, keys, 0, LONGEST):
                    pass

    asyncio.run(main())


def test_owners_whose_long_shares_stop_arriving_do_not_keep_others_from_handing_in(keys, monkeypatch):
    """There is room for a single long share. One owner stops in the middle, another sends empty parts without end."""
    monkeypatch.setattr(hand_in, "_MOST_READ", 1)
    monkeypatch.setattr(contribution_module, "_STALLED", 0.3)
    share = bytes(3 * PART)
    message = contribution(share).to_bytes()

    async def stalled():
        yield message[:PART]
        await asyncio.Event().wait()

    async def endless():
        yield message[:PART]
        while True:
            yield b""
            await asyncio.sleep(0.01)

    async def main():
        reception, port = Reception(DIGEST, 3, (keys / "ca.crt").read_bytes()), free_port()
        async with reception.listening(HOST, port, keys, 0, len(share)), AsyncExitStack() as stack:
            await reception.open(0)
            servers = [
                await stack.enter_async_context(Servers([(HOST, port)], owner, keys, 20.0, LONGEST))
                for owner in range(3)
            ]
            (call,), (other,) = servers[0]._calls, servers[1]._calls
            calls = [call(stalled()), call(stalled()), other(endless())]  # without a deadline
            waiting = [asyncio.ensure_future(each.code()) for each in calls]
            await asyncio.sleep(0.1)
            await servers[2].hand_in([contribution(share)])
            codes = [code.name for code in await asyncio.gather(*waiting[:2])]
        return codes, await reception.collected(0.0)

    async def timed():
        async with asyncio.timeout(30):
            return await main()

    codes, received = asyncio.run(timed())
    assert codes == ["UNAVAILABLE"] * 2
    assert received[2].share == share
    assert len(received[1].share) < PART  # No server can read it, so it is left out.


def test_an_owner_who_called_before_it_was_left_out_is_refused_in_the_next_release():
    async def main():
        reception = Reception(DIGEST, 2, None)
        await reception.open(0)
        early = asyncio.create_task(reception.receive(0, contribution(number=1)))
        await asyncio.sleep(0)
        reception.leave_out(0, "too large")
        await reception.open(1)
        with pytest.raises(ValueError, match="too large"):
            await early
        await reception.receive(1, contribution(number=1))
        assert list(await reception.collected(0.0)) == [1]

    asyncio.run(main())


def test_answers_to_earlier_releases_are_kept_only_as_long_as_they_take_little_memory(monkeypatch):
    monkeypatch.setattr(hand_in, "_MOST_READ", 20)

    async def main():
        reception = Reception(DIGEST, 1, None)
        for number in range(5):
            await reception.open(number)
            reception.answer(number, b"opened %d" % number)
        assert await reception.receive(0, contribution(number=3, waits=True)) == b"opened 3"
        with pytest.raises(ValueError, match="release 2 is over"):
            await reception.receive(0, contribution(number=2, waits=True))

    asyncio.run(main())
