"""Private releases as data: what was released, in the form that composes. One file per family of events.

To add an event, write a file with a frozen dataclass that inherits from :class:`~privet.privacy.events.base.Event`,
and import it here. ``tests/privacy/events/test_answers.py`` checks that it answers every question of the analyses.
"""

from privet.privacy.events.base import Composition, Event, GaussianRelease, NearlyGaussian, Unsampled, event_from_dict
from privet.privacy.events.fixed_size import FixedSizeGaussian
from privet.privacy.events.last_iterate import LastIterate, Secret
from privet.privacy.events.noiseless import Noiseless
from privet.privacy.events.poisson import PoissonGaussian
from privet.privacy.events.pure import ApproximateRelease, PureRelease

__all__ = [
    "ApproximateRelease",
    "Composition",
    "Event",
    "FixedSizeGaussian",
    "GaussianRelease",
    "LastIterate",
    "NearlyGaussian",
    "Noiseless",
    "PoissonGaussian",
    "PureRelease",
    "Secret",
    "Unsampled",
    "event_from_dict",
]
