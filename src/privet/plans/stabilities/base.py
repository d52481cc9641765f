"""What every stability argument answers."""

from typing import Protocol

from privet.privacy.budget import Adjacency


class Stability(Protocol):
    """A computation whose result moves by at most ``sensitivity`` between neighbouring datasets."""

    @property
    def sensitivity(self) -> float:
        """Largest l2 distance between the results on two neighbouring datasets."""
        ...

    @property
    def adjacency(self) -> Adjacency:
        """The notion of neighbouring datasets."""
        ...

    def in_words(self) -> str:
        """Return a phrase for the guarantee that states the argument."""
        ...
