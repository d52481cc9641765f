"""The game of a planted bug: a scenario, the function that plants a bug in it, and the attack with and without it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from privet.audit import Distinguished, distinguish, from_outputs
from privet.privacy import Guarantee, NoiseSource

SHARES = (1 / 8, 1 / 3, 1 / 2, 2 / 3, 1)  # of all runs, after which the attack is tried
FEWEST = 100  # runs after which the attack is tried for the first time; an audit accepts no fewer


@dataclass(frozen=True)
class Game:
    """A mechanism, two neighbouring datasets, and the claimed guarantee; ``outputs`` computes all runs at once."""

    guarantee: Guarantee
    first: Any
    second: Any
    mechanism: Callable[[Any, NoiseSource], Any] | None = None
    outputs: Callable[[Any, NoiseSource, int], Any] | None = None
    runs: int = 1000

    def play(self, name: str, confidence: float) -> Distinguished:
        """Return the result of the attack on all runs."""
        source, options = self._settings(name, confidence)
        if self.outputs is not None:
            made = [self.outputs(dataset, source, self.runs) for dataset in (self.first, self.second)]
            return from_outputs(*made, **options)
        return distinguish(self.mechanism, self.first, self.second, runs=self.runs, source=source, **options)

    def play_until_flagged(self, name: str, confidence: float) -> Distinguished:
        """Return the result of the attack after few runs if it flags a violation, and else after more, up to all."""
        if self.mechanism is None:
            return self.play(name, confidence)
        source, options = self._settings(name, confidence)
        outputs: list[list[Any]] = [[], []]
        for share in SHARES:
            while len(outputs[-1]) < max(int(share * self.runs), FEWEST):
                for made, dataset in zip(outputs, (self.first, self.second), strict=True):
                    made.append(np.ravel(self.mechanism(dataset, source)))
            found = from_outputs(*map(np.array, outputs), **options)
            if found.is_violation:
                break
        return found

    def _settings(self, name: str, confidence: float) -> tuple[NoiseSource, dict[str, Any]]:
        source = NoiseSource(2024, purpose=f"planted bugs: {name}")
        return source, {"guarantee": self.guarantee, "confidence": confidence, "name": name}


Plant = Callable[[pytest.MonkeyPatch], dict[str, Any] | None]


@dataclass(frozen=True)
class Bug:
    """A scenario and a function that plants a bug in it, by patches or by returning arguments for the scenario."""

    scenario: Callable[..., Game]
    plant: Plant


class Bugs(dict[str, Bug]):
    """The bugs of a file, by name."""

    def planted(self, scenario: Callable[..., Game]) -> Callable[[Plant], Plant]:
        """Return a decorator that registers a function which plants a bug in a scenario."""

        def register(plant: Plant) -> Plant:
            self[plant.__name__] = Bug(scenario, plant)
            return plant

        return register

    def play(self, name: str, monkeypatch: pytest.MonkeyPatch) -> Distinguished:
        """Return the result of the attack on the scenario with a bug. Most bugs are flagged before the last run."""
        bug = self[name]
        return bug.scenario(**(bug.plant(monkeypatch) or {})).play_until_flagged(name, self._confidence)

    def play_without(self, scenario: Callable[..., Game]) -> Distinguished:
        """Return the result of the attack on the scenario without a bug."""
        return scenario().play(scenario.__name__, self._confidence)

    @property
    def _confidence(self) -> float:
        """Confidence of one game, such that all games together have a confidence of 95 %."""
        return 1 - 0.05 / len(self)


def scaled_noise(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    """Scale the Gaussian noise of all releases by ``factor``."""
    add_gaussian = NoiseSource.add_gaussian

    def less(self: NoiseSource, values: Any, std: float, *options: Any) -> Any:
        return add_gaussian(self, values, factor * std, *options) if factor else values.copy()

    monkeypatch.setattr(NoiseSource, "add_gaussian", less)


def fixed_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start every source from the same seed, except that of the game itself."""
    start = NoiseSource._start

    def always_the_same(self: NoiseSource) -> None:
        if not self.purpose.startswith("planted"):
            self._seed = 0
        start(self)

    monkeypatch.setattr(NoiseSource, "_start", always_the_same)
