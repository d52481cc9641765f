"""Errors of the network between parties. Each message names the party, its address, the cause and the remedy."""


class NetworkError(RuntimeError):
    """The parties could not connect, or their connection was lost."""


class PortInUseError(NetworkError):
    """A party cannot listen on its own port."""


class _PartyError(NetworkError):
    """An error with one party, whose index is ``party``."""

    def __init__(self, message: str, party: int) -> None:
        super().__init__(message)
        self.party = party


class _PartiesError(NetworkError):
    """An error with at least one party. The indices are ``parties``."""

    def __init__(self, message: str, parties: tuple[int, ...]) -> None:
        super().__init__(message)
        self.parties = parties


class PartyMissingError(_PartiesError):
    """At least one party did not connect in time."""


class PartySilentError(_PartiesError):
    """A connection exists, but nothing arrived over it within the timeout."""


class PartyRefusedError(_PartyError):
    """Two parties reached each other, but one of them does not accept the other."""


class PartyLostError(_PartyError):
    """An existing connection was lost because the other process ended or the network failed."""


class StoppedError(NetworkError):
    """A party stopped the computation and said why."""

    def __init__(self, party: int, cause: str) -> None:
        super().__init__(f"party {party}: {cause}")
        self.party, self.cause = party, cause
