"""Random batches by the name of their sampling, as deep and federated training let users choose them."""

from privet.plans.samplers.base import Sampler
from privet.plans.samplers.fixed_size import FixedSize
from privet.plans.samplers.poisson import Poisson

SAMPLINGS = ("poisson", "uniform")


def named_sampler(sampling: str, size: int, n: int) -> Sampler:
    """Return the sampler of batches of ``size`` of ``n`` units: on average (poisson), or exactly (uniform)."""
    if sampling not in SAMPLINGS:
        raise ValueError(f"sampling must be one of {', '.join(SAMPLINGS)}, got {sampling!r}.")
    return FixedSize(size, n) if sampling == "uniform" else Poisson(size / n)
