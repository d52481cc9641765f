"""Shares of a vector: linear, useless in small groups, and checked when they are opened."""

import itertools

import numpy as np
import pytest
from scipy.stats import chisquare

from privet.multiparty.protocol.sharing import Additive, Shamir, ShareError
from privet.privacy.noise.source import NoiseSource

PRIME = 35_184_372_088_777  # below 2^45
VALUES = np.array([0, 1, -1, 12_345, -(2**40), 2**40])
SHARINGS = [Additive(2, 6), Additive(5, 6), Shamir(3, 6, PRIME), Shamir(4, 6, PRIME), Shamir(7, 6, PRIME)]


def split(sharing, values, seed=0, first=0):
    return [sharing.read(share) for share in sharing.split(np.asarray(values), NoiseSource(seed), first)]


@pytest.mark.parametrize("sharing", SHARINGS, ids=str)
def test_all_shares_open_the_vector(sharing):
    assert sharing.opened(split(sharing, VALUES)).tolist() == VALUES.tolist()


@pytest.mark.parametrize("sharing", SHARINGS, ids=str)
def test_sums_of_shares_are_shares_of_the_sum(sharing):
    totals = [sharing.zero() for _ in range(sharing.servers)]
    vectors = [VALUES, -3 * VALUES, VALUES[::-1]]
    for seed, vector in enumerate(vectors):
        for total, share in zip(totals, split(sharing, vector, seed, first=seed), strict=True):
            sharing.add(total, share)
    assert sharing.opened(totals).tolist() == sum(vectors).tolist()
    for total, share in zip(totals, split(sharing, vectors[1], 1, first=1), strict=True):
        sharing.subtract(total, share)
    assert sharing.opened(totals).tolist() == (vectors[0] + vectors[2]).tolist()


@pytest.mark.parametrize("sharing", [Additive(2, 1), Additive(3, 1), Shamir(3, 1, 11), Shamir(5, 1, 11)], ids=str)
def test_groups_that_are_too_small_see_the_same_distribution_for_every_vector(sharing):
    """The joint law of a group's shares is uniform, whatever the secret: compared by counting small residues."""
    size = sharing.degree if isinstance(sharing, Shamir) else sharing.servers - 1
    base = 11 if isinstance(sharing, Shamir) else 4
    source = NoiseSource(7)
    draws = 4_000
    for secret in (0, 1, -5):
        seen = np.array(
            [
                [int(sharing.read(each)[0]) % base for each in sharing.split(np.array([secret]), source)]
                for _ in range(draws)
            ]
        )
        for group in itertools.combinations(range(sharing.servers), size):
            codes = seen[:, group] @ base ** np.arange(size)
            assert chisquare(np.bincount(codes, minlength=base**size)).pvalue > 1e-6


def test_all_additive_shares_but_one_are_short():
    sharing = Additive(3, 1000)
    lengths = [len(share) for share in sharing.split(np.zeros(1000, dtype=np.int64), NoiseSource(0), first=1)]
    assert lengths == [33, 8001, 33]
    assert max(lengths) == sharing.longest


def test_a_wrong_shamir_share_is_noticed():
    sharing = Shamir(3, 6, PRIME)
    for server in range(3):
        shares = split(sharing, VALUES)
        shares[server][4] = (shares[server][4] + np.uint64(1)) % np.uint64(PRIME)
        with pytest.raises(ShareError, match="do not belong to one vector"):
            sharing.opened(shares)


def test_shamir_shares_of_too_high_a_degree_are_noticed():
    """An owner could otherwise make every opening fail."""
    high = split(Shamir(5, 6, PRIME), VALUES)[:3]
    with pytest.raises(ShareError, match="do not belong to one vector"):
        Shamir(3, 6, PRIME).opened(high)


@pytest.mark.parametrize("sharing", [Additive(3, 6), Shamir(3, 6, PRIME)], ids=str)
@pytest.mark.parametrize("share", [b"", b"\x00", b"\x00" * 48, b"\x00" * 50, b"\x02" + b"\x00" * 48, b"\x01" * 32])
def test_bytes_of_another_length_or_kind_are_refused(sharing, share):
    with pytest.raises(ShareError, match="must have 49 bytes"):
        sharing.read(share)


def test_numbers_beyond_the_prime_are_refused():
    share = b"\x00" + np.full(6, PRIME, dtype="<u8").tobytes()
    with pytest.raises(ShareError, match="not below the prime"):
        Shamir(3, 6, PRIME).read(share)


def test_a_key_is_not_a_shamir_share():
    with pytest.raises(ShareError, match="must have 49 bytes"):
        Shamir(3, 6, PRIME).read(b"\x01" + bytes(32))


def test_missing_shares_are_refused():
    for sharing in SHARINGS:
        with pytest.raises(ShareError, match="are needed"):
            sharing.opened(split(sharing, VALUES)[:-1])


@pytest.mark.parametrize("prime", [2, 1 << 53])
def test_primes_must_leave_room_for_products(prime):
    with pytest.raises(ValueError, match="the prime must lie"):
        Shamir(3, 6, prime)


@pytest.mark.parametrize("servers", [3, 4, 5, 7])
def test_random_sums_of_shares_show_a_wrong_degree(servers):
    sharing, key = Shamir(servers, 6, PRIME), bytes(range(32))
    sums = Shamir(servers, 4, PRIME)
    right = [sharing.combined(share, key) for share in split(sharing, VALUES)]
    assert sums.belong_together(right)
    coefficients = [sharing.combined(np.eye(6, dtype=np.uint64)[place], key) for place in range(6)]
    expected = sum(int(value) * each.astype(object) for value, each in zip(VALUES, coefficients, strict=True))
    assert sums.opened(right).tolist() == [((int(each) + PRIME // 2) % PRIME) - PRIME // 2 for each in expected]
    wrong = split(sharing, VALUES)
    wrong[-1][2] = (wrong[-1][2] + np.uint64(1)) % np.uint64(PRIME)
    assert not sums.belong_together([sharing.combined(share, key) for share in wrong])
