"""The keystream: one sequence of bits, however it is asked for."""

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from privet.privacy.noise import bits
from privet.privacy.noise.bits import CHUNK, Keystream

KEY = bytes(range(7, 39))


def keystream(size):
    """Return the first bytes of ChaCha20 with this key and no nonce."""
    return Cipher(algorithms.ChaCha20(KEY, bytes(16)), None).encryptor().update(bytes(size))


@pytest.mark.parametrize("sizes", [(1, 2, 3), (CHUNK - 1, 2, 5), (CHUNK, 1), (2 * CHUNK + 3, 4), (0, 8)])
def test_requests_of_all_sizes_continue_the_same_sequence(sizes):
    stream = Keystream(KEY)
    words = np.concatenate([stream.words(size) for size in sizes])
    assert words.dtype == np.uint64
    assert words.tobytes() == keystream(8 * sum(sizes))


def test_arrays_are_filled_in_place_and_signs_are_bits():
    words = np.zeros(5, np.int64)
    Keystream(KEY).fill(words)
    assert words.tobytes() == keystream(40)


def test_a_key_makes_as_many_words_as_its_counter_allows_and_no_more(monkeypatch):
    """The key is replaced before a request that would exceed its words, long before the block counter overflows."""
    assert bits._PER_KEY + CHUNK <= 2**35
    monkeypatch.setattr(bits, "_PER_KEY", 3 * CHUNK)
    stream, first = Keystream(KEY), keystream(8 * 3 * CHUNK)
    assert stream.words(3 * CHUNK).tobytes() == first
    second = keystream(8 * 3 * CHUNK + 32)[-32:]
    renewed = Cipher(algorithms.ChaCha20(second, bytes(16)), None).encryptor().update(bytes(16 * CHUNK))
    assert stream.words(2 * CHUNK).tobytes() == renewed
