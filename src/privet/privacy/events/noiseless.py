"""Releases without noise, which protect nobody."""

import math
from dataclasses import dataclass
from typing import ClassVar

from privet.privacy.budget import Adjacency
from privet.privacy.events.base import Event, Unsampled


@dataclass(frozen=True)
class Noiseless(Event):
    """A release without noise, made for comparison. It has no finite epsilon, alone or together with others."""

    has_noise: ClassVar[bool] = False

    def unsampled(self, adjacency: Adjacency) -> Unsampled:
        """Return an infinite epsilon."""
        return Unsampled(epsilon=math.inf)
