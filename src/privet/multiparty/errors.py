"""What can go wrong between parties. Each error names the party, its address, the cause and what to do."""


class NetworkError(RuntimeError):
    """The parties could not come together, or did not stay together."""


class PortInUseError(NetworkError):
    """A party cannot listen at its own address."""


class PartyMissingError(NetworkError):
    """Somebody did not arrive in time."""

    def __init__(self, message: str, parties: tuple[int, ...]) -> None:
        super().__init__(message)
        self.parties = parties


class PartyRefusedError(NetworkError):
    """Two parties reached each other, and one does not take the other for what it should be."""

    def __init__(self, message: str, party: int) -> None:
        super().__init__(message)
        self.party = party


class PartyLostError(NetworkError):
    """A connection that stood is gone: the other process ended, or the network between broke."""

    def __init__(self, message: str, party: int) -> None:
        super().__init__(message)
        self.party = party


class PartySilentError(NetworkError):
    """A connection stands, and nothing has come over it for too long."""

    def __init__(self, message: str, parties: tuple[int, ...]) -> None:
        super().__init__(message)
        self.parties = parties


class StoppedError(NetworkError):
    """A party gave up and said why."""

    def __init__(self, party: int, cause: str) -> None:
        super().__init__(f"party {party}: {cause}")
        self.party, self.cause = party, cause
