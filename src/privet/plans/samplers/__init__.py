"""Samplers: how a step chooses its units, together with the event that accounts for the choice."""

from privet.plans.samplers.base import ALL, Batch, FullBatch, Sampler, common_adjacency
from privet.plans.samplers.fixed_order import FixedOrder
from privet.plans.samplers.fixed_size import FixedSize, OneUniform
from privet.plans.samplers.named import SAMPLINGS, named_sampler
from privet.plans.samplers.poisson import Poisson
from privet.plans.samplers.secret_orders import RandomSkip, RandomStop, SecretOrder

__all__ = [
    "ALL",
    "SAMPLINGS",
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
    "common_adjacency",
    "named_sampler",
]
