"""Privacy amplification by iteration: the privacy of the last iterate of noisy contractive steps.

Only the last iterate may be released, and the steps must be Lipschitz maps, as those of convex and smooth losses are.
The mathematics is in :mod:`privet.privacy.analyses.taut_string` and :mod:`privet.privacy.analyses.fixed_order`.
"""

import numpy as np
from numpy.typing import NDArray

from privet.privacy.analyses.taut_string import last_iterate_mu
from privet.privacy.events import LastIterate

__all__ = ["last_iterate_mu", "per_record_epsilon"]


def per_record_epsilon(
    n: int,
    passes: int = 1,
    *,
    noise_multiplier: float,
    delta: float,
    size: int = 1,
    public: int = 0,
    contraction: float = 1.0,
) -> NDArray[np.float64]:
    """Return the epsilon of every record of a fixed public order, last iterate only, under replace-one adjacency.

    Parameters
    ----------
    n, passes, size : int
        Records, passes over them in the same order, records per step.
    noise_multiplier : float
        Noise on the sum of a batch, over the bound C of one record's gradient.
    delta : float
    public : int
        Number of public records, visited after the private ones in each pass, ``size`` per step.
    contraction : float
        Lipschitz constant of a step: 1 for convex losses and step sizes up to 2/smoothness.

    Formal guarantees
    -----------------
    Record i is (epsilon_i, delta)-DP: datasets that differ at position i alone. The order of the records must not
    depend on their content, as it does in a sorted table. The steps must be as in :func:`last_iterate_mu`. "Privacy
    Amplification by Iteration", Theorems 23 and 35, are the cases of one and of n passes, with the exact conversion to
    epsilon.
    """
    event = LastIterate(noise_multiplier, n=n, passes=passes, size=size, public=public, contraction=contraction)
    epsilons = event.record_epsilons(delta)
    assert epsilons is not None  # They are known for every order without a secret.
    return epsilons
