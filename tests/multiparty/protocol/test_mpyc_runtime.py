"""The replacement of pickle in MPyC's runtime."""

import pickle

import numpy as np
import pytest

from privet.multiparty.protocol.mpyc_runtime import WholeNumbers


@pytest.mark.parametrize(
    "numbers",
    [
        [],
        [0],
        [-1],
        [127, -128],
        [128],
        [-300, 1],
        [-(2**64), 2**63],
        [255, 256],
        [2**64, -(2**64)],
        [2**521 - 1, 0, 5],
        [True, 3],
    ],
)
def test_integers_are_restored_exactly(numbers):
    back = WholeNumbers.loads(WholeNumbers.dumps(np.array(numbers, dtype=object)))
    assert back.dtype == object and back.tolist() == numbers
    assert all(type(each) is int for each in back)


def test_gmpy2_integers_of_several_axes_are_restored_as_a_flat_array():
    gmpy2 = pytest.importorskip("gmpy2", reason="MPyC is fast with gmpy2 only: install the extra multiparty")
    array = np.array([[gmpy2.mpz(2**80), gmpy2.mpz(1)], [gmpy2.mpz(2), gmpy2.mpz(3)]], dtype=object)
    assert WholeNumbers.loads(WholeNumbers.dumps(array)).tolist() == [2**80, 1, 2, 3]


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x00\x00", b"\x00\x00ab", b"\x02\x00abc", pickle.dumps([1, 2])])
def test_bytes_that_are_not_integers_are_refused(data):
    with pytest.raises(ValueError, match="not integers of one width"):
        WholeNumbers.loads(data)


@pytest.mark.parametrize("thing", [3, "text", [1, 2], {"a": 1}, None])
def test_only_arrays_can_be_sent(thing):
    with pytest.raises(TypeError, match=r"Session\.exchange"):
        WholeNumbers.dumps(thing)
