"""One step of a run: the batch that the plan drew, and the noise for one sum over it."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from privet.plans.samplers import Batch
from privet.privacy.noise.source import NoiseSource


class Step:
    """One step of a run: a batch, and noise for one sum over it."""

    def __init__(self, batch: Batch, noise_std: float, source: NoiseSource) -> None:
        self.batch = batch
        self._noise_std = noise_std
        self._source = source
        self._is_open = True
        self._noise: _Drawn | None = None

    def prepare(self, shape: int | tuple[int, ...], dtype: DTypeLike = np.float64) -> None:
        """Start to draw the noise in another thread, while the sum is computed. The noise does not depend on it."""
        if self._is_open and self._noise is None:
            self._noise = _Drawn(lambda: self._source.gaussian(shape, self._noise_std, dtype))

    def noisy(self, total: NDArray[Any]) -> NDArray[Any]:
        """Return the sum over the batch with its noise. Raise on a second call, which the plan does not account for."""
        if not self._is_open:
            raise PlanError(
                "noisy() was called twice in one step, or after the step ended. The plan accounts for one noisy sum "
                "per step."
            )
        self._is_open = False
        drawn = self._noise
        noise = self._source.gaussian(total.shape, self._noise_std, total.dtype) if drawn is None else drawn.result()
        if noise.shape != total.shape or noise.dtype != total.dtype:
            raise PlanError(
                f"the noise was prepared for a sum of shape {noise.shape} and type {noise.dtype}, but the sum has "
                f"shape {total.shape} and type {total.dtype}"
            )
        noise += total
        return noise

    def close(self) -> None:
        """End the step: its noise can no longer be drawn."""
        self._is_open = False
        if self._noise is not None:
            self._noise.wait()  # the next batch is drawn from the same source


class _Drawn:
    """Noise that is being drawn in a separate thread."""

    def __init__(self, draw: Callable[[], NDArray[Any]]) -> None:
        self._outcome: NDArray[Any] | BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(draw,), daemon=True)
        self._thread.start()

    def _run(self, draw: Callable[[], NDArray[Any]]) -> None:
        try:
            self._outcome = draw()
        except BaseException as error:
            self._outcome = error

    def wait(self) -> None:
        """Wait until the noise is drawn."""
        self._thread.join()

    def result(self) -> NDArray[Any]:
        """Return the noise, once. Raise here what was raised in the thread."""
        self.wait()
        outcome, self._outcome = self._outcome, None
        if isinstance(outcome, BaseException):
            raise outcome
        assert outcome is not None
        return outcome


class PlanError(RuntimeError):
    """Raised when a run asks for more than its plan accounts for."""
