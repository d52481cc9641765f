"""One file per loss. A loss declares its own constants; no other module needs to know its name.

To add a loss, write a file here, import it below, and add its row to docs/losses.md. The tests in
tests/objectives/test_declared_constants.py then check every constant that it declares.
"""

from privet.objectives.losses.gaussian_absolute import GaussianAbsolute
from privet.objectives.losses.gaussian_hinge import GaussianHinge
from privet.objectives.losses.huber import Huber
from privet.objectives.losses.logistic import Logistic
from privet.objectives.losses.multinomial import Multinomial
from privet.objectives.losses.poisson import Poisson
from privet.objectives.losses.smoothed_hinge import SmoothedHinge
from privet.objectives.losses.squared import Squared
from privet.objectives.losses.tamed_logistic import TamedLogistic

__all__ = [
    "GaussianAbsolute",
    "GaussianHinge",
    "Huber",
    "Logistic",
    "Multinomial",
    "Poisson",
    "SmoothedHinge",
    "Squared",
    "TamedLogistic",
]
