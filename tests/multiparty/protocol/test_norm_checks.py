"""Contributions that are too large: which bits pass, and what servers see. Servers are coroutines of one process."""

import asyncio
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from privet.multiparty.protocol import prime_field as field
from privet.multiparty.protocol.aggregation import JointProblem
from privet.multiparty.protocol.committee import Committee, OwnerAggregator, handed_in, sharing_of
from privet.multiparty.protocol.gradient import gradient_plan, joint_gradient_descent
from privet.multiparty.protocol.norm_checks import PRIME, NormCheck
from privet.multiparty.protocol.output import output_plan, weighted_minimiser
from privet.multiparty.protocol.server_state import Masked, ServerState
from privet.multiparty.protocol.sharing import Shamir
from privet.multiparty.transport.contribution import Contribution
from privet.multiparty.transport.hand_in import Reception
from privet.objectives import L2, Huber, Logistic
from privet.plans.aggregation import AggregationPlan
from privet.privacy import Budget, NoiseSource

sys.path.insert(0, str(Path(__file__).parents[1]))

from summands import Spy
from swapping import drawn

CHECK = NormCheck(3, 10_000)


def split(bits, servers=3, seed=0):
    sharing = Shamir(servers, len(bits), PRIME)
    return [sharing.read(each) for each in sharing.split(np.asarray(bits), NoiseSource(seed))]


def failed(handed, check=CHECK, servers=3, seed=0, key=b"k" * 32):
    """Return the owners whom all servers leave out, given what each owner hands in."""
    shares = {owner: split(bits, servers, owner) for owner, bits in handed.items()}

    async def work(joint):
        mine = {owner: each[joint._index] for owner, each in shares.items()}
        return await check.failed(joint, mine, key)

    first, *others = drawn(servers, work, prime=PRIME, seed=seed)
    assert all(each == first for each in others)
    return first


def opened(check, bits):
    return handed_in(Shamir(3, check.dimension, PRIME), None).opened([check.vector(share) for share in split(bits)])


def too_large(check, vector, slack=0):
    """Return the bits of a vector beyond the bound, with bits of any slack that an owner may invent."""
    allowed = NormCheck(check.dimension, check.bound)
    offset = np.asarray(vector) + (1 << check.bits - 1)
    coordinates = offset[:, None] >> np.arange(check.bits) & 1
    return np.concatenate([coordinates.ravel(), slack >> np.arange(allowed.slack_bits) & 1])


@pytest.mark.parametrize("servers", [3, 4, 5])
def test_vectors_within_the_bound_pass_and_are_restored(servers):
    vectors = [[0, 0, 0], [100, 0, 0], [0, -100, 0], [60, -80, 0], [57, 57, 58], [-1, 1, -1]]
    assert failed({owner: CHECK.to_bits(np.array(each)) for owner, each in enumerate(vectors)}, servers=servers) == []
    for vector in vectors:
        assert opened(CHECK, CHECK.to_bits(np.array(vector))).tolist() == vector


@pytest.mark.parametrize("vector", [[101, 0, 0], [100, 1, 0], [60, 80, 1], [58, 58, 58]])
@pytest.mark.parametrize("slack", [0, 1, 9_999, 10_000, 16_383])
def test_one_lattice_step_beyond_the_bound_fails_whatever_the_slack(vector, slack):
    with pytest.raises(ValueError, match="exceeds the norm"):
        CHECK.to_bits(np.array(vector))
    assert failed({7: too_large(CHECK, vector, slack)}) == [7]


def test_a_slack_of_the_right_value_that_is_not_made_of_bits_fails():
    bits = too_large(CHECK, [100, 1, 0])
    bits[-CHECK.slack_bits] = -1  # The squared norm plus this slack is the bound.
    assert failed({0: bits}) == [0]


def test_a_coordinate_that_is_too_large_fails():
    """More than its bits can say needs a number that is not a bit."""
    bits = CHECK.to_bits(np.zeros(3, dtype=np.int64))
    bits[CHECK.bits - 1] += 1_000_000
    assert abs(opened(CHECK, bits)[0]) > 1_000_000
    assert failed({0: bits}) == [0]


def test_a_huge_vector_whose_norm_modulo_the_field_is_small_fails():
    square = next(each for each in range(2, 10_000) if math.isqrt(each) ** 2 != each and is_square(each))
    root = pow(square, (PRIME + 1) // 4, PRIME)
    root = min(root, PRIME - root)
    bits = CHECK.to_bits(np.zeros(3, dtype=np.int64))
    bits[0] = root  # The first coordinate is the root: its first digit is huge, and its other digits are unchanged.
    bits[-CHECK.slack_bits :] = (CHECK.bound - square) >> np.arange(CHECK.slack_bits) & 1
    huge = opened(CHECK, bits)
    assert abs(int(huge[0])) > 10**9
    assert sum(int(each) ** 2 for each in huge) % PRIME == square <= CHECK.bound
    assert failed({0: bits}) == [0]


def is_square(number):
    return pow(number, (PRIME - 1) // 2, PRIME) == 1


@pytest.mark.parametrize("place", [0, 5, 3 * CHECK.bits - 1, 3 * CHECK.bits, CHECK.length - 1])
@pytest.mark.parametrize("digit", [2, -1, PRIME // 2])
def test_digits_that_are_not_bits_fail_in_every_place(place, digit):
    bits = CHECK.to_bits(np.array([3, -4, 5]))
    bits[place] = digit
    assert failed({0: bits}) == [0]


def test_only_those_who_exceed_the_bound_are_left_out():
    good, bad = CHECK.to_bits(np.array([60, 80, 0])), too_large(CHECK, [60, 80, 1])
    assert failed({4: good, 2: bad, 9: good, 5: bad}) == [2, 5]
    assert failed({}) == []


def test_what_is_opened_about_an_honest_owner_does_not_depend_on_its_vector():
    """All that servers open is replayed: numbers behind a mask that only they draw, and 0."""

    def seen(vector):
        record = []

        async def work(joint):
            inner = joint.opened

            async def watched(shares):
                record.append(await inner(shares))
                return record[-1]

            joint.opened = watched
            return await CHECK.failed(joint, {0: shares[joint._index]}, b"k" * 32)

        shares = split(CHECK.to_bits(np.array(vector)))
        drawn(3, work, prime=PRIME)
        return [each.tolist() for each in record]

    first, second = seen([60, -80, 0]), seen([1, 2, 3])
    assert first == second
    assert first[-1] == [0]


@pytest.mark.parametrize("is_masked", [True, False])
def test_a_server_cannot_verify_a_guess_of_a_vector(is_masked):
    """The shares that are opened form a parabola, and a guess predicts its curvature from the shares of one server.

    Without the zeros that hide it, the right guess would be confirmed.
    """
    sent = {index: [] for index in range(3)}

    async def work(joint):
        inner, pairs = joint.opened, joint.pairs

        async def watched(values):
            sent[joint._index].append(values)
            return await inner(values)

        async def unmasked(size):
            numbers, zeros = await pairs(size)
            return numbers, zeros if is_masked else 0 * zeros

        joint.opened, joint.pairs = watched, unmasked
        return await CHECK.failed(joint, {0: shares[joint._index]}, key)

    key, vector = b"k" * 32, np.array([60, -79, 0])
    bits = CHECK.to_bits(vector)
    shares = split(bits)
    drawn(3, work, prime=PRIME)
    coefficients = NoiseSource.expanded(key, CHECK.length + 1) % np.uint64(PRIME)

    def curvature(values):
        first, second, third = map(int, values)
        return (first - 2 * second + third) % PRIME

    def predicted(guess):
        line = [guess.astype(object) + point * (shares[0].astype(object) - guess) for point in (1, 2, 3)]
        return curvature([CHECK.violation((each % PRIME).astype(np.uint64), coefficients) for each in line])

    seen = curvature([sent[index][0][0] for index in range(3)])
    assert (seen == predicted(bits)) == (not is_masked)
    assert seen != predicted(CHECK.to_bits(np.array([60, -79, 1])))


def test_what_is_opened_about_a_failing_owner_is_another_number_in_each_run():
    def scaled(seed):
        numbers = []

        async def work(joint):
            inner = joint.opened

            async def watched(values):
                numbers.append((await inner(values)).tolist())
                return np.array(numbers[-1], dtype=np.uint64)

            joint.opened = watched
            return await CHECK.failed(joint, {0: shares[joint._index]}, b"k" * 32)

        shares = split(too_large(CHECK, [101, 0, 0]))
        drawn(3, work, prime=PRIME, seed=seed)
        return numbers[-1]

    assert len({scaled(seed)[0] for seed in range(20)} - {0}) == 20


def test_different_keys_weigh_violations_differently():
    """Two violations that cancel for one choice of coefficients do not cancel for another."""
    share = np.zeros(CHECK.length, dtype=np.uint64)
    share[:2] = 2  # two violations of 2 each
    coefficients = np.zeros(CHECK.length + 1, dtype=np.uint64)
    coefficients[:2] = 1, PRIME - 1
    assert CHECK.violation(share, coefficients) == 0
    coefficients[1] = PRIME - 2
    assert CHECK.violation(share, coefficients) == PRIME - 2


def test_the_field_is_the_largest_that_all_parts_accept():
    gmpy2 = pytest.importorskip("gmpy2", reason="needs gmpy2: install the extra multiparty")
    assert gmpy2.is_prime(PRIME) and PRIME % 4 == 3 and PRIME < 2**53
    assert not any(gmpy2.is_prime(each) and each % 4 == 3 for each in range(PRIME + 1, 2**53))


def test_squared_norms_that_do_not_fit_the_field_are_refused():
    assert NormCheck(104, 2**45).length == 104 * 24 + 46
    with pytest.raises(ValueError, match="Use a smaller rows_per_owner"):
        NormCheck(104, 2**46)
    for dimension, bound in ((1, 2**50), (104, 2**45), (10_000, 2**37)):
        check = NormCheck(dimension, bound)
        assert dimension * 4 ** (check.bits - 1) + 2**check.slack_bits <= PRIME
        assert 2 ** (check.bits - 1) > math.isqrt(bound)


# ------------------------------------------------------------------------------------------------------- honest owners


def joint_problem(objective, rows, owners=5, intercept=0.5):
    return JointProblem(objective, L2(0.05), (rows,) * owners, 1.0, intercept, 6, are_limits=True)


def extreme_tables(rows):
    """Return tables whose rows all pull in the same direction, as far as the bounds allow."""
    ones = np.ones((rows, 6))
    first = np.eye(6)[[0] * rows]
    return [0 * ones, ones, -ones, 1e9 * ones, first, -first, first * 1e-9, np.eye(6)[np.arange(rows) % 6]]


@pytest.mark.parametrize("rows", [1, 7, 200])
@pytest.mark.parametrize("clip", [None, 0.3])
def test_sums_of_extreme_gradients_pass(rows, clip):
    problem = joint_problem(Huber(0.01), rows)
    plan = gradient_plan(problem, Budget(1.0, 1e-6), steps=3, clip_norm=clip)
    check = NormCheck.of(plan, 5)
    assert math.sqrt(check.bound) < plan.scale * plan.largest / 5 * 1.001 + math.sqrt(plan.dimension)
    most = 0.0
    for X in extreme_tables(rows):
        party = problem.local(X, np.ones(rows))
        spy = Spy(plan, [party] * 5)
        asyncio.run(joint_gradient_descent(problem, spy, delta=1e-6))
        for summand in spy.summands:
            vector = plan.on_lattice(summand(party))
            most = max(most, float((vector.astype(float) ** 2).sum()) / check.bound)
            assert opened(check, check.to_bits(vector)).tolist() == vector.tolist()
    assert most > 0.9  # The bound is not loose: extreme owners come close to it.


@pytest.mark.parametrize("rows", [1, 50])
def test_minimisers_of_extreme_rows_pass(rows):
    problem = joint_problem(Logistic(), rows)
    plan = output_plan(problem, Budget(1.0, 1e-6))
    check = NormCheck.of(plan, 5)
    for X in extreme_tables(rows):
        for n in {1, rows}:
            vector = plan.on_lattice(weighted_minimiser(problem, problem.local(X[:n], np.ones(n))))
            assert opened(check, check.to_bits(vector)).tolist() == vector.tolist()


@pytest.mark.parametrize("seed", range(10))
def test_vectors_at_the_bound_pass_in_every_direction(seed):
    plan = AggregationPlan.for_budget(Budget(1.0, 1e-6), dimension=50, steps=1, sensitivity=2.0, largest=40.0)
    check = NormCheck.of(plan, 8)
    direction = np.random.default_rng(seed).normal(size=50)
    vector = direction / np.linalg.norm(direction) * 5.0
    check.to_bits(plan.on_lattice(vector))
    with pytest.raises(ValueError, match="exceeds the norm"):
        check.to_bits(plan.on_lattice(vector * 1.01 + np.sign(vector) / plan.scale))


def test_a_vector_at_the_bound_passes_if_all_its_coordinates_are_rounded_away_from_zero():
    plan = AggregationPlan.for_budget(Budget(1.0, 1e-6), dimension=50, steps=1, sensitivity=2.0, largest=40.0)
    vector = np.full(50, 100.500001 / plan.scale)
    tight = replace(plan, largest=8 * float(np.linalg.norm(vector)))
    check, rounded = NormCheck.of(tight, 8), tight.on_lattice(vector)
    assert (rounded == 101).all()
    check.to_bits(rounded)
    with pytest.raises(ValueError, match="exceeds the norm"):
        check.to_bits(rounded + 1)


# -------------------------------------------------------------------------------------------------- around the protocol


def test_an_owner_hands_in_its_bits_and_the_guarantee_says_what_is_verified():
    class Kept:
        async def hand_in(self, contributions):
            sent.extend(contributions)

    sent, problem = [], joint_problem(Logistic(), 4)
    plan = gradient_plan(problem, Budget(1.0, 1e-6), steps=1)
    check = NormCheck.of(plan, 5)
    sharing = sharing_of(plan, "majority", 3, 5, check)
    assert sharing == Shamir(3, plan.dimension, PRIME)
    committee, source = Committee("majority", 3), NoiseSource(0)
    owner = OwnerAggregator(plan, committee, sharing, Kept(), problem.of_zeros(4), bytes(32), 0, source, check)
    asyncio.run(owner.hand_in(lambda party: np.linspace(-1, 1, plan.dimension), waits=False))
    received = [handed_in(sharing, check).read(each.share) for each in sent]
    assert (sharing.opened([check.vector(each) for each in received]) == plan.on_lattice(np.linspace(-1, 1, 7))).all()
    texts = [each.text for each in owner.conditions()]
    assert any("each contribution has l2 norm at most" in text for text in texts)
    assert len(texts) == 2


def test_the_decision_survives_a_restart(tmp_path):
    ServerState(tmp_path, "study").store(0, Masked(np.zeros(3, dtype=np.uint64), {0: 10}, (4, 7)))
    assert ServerState(tmp_path, "study").masked(0).left_out == (4, 7)


def test_an_owner_who_was_left_out_is_told_why_and_not_waited_for():
    async def main():
        reception = Reception(bytes(32), 2, None)
        await reception.open(0)
        calls = [
            asyncio.create_task(reception.receive(owner, Contribution(bytes(32), 0, 5, True, b"share")))
            for owner in range(2)
        ]
        assert len(await reception.collected(20.0)) == 2
        reception.leave_out(1, "it exceeds the bound")
        reception.answer(0, b"opened")
        assert await calls[0] == b"opened"
        with pytest.raises(ValueError, match="exceeds the bound"):
            await calls[1]
        await reception.open(1)
        with pytest.raises(ValueError, match="exceeds the bound"):
            await reception.receive(1, Contribution(bytes(32), 1, 5, False, b"share"))
        await reception.receive(0, Contribution(bytes(32), 1, 5, False, b"share"))
        async with asyncio.timeout(10.0):  # It would wait for 600 seconds.
            assert list(await reception.collected(600.0)) == [0]

    asyncio.run(main())


def test_arithmetic_of_shares_is_that_of_the_vector():
    vector = np.array([60, -80, 0])
    shares = [CHECK.vector(each) for each in split(CHECK.to_bits(vector))]
    squares = [field.total(field.product(each, each, PRIME), PRIME)[None] for each in shares]
    assert field.at_zero(squares, PRIME).tolist() == [10_000]
