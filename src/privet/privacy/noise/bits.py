"""Random bits: the stream of ChaCha20 under a secret key, which stands for ideal random bits in every proof."""

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.int64]

CHUNK = 1 << 15  # words per call: few calls, and buffers that fit into the cache
_PER_KEY = 1 << 30  # words until the key is replaced, far below the 2^35 after which the block counter overflows
_ZEROS = memoryview(bytes(8 * CHUNK))  # encrypting zeros gives the keystream


class Keystream:
    """The ChaCha20 stream of OpenSSL (through cryptography) for a 256-bit key. Threads may share it."""

    def __init__(self, key: bytes) -> None:
        self._lock = threading.Lock()
        self._begin(key)

    def _begin(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

        self._left = _PER_KEY
        self._cipher: Any = Cipher(algorithms.ChaCha20(key, nonce=bytes(16)), mode=None).encryptor()

    def fill(self, words: Words) -> None:
        """Fill a contiguous array with random bits."""
        for start in range(0, words.size, CHUNK):
            part = words[start : start + CHUNK]
            with self._lock:
                self._left -= part.size
                if self._left < 0:
                    self._begin(self._cipher.update(bytes(32)))
                self._cipher.update_into(_ZEROS[: part.nbytes], part.view(np.uint8).data)

    def words(self, size: int) -> NDArray[np.uint64]:
        """Return ``size`` independent words of 64 random bits."""
        words = np.empty(size, np.int64)
        self.fill(words)
        return words.view(np.uint64)
