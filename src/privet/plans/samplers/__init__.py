"""Samplers: how a step chooses its units, next to the event that the choice makes."""

from privet.plans.samplers.samplers import (
    ALL,
    Batch,
    FixedOrder,
    FixedSize,
    FullBatch,
    OneUniform,
    Poisson,
    Sampler,
)
from privet.plans.samplers.secret_orders import RandomSkip, RandomStop, SecretOrder

__all__ = [
    "ALL",
    "Batch",
    "FixedOrder",
    "FixedSize",
    "FullBatch",
    "OneUniform",
    "Poisson",
    "RandomSkip",
    "RandomStop",
    "Sampler",
    "SecretOrder",
]
