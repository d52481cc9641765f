"""What a round with a committee costs: bytes, seconds of computation, and noise."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from privet.federated.committee.plan import CommitteePlan
from privet.multiparty.protocol.joint_randomness import JointRandomness
from privet.privacy import NoiseSource
from privet.privacy.noise.k_norm import KNormLaw

_HEADER = 53  # bytes of a contribution beside its share
_KEY = 33  # bytes of a share that is expanded from a key
_NUMBER = 8  # bytes of a number in a share, and in an answer
_RECORD = 24  # bytes that a server tells the others about each client
_SECONDS_PER_BIT = 1.8e-6  # three servers on one machine of two cores; see docs/federated.md
_MEASURED = 100_000  # weights for which computations are measured. Larger models are extrapolated.


@dataclass(frozen=True)
class RoundPrice:
    """The price of one round, for the nominal number of clients.

    Bytes are computed from the formats of the messages, without TLS, HTTP/2 and TCP.

    Attributes
    ----------
    bytes_per_client : int
        What a client sends to all servers together.
    bytes_per_server : int
        What a server receives from all clients together, on average over the servers.
    bytes_between_servers : int
        What all servers together send to each other.
    bytes_to_coordinator : int
        What all servers together send to the coordinator.
    noise_factor : float
        Standard deviation of the noise, relative to that of one central mechanism.
    """

    bytes_per_client: int
    bytes_per_server: int
    bytes_between_servers: int
    bytes_to_coordinator: int
    noise_factor: float
    plan: CommitteePlan = field(repr=False)

    @classmethod
    def of(cls, plan: CommitteePlan) -> "RoundPrice":
        """Return the price of one round of a plan."""
        committee, dimension = plan.committee, plan.sums.dimension
        servers, clients = committee.servers, plan.divisor(plan.n_clients)
        whole = 1 + _NUMBER * dimension
        pairs = servers * (servers - 1)
        if committee.trust == "one":
            per_client = servers * _HEADER + whole + (servers - 1) * _KEY
            jointly = 0
        else:
            per_client = servers * (_HEADER + whole)
            bits = dimension * plan.sums.law.recipe().bits_drawn
            width = -(-(2 * int(plan.sums.reach) + 1).bit_length() // 8)
            jointly = round(pairs * bits * width * JointRandomness.numbers_per_bit(servers))
        return cls(
            bytes_per_client=per_client,
            bytes_per_server=round(clients * per_client / servers),
            bytes_between_servers=round(pairs * (whole + _RECORD * clients) + jointly),
            bytes_to_coordinator=servers * _NUMBER * (1 + dimension),
            noise_factor=committee.noise_factor(),
            plan=plan,
        )

    def seconds(self) -> tuple[float, float]:
        """Measure the seconds of computation of a client and of a server, on one core of this machine.

        A client splits its update into shares. A server reads and adds shares, and draws noise. With trust "majority",
        the joint noise is extrapolated from a measurement with three servers. The network is not included.
        """
        plan = self.plan
        splitting, per_share, noise = _measured(plan)
        if plan.committee.trust == "majority":
            noise = plan.sums.dimension * plan.sums.law.recipe().bits_drawn * _SECONDS_PER_BIT
        return splitting, plan.divisor(plan.n_clients) * per_share + noise

    def __str__(self) -> str:
        return (
            f"per round: {self.bytes_per_client:,} bytes from each client; {self.bytes_per_server:,} bytes to each "
            f"server; {self.bytes_between_servers:,} bytes between servers; {self.noise_factor:.3g} times the noise of "
            "one central mechanism"
        )


def _measured(plan: CommitteePlan) -> tuple[float, float, float]:
    """Return the seconds for splitting an update, for reading and adding one share, and for one noise."""
    source = NoiseSource()
    size = min(plan.sums.dimension, _MEASURED)
    law = plan.sums.law
    small = replace(plan.sums, dimension=size, law=replace(law, dimension=size) if isinstance(law, KNormLaw) else law)
    larger = plan.sums.dimension / size
    total, key = np.zeros(size, dtype=np.uint64), source.key()

    def expand() -> None:
        np.add(total, NoiseSource.expanded(key, size), out=total)

    expanding = _seconds(expand)
    drawing = _seconds(lambda: small.noisy(np.zeros(size, dtype=np.int64), source))
    return larger * expanding * (plan.committee.servers - 1), larger * expanding, larger * drawing


def _seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin
