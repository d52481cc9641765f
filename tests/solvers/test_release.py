import dataclasses

import numpy as np
import pytest

from privet.plans import FullBatch, GradientPlan
from privet.solvers import Release, Run


def test_a_release_is_frozen_and_starts_without_a_trace():
    guarantee = Run(GradientPlan(FullBatch(), 1, 1.0, 1.0, delta=1e-5)).guarantee()
    release = Release(np.zeros(2), guarantee)
    assert release.trace == {}
    with pytest.raises(dataclasses.FrozenInstanceError):
        release.guarantee = None
