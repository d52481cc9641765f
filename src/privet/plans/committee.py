"""Who adds up the contributions of many, and who must be trusted with that: a committee of servers."""

import math
from dataclasses import dataclass

from privet.privacy.guarantees.guarantee import Assumption, assumed

TRUSTS = ("majority", "one")
MOST_SERVERS = 7
_OWNERS = (
    ". Whoever can use the key of the study's authority, or the keys of other servers, counts as those servers. Who "
    "took part, and with how many rows, is public. The guarantee is therefore that of composition, without "
    "amplification by sampling owners"
)


@dataclass(frozen=True)
class Committee:
    """Servers that receive shares of vectors, and open nothing but noisy sums of them.

    Parameters
    ----------
    trust : {"one", "majority"}
        Whether one honest server is enough, at the price of more noise, or all servers must follow the protocol and
        fewer than half of them may combine what they see.
    servers : int
        The number of servers.
    """

    trust: str = "one"
    servers: int = 2

    def check(self) -> None:
        """Raise ValueError unless so many servers can offer this kind of trust."""
        if self.trust not in TRUSTS:
            raise ValueError(f"trust must be one of {', '.join(TRUSTS)}, got {self.trust!r}")
        fewest = 3 if self.trust == "majority" else 2
        if not fewest <= self.servers <= MOST_SERVERS:
            remedy = ' Add a server, or set trust = "one".' if (self.trust, self.servers) == ("majority", 2) else ""
            raise ValueError(
                f'trust = "{self.trust}" needs {fewest} to {MOST_SERVERS} servers, got {self.servers}.{remedy}'
            )

    @property
    def noises(self) -> int:
        """How many independent noises, each that of one central mechanism, a sum gets."""
        return self.servers if self.trust == "one" else 1

    def noise_factor(self) -> float:
        """Return the standard deviation of the noise relative to that of one central mechanism."""
        return math.sqrt(self.noises)

    def condition(self, public: str = _OWNERS) -> Assumption:
        """Return who must be honest, as an assumption of a guarantee. ``public`` is appended to it."""
        if self.trust == "one":
            return assumed(
                f"at least one of the {self.servers} servers follows the protocol and keeps its shares and its noise "
                f"to itself, whatever the others do. Each server adds the noise of the whole plan, so the noise is "
                f"sqrt({self.servers}) times that of one central mechanism{public}"
            )
        most = (self.servers - 1) // 2
        return assumed(
            f"all {self.servers} servers follow the protocol, and no {most + 1} of them combine what they saw. A "
            "larger group could open every sum without its noise, and a server that deviates could reduce the noise "
            f"unnoticed{public}"
        )
