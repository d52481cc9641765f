"""Noise that is drawn in advance, while the sum that it is for is still being computed."""

import threading
from collections.abc import Callable

from privet.privacy.noise.normals import Normals


class Drawn:
    """Noise that is being drawn in a separate thread."""

    def __init__(self, draw: Callable[[], Normals]) -> None:
        self._outcome: Normals | BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(draw,), daemon=True)
        self._thread.start()

    def _run(self, draw: Callable[[], Normals]) -> None:
        try:
            self._outcome = draw()
        except BaseException as error:
            self._outcome = error

    def wait(self) -> None:
        """Wait until the noise is drawn."""
        self._thread.join()

    def result(self) -> Normals:
        """Return the noise, once. Raise here what was raised in the thread."""
        self.wait()
        outcome, self._outcome = self._outcome, None
        if isinstance(outcome, BaseException):
            raise outcome
        assert outcome is not None
        return outcome
