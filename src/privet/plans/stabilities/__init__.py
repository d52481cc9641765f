"""Stabilities: how far the result of a computation can move when one unit of the data changes."""

from privet.plans.stabilities.base import Stability
from privet.plans.stabilities.descent import DescentStability
from privet.plans.stabilities.disjoint import DisjointStability
from privet.plans.stabilities.histogram import HistogramStability
from privet.plans.stabilities.minimiser import MinimiserStability
from privet.plans.stabilities.moments import MomentStability
from privet.plans.stabilities.transfer import TransferStability

__all__ = [
    "DescentStability",
    "DisjointStability",
    "HistogramStability",
    "MinimiserStability",
    "MomentStability",
    "Stability",
    "TransferStability",
]
