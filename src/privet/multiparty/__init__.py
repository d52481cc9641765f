"""Several data owners, one model: computations among parties that show each other nothing but the result."""

from privet.multiparty.errors import (
    NetworkError,
    PartyLostError,
    PartyMissingError,
    PartyRefusedError,
    PartySilentError,
    PortInUseError,
    StoppedError,
)
from privet.multiparty.keys import Identity, make_keys, verify
from privet.multiparty.network import Network
from privet.multiparty.session import Session

__all__ = [
    "Identity",
    "Network",
    "NetworkError",
    "PartyLostError",
    "PartyMissingError",
    "PartyRefusedError",
    "PartySilentError",
    "PortInUseError",
    "Session",
    "StoppedError",
    "make_keys",
    "verify",
]
