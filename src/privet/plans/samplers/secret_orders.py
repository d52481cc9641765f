"""Fixed orders with a secret: where the run stops, how much it skips, or which order it is.

Chance helps because no one can choose a place beforehand; the analysis covers telling what was drawn. It does so only
where the last iterate alone is released: with all of them released the accounting is that of a known order.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from privet.plans.samplers.samplers import Batch, FixedOrder
from privet.privacy.events import Secret
from privet.privacy.noise.source import NoiseSource


@dataclass(frozen=True)
class RandomStop(FixedOrder):
    """One pass that ends after a uniformly random number of steps: Stop-PNSGD."""

    secret: ClassVar[Secret] = Secret.STOP

    def __post_init__(self) -> None:
        super().__post_init__()
        _one_pass(self)
        if self.public:
            raise ValueError("RandomStop may stop before public units are reached: it takes none")

    def batches(self, n: int, steps: int, source: NoiseSource) -> Iterator[Batch]:
        """Yield the batches up to the stop, which no one is told."""
        stop = 1 + source.below(self.implied_steps)
        for done, batch in enumerate(super().batches(n, steps, source)):
            if done == stop:
                return
            yield batch

    def in_words(self) -> str:
        """Say so."""
        return f"{super().in_words()}, up to a random step that is kept secret"


@dataclass(frozen=True)
class RandomSkip(FixedOrder):
    """One pass that begins at a uniformly random step of its first half: Skip-PNSGD; with ``public``, Corollary 31."""

    secret: ClassVar[Secret] = Secret.SKIP

    def __post_init__(self) -> None:
        super().__post_init__()
        _one_pass(self)

    def batches(self, n: int, steps: int, source: NoiseSource) -> Iterator[Batch]:
        """Yield the batches that are not skipped."""
        skipped = source.below(self.implied_steps // 2 + 1)
        for place, batch in enumerate(super().batches(n, steps, source)):
            if place >= skipped:
                yield batch

    def in_words(self) -> str:
        """Say so."""
        return f"{super().in_words()}, from a random step of the first half that is kept secret"


@dataclass(frozen=True)
class SecretOrder(FixedOrder):
    """A uniformly random order, the same in every pass, which no one is told."""

    secret: ClassVar[Secret] = Secret.ORDER

    def batches(self, n: int, steps: int, source: NoiseSource) -> Iterator[Batch]:
        """Yield the same random batches in every pass, public units after them."""
        self.check_n(n)
        order = source.permutation(self.n)
        for _ in range(self.passes):
            for batch in self._pass():
                yield order[batch] if batch.start < self.n else batch

    def in_words(self) -> str:
        """Say so."""
        return super().in_words().replace("a fixed public order", "one uniformly random order that is kept secret")


def _one_pass(order: FixedOrder) -> None:
    if order.passes > 1:
        raise ValueError(f"{type(order).__name__} makes one pass: leave passes out")
