"""Random numbers and bits that parties draw together: here all parties are coroutines of one process."""

import asyncio
import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

from privet.multiparty.protocol import prime_field as field
from privet.multiparty.protocol.joint_randomness import JointRandomness
from privet.privacy import NoiseSource

sys.path.insert(0, str(Path(__file__).parents[1]))

from swapping import PRIME, Post, drawn

SIZES = (3, 4, 5, 9)


def values(shares, degree, prime=PRIME):
    """Return the numbers of which these are shares, after checking the degree with the other shares."""
    found = field.at_zero(shares[: degree + 1], prime)
    for subset in itertools.islice(itertools.combinations(range(len(shares)), degree + 1), 40):
        weights = []
        for place in subset:
            weight = 1
            for other in subset:
                if other != place:
                    weight = weight * (other + 1) * pow(other - place, -1, prime) % prime
            weights.append(weight)
        assert (sum(w * shares[k].astype(object) for w, k in zip(weights, subset, strict=True)) % prime == found).all()
    return found


@pytest.mark.parametrize("parties", SIZES)
def test_pairs_are_random_numbers_of_low_degree_and_zeros_of_twice_the_degree(parties):
    t = (parties - 1) // 2
    found = drawn(parties, lambda joint: joint.pairs(1000))
    numbers = values([each[0] for each in found], t)
    assert len(set(numbers.tolist())) == 1000
    assert abs(numbers.astype(float).mean() / PRIME - 0.5) < 5 / np.sqrt(12 * 1000)
    assert not values([each[1] for each in found], 2 * t).any()


@pytest.mark.parametrize("parties", SIZES)
def test_bits_are_fair_and_shared_with_low_degree(parties):
    bits = values(drawn(parties, lambda joint: joint.bits(4000)), (parties - 1) // 2)
    assert set(bits.tolist()) == {0, 1}
    assert abs(bits.astype(float).mean() - 0.5) < 5 / np.sqrt(4 * 4000)


@pytest.mark.parametrize("parties", SIZES)
def test_the_bytes_sent_for_many_bits_are_those_of_the_stated_numbers(parties):
    post = Post(parties)
    size, t = 60_000, (parties - 1) // 2

    async def main():
        kinds = [
            JointRandomness(post.swap(each), NoiseSource(each), each, parties, t, PRIME) for each in range(parties)
        ]
        await asyncio.gather(*(kind.bits(size) for kind in kinds))

    asyncio.run(main())
    width = (PRIME.bit_length() + 7) // 8
    expected = parties**2 * size * width * JointRandomness.numbers_per_bit(parties)  # own messages included
    assert post.sent == pytest.approx(expected, rel=1e-3)


def test_zeros_are_drawn_again():
    """Modulo 11, one of eleven random numbers has no sign."""
    bits = values(drawn(3, lambda joint: joint.bits(4000), prime=11), 1, prime=11)
    assert bits.size == 4000
    assert set(bits.tolist()) == {0, 1}
    assert abs(bits.astype(float).mean() - 0.5) < 5 / np.sqrt(4 * 4000)


@pytest.mark.parametrize("parties", SIZES)
def test_each_party_alone_decides_all_numbers_and_half_of_the_bits(parties):
    """So the numbers are random as soon as one party that does not belong to a coalition draws them at random."""
    t = (parties - 1) // 2
    first = values([each[0] for each in drawn(parties, lambda joint: joint.pairs(300))], t)
    bits = values(drawn(parties, lambda joint: joint.bits(400)), t)
    for changed in range(parties):
        other = drawn(parties, lambda joint: joint.pairs(300), changed=changed)
        assert (values([each[0] for each in other], t) != first).all()
        moved = values(drawn(parties, lambda joint: joint.bits(400), changed=changed), t) != bits
        assert abs(moved.mean() - 0.5) < 5 / np.sqrt(4 * 400)


@pytest.mark.parametrize("parties", [3, 4, 5, 7])
def test_any_threshold_of_parties_leaves_the_numbers_uniform(parties):
    """The weights of the others form an invertible matrix, so their numbers map one to one to the results."""
    t, prime = (parties - 1) // 2, 1019
    joint = JointRandomness(None, NoiseSource(0), 0, parties, t, prime)
    unit = [np.eye(parties, dtype=np.uint64)[party] for party in range(parties)]
    weights = joint._mixed(unit).astype(object)  # one row per result, one column per party
    for honest in itertools.combinations(range(parties), parties - t):
        matrix = [[int(row[party]) for party in honest] for row in weights]
        assert rank(matrix, prime) == parties - t


def rank(matrix, prime):
    """Return the rank of a matrix modulo a prime, by elimination."""
    done = 0
    for column in range(len(matrix[0])):
        pivot = next((row for row in range(done, len(matrix)) if matrix[row][column] % prime), None)
        if pivot is None:
            continue
        matrix[done], matrix[pivot] = matrix[pivot], matrix[done]
        inverse = pow(matrix[done][column], -1, prime)
        for row in range(done + 1, len(matrix)):
            factor = matrix[row][column] * inverse
            matrix[row] = [(a - factor * b) % prime for a, b in zip(matrix[row], matrix[done], strict=True)]
        done += 1
    return done


def test_shares_of_one_party_look_the_same_for_both_bits():
    prime = 1019
    found = drawn(3, lambda joint: joint.bits(40_000), prime=prime)
    bits = values(found, 1, prime)
    for shares in found:
        ones, zeros = (np.bincount(shares[bits == bit].astype(int), minlength=prime) for bit in (1, 0))
        table = np.stack([ones, zeros])
        expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0) / table.sum()
        statistic = ((table - expected) ** 2 / expected).sum()
        assert abs(statistic - prime) < 6 * np.sqrt(2 * prime)


@pytest.mark.parametrize("is_masked", [True, False])
def test_opened_squares_do_not_reveal_the_slope_of_the_number(is_masked):
    """The curvature of the squared shares is the square of the slope, and the slope and one share are the bit."""
    kept, sent = {}, {}

    async def work(joint):
        index, pairs, opened = joint._index, joint.pairs, joint._opened

        async def watched_pairs(size):
            numbers, zeros = await pairs(size)
            kept[index] = numbers.astype(object)
            return numbers, zeros if is_masked else 0 * zeros

        async def watched(shares, function):
            sent[index] = shares.astype(object)
            return await opened(shares, function)

        joint.pairs, joint._opened = watched_pairs, watched
        return await joint.bits(50)

    drawn(3, work)
    slope = kept[1] - kept[0]
    curvature = (sent[0] - 2 * sent[1] + sent[2]) % PRIME
    assert ((curvature == 2 * slope**2 % PRIME) == (not is_masked)).all()


def test_a_random_number_is_opened_by_all_parties_alike():
    async def work(joint):
        numbers, zeros = await joint.pairs(50)
        return numbers, await joint.opened((numbers + zeros) % np.uint64(PRIME))

    found = drawn(5, work)
    wanted = values([each[0] for each in found], 2)
    assert all((each[1] == wanted).all() for each in found)


def test_the_bytes_of_a_bit_do_not_grow_with_the_number_of_parties_squared():
    """Each party sends a few numbers per bit, whatever the number of parties. Subsets of parties would be binomial."""
    sent = {}
    for parties in (3, 9):
        post = Post(parties)

        async def main(parties=parties, post=post):
            kinds = [
                JointRandomness(post.swap(index), NoiseSource(index), index, parties, (parties - 1) // 2, PRIME)
                for index in range(parties)
            ]
            await asyncio.gather(*(each.bits(2000) for each in kinds))

        asyncio.run(main())
        sent[parties] = post.sent / parties / 2000
    assert sent[9] < 1.5 * sent[3]


@pytest.mark.parametrize(("parties", "threshold", "prime"), [(4, 2, 1019), (5, 2, 5), (3, 1, 2**53 + 5)])
def test_a_field_that_is_too_small_or_large_and_a_minority_are_refused(parties, threshold, prime):
    with pytest.raises(ValueError, match="cannot share numbers"):
        JointRandomness(None, NoiseSource(0), 0, parties, threshold, prime)
