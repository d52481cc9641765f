"""A release without noise has no epsilon, and takes the epsilon of everything that is released with it."""

import math

import pytest

from privet.privacy import Adjacency
from privet.privacy.analyses.accounting import epsilon, gaussian_mu
from privet.privacy.events import (
    ApproximateRelease,
    Composition,
    GaussianRelease,
    NearlyGaussian,
    Noiseless,
    PoissonGaussian,
    PureRelease,
)

EXAMPLES = [Noiseless()]


@pytest.mark.parametrize("delta", [0.0, 1e-6, 0.999])
@pytest.mark.parametrize("analysis", ["tightest", "rdp", "pld", "unsampled"])
@pytest.mark.parametrize(
    "others",
    [
        (),
        (Noiseless(),),
        (GaussianRelease(0.1),),
        (PureRelease(0.1),),
        (ApproximateRelease(0.0, 0.5),),
        (NearlyGaussian(0.1, 1e-9), GaussianRelease(0.0)),
        (PoissonGaussian(5.0, 1e-6, 1),),
    ],
    ids=str,
)
def test_nothing_makes_its_epsilon_finite(others, analysis, delta):
    event = Composition((*others, Noiseless()))
    assert epsilon(event, Adjacency.ADD_OR_REMOVE, delta, analysis=analysis) == math.inf
    assert gaussian_mu(event, Adjacency.ADD_OR_REMOVE) is None
