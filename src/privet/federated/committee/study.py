"""What the servers, the coordinator and the clients of federated rounds agree on before the first round."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from privet.checks import count
from privet.federated.committee.plan import CommitteePlan
from privet.multiparty.participants import PartyInfo, check_second_ports

_PROTOCOL = "privet federated committee 1"
_LONGEST = 1 << 24  # bytes that servers can send each other in one message


@dataclass(frozen=True)
class FederatedStudy:
    """Everything that is public about rounds with a committee. All members hold an equal one.

    Parameters
    ----------
    name : str
        Name of the study. Use another one if the same plan is run again.
    plan : CommitteePlan
        The plan of the rounds, made by :func:`~privet.federated.committee_plan` from the same numbers everywhere.
    addresses : sequence of (host, port)
        Where the servers listen for clients, in order. Servers reach each other at the next port, so two servers on
        one host must not have adjacent ports.
    fewest : int
        The servers open nothing, and stop, if fewer clients have handed in. With 0, rounds without clients open noise.
    """

    name: str
    plan: CommitteePlan
    addresses: tuple[tuple[str, int], ...]
    fewest: int = 1

    def __post_init__(self) -> None:
        addresses = tuple((str(host), int(port)) for host, port in self.addresses)
        object.__setattr__(self, "addresses", addresses)
        if len(addresses) != self.plan.committee.servers:
            raise ValueError(f"The plan has {self.plan.committee.servers} servers, got {len(addresses)} addresses.")
        check_second_ports([PartyInfo(f"server {index}", *each) for index, each in enumerate(addresses)])
        count("fewest", self.fewest, at_least=0, at_most=self.plan.n_clients)
        dimension = self.plan.sums.dimension
        if 1 + 8 * dimension > _LONGEST:
            raise ValueError(
                f"A committee opens sums of at most {_LONGEST // 8 - 1} weights, but the model has {dimension}. Train "
                "fewer layers, or use a smaller model."
            )

    @property
    def digest(self) -> str:
        """SHA-256 of the study. Members with other settings, or whose libraries compute another plan, are refused."""
        text = repr((_PROTOCOL, self.name, self.plan, self.addresses, self.fewest))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def coordinator(self) -> int:
        """The index of the coordinator, who has the key after that of the last client."""
        return self.plan.n_clients

    def make_keys(self, folder: str | os.PathLike[str], days: float = 365) -> Path:
        """Make the keys of all members in a new folder: ``party_<i>`` for servers, ``owner_<i>`` for clients.

        The coordinator is the last owner. Whoever has this folder can pretend to be every server. Let somebody make it
        whom all clients trust, and who deletes it once everybody has their own three files.
        """
        from privet.multiparty import make_keys

        servers = [f"server {index}" for index in range(len(self.addresses))]
        return make_keys(folder, servers, days, owners=[*_names(self.plan.n_clients), "coordinator"])


def _names(clients: int) -> Sequence[str]:
    return [f"client {client}" for client in range(clients)]
