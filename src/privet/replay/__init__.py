"""Audit by replay: one run on each of two neighbouring datasets, with the same samples and the same released values."""

from privet.replay.replay import Replayed, replay
from privet.replay.units import Units

__all__ = ["Replayed", "Units", "replay"]
