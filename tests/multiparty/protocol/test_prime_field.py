"""Arithmetic modulo a prime, compared with Python's integers."""

import numpy as np
import pytest

from privet.multiparty.protocol import prime_field as field

PRIMES = [7, 1019, 2**31 - 1, 4_503_599_627_370_323, 2**53 - 111]  # all but one are 3 modulo 4


def numbers(prime, size=400):
    """Return random numbers, and those at which rounding is worst."""
    edges = [0, 1, 2, prime // 2, prime // 2 + 1, prime - 2, prime - 1]
    drawn = np.random.default_rng(prime % 2**32).integers(0, prime, size).tolist()
    return np.array([*edges, *drawn], dtype=np.uint64)


@pytest.mark.parametrize("prime", PRIMES)
def test_products_of_all_pairs_are_exact(prime):
    left = numbers(prime)
    right = np.concatenate([left[:40], np.uint64(prime) - 1 - left[:40]])
    found = field.product(left[:, None], right[None, :], prime)
    wanted = left.astype(object)[:, None] * right.astype(object)[None, :] % prime
    assert (found.astype(object) == wanted).all()
    assert found.dtype == np.uint64


@pytest.mark.parametrize("prime", PRIMES)
def test_sums_differences_and_powers_are_exact(prime):
    values = np.concatenate([numbers(prime), np.full(5000, prime - 1, dtype=np.uint64)])
    exact = values.astype(object)
    assert int(field.total(values, prime)) == sum(exact) % prime
    assert (
        field.total(values[:400].reshape(4, 100), prime, axis=0) == [sum(exact[k:400:100]) % prime for k in range(100)]
    ).all()
    assert (field.difference(values, values[::-1], prime).astype(object) == (exact - exact[::-1]) % prime).all()
    assert field.power(values[:9], prime - 2, prime).tolist() == [
        pow(int(each), prime - 2, prime) for each in exact[:9]
    ]


@pytest.mark.parametrize("prime", [each for each in PRIMES if each % 4 == 3])
def test_inverse_roots_belong_to_their_squares(prime):
    values = numbers(prime)
    roots = field.inverse_roots(field.product(values, values, prime), prime)
    signs = field.product(values, roots, prime)
    assert set(signs[values > 0].tolist()) == {1, prime - 1}
    assert (roots[values == 0] == 0).all()


@pytest.mark.parametrize("prime", PRIMES[1:])
@pytest.mark.parametrize("degree", [0, 1, 8])
def test_values_at_points_determine_the_value_at_zero(prime, degree):
    coefficients = np.stack([numbers(prime)] * (degree + 1))
    values = field.values_at(coefficients, range(1, degree + 2), prime)
    exact = coefficients.astype(object)
    assert (
        values[-1].astype(object) == sum(each * (degree + 1) ** (degree - k) for k, each in enumerate(exact)) % prime
    ).all()
    assert (field.at_zero(values, prime) == coefficients[-1]).all()


@pytest.mark.parametrize("prime", PRIMES)
def test_numbers_travel_as_bytes(prime):
    sent = numbers(prime)
    message = field.to_bytes(sent, prime)
    assert len(message) == sent.size * -(-prime.bit_length() // 8)
    assert (field.from_bytes(message, sent.size, prime) == sent).all()
    with pytest.raises(ValueError, match="bytes, got"):
        field.from_bytes(message[:-1], sent.size, prime)
    with pytest.raises(ValueError, match="is not below the prime"):
        field.from_bytes(field.to_bytes(np.array([prime], dtype=np.uint64), prime), 1, prime)
