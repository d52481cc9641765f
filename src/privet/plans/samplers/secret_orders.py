"""Fixed orders with a secret: where the run stops, how many steps it skips, or the order itself.

The secret helps because an attacker cannot choose the position of a record beforehand. A stop or skip may become known
later, and so may an order, if the order of the data does not depend on its content (docs/proofs.md, section 3). The
analysis holds only if nothing but the last iterate is released; if all iterates are
released, the accounting is that of a public order.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import ClassVar

from privet.plans.samplers.base import Batch
from privet.plans.samplers.fixed_order import FixedOrder
from privet.privacy.events import Secret
from privet.privacy.noise.source import NoiseSource


@dataclass(frozen=True, repr=False)
class RandomStop(FixedOrder):
    """One pass that ends after a uniformly random number of steps: Stop-PNSGD."""

    name = "random stop"
    secret: ClassVar[Secret] = Secret.STOP

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_one_pass(self)
        if self.public:
            raise ValueError(
                f"RandomStop may stop before it reaches the {self.public} public units. Use public=0, or RandomSkip."
            )

    def batches(self, n: int, steps: int, source: NoiseSource) -> Iterator[Batch]:
        """Yield the batches up to the secret stop."""
        yield from islice(super().batches(n, steps, source), 1 + source.below(self.implied_steps))

    def in_words(self) -> str:
        """Return a phrase for the guarantee that says how batches are drawn."""
        return f"{super().in_words()}, up to a random step that is kept secret"


@dataclass(frozen=True, repr=False)
class RandomSkip(FixedOrder):
    """One pass that begins at a uniformly random step of its first half: Skip-PNSGD.

    With ``public`` units it is the algorithm of Corollary 31 of "Privacy Amplification by Iteration".
    """

    name = "random skip"
    secret: ClassVar[Secret] = Secret.SKIP

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_one_pass(self)

    def batches(self, n: int, steps: int, source: NoiseSource) -> Iterator[Batch]:
        """Yield the batches that are not skipped."""
        yield from islice(super().batches(n, steps, source), source.below(self.implied_steps // 2 + 1), None)

    def in_words(self) -> str:
        """Return a phrase for the guarantee that says how batches are drawn."""
        return f"{super().in_words()}, from a random step of the first half that is kept secret"


@dataclass(frozen=True, repr=False)
class SecretOrder(FixedOrder):
    """A uniformly random order that is kept secret and is the same in every pass.

    It runs as ``FixedOrder(..., shuffled=True)`` does. If only the last iterate is released, the accounting averages
    over the places that a unit may have, while that of ``FixedOrder`` takes the worst.
    """

    shuffled: bool = field(default=True, init=False)

    name = "secret order"
    secret: ClassVar[Secret] = Secret.ORDER


def _check_one_pass(order: FixedOrder) -> None:
    if order.passes > 1:
        raise ValueError(
            f"{type(order).__name__} makes one pass, and passes = {order.passes} was given: leave passes out"
        )
