"""Errors of the network between parties. Each message names the party, its address, the cause and the remedy."""


class NetworkError(RuntimeError):
    """The parties could not connect, or their connection was lost."""


class PortInUseError(NetworkError):
    """A party cannot listen on its own port."""


class PartyMissingError(NetworkError):
    """At least one party did not connect in time."""

    def __init__(self, message: str, parties: tuple[int, ...]) -> None:
        super().__init__(message)
        self.parties = parties


class PartyRefusedError(NetworkError):
    """Two parties reached each other, but one of them does not accept the other."""

    def __init__(self, message: str, party: int) -> None:
        super().__init__(message)
        self.party = party


class PartyLostError(NetworkError):
    """An existing connection was lost because the other process ended or the network failed."""

    def __init__(self, message: str, party: int) -> None:
        super().__init__(message)
        self.party = party


class PartySilentError(NetworkError):
    """A connection exists, but nothing arrived over it within the timeout."""

    def __init__(self, message: str, parties: tuple[int, ...]) -> None:
        super().__init__(message)
        self.parties = parties


class StoppedError(NetworkError):
    """A party stopped the computation and said why."""

    def __init__(self, party: int, cause: str) -> None:
        super().__init__(f"party {party}: {cause}")
        self.party, self.cause = party, cause
