"""One server of a committee, without a network: whom it counts, its noise, and what it keeps for a restart."""

import asyncio
import json
import resource
import socket
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mpyc", reason="several parties need MPyC: install the extra multiparty")

from privet.multiparty.protocol import collection, roles, server
from privet.multiparty.protocol.aggregation import JointProblem
from privet.multiparty.protocol.committee import (
    Committee,
    OwnerAggregator,
    read_answer,
    sharing_of,
    to_answer,
)
from privet.multiparty.protocol.server import ServerAggregator
from privet.multiparty.protocol.server_state import Masked, ServerState
from privet.multiparty.protocol.sharing import Additive, Shamir
from privet.multiparty.study import PartyInfo, Study, StudyError
from privet.multiparty.transport.contribution import Contribution
from privet.multiparty.transport.errors import PartyLostError
from privet.multiparty.transport.hand_in import HandInError, Reception
from privet.objectives import L2, Logistic
from privet.plans.aggregation import AggregationPlan
from privet.privacy import Budget, NoiseSource
from privet.privacy.noise.watch import watching
from privet.tables import Numeric, TableSchema, Target

sys.path.insert(0, str(Path(__file__).parents[1]))

from alone import alone

DIGEST = bytes(32)


def plan_of(dimension=3, steps=1):
    return AggregationPlan.for_budget(
        Budget(1.0, 1e-6), dimension=dimension, steps=steps, sensitivity=1.0, largest=100.0
    )


def opened(vectors, *, plan=None, rows=None, state=None, fewest=1, seed=0, before_release=None, times=1, shares=None):
    """Return the aggregator of a single server, and what it opens for the vectors of owners."""
    plan = plan or plan_of()
    sharing = Additive(1, plan.dimension)
    rows = rows or [10] * len(vectors)

    async def work(session):
        reception = Reception(DIGEST, len(vectors), None)
        aggregator = ServerAggregator(
            plan,
            Committee("one", 1),
            sharing,
            session,
            reception,
            state or ServerState(None, "study"),
            NoiseSource(seed),
            fewest=fewest,
            rows_limit=10,
            patience=0.2,
            before_release=before_release,
        )

        async def owners(number):
            for owner, vector in enumerate(vectors):
                (share,) = sharing.split(np.asarray(vector), NoiseSource(owner))
                share = share if shares is None else shares[owner] or share
                await reception.receive(owner, Contribution(DIGEST, number, rows[owner], False, share))

        found = []
        for number in range(times):
            calls = asyncio.create_task(owners(number))
            try:
                found.append(np.rint(await aggregator.noisy_sum(None) * plan.scale).astype(np.int64))
            finally:
                calls.cancel()
        return aggregator, found

    return alone(work)


def test_each_server_adds_the_noise_of_the_whole_plan_to_its_share():
    plan = plan_of(dimension=4000)
    vectors = [np.arange(4000), 7 * np.ones(4000, dtype=np.int64)]
    _, (total,) = opened(vectors, plan=plan)
    noise = total - vectors[0] - vectors[1]
    assert np.std(noise) == pytest.approx(plan.law.std, rel=0.05)
    assert abs(noise.mean()) < 5 * plan.law.std / np.sqrt(4000)


def test_audits_see_the_release_with_the_claim_of_the_plan():
    class Witness:
        def release(self, request, draw):
            seen.append(request)
            return draw()

    seen, plan = [], plan_of()
    with watching(Witness()):
        opened([np.zeros(3, dtype=np.int64)], plan=plan)
    assert [request.claim for request in seen] == [plan.claim()]


def test_the_noise_of_k_servers_is_stated():
    plan = plan_of()
    for trust, factor in (("one", np.sqrt(5)), ("majority", 1.0)):
        committee = Committee(trust, 5)
        owner = OwnerAggregator(plan, committee, None, None, None, DIGEST, 0, None)
        assert owner.noise_std == pytest.approx(factor * plan.noise_std)
        (condition,) = owner.conditions()
        assert not condition.is_enforced
        assert ("at least one of the 5 servers" in condition.text) == (trust == "one")
        assert ("no 3 of them combine" in condition.text) == (trust == "majority")
        assert "without amplification by sampling owners" in condition.text


@pytest.mark.parametrize("rows", [0, 11, 2**40])
def test_owners_with_too_few_or_too_many_rows_are_left_out(rows):
    aggregator, _ = opened([np.zeros(3, dtype=np.int64)] * 3, rows=[10, rows, 4])
    assert (aggregator.counts, aggregator.rows_of(None)) == ([10, 4], 14)


def test_owners_whose_share_cannot_be_read_are_left_out():
    aggregator, _ = opened([np.zeros(3, dtype=np.int64)] * 3, shares=[None, b"nonsense", None])
    assert aggregator.counts == [10, 10]


def test_too_few_owners_stop_the_study_before_anything_is_booked():
    booked = []
    with pytest.raises(StudyError, match="shares of 1 owner"):
        opened([np.zeros(3, dtype=np.int64)], fewest=2, before_release=lambda: booked.append(1))
    assert booked == []


def test_a_release_is_opened_again_with_the_same_noise_after_a_restart(tmp_path):
    booked = []
    plan = plan_of(steps=2)
    arguments = {"plan": plan, "times": 2, "before_release": lambda: booked.append(1)}
    _, first = opened([np.arange(3)], state=ServerState(tmp_path, "study"), seed=1, **arguments)
    (tmp_path / "release_000001.npz").unlink()
    (tmp_path / "release_000001.sent").unlink()
    _, second = opened([np.arange(3)], state=ServerState(tmp_path, "study"), seed=2, **arguments)
    assert (second[0] == first[0]).all()
    assert (second[1] != first[1]).any()  # The second release was lost before it was sent.
    assert booked == [1]


def test_what_was_sent_is_never_released_again_with_new_noise(tmp_path):
    """Another server that lost its share must not make this one draw new noise for the same sum."""
    state = ServerState(tmp_path, "study")
    state.store(0, Masked(np.zeros(3, dtype=np.uint64), {0: 10}))
    state.mark_sent(0)
    again = ServerState(tmp_path, "study")
    assert again.masked(0).is_sent

    async def work(session):
        exchange = session.exchange

        async def told(payload):
            return [*await exchange(payload), b""]  # a second server that has stored nothing

        session.exchange = told
        aggregator = ServerAggregator(
            plan_of(),
            Committee("one", 2),
            Additive(2, 3),
            session,
            Reception(DIGEST, 1, None),
            again,
            NoiseSource(0),
            rows_limit=10,
        )
        with pytest.raises(StudyError, match="has already sent its share of release 0"):
            await aggregator.noisy_sum(None)

    alone(work)


def test_a_share_of_an_attempt_that_was_given_up_is_never_sent(tmp_path):
    """Server 0 stored its share of the first attempt, server 1 did not. Server 0 is interrupted in the second attempt.

    In a third one, all servers would hold a share. If that of server 0 were the first one, shares of two sums with
    different noise would be sent. With trust "majority", a server that knows its own shares could open both.
    """
    states = [ServerState(tmp_path / f"{index}", "study") for index in range(2)]
    states[0].store(0, Masked(np.zeros(3, dtype=np.uint64), {0: 10}))
    with pytest.raises(StudyError, match="shares of 1 owner"):
        opened_by_two(handed_in_to_two([np.arange(3)]), states=states, fewest=2)
    assert ServerState(tmp_path / "0", "study").masked(0) is None
    first = opened_by_two(handed_in_to_two([np.arange(3)]), states=(ServerState(tmp_path / "0", "study"), None))
    assert (first[0][1] == first[1][1]).all()


class Linked:
    """The session of one of two servers in this process. All that they need of it is the exchange of messages."""

    def __init__(self, index, rounds):
        self.index, self._rounds, self._next = index, rounds, 0

    async def exchange(self, payload):
        futures = self._rounds.setdefault(self._next, [asyncio.get_running_loop().create_future() for _ in range(2)])
        self._next += 1
        futures[self.index].set_result(payload)
        return list(await asyncio.gather(*futures))

    async def wait(self, awaitable):
        return await awaitable

    async def stop(self, cause):
        pass


def opened_by_two(contributions, *, states=(None, None), before_release=(None, None), fewest=1):
    """Return the aggregators of two servers, and what each of them opens.

    ``contributions[server][owner]`` is what the server receives.
    """
    plan, rounds = plan_of(), {}

    async def served(index):
        owners = len(contributions[index])
        reception = Reception(DIGEST, owners, None)
        aggregator = ServerAggregator(
            plan,
            Committee("one", 2),
            Additive(2, 3),
            Linked(index, rounds),
            reception,
            states[index] or ServerState(None, "study"),
            NoiseSource(index),
            fewest=fewest,
            rows_limit=10,
            before_release=before_release[index],
        )
        calls = [reception.receive(owner, each) for owner, each in enumerate(contributions[index])]
        total, *_ = await asyncio.gather(aggregator.noisy_sum(None), *calls)
        return aggregator, np.rint(total * plan.scale)

    async def main():
        async with asyncio.timeout(20):
            return await asyncio.gather(served(0), served(1))

    return asyncio.run(main())


def handed_in_to_two(vectors, attempt=1, seed=0):
    """Return the contributions of owners to two servers."""
    split = [Additive(2, 3).split(np.asarray(each), NoiseSource(seed + owner)) for owner, each in enumerate(vectors)]
    return [[Contribution(DIGEST, 0, 10, False, shares[server], attempt) for shares in split] for server in range(2)]


def test_an_owner_whose_shares_are_of_different_attempts_is_left_out():
    """The first attempt reached one server only, which refuses the shares of the second. Their sum means nothing."""
    vectors = [np.array([500, -500, 7]), np.array([100, 200, 300])]
    first, second = handed_in_to_two(vectors), handed_in_to_two(vectors, attempt=2, seed=10)
    found = opened_by_two([[first[0][0], first[0][1]], [first[1][0], second[1][1]]])
    for aggregator, total in found:
        assert aggregator.counts == [10]
        assert np.abs(total - vectors[0]).max() < 2 * plan_of().law.reach


def test_an_owner_gives_all_servers_the_same_attempt_and_a_new_one_each_time():
    class Kept:
        async def hand_in(self, contributions):
            sent.append(contributions)

    sent, plan = [], plan_of()
    problem = JointProblem(Logistic(), L2(1.0), (4,), 1.0, 0.0, 3).of_zeros(4)
    owner = OwnerAggregator(plan, Committee("one", 2), Additive(2, 3), Kept(), problem, DIGEST, 0, NoiseSource(0))
    for _ in range(2):
        asyncio.run(owner.hand_in(lambda party: np.zeros(3), waits=False))
    first, second = ({each.attempt for each in contributions} for contributions in sent)
    assert len(first) == len(second) == 1
    assert first != second


def test_shares_are_added_in_rounds_and_forgotten(monkeypatch):
    """With room for two shares, five owners take three rounds at least, and the sum is that of all of them."""
    monkeypatch.setattr(collection, "_KEPT", 2 * Additive(2, 3).longest)
    kept = []
    settle = Reception.settle

    def watched(self, owners):
        kept.append(len(self._received))
        settle(self, owners)

    monkeypatch.setattr(Reception, "settle", watched)
    vectors, plan, rounds = [np.full(3, 10**place) for place in range(5)], plan_of(), {}
    given = handed_in_to_two(vectors)

    async def served(index):
        reception = Reception(DIGEST, 5, None)
        aggregator = ServerAggregator(
            plan,
            Committee("one", 2),
            Additive(2, 3),
            Linked(index, rounds),
            reception,
            ServerState(None, "study"),
            NoiseSource(index),
            rows_limit=10,
        )

        async def owners():
            while reception._number < 0:
                await asyncio.sleep(0)
            for owner in range(5):
                await reception.receive(owner, given[index][owner])
                while index == 0 and len(reception._received) > 1:  # until both servers added two
                    await asyncio.sleep(0)

        total, _ = await asyncio.gather(aggregator.noisy_sum(None), owners())
        return np.rint(total * plan.scale), aggregator

    async def main():
        async with asyncio.timeout(20):
            return await asyncio.gather(served(0), served(1))

    (total, first), (other, _) = asyncio.run(main())
    assert (total == other).all()
    assert first.counts == [10] * 5
    assert np.abs(total - sum(vectors)).max() < 2 * plan.law.reach
    assert len(kept) >= 2 * 3


def test_messages_longer_than_a_session_allows_are_sent_in_parts(monkeypatch):
    monkeypatch.setitem(collection.LARGEST, collection.Kind.MESSAGE, 10)
    rounds = {}

    async def main():
        told = (collection.exchange_long(Linked(index, rounds), bytes([index]) * 25) for index in range(2))
        return await asyncio.gather(*told)

    assert asyncio.run(main()) == [[bytes(25), b"\x01" * 25]] * 2
    assert [len(each[0].result()) for each in rounds.values()] == [10, 10, 5]


def test_servers_without_a_ledger_wait_for_those_with_one():
    booked = []
    found = opened_by_two(handed_in_to_two([np.arange(3)]), before_release=(lambda: booked.append(1), None))
    assert booked == [1]
    assert (found[0][1] == found[1][1]).all()


def test_no_server_sends_its_share_if_the_budget_of_another_one_is_exhausted(tmp_path):
    def refuse():
        raise ValueError("the limit is exceeded")

    state = ServerState(tmp_path, "study")
    with pytest.raises(ValueError, match="the limit is exceeded"):
        opened_by_two(handed_in_to_two([np.arange(3)]), states=(None, state), before_release=(refuse, None))
    assert not ServerState(tmp_path, "study").masked(0).is_sent


def test_servers_continue_if_only_one_of_them_had_recorded_the_budget():
    states, booked = [ServerState(None, "study"), ServerState(None, "study")], []
    states[0].mark_booked()
    books = [lambda: booked.append(0), lambda: booked.append(1)]
    found = opened_by_two(handed_in_to_two([np.arange(3)]), states=states, before_release=books)
    assert booked == [1]
    assert (found[0][1] == found[1][1]).all()


def test_only_the_owner_of_a_folder_that_others_can_read_can_read_the_state(tmp_path):
    folder = tmp_path / "state"
    folder.mkdir(mode=0o755)
    opened([np.arange(3)], state=ServerState(folder, "study"), before_release=lambda: None)
    assert {path.stat().st_mode & 0o077 for path in folder.iterdir()} == {0}


def test_a_server_that_waits_for_owners_notices_that_another_server_is_lost(tmp_path):
    """Owners wait for the lost server, so waiting for them would only end when they give up."""

    async def work(session):
        reception = Reception(DIGEST, 1, None)
        aggregator = ServerAggregator(
            plan_of(),
            Committee("one", 1),
            Additive(1, 3),
            session,
            reception,
            ServerState(None, "study"),
            NoiseSource(0),
            rows_limit=10,
            patience=600.0,
        )
        release = asyncio.create_task(aggregator.noisy_sum(None))
        await asyncio.sleep(0.1)
        session._failure.set(PartyLostError("party 1 is lost", 1))
        with pytest.raises(PartyLostError, match="party 1 is lost"):
            await asyncio.wait_for(release, 10.0)

    alone(work)


def test_the_state_of_another_study_is_refused(tmp_path):
    ServerState(tmp_path, "one study")
    with pytest.raises(ValueError, match="belongs to another study"):
        ServerState(tmp_path, "another")


def test_the_state_holds_no_share_of_an_owner(tmp_path):
    """Only what is sent to the other servers is written: the sum of shares with noise."""
    secret = np.array([123_456_789, -987_654_321, 5])
    opened([secret], state=ServerState(tmp_path, "study"))
    (share,) = Additive(1, 3).split(secret, NoiseSource(0))
    written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert share[1:] not in written
    assert int(secret[0]).to_bytes(8, "little") not in written


def test_owners_read_what_servers_answer():
    total = np.array([1, -2, 2**45])
    assert read_answer(to_answer(17, total), 3)[0] == 17
    assert read_answer(to_answer(17, total), 3)[1].tolist() == total.tolist()
    for wrong in (b"", to_answer(17, total)[:-1], to_answer(0, total), to_answer(17, total[:2])):
        with pytest.raises(HandInError, match="something other than a noisy sum"):
            read_answer(wrong, 3)


@pytest.mark.parametrize("owners", [1, 10_000])
def test_the_field_has_room_for_every_noisy_sum(owners):
    plan = plan_of()
    sharing = sharing_of(plan, "majority", 3, owners)
    assert isinstance(sharing, Shamir)
    assert sharing.prime > 2 * (plan.largest * plan.scale + owners + plan.law.reach)
    assert sharing_of(plan, "one", 2, owners) == Additive(2, 3)


def study_of(host):
    servers = tuple(PartyInfo(f"s{index}", host, 9100 + 2 * index) for index in range(2))
    table = TableSchema((Numeric("a", -1.0, 1.0),), Target("y", levels=("no", "yes")))
    return Study("small", (), table, 1.0, servers=servers, trust="one", owners=3, rows_per_owner=4)


def test_an_owner_without_keys_spends_nothing_if_the_servers_are_on_other_machines():
    study = study_of("192.0.2.0")
    booked = []
    with pytest.raises(ValueError, match=r"192\.0\.2\.0 is not this machine"):
        asyncio.run(roles.hand_in(study, 0, (np.zeros((4, 1)), np.zeros(4)), keys=None, book=booked.append))
    assert booked == []


def served(state, index=0):
    """Let one server of a study wait for owners in vain, with a ledger whose limit is reached."""

    def check(guarantee):
        raise ValueError("the limit is reached")

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    study = study_of("127.0.0.1").moved([("127.0.0.1", port), ("127.0.0.1", port + 2 if port < 60_000 else port - 2)])
    (state / "study.json").write_text(json.dumps({"digest": f"{study.digest}, server {index}"}))
    alone(lambda session: roles.serve(session, study, keys=None, state=state, patience=0.01, check=check))


def test_the_limit_of_a_ledger_does_not_stop_a_server_that_recorded_the_budget_before_a_restart(tmp_path):
    with pytest.raises(ValueError, match="the limit is reached"):
        served(tmp_path)
    (tmp_path / "booked").touch()
    with pytest.raises(StudyError, match="shares of 0 owner"):
        served(tmp_path)


def test_the_state_of_another_server_of_the_same_study_is_refused(tmp_path):
    with pytest.raises(ValueError, match="belongs to another study or server"):
        served(tmp_path, index=1)


def test_a_server_starts_again_after_its_disk_was_full(tmp_path):
    """What is written at each start must not be lost if there is no room for it any more."""
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    for _ in range(2):  # in a new folder, and in one that was used before
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, unlimited[1]))  # No file can be written, as on a full disk.
        try:
            with suppress(OSError):
                ServerState(tmp_path, "study")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        ServerState(tmp_path, "study")
    with pytest.raises(ValueError, match="belongs to another study"):
        ServerState(tmp_path, "another")


def test_the_joint_noise_of_long_vectors_is_drawn_in_blocks(monkeypatch):
    """The random bits of a million coordinates would exceed what servers can send in one message."""
    plan, drawn = plan_of(dimension=500), []
    draw = server.joint_noise

    def watched(runtime, secret, block):
        drawn.append(block.dimension)
        return draw(runtime, secret, block)

    monkeypatch.setattr(server, "joint_noise", watched)
    monkeypatch.setattr(server, "_MOST_BITS", 200 * plan.law.recipe().bits_drawn)

    async def work(session):
        sharing = sharing_of(plan, "majority", 1, 1)
        parts = Reception(DIGEST, 1, None), ServerState(None, "study"), NoiseSource(0)
        aggregator = ServerAggregator(plan, Committee("majority", 1), sharing, session, *parts, rows_limit=10)
        share = await aggregator._noisy(sharing.zero())
        return sharing.opened([share])

    noise = alone(work)
    assert drawn == [200, 200, 100]
    for block in (noise[:200], noise[200:400]):
        assert np.std(block) == pytest.approx(plan.law.std, rel=0.4)
    assert (noise[:200] != noise[200:400]).any()


def test_earlier_releases_take_no_memory_but_can_be_read_again(tmp_path):
    state = ServerState(tmp_path, "study")
    for number in range(4):
        state.store(number, Masked(np.full(3, number, dtype=np.uint64), {0: 10}))
        state.mark_sent(number)
    assert len(state._kept) == 1
    assert [int(state.masked(number).share[0]) for number in range(4)] == [0, 1, 2, 3]
    assert state.masked(0).is_sent
    assert len(state._kept) == 1
